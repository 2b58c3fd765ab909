"""An arm's own page: how it fared over time, what was learnt of it, and how that changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whim.serve.dashboard import rates, views
from whim.serve.dashboard.changes import arm_query, arm_text, counted
from whim.serve.dashboard.ranges import Range
from whim.serve.state.engine import Engine
from whim.serve.state.space import NotFoundError, Space
from whim.serve.state.stats import ArmCounts
from whim.serve.state.views import arm_rates

_MARKS = 100  # changes drawn in the chart
_NEVER = ArmCounts()


def arm_of(space: Space, query: Mapping[str, str]) -> str | int:
    """The arm that an address names; raises if the space does not have it."""
    arm: str | int = query.get("id", "")
    number = query.get("number", "")
    if number.removeprefix("-").isdecimal() and number.isascii() and len(number) < 21:
        arm = int(number)
    if space.state.new_among([arm]):
        raise NotFoundError(f"arm must be one of {space.name}, got {number or arm!r}.")
    return arm


def span_of(engine: Engine, during: Range) -> tuple[int, int]:
    """The times of a range; all of it ends now."""
    return during.span or (0, views.time_of(engine) + 1)


def arm_view(engine: Engine, name: str, arm: Any, during: Range) -> dict[str, Any]:
    """The head of an arm's page."""
    space = engine.space(name)
    stats, span = space.state.stats, span_of(engine, during)
    overall, since = arm_rates(stats, arm)
    wait = space.config.rewards.wait_seconds
    bins, _, shown = rates.arm_within(stats, arm, wait, views.time_of(engine), span)
    plays, here = rates.for_one_look(bins)
    every = sum(one.decisions for _, _, one in stats.spans.space.between(*span))
    _, average = rates.for_one_look(views.settled(engine, space, during.span)[0])
    rate = here if during.span else None
    value = overall.mean if during.span is None else (rate.value if rate else None)
    return {
        "name": name,
        "arm": arm_text(arm),
        "query": arm_query(arm),
        "hidden": {"number" if isinstance(arm, int) else "id": arm},
        "during": during,
        "overall": overall,
        "since": since,
        "rate": rate,
        "value": value,
        "settled": plays if during.span else overall.plays,
        "shown": shown if during.span else stats.arms.get(arm, _NEVER).decisions,
        "share": shown / every if every else None,
        "average": None if average is None else average.value,
        "unit": space.state.policy.unit,
        "clicks": all(one.squares == one.total for _, one in bins),
        "changes": counted(engine, name, during, arm),
        "counted": arm in stats.spans.arms,
        "counted_since": None if stats.spans.whole else stats.spans.since,
        "lean": rates.lean(stats, len(space.state.pending), space.config.rewards.combine),
    }


def arm_series(engine: Engine, name: str, arm: Any, during: Range) -> dict[str, Any]:
    """Numbers for the chart of an arm's rate."""
    space = engine.space(name)
    wait, at = space.config.rewards.wait_seconds, views.time_of(engine)
    bins, width, _ = rates.arm_within(space.state.stats, arm, wait, at, span_of(engine, during))
    marks = engine.recent_changes(name, most=_MARKS, span=during.span, arm=arm)
    return {**rates.series(bins, width), "holdback": False, "changes": views.marked(marks)}
