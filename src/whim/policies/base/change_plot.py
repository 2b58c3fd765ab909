"""A policy's changes as a figure: a row per arm, a mark per change, and what moved most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from whim.errors import InvalidInputError
from whim.extras import require
from whim.types import ChangeEvent

_ROWS = 30  # arms that are drawn: those that changed last
_INK, _MARK, _MORE, _LESS = "#444444", "#0072b2", "#009e73", "#d55e00"


def draw(events: Sequence[ChangeEvent], step: int) -> Any:
    """The figure; ``step`` is where the policy is now."""
    if not events:
        raise InvalidInputError(
            "history must hold at least one change to be drawn, got none: this policy has reported "
            "no change since it was made or loaded."
        )
    figure = require("matplotlib.figure", "plot", "Figures need")
    arms = list(dict.fromkeys(_label(event) for event in reversed(events)))[:_ROWS]
    shown = [event for event in events if _label(event) in arms]
    sizes = [len(event.theta_before) for event in shown]
    tall = 1.2 + 0.34 * len(arms)
    drawing = figure.Figure(figsize=(9, max(2.6, tall)), layout="constrained")
    left, right = drawing.subplots(1, 2, width_ratios=(3, 2), sharey=True)
    rows = [arms.index(_label(event)) for event in shown]
    left.hlines(range(len(arms)), 0, max(step, 1), colors="#dddddd", linewidth=1, zorder=0)
    left.scatter([event.step for event in shown], rows, marker="^", s=42, color=_MARK, zorder=2)
    left.set(xlim=(0, max(step, 1) * 1.02), xlabel="update", title="changes detected")
    left.set_yticks(range(len(arms)), arms)
    left.set_ylim(len(arms) - 0.5, -0.5)
    last = {_label(event): event for event in shown}
    right.axvline(0, color=_INK, linewidth=0.8)
    for row, arm in enumerate(arms):
        event = last[arm]
        moved = np.subtract(event.theta_after, event.theta_before)
        if not len(moved):
            continue
        at = int(np.argmax(np.abs(moved)))
        right.barh(row, moved[at], height=0.5, color=_MORE if moved[at] > 0 else _LESS)
        name = event.features[at] if event.features else f"x[{at}]" if sizes[0] > 1 else "mean"
        # beside the axis, on the side that the bar leaves free
        apart, side = (-6, "right") if moved[at] > 0 else (6, "left")
        right.annotate(
            name, (0, row), (apart, 0), textcoords="offset points", ha=side, va="center",
            fontsize=8, color=_INK,
        )  # fmt: skip
    right.margins(x=0.6)
    right.set(xlabel="after less before", title="coefficient that moved most, last change")
    for axes in (left, right):
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(left=False)
        axes.title.set_size(10)
    return drawing


def _label(event: ChangeEvent) -> str:
    if event.group is not None:
        return f"group {event.group}"
    return "all arms" if event.arm is None else str(event.arm)
