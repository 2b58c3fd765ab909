"""Where ticks stand and what they say: thousands separated, true minus signs, no offsets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, decimals: int | None = None) -> str:
    """``value`` as a reader wants it on an axis.

    >>> number(20_000), number(-0.25), number(1e-6), number(2.5e9), number(1, decimals=1)
    ('20,000', '−0.25', '10⁻⁶', '2.5×10⁹', '1.0')
    """
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    size = abs(value)
    if size != 0 and not 1e-4 <= size < 1e7:
        power = math.floor(math.log10(size) + 1e-9)
        lead = f"{value / 10.0**power:.3g}"
        times = {"1": "", "-1": "-"}.get(lead, f"{lead}×")
        text = f"{times}10{str(power).translate(_RAISED)}"
    else:
        text = f"{value:,.6g}" if decimals is None else f"{value:,.{decimals}f}"
        if "e" in text:  # six digits were too few
            text = f"{value:,.0f}"
    return text.replace("-", "−")


def ticks(
    low: float, high: float, *, log: bool, values: Sequence[float] = (), most: int = 6
) -> tuple[list[float], list[str]]:
    """Places and labels of the ticks between two limits.

    A log axis with few distinct ``values`` of at most two digits gets its ticks exactly there.
    """
    if log:
        places = _log_places(low, high, values, most)
        if places:
            return places, [number(place) for place in places]
    from matplotlib.ticker import MaxNLocator

    locator = MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10])
    slack = (high - low) * 1e-9
    places = [
        float(place)
        for place in locator.tick_values(low, high)
        if low - slack <= place <= high + slack
    ]
    # as many decimals as the finest tick needs
    texts = [f"{place:.6f}".rstrip("0").rstrip(".") for place in places]
    decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
    places = [0.0 if abs(place) < slack else place for place in places]
    plain = all(place == 0 or 1e-4 <= abs(place) < 1e7 for place in places)
    return places, [number(place, decimals if plain else None) for place in places]


def _log_places(low: float, high: float, values: Sequence[float], most: int) -> list[float]:
    span = math.log10(high / low)
    own = sorted({value for value in values if low <= value <= high})
    gaps = [math.log10(b / a) for a, b in pairwise(own)]
    plain = all(value == float(f"{value:.2g}") for value in own)  # not 1.66667, which is measured
    if plain and 2 <= len(own) <= most + 1 and min(gaps) > 0.09 * span:
        return own
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for leads in ((1,), (1, 3), (1, 2, 5)):
        every = [lead * 10.0**power for power in range(first, last + 1) for lead in leads]
        inside = [place for place in every if low * (1 - 1e-9) <= place <= high * (1 + 1e-9)]
        if len(inside) >= 3:
            return inside[:: math.ceil(len(inside) / (most + 1))]
    return []  # less than a decade: even steps read better
