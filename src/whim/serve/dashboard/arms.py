"""A page of a space's arms, in any order, without holding up decisions."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from typing import Any

from whim.serve.dashboard import rates
from whim.serve.dashboard.changes import arm_query, arm_text
from whim.serve.dashboard.drawing import spark
from whim.serve.dashboard.ranges import ALL, Range
from whim.serve.dashboard.views import time_of
from whim.serve.jobs.whatif import finite
from whim.serve.state.engine import Engine
from whim.serve.state.stats import ArmCounts, Stats
from whim.serve.state.views import RateView, arm_rates

PER_PAGE = 50
DEEPEST = 40  # pages that can be turned to; further arms: by name, or in another order
_CHUNK = 200  # arms looked at before others have their turn
_CHUNK_IN_TIME = 25  # the same, of a part of their time
_NEVER = ArmCounts()
Key = Callable[[str | int, Stats], Any]


def _of(arm: str | int, stats: Stats) -> ArmCounts:
    return stats.arms.get(arm, _NEVER)


def _width(rate: RateView) -> float | None:
    return None if rate.low is None or rate.high is None else rate.high - rate.low


def _since(arm: str | int, stats: Stats) -> float | None:
    since = stats.since_change.sums(arm)
    return since[1] / since[0] if since and since[0] else None


SORTS: dict[str, Key] = {
    "arm": lambda arm, stats: arm_text(arm),
    "decisions": lambda arm, stats: _of(arm, stats).decisions,
    "plays": lambda arm, stats: _of(arm, stats).closed,
    "mean": lambda arm, stats: _of(arm, stats).mean(),
    "width": lambda arm, stats: _width(arm_rates(stats, arm)[0]),
    "since": _since,
    "changed": lambda arm, stats: max(_of(arm, stats).changed, stats.changed),
}


class _Part:
    """What each arm did in a part of its time, computed when it is asked for."""

    def __init__(self, stats: Stats, wait: float, at: int, span: tuple[int, int]) -> None:
        self._stats, self._how = stats, (wait, at, span)
        self._known: dict[str | int, tuple[int, RateView]] = {}

    def __call__(self, arm: str | int) -> tuple[int, RateView]:
        """How often it was shown, and its rate over what is settled of that."""
        if arm not in self._known:
            bins, _, shown = rates.arm_within(self._stats, arm, *self._how)
            plays, rate = rates.for_one_look(bins)
            value, low, high = finite(rate)
            view = RateView(plays=plays, mean=value, low=low, high=high)
            self._known[arm] = shown, view
        return self._known[arm]

    @property
    def sorts(self) -> dict[str, Key]:
        """Orders of arms by this part of their time."""
        return SORTS | {
            "decisions": lambda arm, stats: self(arm)[0],
            "plays": lambda arm, stats: self(arm)[1].plays,
            "mean": lambda arm, stats: self(arm)[1].mean,
            "width": lambda arm, stats: _width(self(arm)[1]),
        }


async def arms(
    engine: Engine,
    name: str,
    sort: str = "decisions",
    down: bool = True,
    page: int = 1,
    q: str = "",
    during: Range = ALL,
) -> dict[str, Any]:
    """The rows of a page; ``q`` is text that arms must have in their ids."""
    space = engine.space(name)
    stats = space.state.stats
    every = space.state.policy.arms
    sort = sort if sort in SORTS else "decisions"
    page = min(max(page, 1), DEEPEST)
    part = None
    if during.span is not None:
        wait = space.config.rewards.wait_seconds
        part = _Part(stats, wait, time_of(engine), during.span)
    key, chunk = (part.sorts[sort], _CHUNK_IN_TIME) if part else (SORTS[sort], _CHUNK)
    most = page * PER_PAGE
    shown, count = await _first(every, stats, key, down, most, q.casefold(), chunk)
    pages = min(max(1, math.ceil(count / PER_PAGE)), DEEPEST)
    page = min(page, pages)
    at = engine.now()
    rows = [_row(arm, stats, at, part) for arm in shown[(page - 1) * PER_PAGE : page * PER_PAGE]]
    return {
        "name": name, "rows": rows, "count": count, "all": len(every), "page": page,
        "pages": pages, "first": (page - 1) * PER_PAGE + 1, "sort": sort, "down": down, "q": q,
        "hidden": max(0, count - DEEPEST * PER_PAGE), "during": during,
        "counted_since": None if stats.spans.whole else stats.spans.since,
        "lean": rates.lean(stats, len(space.state.pending), space.config.rewards.combine),
    }  # fmt: skip


async def _first(
    every: Any, stats: Stats, key: Key, down: bool, most: int, q: str, chunk: int
) -> tuple[list[Any], int]:
    """The first arms of an order, and how many there are; what has no place comes last."""
    pick = heapq.nlargest if down else heapq.nsmallest
    none = -math.inf if down else math.inf
    top: list[tuple[Any, Any]] = []
    count = 0
    for start in range(0, len(every), chunk):
        some = []
        for arm in every[start : start + chunk]:
            if q and q not in arm_text(arm).casefold():
                continue
            value = key(arm, stats)
            some.append((none if value is None else value, arm))
        count += len(some)
        top = pick(most, [*top, *some], key=lambda pair: pair[0])
        await asyncio.sleep(0)
    return [arm for _, arm in top], count


def _row(arm: Any, stats: Stats, at: int, part: _Part | None) -> dict[str, Any]:
    counts = _of(arm, stats)
    rate, since = arm_rates(stats, arm)
    shown = counts.decisions
    if part is not None:
        shown, rate = part(arm)
    return {
        "arm": arm_text(arm),
        "query": arm_query(arm),
        "decisions": shown,
        "plays": rate.plays,
        "rate": rate,
        "since": since,
        "changed": max(counts.changed, stats.changed) or None,
        "spark": spark(stats.trend(counts, at)) if counts.trend else "",
    }
