"""The inverse of a ridge matrix as ``A⁻¹ = U D Uᵀ``, kept exact by rank-one steps.

Keeping factors instead of the inverse itself (Bierman's form, known from Kalman filters) costs
the same d²/2 numbers and products, can never turn indefinite, and loses no digits where the
inverse would: after ten million plays of one context scaled by 1e6, widths are right to 2e-8
where ``numpy.linalg.inv`` of the summed matrix is off by orders of magnitude (docs/math.md). So
no sums are kept and nothing is ever refreshed.

A row of ``F`` holds ``D`` (d numbers), then the strictly upper triangle of the unit matrix
``U`` column by column: U_ij stands at d + j(j-1)/2 + i, d(d+1)/2 numbers in all. Functions take
the table and a row number; sums run in a fixed order, so bits do not depend on who calls.
A model's row has the factors first and its d coefficients theta right after.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whim.kernels import vectors
from whim.kernels.jit import inline, jit
from whim.types import F64

__all__ = [
    "LARGEST",
    "LONG",
    "dense",
    "downdate",
    "finite",
    "learn",
    "lies_well",
    "packed_size",
    "predict",
    "prior",
    "quad",
    "rank_one",
    "set_prior",
    "symmetric",
    "times",
]

# a step from contexts of size 1 to one of size s costs the mean about s · 1e-16: refused in time
LARGEST = 1e10
SHORT = 24  # vectors shorter than this are summed number by number, one model at a time
LONG = 32  # from this length on a score is summed in vectors, too: one model at a time


def packed_size(d: int) -> int:
    """Numbers in one row: d(d+1)/2."""
    return d * (d + 1) // 2


def prior(d: int, ridge: float, more: int = 0) -> F64:
    """The row of a model that has learnt nothing: ``A = ridge · I``, then d + ``more`` zeros."""
    row = np.zeros(packed_size(d) + d + more)
    row[:d] = 1.0 / ridge
    return row


@jit
def set_prior(F: F64, row: int, d: int, ridge: float) -> None:
    """Reset one row, whole, to ``A = ridge · I`` and zeros."""
    for j in range(d):
        F[row, j] = 1.0 / ridge
    for j in range(d, F.shape[1]):
        F[row, j] = 0.0


@inline
def finite(x: F64) -> bool:
    """Whether every entry is a number of at most LARGEST in size (nan is not)."""
    fine = True
    for j in range(x.shape[0]):
        fine &= abs(x[j]) <= LARGEST
    return fine


@inline
def lies_well(x: F64) -> bool:
    """Whether x has its numbers side by side, each at an address that is a multiple of eight."""
    return x.strides[0] == 8 and x.ctypes.data % 8 == 0


@inline
def _column(F: F64, row: Any, x: F64, j: Any, k: Any) -> float:
    """``(Uᵀ x)_j``, with column j starting at ``k``."""
    f: float = x[j]
    # unsigned numbers spare the compiler Python's indexing from the end
    line, start = np.uint64(row), np.uint64(k)
    for i in range(np.uint64(j)):
        f += F[line, start + i] * x[i]
    return f


@inline
def quad(F: F64, row: int, x: F64) -> float:
    """``xᵀ A⁻¹ x``."""
    d = x.shape[0]
    if d >= SHORT:
        return vectors.quad(F, row * F.shape[1], x, d)
    k = d
    total = 0.0
    for j in range(d):
        f = _column(F, row, x, j, k)
        total += F[row, j] * f * f
        k += j
    return total


@inline
def rank_one(F: F64, row: int, x: F64, weight: float, w: F64) -> float:
    """Make ``A += weight · x xᵀ`` in one pass (Bierman's update).

    Leaves ``A⁻¹ x`` of the matrix before in ``w`` and returns ``1 + weight · xᵀ A⁻¹ x``.
    """
    if x.shape[0] >= SHORT:
        return vectors.rank_one(F, row * F.shape[1], x, x.shape[0], weight, w)
    line, k = np.uint64(row), np.uint64(x.shape[0])
    a = 1.0 / weight
    inverse = weight
    for j in range(np.uint64(x.shape[0])):
        f = _column(F, line, x, j, k)
        v = F[line, j] * f
        ratio = -f * inverse
        after = a + f * v
        inverse = 1.0 / after
        F[line, j] *= a * inverse
        a = after
        for i in range(j):
            u = F[line, k + i]
            F[line, k + i] = u + w[i] * ratio
            w[i] += u * v
        w[j] = v
        k += j
    return a * weight


@inline
def predict(F: F64, row: int, x: F64) -> float:
    """``xᵀ theta``."""
    d = x.shape[0]
    at = d * (d + 1) // 2
    if d >= LONG:
        return vectors.dot(F, row * F.shape[1] + at, x, d)
    total = 0.0
    line, start = np.uint64(row), np.uint64(at)
    for j in range(np.uint64(d)):
        total += x[j] * F[line, start + j]
    return total


@inline
def learn(F: F64, row: int, x: F64, r: float, w: F64) -> None:
    """One ridge observation: ``A += x xᵀ`` and theta stays ``A⁻¹ b``; ``w`` is scratch."""
    d = x.shape[0]
    at = d * (d + 1) // 2
    a = rank_one(F, row, x, 1.0, w)
    gain = (r - predict(F, row, x)) / a
    for j in range(d):
        F[row, at + j] += w[j] * gain


@jit
def times(F: F64, row: int, x: F64, w: F64) -> float:
    """``w = A⁻¹ x``; returns ``xᵀ A⁻¹ x``."""
    k = x.shape[0]
    total = 0.0
    for j in range(x.shape[0]):
        f = _column(F, row, x, j, k)
        v = F[row, j] * f
        total += v * f
        for i in range(j):
            w[i] += F[row, k + i] * v
        w[j] = v
        k += j
    return total


@jit
def downdate(F: F64, row: int, x: F64, w: F64, v: F64) -> float:
    """Make ``A -= x xᵀ`` for an observation that is in ``A``; returns ``1 - xᵀ A⁻¹ x``.

    Taking away from ``A`` adds ``w wᵀ / (1 - s)`` to the inverse, and adding to ``U D Uᵀ`` is
    stable. Leaves ``A⁻¹ x`` of the matrix before in ``w``; ``v`` is scratch.
    """
    d = x.shape[0]
    rest = 1.0 - times(F, row, x, w)
    for j in range(d):
        v[j] = w[j]
    c = 1.0 / rest
    # from the last column back: D_j' = D_j + c v_j², the rest moves on to the columns before
    k = d + d * (d - 1) // 2
    for j in range(d - 1, -1, -1):
        k -= j
        before = F[row, j]
        after = before + c * v[j] * v[j]
        share = c * v[j] / after
        F[row, j] = after
        for i in range(j):
            u = F[row, k + i]
            v[i] -= v[j] * u
            F[row, k + i] = u + share * v[i]
        c *= before / after
    return rest


@jit
def dense(F: F64, row: int, out: F64) -> None:
    """The inverse itself, as a full d × d matrix."""
    d = out.shape[0]
    column = np.empty(d)
    out[:, :] = 0.0
    k = d
    for j in range(d):
        for i in range(j):
            column[i] = F[row, k + i]
        column[j] = 1.0
        k += j
        for i in range(j + 1):
            scaled = F[row, j] * column[i]
            for h in range(j + 1):
                out[i, h] += scaled * column[h]


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
