"""Many contexts against many arms: widths are linear in the packed x xᵀ, so one product does it.

Every linear model here has a bound ``xᵀ t_a + α √(xᵀ P_a x)``; a payoff model fills the arms'
``t_a`` (K, d) and packed ``P_a`` (K, d(d+1)/2), and ``bounds`` does the rest.
"""

from __future__ import annotations

import numpy as np

from whim.kernels.jit import jit
from whim.kernels.linalg import udu
from whim.types import F64, I64

_BLOCK = 2**22  # scores per block: enough work for BLAS to use its threads, 32 MB of memory


@jit
def pack_rows(F: F64, slots: I64, d: int, out: F64) -> None:
    """Packed inverses of the given rows."""
    inverse = np.empty((d, d))
    for c in range(slots.shape[0]):
        udu.dense(F[slots[c]], inverse)
        udu.symmetric(inverse, out[c])


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
def combine(squared: F64, alpha: float, out: F64) -> None:
    """``out += alpha · sqrt(squared)``, with rounding below zero taken as zero."""
    n, m = out.shape
    for i in range(n):
        for j in range(m):
            out[i, j] += alpha * np.sqrt(max(squared[i, j], 0.0))


def bounds(X: F64, T: F64, P: F64, alpha: float, width: F64 | None = None) -> F64:
    """Upper bounds of every context for every arm, (n, K); ``width``, if given, takes √(xᵀPx)."""
    n, d = X.shape
    result: F64 = np.matmul(X, T.T)
    size = min(n, max(1, _BLOCK // len(T)))
    features = np.empty((size, udu.packed_size(d)))
    squared = np.empty((size, len(T)))
    for at in range(0, n, size):
        rows = X[at : at + size]
        some = len(rows)
        expand(rows, features[:some])
        np.matmul(features[:some], P.T, out=squared[:some])
        combine(squared[:some], alpha, result[at : at + some])
        if width is not None:
            width[at : at + some] = np.sqrt(np.maximum(squared[:some], 0.0))
    return result
