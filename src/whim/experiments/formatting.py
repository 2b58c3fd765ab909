"""Numbers as experiments show them: an estimate with its interval, in text or drawn."""

from __future__ import annotations

import math

from whim.evaluate import Band, Interval, SimulationResult, band, mean_interval
from whim.evaluate.detection import Detection
from whim.experiments.result import Curve, Figure


def whole(i: Interval) -> str:
    """Such as ``2,632 [2,401, 2,870]``.

    >>> whole(Interval(2632.4, 2400.8, 2869.9))
    '2,632 [2,401, 2,870]'
    """
    return (f"{i.value:,.0f}" + between(f"{i.low:,.0f}", f"{i.high:,.0f}")).replace("-", "−")


def final_regret(result: SimulationResult, label: str) -> str:
    """Regret at the end, over runs."""
    return whole(mean_interval(result.regret[label][:, -1]))


def between(low: str, high: str) -> str:
    """The interval, unless there is none: a single run has no spread."""
    return "" if low == "nan" else f" [{low}, {high}]"


def percent(i: Interval, digits: int = 0, *, signed: bool = False) -> str:
    """Such as ``34.8 % [29.9, 39.6]``; a minus sign is a real one.

    >>> percent(Interval(-0.02, -0.031, 0.004), 1)
    '−2.0 % [−3.1, 0.4]'
    """
    if math.isnan(i.value):
        return "–"
    value, low, high = (_hundredths(part, digits, signed) for part in i)
    return f"{value} %" + between(low, high)


def in_points(i: Interval, digits: int = 1) -> str:
    """A difference of shares in points, such as ``+3.2 [+2.6, +3.9]``.

    >>> in_points(Interval(-0.02, -0.031, 0.004))
    '−2.0 [−3.1, +0.4]'
    """
    value, low, high = (_hundredths(part, digits, True) for part in i)
    return value + between(low, high)


def _hundredths(share: float, digits: int, signed: bool) -> str:
    if math.isnan(share):
        return "nan"  # without a sign, so that ``between`` knows it
    text = f"{100 * share:{'+' if signed else ''}.{digits}f}"
    zero = not text.strip("+-0.")
    return text.lstrip("+-") if zero else text.replace("-", "−")


def fixed(i: Interval, digits: int = 2) -> str:
    """A number with so many decimals, such as ``0.52 [0.49, 0.55]``.

    >>> fixed(Interval(0.5213, 0.49, 0.55))
    '0.52 [0.49, 0.55]'
    """
    value, low, high = (f"{part:.{digits}f}".replace("-", "−") for part in i)
    return value + between(low, high)


def rate(i: Interval) -> str:
    """A click rate, such as ``0.0564 [0.0559, 0.0569]``.

    >>> rate(Interval(0.05639, 0.0559, 0.0569))
    '0.0564 [0.0559, 0.0569]'
    """
    if math.isnan(i.value):
        return "–"
    return fixed(i, 4)


def saving(i: Interval, of: str) -> str:
    """What a share of regret saved comes to, in words that its interval bears out.

    >>> saving(Interval(0.35, 0.3, 0.4), "LinUCB"), saving(Interval(-0.2, -0.3, -0.1), "LinUCB")
    ("saves 35 % [30, 40] of LinUCB's regret", "adds 20 % [10, 30] to LinUCB's regret")
    >>> saving(Interval(0.01, -0.1, 0.1), "LinUCB")
    "makes no clear difference to LinUCB's regret (saves 1 % [−10, 10])"
    """
    if i.low > 0:
        return f"saves {percent(i)} of {of}'s regret"
    if i.high < 0:
        return f"adds {percent(Interval(-i.value, -i.high, -i.low))} to {of}'s regret"
    return f"makes no clear difference to {of}'s regret (saves {percent(i)})"


def is_telling(i: Interval) -> bool:
    """Whether a gain is worth a line of a quick run: its sign is clear, or it is surely small.

    >>> is_telling(Interval(0.02, 0.01, 0.03)), is_telling(Interval(0.02, -0.2, 0.24))
    (True, False)
    >>> is_telling(Interval(0.0, -0.01, 0.01)), is_telling(Interval(0.0, 0.0, 0.0))
    (True, False)
    """
    if not i.low < i.high:  # the runs cannot differ: the same choices, or a single run
        return False
    return i.low > 0 or i.high < 0 or i.high - i.low <= 0.1


def count(value: float, digits: int = 1) -> str:
    """A mean count.

    >>> count(1234.56)
    '1,234.6'
    """
    return f"{value:,.{digits}f}"


def curve(label: str, x: list[float], points: Band, style: str = "line") -> Curve:
    """A line with its band."""
    return Curve(
        label, [float(v) for v in x], points.value.tolist(), points.low.tolist(),
        points.high.tolist(), style,
    )  # fmt: skip


def total(result: SimulationResult, label: str) -> Detection:
    """How changes were detected, over all runs together."""
    seen = result.detections[label]
    return Detection(
        [delay for d in seen for delay in d.delays],
        [delay for d in seen for delay in d.plays],
        *(sum(getattr(d, name) for d in seen) for name in ("missed", "false_alarms", "unplayed")),
    )


def alarms(result: SimulationResult, label: str) -> float:
    """False alarms per 10,000 plays."""
    plays = len(result.changes) * int(result.steps[-1])
    return 1e4 * total(result, label).false_alarms / plays


def share(seen: Detection, number: int | None = None) -> str:
    """The changes detected, or so many of them, in percent of all."""
    changes = seen.found + seen.missed
    return f"{100 * (seen.found if number is None else number) / changes:.0f} %" if changes else "–"


def points(label: str, x: list[float], intervals: list[Interval]) -> Curve:
    """Markers with their intervals as bars."""
    value, low, high = ([float(part) for part in parts] for parts in zip(*intervals, strict=True))
    return Curve(label, x, value, low, high, "points")


def regret_over_time(
    result: SimulationResult, where: str, *, caption: str = "", without: str = "–",
    x_label: str = "step", y_label: str = "regret",
) -> Figure:  # fmt: skip
    """The figure of a simulation; policies whose label has ``without`` are left out."""
    return Figure(
        title=f"Regret over time{where}",
        x_label=x_label,
        y_label=y_label,
        curves=[
            curve(label, result.steps.tolist(), band(regret))
            for label, regret in result.regret.items()
            if without not in label
        ],
        caption=f"Mean over runs, 95 % bands. {caption}".strip(),
    )
