"""The inverse of a ridge matrix as ``A⁻¹ = U D Uᵀ``, kept exact by rank-one steps.

Keeping factors instead of the inverse itself (Bierman's form, known from Kalman filters) costs
the same d²/2 numbers and products, can never turn indefinite, and loses no digits where the
inverse would: after ten million plays of one context scaled by 1e6, widths are right to 2e-8
where ``numpy.linalg.inv`` of the summed matrix is off by orders of magnitude (docs/math.md). So
no sums are kept and nothing is ever refreshed.

A model is a row ``f``: ``D`` (d numbers), then the strictly upper triangle of the unit matrix
``U`` column by column, U_ij at d + j(j-1)/2 + i, d(d+1)/2 numbers in all, then its d coefficients
theta. Sums run in a fixed order, so bits do not depend on who calls.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whim.kernels.jit import inline, jit
from whim.kernels.linalg import vectors
from whim.types import F64

# a step from contexts of size 1 to one of size s costs the mean about s · 1e-16: refused in time
LARGEST = 1e10
VECTORS = True  # False in kernels for short vectors only, which take half the time to compile
SHORT = 24  # vectors shorter than this are summed number by number, one model at a time
LONG = 32  # from this length on a score is summed in vectors, too: one model at a time


def packed_size(d: int) -> int:
    """Numbers of the factors: d(d+1)/2."""
    return d * (d + 1) // 2


def prior(d: int, ridge: float, more: int = 0) -> F64:
    """The row of a model that has learnt nothing: ``A = ridge · I``, then d + ``more`` zeros."""
    row = np.zeros(packed_size(d) + d + more)
    row[:d] = 1.0 / ridge
    return row


@inline
def set_prior(f: F64, d: int, ridge: float) -> None:
    """Reset a row, whole, to ``A = ridge · I`` and zeros."""
    for j in range(f.shape[0]):
        f[j] = 1.0 / ridge if j < d else 0.0


@inline
def finite(x: F64) -> bool:
    """Whether every entry is a number of at most LARGEST in size (nan is not)."""
    fine = True
    for j in range(x.shape[0]):
        fine &= abs(x[j]) <= LARGEST
    return fine


@inline
def aligned(x: F64) -> bool:
    """Whether x has its numbers side by side, each at an address that is a multiple of eight."""
    return x.shape[0] == 0 or (x.strides[0] == 8 and x.ctypes.data % 8 == 0)


@inline
def _column(f: F64, x: F64, j: Any, k: Any) -> float:
    """``(Uᵀ x)_j``, with column j starting at ``k``."""
    value: float = x[j]
    # unsigned numbers spare the compiler Python's indexing from the end
    start = np.uint64(k)
    for i in range(np.uint64(j)):
        value += f[start + i] * x[i]
    return value


@inline
def quad(f: F64, x: F64) -> float:
    """``xᵀ A⁻¹ x``."""
    d = x.shape[0]
    if VECTORS and d >= SHORT:
        return vectors.quad(f, x, d)
    k = d
    total = 0.0
    for j in range(d):
        value = _column(f, x, j, k)
        total += f[j] * value * value
        k += j
    return total


@inline
def rank_one(f: F64, x: F64, weight: float, w: F64) -> float:
    """Make ``A += weight · x xᵀ`` in one pass (Bierman's update).

    Leaves ``A⁻¹ x`` of the matrix before in ``w`` and returns ``1 + weight · xᵀ A⁻¹ x``.
    """
    if VECTORS and x.shape[0] >= SHORT:
        return vectors.rank_one(f, x, x.shape[0], weight, w)
    k = np.uint64(x.shape[0])
    a = 1.0 / weight
    inverse = weight
    for j in range(np.uint64(x.shape[0])):
        value = _column(f, x, j, k)
        v = f[j] * value
        ratio = -value * inverse
        after = a + value * v
        inverse = 1.0 / after
        f[j] *= a * inverse
        a = after
        for i in range(j):
            u = f[k + i]
            f[k + i] = u + w[i] * ratio
            w[i] += u * v
        w[j] = v
        k += j
    return a * weight


@inline
def predict(f: F64, x: F64) -> float:
    """``xᵀ theta``."""
    d = x.shape[0]
    at = d * (d + 1) // 2
    if VECTORS and d >= LONG:
        return vectors.dot(f, at, x, d)
    total = 0.0
    start = np.uint64(at)
    for j in range(np.uint64(d)):
        total += x[j] * f[start + j]
    return total


@inline
def learn(f: F64, x: F64, r: float, w: F64) -> None:
    """One ridge observation: ``A += x xᵀ`` and theta stays ``A⁻¹ b``; ``w`` is scratch."""
    d = x.shape[0]
    at = d * (d + 1) // 2
    a = rank_one(f, x, 1.0, w)
    gain = (r - predict(f, x)) / a
    for j in range(d):
        f[at + j] += w[j] * gain


@inline
def times(f: F64, x: F64, w: F64) -> float:
    """``w = A⁻¹ x``; returns ``xᵀ A⁻¹ x``."""
    k = x.shape[0]
    total = 0.0
    for j in range(x.shape[0]):
        value = _column(f, x, j, k)
        v = f[j] * value
        total += v * value
        for i in range(j):
            w[i] += f[k + i] * v
        w[j] = v
        k += j
    return total


@inline
def downdate(f: F64, x: F64, w: F64, v: F64) -> float:
    """Make ``A -= x xᵀ`` for an observation that is in ``A``; returns ``1 - xᵀ A⁻¹ x``.

    Taking away from ``A`` adds ``w wᵀ / (1 - s)`` to the inverse, and adding to ``U D Uᵀ`` is
    stable. Leaves ``A⁻¹ x`` of the matrix before in ``w``; ``v`` is scratch.
    """
    d = x.shape[0]
    rest = 1.0 - times(f, x, w)
    for j in range(d):
        v[j] = w[j]
    c = 1.0 / rest
    # from the last column back: D_j' = D_j + c v_j², the rest moves on to the columns before
    k = d + d * (d - 1) // 2
    for j in range(d - 1, -1, -1):
        k -= j
        before = f[j]
        after = before + c * v[j] * v[j]
        share = c * v[j] / after
        f[j] = after
        for i in range(j):
            u = f[k + i]
            v[i] -= v[j] * u
            f[k + i] = u + share * v[i]
        c *= before / after
    return rest


@jit
def dense(f: F64, out: F64) -> None:
    """The inverse itself, as a full d × d matrix."""
    d = out.shape[0]
    out[:, :] = 0.0
    k = d
    for j in range(d):
        for i in range(j + 1):
            own = f[k + i] if i < j else 1.0
            scaled = f[j] * own
            for h in range(j + 1):
                other = f[k + h] if h < j else 1.0
                out[i, h] += scaled * other
        k += j


@jit
def symmetric(matrix: F64, out: F64) -> None:
    """Pack a symmetric matrix so that ``out · (x_i x_j for i <= j) = xᵀ matrix x``."""
    d = matrix.shape[0]
    k = 0
    for i in range(d):
        out[k] = matrix[i, i]
        k += 1
        for j in range(i + 1, d):
            out[k] = 2.0 * matrix[i, j]
            k += 1
