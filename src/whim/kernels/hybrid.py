"""Hybrid payoffs: each arm its own coefficients of x, and β of the cross features z for all.

LinUCB-Hybrid (Li et al. 2010, Algorithm 2) and PSLinUCB-Hybrid (Algorithm 2 of the paper) in
rank-one form. A row of ``cum`` holds the factors of A, then t = A⁻¹b, then C = A⁻¹B row by row;
a row of ``pre`` the same for M_pre, then the window's sums of x, z and r. ``shared`` holds the
factors of A0 and β: row 0 is G_cum, row 1 G_pre. With u = z - Cᵀx and g = 1/(1 + xᵀA⁻¹x), one
observation is A0 += g u uᵀ, and xᵀθ + zᵀβ = xᵀt + uᵀβ. A0 and b0 themselves are never formed, not
even when a change is detected.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import disjoint, factors, uniform, vectors, windows
from whim.kernels.disjoint import CHANGED, GROW, NOT_FINITE, POPS, QUIET, SEEDED
from whim.kernels.jit import inline, jit, lean
from whim.types import F64, I64

__all__ = [
    "CUM", "PRE", "choose", "forms", "freeze", "join", "learn_many", "learn_one", "leave",
    "observe", "observe_many", "own", "pack", "residual", "restart", "score", "spread", "theta",
    "trade",
]  # fmt: skip

CUM, PRE = range(2)


@inline
def spread(kind: int, x: F64, slots: I64, features: F64, cross: F64, U: F64) -> None:
    """Column c of ``U`` becomes z of candidate c; candidates innermost, for vectors of them."""
    k, n = U.shape
    if kind == uniform.GIVEN:
        for c in range(n):
            for j in range(k):
                U[j, c] = cross[c, j]
        return
    d = x.shape[0]
    for h in range(features.shape[1]):
        y = U[h * d + d - 1]  # the last row to be filled holds the features until then
        for c in range(n):
            y[c] = features[slots[c], h]
        for i in range(d):
            row, x_i = U[h * d + i], x[i]
            for c in range(n):
                row[c] = x_i * y[c]


@inline
def forms(U: F64, shared: F64, square: F64, mean: F64) -> None:
    """Add uᵀA0⁻¹u to ``square`` and uᵀβ to ``mean``, for each column u of ``U``."""
    k, n = U.shape
    vectors.add_rows(mean, n, shared[CUM], k * (k + 1) // 2, U, 0, n, k)
    column = k
    for j in range(k):
        vectors.add_squares(square, n, shared[CUM, j], shared[CUM], column, U, j)
        column += j


@jit
def score(
    kind: int, x: F64, slots: I64, features: F64, cross: F64, cum: F64, shared: F64, k: int,
    alpha: float, out: F64, scratch: F64,
) -> int:  # fmt: skip
    """Upper confidence bounds into ``out`` (score, mean, width); the best one's place or -1.

    uᵀA0⁻¹u is taken for all candidates at once, candidates innermost: each one's sum keeps its
    order and the processor does several of them in one instruction. ``scratch`` needs
    (k + 2) n + k numbers.
    """
    if not factors.finite(x):
        return -1
    n = slots.shape[0]
    U = scratch[: k * n].reshape((k, n))
    rest = scratch[k * n :]
    z, mean, square = rest[:k], rest[k : k + n], rest[k + n : k + 2 * n]
    spread(kind, x, slots, features, cross, U)
    for c in range(n):
        for j in range(k):
            z[j] = 0.0
        residual(cum, slots[c], x, z)
        for j in range(k):
            U[j, c] += z[j]
    for c in range(0, n, 4):  # past the end, the last candidate once more
        c_1, c_2, c_3 = min(c + 1, n - 1), min(c + 2, n - 1), min(c + 3, n - 1)
        (
            mean[c], mean[c_1], mean[c_2], mean[c_3],
            square[c], square[c_1], square[c_2], square[c_3],
        ) = disjoint.four(x, cum, slots[c], slots[c_1], slots[c_2], slots[c_3])  # fmt: skip

    forms(U, shared, square, mean)

    best = 0
    for c in range(n):
        out[c, 1] = mean[c]
        out[c, 2] = alpha * np.sqrt(square[c])
        out[c, 0] = out[c, 1] + out[c, 2]
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@lean
def choose(
    kind: int, x: F64, slots: I64, features: F64, cross: F64, cum: F64, shared: F64, k: int,
    alpha: float, out: F64, scratch: F64,
) -> tuple[int, float, float, float]:  # fmt: skip
    """Slot, score, mean and width of the best candidate; slot -1 if x is not finite."""
    best = score(kind, x, slots, features, cross, cum, shared, k, alpha, out, scratch)
    if best < 0:
        return -1, 0.0, 0.0, 0.0
    return slots[best], out[best, 0], out[best, 1], out[best, 2]


@inline
def residual(M: F64, row: int, x: F64, z: F64) -> None:
    """``z -= Cᵀ x``."""
    d, k = x.shape[0], z.shape[0]
    vectors.subtract_rows(z, k, x, 0, M[row], d * (d + 1) // 2 + d, k, d)


@jit
def own(M: F64, row: int, x: F64, z: F64, r: float, w: F64, u: F64) -> tuple[float, float]:
    """Let the arm's own model learn; leaves u of the model before, returns g and the error e."""
    d, k = x.shape[0], z.shape[0]
    at = d * (d + 1) // 2
    for j in range(k):
        u[j] = z[j]
    residual(M, row, x, u)
    error = r - factors.predict(M, row, x)
    g = 1.0 / factors.rank_one(M, row, x, 1.0, w)
    for i in range(d):
        step = g * w[i]
        M[row, at + i] += step * error
        C_i = M[row, at + d + i * k : at + d + i * k + k]
        for j in range(k):
            C_i[j] += step * u[j]
    return g, error


@jit
def join(shared: F64, which: int, g: float, error: float, u: F64, h: F64) -> None:
    """Let β learn: one least-squares step with feature u, target e and weight g."""
    k = u.shape[0]
    beta = k * (k + 1) // 2
    miss = error - factors.predict(shared, which, u)
    gain = g * miss / factors.rank_one(shared, which, u, g, h)
    for j in range(k):
        shared[which, beta + j] += h[j] * gain


@jit
def leave(shared: F64, which: int, g: float, error: float, u: F64, h: F64, v: F64) -> None:
    """Let β unlearn: undo what ``join`` with the same u, e and g added. Scales u by √g."""
    k = u.shape[0]
    beta = k * (k + 1) // 2
    root = np.sqrt(g)
    miss = error - factors.predict(shared, which, u)
    for j in range(k):
        u[j] *= root
    gain = root * miss / factors.downdate(shared, which, u, h, v)
    for j in range(k):
        shared[which, beta + j] -= h[j] * gain


@lean
def learn_one(
    kind: int, x: F64, row: int, features: F64, cross: F64, r: float, cum: F64, shared: F64,
    k: int, work: F64,
) -> int:  # fmt: skip
    """One play under LinUCB-Hybrid; ``cross`` holds the played arm's row, if any."""
    if not factors.finite(x):
        return NOT_FINITE
    z, u, w = work[0, :k], work[1, :k], work[2]
    uniform.feature(kind, x, features, row, cross, 0, z)
    g, error = own(cum, row, x, z, r, w, u)
    join(shared, CUM, g, error, u, w)
    return QUIET


@jit
def learn_many(
    kind: int, X: F64, slots: I64, features: F64, cross: F64, rewards: F64, cum: F64, shared: F64,
    k: int, work: F64,
) -> None:  # fmt: skip
    """Plays in order under LinUCB-Hybrid."""
    z, u, w = work[0, :k], work[1, :k], work[2]
    for i in range(slots.shape[0]):
        uniform.feature(kind, X[i], features, slots[i], cross, i, z)
        g, error = own(cum, slots[i], X[i], z, rewards[i], w, u)
        join(shared, CUM, g, error, u, w)


@jit
def theta(M: F64, row: int, shared: F64, which: int, d: int, k: int, out: F64) -> None:
    """θ = t - Cβ."""
    at = d * (d + 1) // 2
    beta = k * (k + 1) // 2
    for i in range(d):
        value = M[row, at + i]
        for j in range(k):
            value -= M[row, at + d + i * k + j] * shared[which, beta + j]
        out[i] = value


@jit
def trade(
    row: int, d: int, k: int, z_at: int, r_at: int, exact: bool, ridge: float, cum: F64, pre: F64,
    shared: F64, pool: F64, links: I64, table: I64, work: F64,
) -> None:  # fmt: skip
    """The arm becomes a new one that has seen just its window; the old one stays in G, frozen.

    G_cum trades S(pre ∪ window) for S(pre) + S(window), the equation after a detection, by
    rank-one steps: first the window joins as a new arm's, then it leaves as the old one's. In
    this order no direction is ever left with the ridge alone, so no digits are lost. G_pre takes
    S(window) when ``exact``. ``pre`` is left with the whole old arm. A record's z and r stand at
    ``z_at`` and ``r_at``.
    """
    u, w, v = work[1, :k], work[2], work[3]
    count = table[row, windows.COUNT]
    head, head_at = table[row, windows.HEAD], table[row, windows.HEAD_AT]
    factors.set_prior(cum, row, d, ridge)
    chunk, place = head, head_at
    for _ in range(count):
        old = pool[chunk, place]
        g, error = own(cum, row, old[:d], old[z_at : z_at + k], old[r_at], w, u)
        join(shared, CUM, g, error, u, w)
        if exact:
            join(shared, PRE, g, error, u, w)
        chunk, place = windows.advance(pool, links, chunk, place)
    chunk, place = head, head_at
    for _ in range(count):
        old = pool[chunk, place]
        g, error = own(pre, row, old[:d], old[z_at : z_at + k], old[r_at], w, u)
        leave(shared, CUM, g, error, u, w, v)
        chunk, place = windows.advance(pool, links, chunk, place)


@jit
def restart(
    row: int, d: int, k: int, exact: bool, ridge: float, cum: F64, pre: F64, shared: F64,
    pool: F64, links: I64, table: I64, work: F64,
) -> None:  # fmt: skip
    """After a change, ``trade``; M_pre is then M_cum, and G_pre becomes G_cum when literal."""
    size = cum.shape[1]
    trade(row, d, k, d, d + k, exact, ridge, cum, pre, shared, pool, links, table, work)
    if not exact:
        for j in range(shared.shape[1]):
            shared[PRE, j] = shared[CUM, j]
    for j in range(size):
        pre[row, j] = cum[row, j]
    for j in range(size, pre.shape[1]):
        pre[row, j] = 0.0
    windows.clear(table, row, links)
    table[row, POPS] = 0


@jit
def freeze(
    row: int, d: int, k: int, pre: F64, shared: F64, pool: F64, links: I64, table: I64, work: F64
) -> None:  # fmt: skip
    """Before an arm is retired or reset: its window, never to be tested again, joins G_pre."""
    u, w = work[1, :k], work[2]
    chunk, place = table[row, windows.HEAD], table[row, windows.HEAD_AT]
    for _ in range(table[row, windows.COUNT]):
        old = pool[chunk, place]
        g, error = own(pre, row, old[:d], old[d : d + k], old[d + k], w, u)
        join(shared, PRE, g, error, u, w)
        chunk, place = windows.advance(pool, links, chunk, place)


@inline
def _observe(
    row: int, x: F64, z: F64, r: float, window: int, threshold: float, seed_first: bool,
    exact: bool, ridge: float, cum: F64, pre: F64, shared: F64, pool: F64, links: I64, table: I64,
    work: F64,
) -> int:  # fmt: skip
    d, k = x.shape[0], z.shape[0]
    size = cum.shape[1]
    u, w = work[1, :k], work[2]
    chunk, place = windows.push(table, row, pool, links)
    for j in range(d):
        pool[chunk, place, j] = x[j]
        pre[row, size + j] += x[j]
    for j in range(k):
        pool[chunk, place, d + j] = z[j]
        pre[row, size + d + j] += z[j]
    pool[chunk, place, d + k] = r
    pre[row, size + d + k] += r
    g, error = own(cum, row, x, z, r, w, u)
    join(shared, CUM, g, error, u, w)
    if table[row, windows.COUNT] < window:
        return QUIET

    # |x̄ᵀθ_pre + z̄ᵀβ_pre - r̄| = |x̄ᵀt_pre + (z̄ - C_preᵀ x̄)ᵀ β_pre - r̄|
    at = d * (d + 1) // 2
    beta = k * (k + 1) // 2
    gap = -pre[row, size + d + k]
    for i in range(d):
        gap += pre[row, size + i] * pre[row, at + i]
        w[i] = pre[row, size + i]
    for j in range(k):
        u[j] = pre[row, size + d + j]
    residual(pre, row, w[:d], u)
    for j in range(k):
        gap += u[j] * shared[PRE, beta + j]
    statistic = abs(gap) / window
    first = seed_first and table[row, SEEDED] == 0
    if first or statistic >= threshold:
        theta(cum, row, shared, CUM, d, k, work[4])
        restart(row, d, k, exact, ridge, cum, pre, shared, pool, links, table, work)
        theta(cum, row, shared, CUM, d, k, work[5])
        work[6, 0] = statistic
        table[row, SEEDED] = 1
        return QUIET if first else CHANGED

    chunk, place = windows.pop(table, row, pool, links)
    old = pool[chunk, place]
    g, error = own(pre, row, old[:d], old[d : d + k], old[d + k], w, u)
    join(shared, PRE, g, error, u, w)
    table[row, POPS] += 1
    if table[row, POPS] >= window:
        table[row, POPS] = 0
        windows.total(row, size, pre, pool, links, table)
    else:
        for j in range(d + k + 1):
            pre[row, size + j] -= old[j]
    return QUIET


@lean
def observe(
    kind: int, x: F64, row: int, features: F64, cross: F64, r: float, window: int,
    threshold: float, seed_first: bool, exact: bool, ridge: float, cum: F64, pre: F64,
    shared: F64, k: int, pool: F64, links: I64, table: I64, work: F64,
) -> int:  # fmt: skip
    """One play under PSLinUCB-Hybrid: learn, test the full window, restart or slide.

    Returns NOT_FINITE or, when the pool has no room, GROW before anything is touched. On a
    change ``work`` holds theta before and after in rows 4 and 5 and the statistic in row 6.
    """
    if not factors.finite(x):
        return NOT_FINITE
    if windows.full(table, row, pool, links):
        return GROW
    z = work[0, :k]
    uniform.feature(kind, x, features, row, cross, 0, z)
    return _observe(
        row, x, z, r, window, threshold, seed_first, exact, ridge, cum, pre, shared,
        pool, links, table, work,
    )  # fmt: skip


@jit
def observe_many(
    start: int, kind: int, X: F64, slots: I64, features: F64, cross: F64, rewards: F64,
    window: int, threshold: float, seed_first: bool, exact: bool, ridge: float, cum: F64,
    pre: F64, shared: F64, k: int, pool: F64, links: I64, table: I64, work: F64,
) -> tuple[int, int]:  # fmt: skip
    """Plays in order from ``start``; stops after a change, or before a play the pool cannot hold.

    Returns where to go on and why it stopped.
    """
    z = work[0, :k]
    for i in range(start, slots.shape[0]):
        if windows.full(table, slots[i], pool, links):
            return i, GROW
        uniform.feature(kind, X[i], features, slots[i], cross, i, z)
        status = _observe(
            slots[i], X[i], z, rewards[i], window, threshold, seed_first, exact, ridge,
            cum, pre, shared, pool, links, table, work,
        )  # fmt: skip
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET


@jit
def pack(cum: F64, slots: I64, shared: F64, features: F64, d: int, k: int, T: F64, P: F64) -> None:
    """For ``batch.bounds``: with u = Ex, E = kron(y, I) - Cᵀ, the bound's mean and square in x.

    t_a <- t + Eᵀβ and P_a <- A⁻¹ + EᵀA0⁻¹E.
    """
    at = d * (d + 1) // 2
    beta = k * (k + 1) // 2
    A0_inv = np.empty((k, k))
    factors.dense(shared, CUM, A0_inv)
    square = np.empty((d, d))
    E = np.empty((k, d))
    half = np.empty((k, d))
    for c in range(slots.shape[0]):
        row = slots[c]
        for j in range(k):
            for i in range(d):
                E[j, i] = -cum[row, at + d + i * k + j]
        for h in range(features.shape[1]):
            for i in range(d):
                E[h * d + i, i] += features[row, h]
        half[:, :] = 0.0
        for j in range(k):
            for h in range(k):
                for i in range(d):
                    half[j, i] += A0_inv[j, h] * E[h, i]
        factors.dense(cum, row, square)
        for i in range(d):
            T[c, i] = cum[row, at + i]
        for j in range(k):
            for i in range(d):
                T[c, i] += E[j, i] * shared[CUM, beta + j]
                for g in range(d):
                    square[i, g] += E[j, i] * half[j, g]
        factors.symmetric(square, P[c])
