"""One ridge model an arm, with a two-sided CUSUM of its residuals (Page 1954).

A row of ``marks``: plays since the arm (re)started, how many residuals have told the noise, the
sum of their squares, and the two cumulative sums.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import factors
from whim.kernels.jit import inline, lean, live
from whim.types import F64, I64

__all__ = ["MARKS", "PLAYS", "learn_residual", "observe", "observe_many", "take"]

QUIET, CHANGED, _, NOT_FINITE = range(4)
PLAYS, COUNT, SQUARES, UP, DOWN = range(5)
MARKS = 5


@live
def learn_residual(row: int, x: F64, r: float, cum: F64, w: F64) -> tuple[int, float]:
    """One ridge update; its status, and the residual r - xᵀθ under the model before it."""
    if not factors.finite(x):
        return NOT_FINITE, 0.0
    residual = r - factors.predict(cum, row, x)
    factors.learn(cum, row, x, r, w)
    return QUIET, residual


@inline
def take(
    row: int, x: F64, r: float, warmup: int, squared: bool, drift: float, threshold: float,
    ridge: float, cum: F64, marks: F64, work: F64,
) -> int:  # fmt: skip
    """``observe`` for a context that is known to be finite."""
    d = x.shape[0]
    residual = r - factors.predict(cum, row, x)
    factors.learn(cum, row, x, r, work[0])
    marks[row, PLAYS] += 1.0
    if 2.0 * marks[row, PLAYS] <= warmup:  # the model settles
        return QUIET
    if marks[row, PLAYS] > warmup and marks[row, SQUARES] > 0.0:
        z = residual * np.sqrt(marks[row, COUNT] / marks[row, SQUARES])
        if squared:  # of mean 0 and variance 1 where residuals are normal
            z = (z * z - 1.0) * np.sqrt(0.5)
        marks[row, UP] = max(0.0, marks[row, UP] + z - drift)
        # smaller squares are a model that has become better
        marks[row, DOWN] = 0.0 if squared else max(0.0, marks[row, DOWN] - z - drift)
        statistic = max(marks[row, UP], marks[row, DOWN])
        if statistic > threshold:
            theta = cum.shape[1] - d
            for j in range(d):
                work[1, j] = cum[row, theta + j]
            work[2, 0] = statistic
            factors.set_prior(cum, row, d, ridge)
            for j in range(MARKS):
                marks[row, j] = 0.0
            return CHANGED
    marks[row, COUNT] += 1.0
    marks[row, SQUARES] += residual * residual
    return QUIET


@live
def observe(
    row: int, x: F64, r: float, warmup: int, squared: bool, drift: float, threshold: float,
    ridge: float, cum: F64, marks: F64, work: F64,
) -> int:  # fmt: skip
    """One play: learn, then test; on a change the arm starts from nothing.

    ``work`` then holds theta before in row 1 and the statistic in row 2.
    """
    if not factors.finite(x):
        return NOT_FINITE
    return take(row, x, r, warmup, squared, drift, threshold, ridge, cum, marks, work)


@lean
def observe_many(
    start: int, slots: I64, X: F64, rewards: F64, warmup: int, squared: bool, drift: float,
    threshold: float, ridge: float, cum: F64, marks: F64, work: F64,
) -> tuple[int, int]:  # fmt: skip
    """Plays in order from ``start``; stops after a change."""
    for i in range(start, slots.shape[0]):
        if take(
            slots[i], X[i], rewards[i], warmup, squared, drift, threshold, ridge, cum, marks, work
        ):
            return i + 1, CHANGED
    return slots.shape[0], QUIET
