"""Small drawings as numbers for SVG: lines of a sparkline, paired bars of coefficients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

_MOST = 6  # moves shown of a change
_LEAST = 0.001  # of all that moved, below which a number is shown as 0


def spark(values: Sequence[float | None], width: float = 96, height: float = 24) -> str:
    """A line through the values as an SVG path; it goes on over those that are not known.

    >>> spark([0.0, None, 1.0], 10, 10)
    'M1.5 8.5L8.5 1.5'
    """
    known = [(i, v) for i, v in enumerate(values) if v is not None and math.isfinite(v)]
    if not known:
        return ""
    low, high = min(v for _, v in known), max(v for _, v in known)
    span, last = high - low, max(len(values) - 1, 1)
    if span <= 1e-6 * max(abs(low), abs(high)):
        span = 0.0  # the same but for rounding
    points = []
    for i, v in known:
        x = min(1.5 + (width - 3) * i / last, width - 1.5 - (len(known) == 1) * width / 24)
        y = height / 2 if span <= 0 else 1.5 + (height - 3) * (1 - (v - low) / span)
        points.append(f"{x:.4g} {y:.4g}")
    return "M" + "L".join(points) + (f"h{width / 24:.4g}" if len(points) == 1 else "")


def moves(
    before: Sequence[float], after: Sequence[float], names: Sequence[str], width: float = 200
) -> dict[str, Any]:
    """What moved, largest first: for each feature two bars from a common zero."""
    named = list(names) if len(names) == len(before) else [f"θ[{i}]" for i in range(len(before))]
    pairs = [
        (name, float(b), float(a))
        for name, b, a in zip(named, before, after, strict=False)
        if b is not None and a is not None and math.isfinite(b) and math.isfinite(a)
    ]
    pairs.sort(key=lambda pair: -abs(pair[2] - pair[1]))
    shown = pairs[:_MOST]
    ends = [v for _, b, a in shown for v in (b, a)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return 1 + (width - 2) * (value - low) / span

    zero = place(0.0)
    rows = []
    for name, *values in shown:
        b, a = (v if abs(v) >= _LEAST * span else 0.0 for v in values)  # 8.7e-05 is no news
        bars = [(min(zero, place(v)), max(abs(place(v) - zero), 0.75)) for v in (b, a)]
        rows.append({"name": name, "before": b, "after": a, "bars": bars})
    return {"rows": rows, "zero": zero, "width": width, "more": len(pairs) - len(shown)}
