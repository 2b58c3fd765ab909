"""A symmetric matrix M as ``L E Lᵀ``, E diagonal and L unit lower, that grows by rank-one steps.

``udu`` keeps the inverse of a ridge matrix; this keeps a sum of φφᵀ itself, which may
be singular and may be scaled (by scaling E). M starts at place ``at`` of a row: E (p numbers), then
L below its diagonal column by column, p(p+1)/2 numbers in all. Zeros are M = 0.
"""

from __future__ import annotations

from whim.kernels.jit import inline
from whim.types import F64

_NOTHING = 1e-280  # a pivot below this has lost digits to underflow, and adds nothing


@inline
def add(f: F64, at: int, p: int, start: int, weight: float, v: F64) -> None:
    """Make ``M += weight · v vᵀ`` for a ``v`` that is zero before ``start``; spoils ``v``."""
    k = at + p + start * (2 * p - 1 - start) // 2
    for j in range(start, p):
        before = f[at + j]
        after = before + weight * v[j] * v[j]
        if after > _NOTHING and v[j] != 0.0:
            f[at + j] = after
            share = weight * v[j] / after
            kept = before / after
            weight *= kept
            # equal in exact arithmetic (Gill et al. 1974, C1 and C2): the first corrects its own
            # rounding, the second does not suffer from a large L whose pivot has faded
            gentle = kept > 0.25
            for i in range(j + 1, p):
                new = v[i]
                old = f[k + i - j - 1]
                v[i] = new - v[j] * old
                f[k + i - j - 1] = old + share * v[i] if gentle else kept * old + share * new
        k += p - 1 - j


@inline
def quad(f: F64, at: int, u: F64) -> float:
    """``uᵀ M u``."""
    p = u.shape[0]
    k = at + p
    total = 0.0
    for j in range(p):
        value = u[j]
        for i in range(j + 1, p):
            value += f[k + i - j - 1] * u[i]
        total += f[at + j] * value * value
        k += p - 1 - j
    return total


@inline
def solve(f: F64, at: int, x: F64, u: F64) -> float:
    """For M bordered as ``[[V, b], [bᵀ, c]]``: ``u = V⁻¹ x``, and returns ``bᵀ V⁻¹ x``.

    With V = L E Lᵀ the border of M's own L holds E⁻¹L⁻¹b, so b costs no solution and no digits.
    """
    p = x.shape[0]
    for j in range(p):
        u[j] = x[j]
    total = 0.0
    k = at + p + 1
    for j in range(p):
        for i in range(j + 1, p):
            u[i] -= f[k + i - j - 1] * u[j]
        total += f[k + p - j - 1] * u[j]
        k += p - j
    for j in range(p - 1, -1, -1):
        k -= p - j
        u[j] /= f[at + j]
        for i in range(j + 1, p):
            u[j] -= f[k + i - j - 1] * u[i]
    return total
