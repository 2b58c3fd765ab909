"""What callers are shown of a space: the space itself, its arms, its changes of interest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from whim.evaluate.anytime import anytime_rate
from whim.serve import wire
from whim.serve.log.reader import LogReader
from whim.serve.state.space import Space
from whim.serve.state.stats import ArmCounts, Stats

_NEVER = ArmCounts()


class Info(Struct, kw_only=True):
    """A space as callers see it.

    ``skipped`` are logged decisions, and items of lists, that are not learnt: they do not fit the
    configuration, or their arm was retired while they waited.
    """

    name: str
    version: int
    config: wire.SpaceConfig
    wanted: int  # the version requested last; being built while it differs
    rebuilding: bool
    failed: str | None  # why the version wanted could not be built
    arms: int
    waiting: int
    steps: int
    skipped: int = 0


class ShardView(Struct, omit_defaults=True):
    """A shard as this replica sees it.

    ``reason`` is there while what is written to its spaces is refused, and says why.
    """

    shard: str
    spaces: int
    leads: bool
    lag_rows: int
    lag_seconds: float
    reason: str | None = None


class RateView(Struct, kw_only=True):
    """A mean reward over ``plays`` with its 95 % interval, which holds however often it is read.

    The ends are null until there are enough rewards for one.
    """

    plays: int
    mean: float | None
    low: float | None
    high: float | None


class ArmView(Struct, kw_only=True):
    """An arm: how often shown and learnt, its mean reward with a 95 % interval, its trend.

    ``mean``, ``low`` and ``high`` are over all rewards, ``since_change`` over those after its last
    change: null if none was detected. ``trend`` is the mean reward in equal spans of time, the last
    one now.
    """

    arm: str | int
    decisions: int
    plays: int
    mean: float | None
    low: float | None
    high: float | None
    trend: list[float | None]
    last_change_at: str | None
    since_change: RateView | None = None


class ChangeView(Struct, kw_only=True):
    """A change: when it was detected and when it began, how sure, and what moved.

    ``plays`` and ``began`` count the arm's plays; ``features`` names the coefficients.
    """

    seq: int
    at: str
    space: str
    version: int
    arm: str | int | None
    step: int
    plays: int
    began: int | None
    statistic: float | None
    threshold: float | None
    p_value: float | None
    window: int
    group: str | int | None
    theta_before: list[float | None]
    theta_after: list[float | None]
    direction: list[float | None]
    features: list[str]
    probability: float | None = None
    kind: str | None = None


def moment(at: int) -> str:
    """Microseconds since 1970 as RFC 3339."""
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="milliseconds")


def _rate(n: int, total: float, squares: float) -> RateView:
    value, low, high = anytime_rate(n, total, squares)
    if not math.isfinite(low):
        return RateView(plays=n, mean=value if n else None, low=None, high=None)
    return RateView(plays=n, mean=value, low=low, high=high)


def arm_rates(stats: Stats, arm: str | int) -> tuple[RateView, RateView | None]:
    """An arm's rate over all of its rewards, and over those since its last change, if it had one.

    What the API and the dashboard show of an arm is this.
    """
    counts = stats.arms.get(arm, _NEVER)
    since = stats.since_change.sums(arm)
    overall = _rate(counts.closed, counts.total, counts.squares)
    return overall, None if since is None else _rate(*since)


def arm_views(space: Space, limit: int | None = None) -> Iterator[ArmView]:
    """The live arms of a space, those shown most first; the trends end with the last reward.

    Rows may be taken between two of them; an arm that was retired meanwhile is left out.
    """
    state = space.state  # also if another one serves before this ends
    policy, stats = state.policy, state.stats
    now = max((c.trend[-1][0] for c in stats.arms.values() if c.trend), default=0)
    at = now * stats.trend_width
    arms: list[Any] = sorted(policy.arms, key=lambda a: -stats.arms.get(a, _NEVER).decisions)
    for arm in arms[:limit]:
        if state.new_among((arm,)):
            continue
        counts = stats.arms.get(arm, _NEVER)
        rate, since = arm_rates(stats, arm)
        changed = max(counts.changed, stats.changed)
        yield ArmView(
            arm=arm, decisions=counts.decisions, plays=policy.plays(arm), mean=rate.mean,
            low=rate.low, high=rate.high, trend=stats.trend(counts, at) if counts.trend else [],
            last_change_at=moment(changed) if changed else None, since_change=since,
        )  # fmt: skip


def change_views(
    reader: LogReader, space: Space, since: int, most: int = 1000
) -> list[dict[str, Any]]:
    """Changes of a space after row ``since``, with the fields of ``ChangeView``."""
    version, names = space.state.version, space.state.context.names
    return [
        change_fields(space.name, version, names, event)
        for event in reader.changes(space.number, version, since, most)
    ]


def change_fields(
    space: str, version: int, names: list[str], change: tuple[int, int, dict[str, Any]]
) -> dict[str, Any]:
    """A change as it is stored, with the fields of ``ChangeView``; ``names`` of the features."""
    seq, at, event = change
    features = names if len(names) == len(event["theta_before"]) else []
    at_text = moment(at)
    return {"seq": seq, "at": at_text, "space": space, "version": version, **event} | {
        "features": features
    }
