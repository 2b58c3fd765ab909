"""Changes of interest as a page tells them: in words first, then in numbers."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import urlencode

from whim.serve.dashboard.drawing import moves
from whim.serve.dashboard.ranges import ALL, Range
from whim.serve.dashboard.sentences import Known, change_sentence
from whim.serve.state.engine import Engine
from whim.serve.state.space_state import SpaceState

_CHANGES = 10  # a page of the timeline
_COUNTED = 100  # changes that are counted


def changes(
    engine: Engine, name: str, during: Range = ALL, before: int | None = None, arm: Any = None
) -> dict[str, Any]:
    """A page of the timeline, newest first: of a space, or of one arm."""
    state = engine.space(name).state
    recent = engine.recent_changes(name, before, _CHANGES + 1, span=during.span, arm=arm)
    return {
        "name": name,
        "version": state.version,
        "unit": state.policy.unit,
        "rows": [change_view(seq, at, event, state) for seq, at, event in recent[:_CHANGES]],
        "latest": recent[0][0] if recent and before is None else 0,
        "older": recent[_CHANGES - 1][0] if len(recent) > _CHANGES else None,
        "before": before,
        "during": during,
        "arm": None if arm is None else arm_query(arm),
    }


def latest(engine: Engine, name: str, during: Range = ALL, arm: Any = None) -> int:
    """The row of the last change; 0 when there is none."""
    recent = engine.recent_changes(name, most=1, span=during.span, arm=arm)
    return recent[0][0] if recent else 0


def change_view(seq: int, at: int, event: dict[str, Any], state: SpaceState) -> dict[str, Any]:
    before, after = event["theta_before"] or [], event["theta_after"] or []
    names = state.context.names
    whose = state.config.context if len(names) == len(before) else None
    if whose is None:
        names = state.items.names
    if len(before) == 1:
        names = names if len(names) == 1 else ["mean reward"]
    moved = [None if a is None or b is None else a - b for a, b in zip(after, before, strict=False)]
    told = moved if event["arm"] is not None else []
    lead, rest = change_sentence(told, whose, _known(event, state))
    return {
        **event,
        "seq": seq,
        "at": at,
        "arm": arm_text(event["arm"]),
        "group": None if event["group"] is None else arm_text(event["group"]),
        "lead": lead,
        "rest": rest,
        "chance": chance(event["p_value"]),
        "moves": moves(before, after, names),
        "query": None if event["arm"] is None else arm_query(event["arm"]),
    }


def _known(event: dict[str, Any], state: SpaceState) -> Known:
    """How well the move is known, by what its arm has earned."""
    arm = state.stats.arms.get(event["arm"])
    if arm is None or not arm.closed:
        return Known(math.inf, 0)
    variance = arm.squares / arm.closed - (arm.total / arm.closed) ** 2
    log_odds = state.policy.unit == "log-odds"
    return Known.by(variance, log_odds, event["plays"], event["window"])


def chance(p_value: float | None) -> str | None:
    """How often chance alone would look like a change, in words.

    >>> print(chance(0.0011), chance(2e-7), chance(1e-30), sep="; ")
    about once in 900; about once in 5 million; less than once in a thousand million
    """
    if p_value is None:
        return None
    if p_value < 1e-9:
        return "less than once in a thousand million"
    unit, name = (1e6, "\u00a0million") if p_value <= 1e-6 else (1, "")
    once = float(f"{1 / p_value / unit:.1g}")
    return f"about once in {once:,.0f}{name}".replace(",", "\u202f").replace("\u00a0", " ")


def arm_text(arm: Any) -> str:
    """An arm's id as text; policies with one model for all name none."""
    return "all arms" if arm is None else str(arm)


def arm_query(arm: str | int) -> str:
    """An arm as the part of an address that names it; ids may be texts or whole numbers.

    >>> arm_query("a/b"), arm_query(7)
    ('id=a%2Fb', 'number=7')
    """
    return urlencode({"number" if isinstance(arm, int) else "id": arm})


def counted(engine: Engine, name: str, during: Range, arm: Any = None) -> dict[str, Any]:
    """How many changes there were, up to a hundred, and the last of them in words."""
    recent = engine.recent_changes(name, most=_COUNTED, span=during.span, arm=arm)
    last = None
    if recent:
        seq, at, event = recent[0]
        last = change_view(seq, at, event, engine.space(name).state)
    return {"count": len(recent), "more": len(recent) == _COUNTED, "last": last}
