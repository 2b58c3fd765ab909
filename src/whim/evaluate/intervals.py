"""Intervals over runs, paired where two policies met the same worlds.

From 30 runs on a seeded bootstrap; with fewer, which a bootstrap draws too narrow, Student's t
(for ratios by linearising them). One run has no interval: its ends are nan.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from whim.types import F64

_RESAMPLES = 10_000
_MANY = 30
# Student's t, 97.5 %, for 1 to 28 degrees of freedom
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048,
)  # fmt: skip
Z = 1.959963984540054


class Interval(NamedTuple):
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


class Band(NamedTuple):
    """Estimates with their 95 % intervals, point by point."""

    value: F64
    low: F64
    high: F64


@functools.lru_cache(maxsize=8)
def _weights(n: int) -> F64:
    """(resamples, n): how often each run is drawn, divided by n."""
    picks = np.random.default_rng(0).integers(n, size=(_RESAMPLES, n))
    rows = np.arange(_RESAMPLES)[:, None]
    counts = np.zeros((_RESAMPLES, n))
    np.add.at(counts, (rows, picks), 1.0)
    return counts / n


def band(values: F64) -> Band:
    """Means over the first axis, runs, each with its interval.

    >>> band(np.array([[1.0, 5.0], [1.0, 5.0]])).value.tolist()
    [1.0, 5.0]
    """
    mean = values.mean(0)
    if len(values) < _MANY:
        spread = _spread(values)
        return Band(mean, mean - spread, mean + spread)
    low, high = np.quantile(_weights(len(values)) @ values, [0.025, 0.975], axis=0)
    return Band(mean, low, high)


def _spread(values: F64) -> F64:
    """Half of Student's interval of the mean over the first axis."""
    n = len(values)
    if n < 2:
        return np.full(values.shape[1:], math.nan)
    half: F64 = _T[n - 2] * values.std(0, ddof=1) / math.sqrt(n)
    return half


def bootstrap(values: F64, statistic: Callable[[F64], F64]) -> Interval:
    """``statistic`` of the means over the first axis, runs; it takes rows of such means.

    >>> bootstrap(np.array([[1.0, 4.0], [1.0, 4.0]]), lambda means: means[:, 1] / means[:, 0])
    Interval(value=4.0, low=4.0, high=4.0)
    """
    if not len(values):
        return Interval(math.nan, math.nan, math.nan)
    with np.errstate(invalid="ignore", divide="ignore"):  # a ratio over nothing is inf or nan
        return _bootstrap(values, statistic)


def _bootstrap(values: F64, statistic: Callable[[F64], F64]) -> Interval:
    n = len(values)
    value = statistic(values.mean(0)[None]).item()
    if n < _MANY:  # each run's pull on the statistic, by leaving it out
        if n < 2:
            return Interval(value, math.nan, math.nan)
        without = statistic((values.sum(0) - values) / (n - 1))
        spread = _spread(n * value - (n - 1) * without).item()
        return Interval(value, value - spread, value + spread)
    low, high = np.quantile(statistic(_weights(n) @ values), [0.025, 0.975])
    return Interval(value, float(low), float(high))


def block_interval(values: F64, length: int) -> Interval:
    """Mean of a series in time, whose neighbours are alike: blocks of ``length`` steps are drawn.

    >>> block_interval(np.array([1.0, 1.0, 4.0, 4.0]), 4)
    Interval(value=2.5, low=nan, high=nan)
    """
    starts = np.arange(0, len(values), length)
    sums = np.add.reduceat(values, starts)
    sizes = np.diff([*starts, len(values)])
    return bootstrap(np.stack([sums, sizes], axis=1), lambda means: means[:, 0] / means[:, 1])


def mean_interval(values: F64) -> Interval:
    """Mean over runs.

    >>> mean_interval(np.array([2.0, 2.0, 2.0]))
    Interval(value=2.0, low=2.0, high=2.0)
    """
    value, low, high = (part.item() for part in band(values[:, None]))
    return Interval(value, low, high)


def gain(regret: F64, baseline: F64) -> Interval:
    """Share of the baseline's mean regret that is saved, over paired runs.

    >>> gain(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    Interval(value=0.5, low=0.5, high=0.5)
    """
    ratio = ratio_interval(regret, baseline)
    return Interval(1 - ratio.value, 1 - ratio.high, 1 - ratio.low)


def ratio_interval(above: F64, below: F64) -> Interval:
    """Mean of one over mean of the other, over paired runs.

    >>> ratio_interval(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    Interval(value=0.5, low=0.5, high=0.5)
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(above.mean() / below.mean())
        if len(above) < _MANY:
            spread = _spread((above - value * below) / below.mean()).item()
            return Interval(value, value - spread, value + spread)
        weights = _weights(len(above))
        drawn = (weights @ above) / (weights @ below)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(value, float(low), float(high))


def of_one_log(over_runs: Interval, single: Sequence[Interval], sample: float) -> Interval:
    """An interval over runs of one log, widened by what the log itself leaves open.

    Runs that are samples of the same log share its chance. A single run's interval, from its
    events, shows how much that is for a sample; for all of the log it is √sample of it.

    >>> of_one_log(Interval(0.5, 0.5, 0.5), [Interval(0.5, 0.4, 0.6)] * 5, sample=1.0)
    Interval(value=0.5, low=0.4, high=0.6)
    """
    half = float(np.mean([(i.high - i.low) / 2 for i in single])) * math.sqrt(sample)
    value, low, high = over_runs
    return Interval(
        value, value - math.hypot(value - low, half), value + math.hypot(high - value, half)
    )


def proportion(hits: float, trials: float) -> Interval:
    """Share of trials that hit, with Wilson's interval.

    >>> [round(part, 4) for part in proportion(5, 100)]
    [0.05, 0.0215, 0.1118]
    """
    if trials <= 0:
        return Interval(math.nan, 0.0, 1.0)
    rate = hits / trials
    spread = Z * math.sqrt(rate * (1 - rate) / trials + Z**2 / (4 * trials**2))
    middle, scale = rate + Z**2 / (2 * trials), 1 + Z**2 / trials
    return Interval(rate, (middle - spread) / scale, (middle + spread) / scale)


def rate_interval(n: float, total: float, squares: float) -> Interval:
    """Mean of n rewards, from their sum and that of their squares: Wilson's interval for clicks.

    >>> rate_interval(4, 2.0, 2.0) == proportion(2.0, 4)
    True
    """
    if squares == total:  # every reward is 0 or 1
        return proportion(total, n)
    if n < 2:  # one reward says nothing of their spread
        return Interval(total, math.nan, math.nan)
    return normal_interval(total / n, squares / n - (total / n) ** 2, int(n))


def normal_interval(mean: float, variance: float, n: int) -> Interval:
    """A mean of n values with the given variance, by the normal distribution."""
    spread = Z * math.sqrt(max(variance, 0.0) / n)
    return Interval(mean, mean - spread, mean + spread)
