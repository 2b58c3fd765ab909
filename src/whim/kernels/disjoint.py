"""Disjoint payoffs: each arm its own ridge model of the user's features.

LinUCB (Li et al. 2010, Algorithm 1), linear Thompson sampling, and PSLinUCB-Disjoint
(Algorithm 1 of the paper). One row a slot: ``cum`` is the model M_cum; ``pre`` is M_pre followed
by the window's sum of x and sum of r. M_cur is never kept: it is the window's own ridge model,
rebuilt from the window on a change.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import factors, windows
from whim.kernels.jit import inline, jit, lean, live
from whim.types import F64, I64

__all__ = [
    "CHANGED",
    "GROW",
    "NOT_FINITE",
    "POPS",
    "QUIET",
    "SEEDED",
    "TABLE",
    "best",
    "choose",
    "four",
    "learn_many",
    "learn_one",
    "observe",
    "observe_many",
    "sample",
    "score",
    "take",
]

QUIET, CHANGED, GROW, NOT_FINITE = range(4)

# columns of ``table`` after those of the window
SEEDED = windows.ENDS
POPS = windows.ENDS + 1
TABLE = windows.ENDS + 2


@inline
def four(
    x: F64, cum: F64, a: int, b: int, c: int, e: int
) -> tuple[float, float, float, float, float, float, float, float]:
    """Means of four rows, then their squared widths: no sum waits for another's last addition.

    Unsigned numbers spare the compiler Python's indexing from the end.
    """
    d = np.uint64(x.shape[0])
    theta = d * (d + np.uint64(1)) // np.uint64(2)
    row_0, row_1, row_2, row_3 = np.uint64(a), np.uint64(b), np.uint64(c), np.uint64(e)
    mean_0, mean_1, mean_2, mean_3 = 0.0, 0.0, 0.0, 0.0
    quad_0, quad_1, quad_2, quad_3 = 0.0, 0.0, 0.0, 0.0
    column = d
    for j in range(d):
        x_j = x[j]
        mean_0 += x_j * cum[row_0, theta + j]
        mean_1 += x_j * cum[row_1, theta + j]
        mean_2 += x_j * cum[row_2, theta + j]
        mean_3 += x_j * cum[row_3, theta + j]
        f_0, f_1, f_2, f_3 = x_j, x_j, x_j, x_j
        for i in range(j):
            x_i = x[i]
            f_0 += cum[row_0, column + i] * x_i
            f_1 += cum[row_1, column + i] * x_i
            f_2 += cum[row_2, column + i] * x_i
            f_3 += cum[row_3, column + i] * x_i
        quad_0 += cum[row_0, j] * f_0 * f_0
        quad_1 += cum[row_1, j] * f_1 * f_1
        quad_2 += cum[row_2, j] * f_2 * f_2
        quad_3 += cum[row_3, j] * f_3 * f_3
        column += j
    return mean_0, mean_1, mean_2, mean_3, quad_0, quad_1, quad_2, quad_3


@jit
def score(x: F64, slots: I64, cum: F64, alpha: float, out: F64) -> int:
    """Upper confidence bounds of the candidates into ``out``; the best one's place.

    Columns of ``out``: score, mean, width. Returns -1 for a context that is not finite.
    """
    if not factors.finite(x):
        return -1
    n = slots.shape[0]
    long = x.shape[0] >= factors.LONG  # then one row has sums enough of its own
    for c in range(n if long else 0):
        out[c, 2] = factors.quad(cum, slots[c], x)
        out[c, 1] = factors.predict(cum, slots[c], x)
    last = n - 1
    for c in range(0, 0 if long else n, 4):  # past the end, the last candidate once more
        c_1, c_2, c_3 = min(c + 1, last), min(c + 2, last), min(c + 3, last)
        (
            out[c, 1], out[c_1, 1], out[c_2, 1], out[c_3, 1],
            out[c, 2], out[c_1, 2], out[c_2, 2], out[c_3, 2],
        ) = four(x, cum, slots[c], slots[c_1], slots[c_2], slots[c_3])  # fmt: skip
    best = 0
    for c in range(n):
        out[c, 2] = alpha * np.sqrt(out[c, 2])
        out[c, 0] = out[c, 1] + out[c, 2]
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@inline
def best(x: F64, slots: I64, cum: F64, alpha: float) -> tuple[int, float, float, float]:
    """Place, score, mean and width of the best candidate; place -1 if x is not finite."""
    if not factors.finite(x):
        return -1, 0.0, 0.0, 0.0
    chosen, best, best_mean, best_width = 0, -np.inf, 0.0, 0.0
    n = slots.shape[0]
    long = x.shape[0] >= factors.LONG  # through memory in one direction: widths, then means
    for c in range(n if long else 0):
        w_0 = alpha * np.sqrt(factors.quad(cum, slots[c], x))
        m_0 = factors.predict(cum, slots[c], x)
        if m_0 + w_0 > best:
            chosen, best, best_mean, best_width = c, m_0 + w_0, m_0, w_0
    last = n - 1
    for c in range(0, 0 if long else n, 4):
        c_1, c_2, c_3 = min(c + 1, last), min(c + 2, last), min(c + 3, last)
        m_0, m_1, m_2, m_3, q_0, q_1, q_2, q_3 = four(
            x, cum, slots[c], slots[c_1], slots[c_2], slots[c_3]
        )
        w_0, w_1 = alpha * np.sqrt(q_0), alpha * np.sqrt(q_1)
        w_2, w_3 = alpha * np.sqrt(q_2), alpha * np.sqrt(q_3)
        if m_0 + w_0 > best:
            chosen, best, best_mean, best_width = c, m_0 + w_0, m_0, w_0
        if m_1 + w_1 > best:
            chosen, best, best_mean, best_width = c_1, m_1 + w_1, m_1, w_1
        if m_2 + w_2 > best:
            chosen, best, best_mean, best_width = c_2, m_2 + w_2, m_2, w_2
        if m_3 + w_3 > best:
            chosen, best, best_mean, best_width = c_3, m_3 + w_3, m_3, w_3
    return chosen, best, best_mean, best_width


@live
def choose(x: F64, slots: I64, cum: F64, alpha: float) -> tuple[int, float, float, float]:
    """Slot, score, mean and width of the best candidate; slot -1 if x is not finite."""
    place, score, mean, width = best(x, slots, cum, alpha)
    return (slots[place] if place >= 0 else -1), score, mean, width


@jit
def sample(x: F64, slots: I64, cum: F64, alpha: float, noise: F64, out: F64) -> int:
    """As ``score`` for Thompson sampling: the score is ``mean + width · noise``.

    For one context xᵀθ̃ with θ̃ ~ N(θ, α²A⁻¹) is N(xᵀθ, α² xᵀA⁻¹x), independent over arms, so
    one normal number an arm gives the law of a whole posterior draw.
    """
    if score(x, slots, cum, alpha, out) < 0:
        return -1
    best = 0
    for c in range(slots.shape[0]):
        out[c, 0] = out[c, 1] + out[c, 2] * noise[c]
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@live
def learn_one(row: int, x: F64, r: float, cum: F64, w: F64) -> int:
    """One plain ridge update; NOT_FINITE, and nothing learnt, for such a context."""
    if not factors.finite(x):
        return NOT_FINITE
    factors.learn(cum, row, x, r, w)
    return QUIET


@lean
def learn_many(slots: I64, X: F64, rewards: F64, cum: F64, w: F64) -> None:
    """Plain ridge updates in order: LinUCB and Thompson sampling."""
    for i in range(slots.shape[0]):
        factors.learn(cum, slots[i], X[i], rewards[i], w)


@jit
def restart(
    row: int, d: int, ridge: float, cum: F64, pre: F64, pool: F64, links: I64, table: I64, w: F64
) -> None:
    """M_pre, M_cum <- M_cur; M_cur and the window <- empty."""
    factors.set_prior(cum, row, d, ridge)
    chunk, place = table[row, windows.HEAD], table[row, windows.HEAD_AT]
    for _ in range(table[row, windows.COUNT]):
        factors.learn(cum, row, pool[chunk, place, :d], pool[chunk, place, d], w)
        chunk, place = windows.advance(pool, links, chunk, place)
    for j in range(cum.shape[1]):
        pre[row, j] = cum[row, j]
    for j in range(cum.shape[1], pre.shape[1]):
        pre[row, j] = 0.0
    windows.clear(table, row, links)
    table[row, POPS] = 0


@inline
def take(
    row: int, x: F64, r: float, window: int, threshold: float, seed_first: bool, ridge: float,
    cum: F64, pre: F64, pool: F64, links: I64, table: I64, work: F64,
) -> int:  # fmt: skip
    """``observe`` for a context that is known to be finite."""
    if windows.full(table, row, pool, links):
        return GROW
    d = x.shape[0]
    sums = cum.shape[1]
    theta = sums - d
    chunk, place = windows.push(table, row, pool, links)
    for j in range(d):
        pool[chunk, place, j] = x[j]
        pre[row, sums + j] += x[j]
    pool[chunk, place, d] = r
    pre[row, sums + d] += r
    factors.learn(cum, row, x, r, work[0])
    if table[row, windows.COUNT] < window:
        return QUIET

    # the mean residual of Algorithm 1 is |x̄ᵀ theta_pre - r̄|: only the window's sums matter
    residual = -pre[row, sums + d]
    for j in range(d):
        residual += pre[row, sums + j] * pre[row, theta + j]
    statistic = abs(residual) / window
    first = seed_first and table[row, SEEDED] == 0
    if first or statistic >= threshold:
        work[3, 0] = statistic
        for j in range(d):
            work[1, j] = cum[row, theta + j]
        restart(row, d, ridge, cum, pre, pool, links, table, work[0])
        for j in range(d):
            work[2, j] = cum[row, theta + j]
        table[row, SEEDED] = 1
        return QUIET if first else CHANGED

    chunk, place = windows.pop(table, row, pool, links)
    old = pool[chunk, place]
    factors.learn(pre, row, old[:d], old[d], work[0])
    table[row, POPS] += 1
    if table[row, POPS] >= window:
        table[row, POPS] = 0
        windows.total(row, sums, pre, pool, links, table)
    else:
        for j in range(d + 1):
            pre[row, sums + j] -= old[j]
    return QUIET


@live
def observe(
    row: int, x: F64, r: float, window: int, threshold: float, seed_first: bool, ridge: float,
    cum: F64, pre: F64, pool: F64, links: I64, table: I64, work: F64,
) -> int:  # fmt: skip
    """One play under PSLinUCB-Disjoint: learn, test the full window, restart or slide.

    Returns NOT_FINITE or, when the pool has no room, GROW before anything is touched. On a
    change ``work`` holds theta before and after in rows 1 and 2 and the statistic in row 3.
    """
    if not factors.finite(x):
        return NOT_FINITE
    return take(row, x, r, window, threshold, seed_first, ridge, cum, pre, pool, links, table, work)


@lean
def observe_many(
    start: int, slots: I64, X: F64, rewards: F64, window: int, threshold: float,
    seed_first: bool, ridge: float, cum: F64, pre: F64, pool: F64, links: I64, table: I64,
    work: F64,
) -> tuple[int, int]:  # fmt: skip
    """Plays in order from ``start``; stops after a change, or before a play the pool cannot hold.

    Returns where to go on and why it stopped.
    """
    for i in range(start, slots.shape[0]):
        status = take(
            slots[i], X[i], rewards[i], window, threshold, seed_first, ridge,
            cum, pre, pool, links, table, work,
        )  # fmt: skip
        if status == GROW:
            return i, GROW
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET
