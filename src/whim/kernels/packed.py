"""Scores of the same candidates again and again, side by side in memory.

A log often offers one pool many times in a row, and a reward changes one arm's model at most. Then
it pays to copy the candidates' models once, number by number, and one of them again when it has
learnt: the processor scores several candidates at a time. The sums have the order of
``disjoint.best``, so choices are the same to the last bit.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import factors, lanes
from whim.kernels.jit import inline
from whim.types import F64

__all__ = ["LEAST", "WORK", "best", "columns", "pack"]

LEAST = 8  # candidates; with fewer the copy costs more than it saves
WORK = 2  # rows of ``packed`` after the model's: mean and width


def columns(candidates: int) -> int:
    """Columns of ``packed``: whole vectors."""
    return (candidates + 3) // 4 * 4


@inline
def pack(c: int, row: int, cum: F64, packed: F64) -> None:
    """Column c of ``packed`` becomes a model."""
    for p in range(cum.shape[1]):
        packed[p, c] = cum[row, p]


@inline
def best(x: F64, candidates: int, packed: F64, alpha: float) -> int:
    """The place of the best candidate; -1 if x is not finite."""
    if not factors.finite(x):
        return -1
    wide = (candidates + 3) & ~3
    at = packed.shape[0] - WORK
    mean, quad = packed[at], packed[at + 1]
    lanes.quads(mean, quad, wide, packed, packed.shape[1], x)
    for c in range(wide):
        mean[c] += alpha * np.sqrt(quad[c])
    chosen, score = 0, -np.inf
    for c in range(candidates):
        if mean[c] > score:
            chosen, score = c, mean[c]
    return chosen
