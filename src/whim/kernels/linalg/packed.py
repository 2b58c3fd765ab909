"""Scores of the same candidates again and again, side by side in memory.

A log often offers one pool many times in a row, and a reward changes one arm's model at most. Then
it pays to copy the candidates' models once, number by number, and one of them again when it has
learnt: the processor scores several candidates at a time. The sums have the order of a model by
itself, so choices are the same to the last bit.
"""

from __future__ import annotations

import numpy as np

from whim.kernels.jit import inline
from whim.kernels.linalg import lanes
from whim.types import F64

LEAST = 8  # candidates; with fewer the copy costs more than it saves
WORK = 2  # rows of ``packed`` after the model's: mean and width


@inline
def pack(c: int, model: F64, packed: F64) -> None:
    """Column c of ``packed`` becomes a model."""
    for p in range(model.shape[0]):
        packed[p, c] = model[p]


@inline
def score(x: F64, candidates: int, packed: F64, alpha: float) -> None:
    """Scores into row -WORK of ``packed``, which has ``lanes.columns`` of the widest pool."""
    at = packed.shape[0] - WORK
    mean, square = packed[at], packed[at + 1]
    wide = lanes.columns(candidates)
    lanes.quads(mean, square, wide, packed.shape[1], packed, x)
    for c in range(wide):
        mean[c] += alpha * np.sqrt(square[c])


@inline
def best(x: F64, candidates: int, packed: F64, alpha: float) -> int:
    """The place of the best candidate."""
    score(x, candidates, packed, alpha)
    values = packed[packed.shape[0] - WORK]
    chosen, highest = 0, -np.inf
    for c in range(candidates):
        if values[c] > highest:
            chosen, highest = c, values[c]
    return chosen
