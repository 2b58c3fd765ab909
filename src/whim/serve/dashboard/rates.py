"""Reward rates over time, and now, from a space's bins; intervals as everywhere in whim.

A bin counts once it is settled: its waiting is over, or nearly all of its decisions are closed.
Where no reward means none until the waiting ends, what is closed early is what was rewarded.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Any, NamedTuple

from whim.evaluate import Interval
from whim.evaluate.intervals import Z, rate_interval
from whim.serve.jobs.whatif import finite
from whim.serve.state.stats import MICRO, Bin, Stats

_CLOSED = 0.95  # of a bin's decisions, for it to be settled before its time
_POINTS = 120  # of a chart, at most
_ENOUGH = 50  # decisions that a point stands for, if there are so many before it
_RECENT = 400  # decisions that "now" stands for, at least


class Rates(NamedTuple):
    """The policy's and the holdback's rate over a span of time, and the one over the other."""

    policy: Interval | None
    holdback: Interval | None
    lift: Interval | None
    decisions: int
    holdback_decisions: int
    seconds: float


def settled(stats: Stats, wait: float, at: int) -> list[tuple[int, Bin]]:
    """Bins in order of time, those that are not settled left out; keys are microseconds."""
    width, wait_us = stats.width, wait * MICRO
    bins = []
    for key, one in sorted(stats.bins.items(), key=lambda pair: pair[0]):
        closed = one.closed + one.holdback
        over_ = (key + 1) * width + wait_us <= at
        if closed and (over_ or closed >= _CLOSED * one.decisions):
            bins.append((key * width, one))
    return bins


def rate(n: float, total: float, squares: float) -> Interval | None:
    """Mean reward with its interval; None of nothing."""
    if n <= 0:
        return None
    return rate_interval(n, total, squares)


def lift(ours: Bin) -> Interval | None:
    """The policy's rate over the holdback's, minus one; its logarithm is what is taken as normal.

    With few in the holdback the ratio itself is far from it, and would reach below -100 %.
    """
    if ours.closed < 2 or ours.holdback < 2 or ours.total <= 0 or ours.holdback_total <= 0:
        return None
    a, b = ours.total / ours.closed, ours.holdback_total / ours.holdback
    va = max(ours.squares / ours.closed - a * a, 0.0) / ours.closed
    vb = max(ours.holdback_squares / ours.holdback - b * b, 0.0) / ours.holdback
    spread = min(Z * math.sqrt(va / (a * a) + vb / (b * b)), 50.0)
    return Interval(a / b - 1, a / b * math.exp(-spread) - 1, a / b * math.exp(spread) - 1)


def over(bins: Iterable[tuple[int, Bin]], width: int) -> Rates:
    """The rates of some bins."""
    every, first, last = Bin(), None, 0
    for at, one in bins:
        every.add(one)
        first = at if first is None else first
        last = at
    return Rates(
        rate(every.closed, every.total, every.squares),
        rate(every.holdback, every.holdback_total, every.holdback_squares),
        lift(every), every.closed, every.holdback,
        0.0 if first is None else (last + width - first) / MICRO,
    )  # fmt: skip


def now(bins: list[tuple[int, Bin]], width: int) -> Rates:
    """The rates of the last tenth of the decisions, or of the last few hundred if that is more."""
    wanted = max(_RECENT, sum(one.closed for _, one in bins) // 10)
    count, start = 0, len(bins)
    while start and count < wanted:
        start -= 1
        count += bins[start][1].closed
    return over(bins[start:], width)


def series(bins: list[tuple[int, Bin]], width: int) -> dict[str, list[Any]]:
    """Columns for a chart: seconds, then value, low and high of the policy and of the holdback.

    A point with few decisions takes those of the points before it in, until there are enough.
    """
    points = _merged(bins, width)
    names = ("t", "rate", "low", "high", "held", "held_low", "held_high", "n")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    ours = _pooled(points, ("closed", "total", "squares"))
    theirs = _pooled(points, ("holdback", "holdback_total", "holdback_squares"))
    for (at, one), *both in zip(points, ours, theirs, strict=True):
        columns["t"].append(at / MICRO)
        columns["n"].append(one.closed)
        for prefix, interval in zip(("", "held_"), both, strict=True):
            value, low, high = finite(interval)
            columns["held" if prefix else "rate"].append(value)
            columns[f"{prefix}low"].append(low)
            columns[f"{prefix}high"].append(high)
    return columns


def spark_values(bins: list[tuple[int, Bin]], width: int) -> list[float | None]:
    """The policy's rate at up to 32 points."""
    return [one.total / one.closed if one.closed else None for _, one in _merged(bins, width, 32)]


def _merged(
    bins: list[tuple[int, Bin]], width: int, most: int = _POINTS
) -> list[tuple[float, Bin]]:
    """At most ``most`` bins of equal length, each at the middle of its time."""
    if not bins:
        return []
    first, last = bins[0][0], bins[-1][0] + width
    step = width * max(1, math.ceil((last - first) / width / most))
    merged: dict[int, Bin] = {}
    for at, one in bins:
        merged.setdefault((at - first) // step, Bin()).add(one)
    return [(first + (key + 0.5) * step, one) for key, one in merged.items()]


def _pooled(points: list[tuple[float, Bin]], names: tuple[str, str, str]) -> list[Any]:
    """For each point an interval over it and as many before it as make enough; None of nothing."""
    sums = [[0.0, *accumulate(getattr(one, name) for _, one in points)] for name in names]
    intervals: list[Interval | None] = []
    for i in range(len(points)):
        start = max(bisect_right(sums[0], sums[0][i + 1] - _ENOUGH, 0, i + 1) - 1, 0)
        intervals.append(rate(*(column[i + 1] - column[start] for column in sums)))
    return intervals
