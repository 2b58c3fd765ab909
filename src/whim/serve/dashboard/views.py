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
from whim.serve.dashboard.drawing import moves, spark
from whim.serve.state.engine import Engine
from whim.serve.state.space import Space
from whim.serve.state.stats import MICRO

__all__ = [
    "card", "changes", "compared", "config",
    "duration", "example", "explores", "latest",
    "params", "percent", "policies", "said", "series", "shell", "summary",
]  # fmt: skip

_CHANGES = 10  # a page of the timeline
_DAY = 86_400 * MICRO
_MARKS = 100  # changes drawn in the chart
_UNFIT = frozenset(("oracle-restart",))
_HIDDEN = frozenset(("n_features", "n_item_features", "n_cross_features", "seed", "ties"))


def shell(engine: Engine) -> dict[str, Any]:
    """What every page knows: whether the log can be written."""
    failed = engine.store.failed
    return {"failed": None if failed is None else str(failed)}


def _settled(engine: Engine, space: Space) -> tuple[list[Any], int]:
    stats = space.fold.stats
    at = max(engine.now(), time.time_ns() // 1000)
    return rates.settled(stats, space.config.rewards.wait_seconds, at), stats.width


# -- spaces -----------------------------------------------------------------------------------


def card(engine: Engine, name: str) -> dict[str, Any]:
    """A space in the list."""
    space = engine.space(name)
    bins, width = _settled(engine, space)
    counts = space.fold.stats.counts
    held = space.fold
    recent = engine.store.count_changes(space.number, held.version, engine.now() - _DAY)
    return {
        "name": name,
        "policy": space.config.policy,
        "mode": _mode(space.config),
        "decisions": counts.get("decisions", 0),
        "arms": len(held.policy.arms),
        "rate": rates.now(bins, width).policy,
        "changes": recent,
        "spark": spark(rates.spark_values(bins, width), 240, 40),
        "rebuilding": engine.info(name).rebuilding,
    }


def _mode(given: wire.SpaceConfig) -> str:
    if given.shadow:
        return "shadow"
    parts = []
    if given.explore:
        parts.append(f"explores {percent(given.explore)}")
    if given.holdback:
        parts.append(f"holds back {percent(given.holdback)}")
    return ", ".join(parts) or "live"


def summary(engine: Engine, name: str) -> dict[str, Any]:
    """The head of a space's page."""
    space = engine.space(name)
    info = engine.info(name)
    stats = space.fold.stats
    counts = stats.counts
    bins, width = _settled(engine, space)
    told = stats.summary()
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
        "matched_share": told["matched_share"],
        "delay": told["mean_delay_seconds"],
        "now": rates.now(bins, width),
        "ever": rates.over(bins, width),
        "shadow": _shadow(space, told, bins, width),
        "skipped": space.fold.skipped,
    }


def _shadow(space: Space, told: dict[str, Any], bins: list[Any], width: int) -> Any:
    if not space.config.shadow:
        return None
    closed = space.fold.stats.counts.get("closed", 0)
    return {
        **told["shadow"],
        "closed": closed,
        "share": told["shadow"]["agreed"] / closed if closed else None,
        "baseline": rates.over(bins, width).policy,
    }


def series(engine: Engine, name: str) -> dict[str, Any]:
    """Numbers for the chart."""
    space = engine.space(name)
    bins, width = _settled(engine, space)
    found = engine.store.recent(space.number, space.fold.version, most=_MARKS)
    return {
        **rates.series(bins, width),
        "holdback": bool(sum(held.held for _, held in bins)),
        "changes": [{"t": at / MICRO, "arm": said(event["arm"])} for _, at, event in found],
    }


# -- changes ----------------------------------------------------------------------------------


def changes(engine: Engine, name: str, before: int | None = None) -> dict[str, Any]:
    """A page of the timeline, newest first."""
    space = engine.space(name)
    held = space.fold
    found = engine.store.recent(space.number, held.version, before, _CHANGES + 1)
    return {
        "name": name,
        "version": held.version,
        "rows": [_change(seq, at, event, held) for seq, at, event in found[:_CHANGES]],
        "latest": found[0][0] if found and before is None else 0,
        "older": found[_CHANGES - 1][0] if len(found) > _CHANGES else None,
        "before": before,
        "detects": "ps" in held.config.policy or bool(found),
    }


def latest(engine: Engine, name: str) -> int:
    """The row of the last change; 0 when there is none."""
    space = engine.space(name)
    found = engine.store.recent(space.number, space.fold.version, most=1)
    return found[0][0] if found else 0


def _change(seq: int, at: int, event: dict[str, Any], held: Any) -> dict[str, Any]:
    before, after = event["theta_before"] or [], event["theta_after"] or []
    names = held.context.names if len(held.context.names) == len(before) else held.items.names
    if len(before) == 1:
        names = names if len(names) == 1 else ["mean reward"]
    return {
        **event,
        "seq": seq,
        "at": at,
        "arm": said(event["arm"]),
        "group": None if event["group"] is None else said(event["group"]),
        "moves": moves(before, after, names),
    }


def said(arm: Any) -> str:
    """An arm's id as text; policies with one model for all name none."""
    return "all arms" if arm is None else str(arm)


# -- configuration and what if ----------------------------------------------------------------


def config(engine: Engine, name: str) -> dict[str, Any]:
    """The configuration for reading: pairs of words, and all of it as JSON."""
    given = engine.space(name).config
    rules = given.rewards
    lines = [
        ("Policy", given.policy),
        ("Parameters", _pairs(given.params) or "as the policy has them"),
        ("Context", _features(given.context)),
        ("Items", _features(given.items)),
        (
            "Rewards",
            f"waited for {duration(rules.wait_seconds)}; {rules.default:g} when none came; "
            + ("the first counts" if rules.combine == "earliest" else "all are added up"),
        ),
        ("Explores", percent(given.explore) if given.explore else "never"),
        ("Holdback", _holdback(given)),
        ("Seed", str(given.seed)),
    ]
    text = msgspec.json.format(msgspec.json.encode(given), indent=2).decode()
    return {"lines": lines, "json": text}


def _pairs(given: dict[str, Any]) -> str:
    return ", ".join(f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in given.items())


def _features(given: wire.Features) -> str:
    parts = [f"{f.name} ({f.kind})" for f in given.fields]
    if given.size:
        parts.append(f"a vector of {given.size}")
    if given.rest:
        parts.append(f"the rest hashed to {given.rest}")
    if given.constant:
        parts.append("a constant 1")
    return ", ".join(parts) or "none"


def _holdback(given: wire.SpaceConfig) -> str:
    by = "the first candidate" if given.baseline == "first" else "a random candidate"
    if given.shadow:
        return f"shadow: always {by}, the policy learns"
    return f"{percent(given.holdback)}, which get {by}" if given.holdback else "none"


def explores(given: wire.SpaceConfig) -> bool:
    """Whether every candidate has a chance, so that the log can judge any policy."""
    aside = given.baseline == "random" and (given.shadow or given.holdback > 0)
    return given.explore > 0 or aside


def example(space: Space, origin: str) -> dict[str, str]:
    """Two commands that send a first decision and its reward."""
    given = space.config
    context = _sample(given.context)
    candidates: list[Any] = ["a", "b"]
    if space.fold.items.size:
        candidates = [{"id": arm, "features": _sample(given.items)} for arm in candidates]
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


def _sample(given: wire.Features) -> Any:
    if not (given.fields or given.rest):
        return [0.5] * given.size
    kinds = {"number": 1.0, "flag": True, "hash": "text"}
    found = {f.name: f.values[0] if f.kind == "choice" else kinds[f.kind] for f in given.fields}
    return found or {"feature": 1.0}


def policies() -> list[str]:
    """The policies that may be asked about."""
    return sorted(POLICIES.keys() - _UNFIT)


def params(policy: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters of a policy: name, default, and what is given now as JSON."""
    found = []
    for name, parameter in inspect.signature(POLICIES[policy]).parameters.items():
        if name in _HIDDEN:
            continue
        needed = parameter.default is inspect.Parameter.empty
        found.append(
            {
                "name": name,
                "needed": needed,
                "default": "" if needed else _json(parameter.default).replace("null", "default"),
                "value": _json(given[name]) if name in given else "",
            }
        )
    return found


def compared(result: Any) -> dict[str, Any]:
    """The result of a what-if, its rates as intervals."""
    found = dict(result)
    for name in ("logged", "whatif"):
        side = result[name]
        ends = tuple(math.nan if side[k] is None else side[k] for k in ("rate", "low", "high"))
        found[name] = {**side, "interval": Interval(*ends)}
    found["relative"] = Interval(**result["relative"]) if result["relative"] else None
    return found


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
