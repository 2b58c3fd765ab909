"""Reward rates over time, overall and recently, and the policy against the holdback.

What a page says of a space at every look (its rates, and whether the policy beats the holdback)
holds at all looks at once, and that of a range of time for all ranges at once:
``whim.evaluate.anytime``. An arm in a range and a point of a chart have intervals for one look.

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
from whim.evaluate.anytime import ALPHA, Comparison, Sums, alpha_from, anytime_rate, compare
from whim.evaluate.intervals import rate_interval
from whim.serve.jobs.whatif import finite
from whim.serve.state.spans import Bin
from whim.serve.state.stats import MICRO, Stats

_CLOSED = 0.95  # of a bin's decisions, for it to be settled before its time
_POINTS = 120  # of a chart, at most
_ENOUGH = 50  # decisions that a point stands for, if there are so many before it
_RECENT = 400  # decisions that "recently" stands for, at least
_STRATA = 32  # spans of time within which policy and holdback are compared


class Rates(NamedTuple):
    """The policy's and the holdback's rate over a span of time, and how they compare."""

    policy: Interval | None
    holdback: Interval | None
    decisions: int
    holdback_decisions: int
    seconds: float
    compared: Comparison | None = None


def lean(stats: Stats, waiting: int, combine: str) -> int:
    """How many decisions wait, if means over the closed ones are too high by that; else 0.

    The first reward closes a decision, so that those that earn nothing are the last to be closed.
    """
    closed = stats.counts.get("closed", 0)
    return waiting if combine == "earliest" and waiting > (1 - _CLOSED) * closed else 0


def settled(stats: Stats, wait: float, at: int) -> list[tuple[int, Bin]]:
    """Bins in order of time, those that are not settled left out; keys are microseconds."""
    width = stats.width
    bins = sorted(stats.bins.items(), key=lambda pair: pair[0])
    return _settled(((key * width, width, one) for key, one in bins), wait, at)


def _settled(bins: Iterable[tuple[int, int, Bin]], wait: float, at: int) -> list[tuple[int, Bin]]:
    kept = []
    for start, width, one in bins:
        closed = one.closed + one.holdback
        over_ = start + width + wait * MICRO <= at
        if closed and (over_ or closed >= _CLOSED * one.decisions):
            kept.append((start, one))
    return kept


def within(
    stats: Stats, wait: float, at: int, span: tuple[int, int]
) -> tuple[list[tuple[int, Bin]], int]:
    """Settled bins that have a part in a span of time, as fine as they are known; their width.

    Recent ones are known finely; old ones may be in the bins over all of the time.
    """
    since, until = span
    fine = [*stats.spans.space.between(since, until)]
    width = max((width for _, width, _ in fine), default=0)
    begun = 0 if stats.spans.whole else stats.spans.since or 1 << 62
    if since < begun or width > stats.width:
        width = stats.width
        fine = [
            (key * width, width, one)
            for key, one in sorted(stats.bins.items(), key=lambda pair: pair[0])
            if key * width < until and (key + 1) * width > since
        ]
    return _settled(fine, wait, at), width


def arm_within(
    stats: Stats, arm: str | int, wait: float, at: int, span: tuple[int, int]
) -> tuple[list[tuple[int, Bin]], int, int]:
    """Settled bins of an arm in a span of time, their width, and how often it was shown in all."""
    ladder = stats.spans.arms.get(arm)
    bins = [] if ladder is None else [*ladder.between(*span)]
    shown = sum(one.decisions for _, _, one in bins)
    return _settled(bins, wait, at), max((w for _, w, _ in bins), default=MICRO), shown


def overall(bins: list[tuple[int, Bin]], width: int, alpha: float = ALPHA) -> Rates:
    """The rates since the space was made, in intervals that hold however often they are read."""
    every, seconds = _sum(bins, width)
    strata = ((_policy(one), _holdback(one)) for _, one in _merged(bins, width, _STRATA))
    return Rates(
        anytime_rate(every.closed, every.total, every.squares, alpha) if every.closed else None,
        anytime_rate(every.holdback, every.holdback_total, every.holdback_squares, alpha)
        if every.holdback
        else None,
        every.closed, every.holdback, seconds, compare(strata, alpha),
    )  # fmt: skip


def in_range(stats: Stats, bins: list[tuple[int, Bin]], width: int) -> Rates:
    """The rates of a range of time, in intervals that hold whichever ranges are looked at.

    A range that moves along is another one at each look, and one that was picked may have been
    picked for how it looks. So each second at which one may begin has a share of the chance of
    being wrong; every bin begins at a whole second.
    """
    first = min(stats.bins, default=0) * stats.width
    start = max(0, bins[0][0] - first) // MICRO if bins else 0
    return overall(bins, width, alpha_from(start))


def for_one_look(bins: list[tuple[int, Bin]]) -> tuple[int, Interval | None]:
    """How many decisions a span of time has, and their rate in an interval for one look at it."""
    every, _ = _sum(bins, 0)
    if not every.closed:
        return 0, None
    return every.closed, rate_interval(every.closed, every.total, every.squares)


def recent(bins: list[tuple[int, Bin]], width: int) -> Rates:
    """The rates of the last tenth of the decisions, or of the last few hundred if that is more.

    Without intervals: those of a window that moves along would be wrong at one look or another.
    """
    wanted = max(_RECENT, sum(one.closed for _, one in bins) // 10)
    count, start = 0, len(bins)
    while start and count < wanted:
        start -= 1
        count += bins[start][1].closed
    every, seconds = _sum(bins[start:], width)
    return Rates(
        _bare(every.total, every.closed), _bare(every.holdback_total, every.holdback),
        every.closed, every.holdback, seconds,
    )  # fmt: skip


def _sum(bins: Iterable[tuple[int, Bin]], width: int) -> tuple[Bin, float]:
    """Some bins as one, and the seconds from the first to the last."""
    every, first, last = Bin(), None, 0
    for at, one in bins:
        every.add(one)
        first = at if first is None else first
        last = at
    return every, 0.0 if first is None else (last + width - first) / MICRO


def _bare(total: float, n: int) -> Interval | None:
    return Interval(total / n, math.nan, math.nan) if n else None


def _policy(one: Bin) -> Sums:
    return Sums(one.closed, one.total, one.squares)


def _holdback(one: Bin) -> Sums:
    return Sums(one.holdback, one.holdback_total, one.holdback_squares)


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
        n, total, squares = (column[i + 1] - column[start] for column in sums)
        intervals.append(rate_interval(n, total, squares) if n > 0 else None)
    return intervals
