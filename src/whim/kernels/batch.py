"""Many contexts against many arms: widths are linear in the packed x xᵀ, so one product does it.

Every linear model here has a bound ``xᵀ t_a + α √(xᵀ P_a x)``; a payoff model fills the arms'
``t_a`` (K, d) and packed ``P_a`` (K, d(d+1)/2), and ``bounds`` does the rest.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import factors
from whim.kernels.jit import jit
from whim.types import F64, I64

__all__ = ["bounds", "pack_rows"]

_BLOCK = 2048  # contexts a block: enough for BLAS to use its threads, little enough memory


@jit
def pack_rows(F: F64, slots: I64, d: int, out: F64) -> None:
    """Packed inverses of the given rows."""
    inverse = np.empty((d, d))
    for c in range(slots.shape[0]):
        factors.dense(F, slots[c], inverse)
        factors.symmetric(inverse, out[c])


@jit
def expand(X: F64, out: F64) -> None:
    """Packed features: x_i x_j for i <= j, row by row."""
    n, d = X.shape
    for r in range(n):
        k = 0
        for i in range(d):
            x_i = X[r, i]
            for j in range(i, d):
                out[r, k] = x_i * X[r, j]
                k += 1


@jit
def combine(mean: F64, squared: F64, alpha: float, out: F64) -> None:
    """``mean + alpha · sqrt(squared)``, with rounding below zero taken as zero."""
    n, m = mean.shape
    for i in range(n):
        for j in range(m):
            out[i, j] = mean[i, j] + alpha * np.sqrt(max(squared[i, j], 0.0))


def bounds(X: F64, T: F64, P: F64, alpha: float, width: F64 | None = None) -> F64:
    """Upper bounds of every context for every arm, (n, K); ``width``, if given, takes √(xᵀPx)."""
    n, d = X.shape
    result = np.empty((n, len(T)))
    features = np.empty((min(n, _BLOCK), factors.packed_size(d)))
    squared = np.empty((min(n, _BLOCK), len(T)))
    mean = np.empty_like(squared)
    for at in range(0, n, _BLOCK):
        rows = X[at : at + _BLOCK]
        size = len(rows)
        expand(rows, features[:size])
        np.matmul(features[:size], P.T, out=squared[:size])
        np.matmul(rows, T.T, out=mean[:size])
        combine(mean[:size], squared[:size], alpha, result[at : at + size])
        if width is not None:
            width[at : at + size] = np.sqrt(np.maximum(squared[:size], 0.0))
    return result
