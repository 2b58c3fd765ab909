"""Totals of a space's name that never fall, whatever its state counts after it was built anew.

A rebuild leaves out decisions that do not fit the new features, and rows that retention removed; a
space that is made again begins with nothing. What is missing then is in the configuration's row.
"""

from __future__ import annotations

from collections.abc import Mapping

from whim.serve.state.space_state import SpaceState

_COUNTED = ("decisions_", "rewards_")


def totals(state: SpaceState, uncounted: Mapping[str, int]) -> dict[str, int]:
    """Decisions by mode, rewards by state, and steps, since there was a space of that name."""
    counts = {n: count for n, count in state.stats.counts.items() if n.startswith(_COUNTED)}
    counts["steps"] = state.policy.step
    return {name: count + uncounted.get(name, 0) for name, count in counts.items()}


def not_counted(before: Mapping[str, int], state: SpaceState) -> dict[str, int]:
    """What a new state lacks of the totals before it."""
    now = totals(state, {})
    return {name: n - now.get(name, 0) for name, n in before.items() if n > now.get(name, 0)}
