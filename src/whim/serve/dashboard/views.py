"""What the templates show, shaped from the engine: plain values, never in proportion to the log."""

from __future__ import annotations

import inspect
import json
import math
import time
from typing import Any

import msgspec

from whim.evaluate import Interval
from whim.policies import POLICIES
from whim.serve import wire
from whim.serve.dashboard import rates
from whim.serve.dashboard.changes import arm_text, counted
from whim.serve.dashboard.drawing import spark
from whim.serve.dashboard.ranges import ALL, Range
from whim.serve.state.engine import Engine
from whim.serve.state.space import Space
from whim.serve.state.stats import MICRO
from whim.serve.state.waiting import list_rules

_DAY = 86_400 * MICRO
_MARKS = 100  # changes drawn in the chart
_LATE = 1.0  # seconds behind a shared log from which on it is marked: mostly it is a fraction
_HIDDEN = frozenset(("n_features", "n_item_features", "n_cross_features", "seed", "ties"))


def shell(engine: Engine) -> dict[str, Any]:
    """What every page knows: whether the log can be written, and how far a replica is behind."""
    failed, lag = engine.trouble, engine.lag
    replica = None
    if lag is not None:
        rows, seconds = lag
        replica = {
            "leads": engine.leads,
            "rows": rows,
            "seconds": seconds,
            "late": seconds >= _LATE,
            "refusing": [one.shard for one in engine.shards if one.reason is not None],
        }
    return {"failed": None if failed is None else str(failed), "replica": replica}


def time_of(engine: Engine) -> int:
    """What a page takes for now, in microseconds."""
    return max(engine.now(), time.time_ns() // 1000)


def settled(
    engine: Engine, space: Space, span: tuple[int, int] | None = None
) -> tuple[list[Any], int]:
    """The bins of a space whose rewards are in, of all of its time or of a part; their width."""
    stats, wait, at = space.state.stats, space.config.rewards.wait_seconds, time_of(engine)
    if span is None:
        return rates.settled(stats, wait, at), stats.width
    return rates.within(stats, wait, at, span)


# -- spaces -----------------------------------------------------------------------------------


def card(engine: Engine, name: str) -> dict[str, Any]:
    """A space in the list."""
    space = engine.space(name)
    bins, width = settled(engine, space)
    return {
        "name": name,
        "policy": space.config.policy,
        "mode": _mode(space.config),
        "decisions": space.state.stats.counts["decisions"],
        "arms": len(space.state.policy.arms),
        "rate": rates.overall(bins, width).policy,
        "changes": engine.count_changes(name, engine.now() - _DAY),
        "spark": spark(rates.spark_values(bins, width), 240, 40),
        "rebuilding": engine.info(name).rebuilding,
    }


def _mode(config: wire.SpaceConfig) -> str:
    if config.shadow:
        return "shadow"
    parts = []
    if config.explore:
        parts.append(f"explores {percent(config.explore)}")
    if config.holdback:
        parts.append(f"holds back {percent(config.holdback)}")
    return ", ".join(parts) or "live"


def summary(engine: Engine, name: str, during: Range = ALL) -> dict[str, Any]:
    """The head of a space's page."""
    space = engine.space(name)
    info = engine.info(name)
    stats = space.state.stats
    counts = stats.counts
    bins, width = settled(engine, space)
    totals = stats.summary()
    overall = rates.overall(bins, width)
    part = None if during.span is None else _part(engine, space, during.span)
    return {
        "name": name,
        "info": info,
        "config": info.config,
        "mode": _mode(info.config),
        "decisions": counts.get("decisions", 0),
        "closed": counts.get("closed", 0),
        "rewards": counts.get("rewards", 0),
        "late": counts.get("rewards_late", 0),
        "duplicate": counts.get("rewards_duplicate", 0),
        "never_shown": counts.get("never_shown", 0),
        "matched_share": totals["matched_share"],
        "delay": totals["mean_delay_seconds"],
        "recent": rates.recent(bins, width),
        "overall": overall,
        "during": during,
        "part": part,
        "rates": overall if part is None else part["rates"],
        "clicks": all(one.squares == one.total for _, one in bins),
        "changes": counted(engine, name, during),
        "shadow": _shadow(space, totals, bins, width),
        # they count in the rates, which are then not those of the policy alone
        "was_shadow": 0 if info.config.shadow else counts.get("decisions_shadow", 0),
        # some are in every space whose arms are retired while their decisions wait
        "many_skipped": info.skipped * 100 > counts.get("decisions", 0),
        "positions": stats.so_far,
        "graded": any(one.total != one.clicks for one in stats.so_far),  # not only clicks
    }


def _part(engine: Engine, space: Space, span: tuple[int, int]) -> dict[str, Any]:
    """A part of a space's time: its rates, and the time that its bins really cover."""
    bins, width = settled(engine, space, span)
    stats, spans = space.state.stats, space.state.stats.spans
    every = [*spans.space.between(*span)]
    return {
        "rates": rates.in_range(stats, bins, width),
        "decisions": sum(one.decisions for _, _, one in every),
        "since": bins[0][0] if bins else None,
        "until": min(bins[-1][0] + width, time_of(engine)) if bins else None,
        "counted_since": None if spans.whole else spans.since,
    }


def _shadow(space: Space, totals: dict[str, Any], bins: list[Any], width: int) -> Any:
    if not space.config.shadow:
        return None
    closed = space.state.stats.counts.get("closed", 0)
    return {
        **totals["shadow"],
        "closed": closed,
        "share": totals["shadow"]["agreed"] / closed if closed else None,
        "baseline": rates.overall(bins, width).policy,
    }


def series(engine: Engine, name: str, during: Range = ALL) -> dict[str, Any]:
    """Numbers for the chart."""
    bins, width = settled(engine, engine.space(name), during.span)
    marks = engine.recent_changes(name, most=_MARKS, span=during.span)
    return {
        **rates.series(bins, width),
        "holdback": any(one.holdback for _, one in bins),
        "changes": marked(marks),
    }


def marked(changes: Any) -> list[dict[str, Any]]:
    """Changes as marks of a chart."""
    return [{"t": at / MICRO, "arm": arm_text(event["arm"])} for _, at, event in changes]


# -- configuration and what if ----------------------------------------------------------------


def config(engine: Engine, name: str) -> dict[str, Any]:
    """The configuration for reading: pairs of words, and all of it as JSON."""
    current = engine.space(name).config
    rules = current.rewards
    lines = [
        ("Policy", current.policy),
        ("Parameters", _pairs(current.params) or "the policy’s defaults"),
        ("Context", _features(current.context)),
        ("Items", _features(current.items)),
        (
            "Rewards",
            f"wait {duration(rules.wait_seconds)}; {rules.default:g} if none comes; "
            + ("the first one counts" if rules.combine == "earliest" else "all are summed"),
        ),
        ("Explores", percent(current.explore) if current.explore else "never"),
        ("Holdback", _holdback(current)),
        ("Seed", str(current.seed)),
    ]
    if current.list is not msgspec.UNSET or engine.space(name).state.stats.so_far:
        lines.append(("Lists", _lists(list_rules(current))))
    text = msgspec.json.format(msgspec.json.encode(current), indent=2).decode()
    return {"lines": lines, "json": text}


def _lists(rules: wire.ListRules) -> str:
    if rules.feedback == "cascade":
        return "looked at from the top up to the first click"
    if rules.feedback == "semi":
        return "every item is seen"
    return "seen with probability " + ", ".join(f"{e:g}" for e in rules.examine)


def _pairs(params: dict[str, Any]) -> str:
    return ", ".join(f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in params.items())


def _features(features: wire.Features) -> str:
    parts = [f"{f.name} ({f.kind})" for f in features.fields]
    if features.size:
        parts.append(f"a vector of {features.size}")
    if features.rest:
        parts.append(f"other features hashed into {features.rest} places")
    if features.constant:
        parts.append("a constant 1")
    return ", ".join(parts) or "none"


def _holdback(config: wire.SpaceConfig) -> str:
    by = "the first candidate" if config.baseline == "first" else "a random candidate"
    if config.shadow:
        return f"shadow: always {by}; the policy only learns"
    return f"{percent(config.holdback)}, which get {by}" if config.holdback else "none"


def explores(config: wire.SpaceConfig) -> bool:
    """Whether every candidate has a chance, so that the log can judge any policy."""
    aside = config.baseline == "random" and (config.shadow or config.holdback > 0)
    return config.explore > 0 or aside


def example(space: Space, origin: str) -> dict[str, str]:
    """Two commands that send a first decision and its reward."""
    current = space.config
    context = _sample(current.context)
    candidates: list[Any] = ["a", "b"]
    if space.state.items.size:
        candidates = [{"id": arm, "features": _sample(current.items)} for arm in candidates]
    decide = json.dumps({"context": context, "candidates": candidates}, ensure_ascii=False)
    reward = json.dumps({"decision_id": "…", "value": 1}, ensure_ascii=False)
    base = f"curl -X POST {origin}/v1/spaces/{space.name}"
    head = "-H 'content-type: application/json' \\\n  -d"

    def quoted(text: str) -> str:
        return "'" + text.replace("'", "'\\''") + "'"

    return {
        "decide": f"{base}/decisions {head} {quoted(decide)}",
        "reward": f"{base}/rewards {head} {quoted(reward)}",
    }


def _sample(features: wire.Features) -> Any:
    if not (features.fields or features.rest):
        return [0.5] * features.size
    kinds = {"number": 1.0, "cyclic": 1.0, "choice": "text", "flag": True, "hash": "text"}
    sample = {f.name: f.values[0] if f.values else kinds[f.kind] for f in features.fields}
    return sample or {"feature": 1.0}


def params(policy: str, current: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters of a policy: name, default, and what it is now, as JSON."""
    fields = []
    for name, parameter in inspect.signature(POLICIES[policy]).parameters.items():
        if name in _HIDDEN:
            continue
        needed = parameter.default is inspect.Parameter.empty
        fields.append(
            {
                "name": name,
                "needed": needed,
                "default": "" if needed else _json(parameter.default).replace("null", "default"),
                "value": _json(current[name]) if name in current else "",
            }
        )
    return fields


def compared(result: Any) -> dict[str, Any]:
    """The result of a what-if, its rates as intervals."""
    shown = dict(result)
    for name in ("logged", "whatif"):
        side = result[name]
        ends = tuple(math.nan if side[k] is None else side[k] for k in ("rate", "low", "high"))
        shown[name] = {**side, "interval": Interval(*ends)}
    shown["relative"] = Interval(**result["relative"]) if result["relative"] else None
    shown["clicks"] = result.get("clicks", False)  # one that an earlier version stored lacks it
    # the same in words that need no statistics
    shown["warnings"] = [
        text.replace("effective sample size is", "log says as much about it as")
        for text in result["warnings"]
    ]
    shown["same"] = result["whatif"]["label"] == result["logged"]["label"]
    return shown


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def percent(share: float | None, digits: int = 1) -> str:
    """A share as text.

    >>> print(percent(0.1), percent(0.123), percent(None), sep="; ")
    10 %; 12.3 %; –
    """
    if share is None or not math.isfinite(share):
        return "–"
    text = f"{100 * share:.{digits}f}"
    if float(text) == 0:
        text = "0"  # without a sign
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}\u00a0%".replace("-", "−")


def duration(seconds: float | None) -> str:
    """A length of time as text.

    >>> print(duration(0.25), duration(90), duration(7200), duration(None), sep="; ")
    250 ms; 90 s; 2 h; –
    """
    if seconds is None or not math.isfinite(seconds):
        return "–"
    for below, unit, per in ((1.0, "ms", 1e-3), (120, "s", 1), (7200, "min", 60)):
        if seconds < below:
            return f"{seconds / per:.3g}\u00a0{unit}"
    if seconds < 172_800:
        return f"{seconds / 3600:.3g}\u00a0h"
    return f"{seconds / 86_400:.3g}\u00a0days"
