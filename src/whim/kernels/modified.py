"""The appendix's algorithm: LinUCB whose window's halves are compared, all arms restarted.

A row of ``cum`` is the arm's ridge model. A row of ``half`` holds, of the window's older half,
Σ x xᵀ (d², full) and Σ r x, then of its newer half Σ x and Σ r. The older half's fit has no
ridge in the paper, so its matrix may be singular (always, when one user comes back) and θ_pre is
the least-norm solution: this takes the eigenvalues of one d × d matrix a test, not an inverse.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import contextfree, disjoint, factors, windows
from whim.kernels.disjoint import CHANGED, GROW, NOT_FINITE, QUIET
from whim.kernels.jit import inline, jit
from whim.types import F64, I64

__all__ = ["TABLE", "least_norm", "observe", "observe_many", "score"]

# columns of ``table`` after those of the window: the newer half's first record, and slides
MIDDLE = windows.ENDS
MIDDLE_AT = windows.ENDS + 1
SLIDES = windows.ENDS + 2
TABLE = windows.ENDS + 3

_RCOND = 1e-10


@jit
def _jacobi(A: F64, V: F64) -> None:
    """Eigenvalues of a symmetric matrix onto A's diagonal, eigenvectors into V's columns."""
    d = A.shape[0]
    for i in range(d):
        for j in range(d):
            V[i, j] = 1.0 if i == j else 0.0
    for _ in range(60):
        off, on = 0.0, 0.0
        for i in range(d):
            on += A[i, i] * A[i, i]
            for j in range(i):
                off += A[i, j] * A[i, j]
        if off <= 1e-32 * on:
            return
        for p in range(d - 1):
            for q in range(p + 1, d):
                if A[p, q] == 0.0:
                    continue
                ratio = (A[q, q] - A[p, p]) / (2.0 * A[p, q])
                t = 1.0 / (abs(ratio) + np.sqrt(ratio * ratio + 1.0))
                if ratio < 0.0:
                    t = -t
                c = 1.0 / np.sqrt(t * t + 1.0)
                s = t * c
                for i in range(d):
                    a, b = A[i, p], A[i, q]
                    A[i, p], A[i, q] = c * a - s * b, s * a + c * b
                for i in range(d):
                    a, b = A[p, i], A[q, i]
                    A[p, i], A[q, i] = c * a - s * b, s * a + c * b
                for i in range(d):
                    a, b = V[i, p], V[i, q]
                    V[i, p], V[i, q] = c * a - s * b, s * a + c * b


@jit
def least_norm(A: F64, b: F64, theta: F64) -> None:
    """``theta = A⁺ b`` for a positive semidefinite A, which is overwritten."""
    d = b.shape[0]
    V = np.empty((d, d))
    _jacobi(A, V)
    largest = 0.0
    for i in range(d):
        largest = max(largest, abs(A[i, i]))
    for i in range(d):
        theta[i] = 0.0
    for j in range(d):
        if A[j, j] > _RCOND * largest:
            part = 0.0
            for i in range(d):
                part += V[i, j] * b[i]
            part /= A[j, j]
            for i in range(d):
                theta[i] += V[i, j] * part


@jit
def score(
    x: F64, slots: I64, cum: F64, alpha: float, live: I64, elapsed: int, gamma: float, out: F64
) -> int:
    """LinUCB's bounds; the candidate whose turn it is in the round robin scores +inf."""
    best = disjoint.score(x, slots, cum, alpha, out)
    turn = contextfree.round_robin(live, elapsed, gamma)
    if best < 0 or turn < 0:
        return best
    for c in range(slots.shape[0]):
        if slots[c] == turn:
            out[c, 0] = np.inf
            return c
    return best


@inline
def _older(half: F64, row: int, record: F64, d: int, sign: float) -> None:
    """Add a record to the older half's sums, or take it away."""
    r = sign * record[d]
    for i in range(d):
        x_i = sign * record[i]
        for j in range(d):
            half[row, i * d + j] += x_i * record[j]
        half[row, d * d + i] += r * record[i]


@inline
def _newer(half: F64, row: int, record: F64, d: int, sign: float) -> None:
    """Add a record to the newer half's sums, or take it away."""
    at = d * d + d
    for j in range(d + 1):
        half[row, at + j] += sign * record[j]


@jit
def _resum(row: int, d: int, window: int, half: F64, pool: F64, links: I64, table: I64) -> None:
    """Both halves' sums from the window itself, and where the newer half starts."""
    for j in range(half.shape[1]):
        half[row, j] = 0.0
    chunk, place = table[row, windows.HEAD], table[row, windows.HEAD_AT]
    for i in range(table[row, windows.COUNT]):
        if i == window // 2:
            table[row, MIDDLE], table[row, MIDDLE_AT] = chunk, place
        if i < window // 2:
            _older(half, row, pool[chunk, place], d, 1.0)
        else:
            _newer(half, row, pool[chunk, place], d, 1.0)
        chunk, place = windows.advance(pool, links, chunk, place)


@jit
def _slide(row: int, d: int, window: int, half: F64, pool: F64, links: I64, table: I64) -> None:
    """After a push to a full window: drop the oldest, hand the middle one to the older half."""
    chunk, place = windows.pop(table, row, pool, links)
    _older(half, row, pool[chunk, place], d, -1.0)
    chunk, place = table[row, MIDDLE], table[row, MIDDLE_AT]
    _older(half, row, pool[chunk, place], d, 1.0)
    _newer(half, row, pool[chunk, place], d, -1.0)
    chunk, place = windows.advance(pool, links, chunk, place)
    table[row, MIDDLE], table[row, MIDDLE_AT] = chunk, place
    table[row, SLIDES] += 1
    if table[row, SLIDES] >= window // 2:  # sums that run for ever gather rounding errors
        table[row, SLIDES] = 0
        _resum(row, d, window, half, pool, links, table)


@inline
def _observe(
    row: int, x: F64, r: float, window: int, threshold: float, ridge: float, live: I64,
    cum: F64, half: F64, pool: F64, links: I64, table: I64, work: F64,
) -> int:  # fmt: skip
    if windows.full(table, row, pool, links):
        return GROW
    d = x.shape[0]
    theta = cum.shape[1] - d
    chunk, place = windows.push(table, row, pool, links)
    for j in range(d):
        pool[chunk, place, j] = x[j]
    pool[chunk, place, d] = r
    factors.learn(cum, row, x, r, work[0])
    if table[row, windows.COUNT] < window:
        return QUIET
    if table[row, windows.COUNT] == window:
        _resum(row, d, window, half, pool, links, table)
    else:
        _newer(half, row, pool[chunk, place], d, 1.0)
        _slide(row, d, window, half, pool, links, table)

    A = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            A[i, j] = half[row, i * d + j]
    least_norm(A, half[row, d * d : d * d + d], work[1])
    at = d * d + d
    residual = -half[row, at + d]
    for j in range(d):
        residual += half[row, at + j] * work[1, j]
    statistic = abs(residual) / (window // 2)
    if statistic < threshold:
        return QUIET
    work[3, 0] = statistic
    for j in range(d):
        work[1, j] = cum[row, theta + j]
        work[2, j] = 0.0
    for c in range(live.shape[0]):
        factors.set_prior(cum, live[c], d, ridge)
        windows.clear(table, live[c], links)
        table[live[c], SLIDES] = 0
    return CHANGED


@jit
def observe(
    row: int, x: F64, r: float, window: int, threshold: float, ridge: float, live: I64,
    cum: F64, half: F64, pool: F64, links: I64, table: I64, work: F64,
) -> int:  # fmt: skip
    """One play: learn, compare the window's halves, restart every arm in ``live`` on a change.

    Returns and ``work`` as for ``disjoint.observe``.
    """
    if not factors.finite(x):
        return NOT_FINITE
    return _observe(row, x, r, window, threshold, ridge, live, cum, half, pool, links, table, work)


@jit
def observe_many(
    start: int, slots: I64, X: F64, rewards: F64, window: int, threshold: float, ridge: float,
    live: I64, cum: F64, half: F64, pool: F64, links: I64, table: I64, work: F64,
) -> tuple[int, int]:  # fmt: skip
    """Plays in order from ``start``; stops after a change, or before one with no room."""
    for i in range(start, slots.shape[0]):
        status = _observe(
            slots[i], X[i], rewards[i], window, threshold, ridge, live, cum, half, pool, links,
            table, work,
        )  # fmt: skip
        if status == GROW:
            return i, GROW
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET
