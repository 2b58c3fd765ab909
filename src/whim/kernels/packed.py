"""Scores of the same candidates again and again, side by side in memory.

A log often offers one pool many times in a row, and until the policy learns something its models
stay as they are. Then it pays to copy the candidates' models once, number by number: the
processor scores several candidates at a time. The sums have the order of ``disjoint.best``, so
choices are the same to the last bit.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import factors
from whim.kernels.jit import inline
from whim.types import F64, I64

__all__ = ["LEAST", "WORK", "best", "pack"]

LEAST = 8  # candidates; with fewer the copy costs more than it saves
WORK = 3  # rows of ``packed`` after the model's: sums that are being made


@inline
def pack(slots: I64, cum: F64, packed: F64) -> None:
    """Column c of ``packed`` becomes the model of candidate c."""
    for c in range(slots.shape[0]):
        for p in range(cum.shape[1]):
            packed[p, c] = cum[slots[c], p]


@inline
def best(x: F64, candidates: int, packed: F64, alpha: float) -> int:
    """The place of the best candidate; -1 if x is not finite.

    Unsigned numbers spare the compiler Python's indexing from the end. Terms go in pairs: each
    pass over the candidates reads and writes their sums.
    """
    if not factors.finite(x):
        return -1
    n, d = np.uint64(candidates), np.uint64(x.shape[0])
    one, two = np.uint64(1), np.uint64(2)
    theta = d * (d + one) // two
    f, mean = theta + d, theta + d + one
    quad = mean + one
    for c in range(n):
        packed[mean, c] = 0.0
        packed[quad, c] = 0.0
    column = d
    for j in range(d):
        x_j = x[j]
        i = j % two
        if i == one:
            x_0 = x[0]
            for c in range(n):
                packed[f, c] = x_j + packed[column, c] * x_0
        else:
            for c in range(n):
                packed[f, c] = x_j
        while i + two < j:
            x_i, x_k = x[i], x[i + one]
            for c in range(n):
                both = packed[f, c] + packed[column + i, c] * x_i
                packed[f, c] = both + packed[column + i + one, c] * x_k
            i += two
        if i < j:  # the last pair, and what the column is for
            x_i, x_k = x[i], x[i + one]
            for c in range(n):
                both = packed[f, c] + packed[column + i, c] * x_i
                whole = both + packed[column + i + one, c] * x_k
                packed[mean, c] += x_j * packed[theta + j, c]
                packed[quad, c] += packed[j, c] * whole * whole
        else:
            for c in range(n):
                packed[mean, c] += x_j * packed[theta + j, c]
                packed[quad, c] += packed[j, c] * packed[f, c] * packed[f, c]
        column += j
    for c in range(n):
        packed[mean, c] += alpha * np.sqrt(packed[quad, c])
    chosen, score = 0, -np.inf
    for c in range(candidates):
        if packed[mean, c] > score:
            chosen, score = c, packed[mean, c]
    return chosen
