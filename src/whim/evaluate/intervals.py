"""Intervals over runs: seeded bootstrap, paired where two policies met the same worlds."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from whim.types import F64

__all__ = [
    "Band",
    "Interval",
    "band",
    "bootstrap",
    "gain",
    "mean_interval",
    "proportion",
    "ratio_interval",
]

_RESAMPLES = 10_000
_Z = 1.959963984540054


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
    low, high = np.quantile(_weights(len(values)) @ values, [0.025, 0.975], axis=0)
    return Band(values.mean(0), low, high)


def bootstrap(values: F64, statistic: Callable[[F64], F64]) -> Interval:
    """``statistic`` of the means over the first axis, runs; it takes rows of such means.

    >>> bootstrap(np.array([[1.0, 4.0], [1.0, 4.0]]), lambda means: means[:, 1] / means[:, 0])
    Interval(value=4.0, low=4.0, high=4.0)
    """
    low, high = np.quantile(statistic(_weights(len(values)) @ values), [0.025, 0.975])
    return Interval(statistic(values.mean(0)[None]).item(), float(low), float(high))


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
    found = ratio_interval(regret, baseline)
    return Interval(1 - found.value, 1 - found.high, 1 - found.low)


def ratio_interval(above: F64, below: F64) -> Interval:
    """Mean of one over mean of the other, over paired runs.

    >>> ratio_interval(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    Interval(value=0.5, low=0.5, high=0.5)
    """
    weights = _weights(len(above))
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = (weights @ above) / (weights @ below)
        value = above.mean() / below.mean()
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(float(value), float(low), float(high))


def proportion(hits: float, trials: float) -> Interval:
    """Share of trials that hit, with Wilson's interval.

    >>> [round(part, 4) for part in proportion(5, 100)]
    [0.05, 0.0215, 0.1118]
    """
    if trials <= 0:
        return Interval(math.nan, 0.0, 1.0)
    rate = hits / trials
    spread = _Z * math.sqrt(rate * (1 - rate) / trials + _Z**2 / (4 * trials**2))
    middle, scale = rate + _Z**2 / (2 * trials), 1 + _Z**2 / trials
    return Interval(rate, (middle - spread) / scale, (middle + spread) / scale)
