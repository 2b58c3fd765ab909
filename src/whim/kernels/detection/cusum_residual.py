"""A two-sided CUSUM of the residuals of a ridge model per arm (Page 1954)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.kernels.jit import part
from whim.kernels.status import CHANGED, NO_CHANGE
from whim.types import F64

PLAYS, COUNT, SQUARES, UP, DOWN = range(5)
COLUMNS = 5


class CusumTest(NamedTuple):
    """The state of the test.

    A row of ``sums``: plays since the arm (re)started, how many residuals have told the noise, the
    sum of their squares, and the two cumulative sums. ``report`` takes a change: θ before, 0, and
    the statistic.
    """

    warmup: int
    squared: bool
    drift: float
    threshold: float
    sums: F64
    report: F64


@part
def test(t: CusumTest, row: int, residual: float) -> int:
    """Whether the residual of one more play is one too many."""
    sums = t.sums[row]
    sums[PLAYS] += 1.0
    if 2.0 * sums[PLAYS] <= t.warmup:  # the model settles
        return NO_CHANGE
    if sums[PLAYS] > t.warmup and sums[SQUARES] > 0.0:
        z = residual * np.sqrt(sums[COUNT] / sums[SQUARES])
        if t.squared:  # of mean 0 and variance 1 where residuals are normal
            z = (z * z - 1.0) * np.sqrt(0.5)
        sums[UP] = max(0.0, sums[UP] + z - t.drift)
        # smaller squares are a model that has become better
        sums[DOWN] = 0.0 if t.squared else max(0.0, sums[DOWN] - z - t.drift)
        statistic = max(sums[UP], sums[DOWN])
        if statistic > t.threshold:
            t.report[2, 0] = statistic
            for j in range(COLUMNS):
                sums[j] = 0.0
            return CHANGED
    sums[COUNT] += 1.0
    sums[SQUARES] += residual * residual
    return NO_CHANGE
