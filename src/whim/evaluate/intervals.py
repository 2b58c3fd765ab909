"""Intervals over runs: seeded bootstrap, paired where two policies met the same worlds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.types import F64

__all__ = ["Interval", "gain", "mean_interval"]

_RESAMPLES = 10_000


class Interval(NamedTuple):
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float


def _picks(n: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.random.default_rng(0).integers(n, size=(_RESAMPLES, n))


def mean_interval(values: F64) -> Interval:
    """Mean over runs.

    >>> mean_interval(np.array([2.0, 2.0, 2.0]))
    Interval(value=2.0, low=2.0, high=2.0)
    """
    low, high = np.quantile(values[_picks(len(values))].mean(1), [0.025, 0.975])
    return Interval(float(values.mean()), float(low), float(high))


def gain(regret: F64, baseline: F64) -> Interval:
    """Share of the baseline's mean regret that is saved, over paired runs.

    >>> gain(np.array([1.0, 2.0]), np.array([2.0, 4.0]))
    Interval(value=0.5, low=0.5, high=0.5)
    """
    picks = _picks(len(regret))
    saved = 1 - regret[picks].mean(1) / baseline[picks].mean(1)
    low, high = np.quantile(saved, [0.025, 0.975])
    return Interval(float(1 - regret.mean() / baseline.mean()), float(low), float(high))
