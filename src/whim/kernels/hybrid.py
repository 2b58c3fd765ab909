"""Hybrid payoffs: each arm its own coefficients of x, and β of the cross features z for all.

LinUCB-Hybrid (Li et al. 2010, Algorithm 2) and PSLinUCB-Hybrid (Algorithm 2 of the paper) in
rank-one form. With C = A⁻¹B, u = z - Cᵀx and g = 1/(1 + xᵀA⁻¹x), one observation is
A0 += g u uᵀ, and xᵀθ + zᵀβ = xᵀt + uᵀβ. A0 and b0 themselves are never formed, not even when a
change is detected. Nor is C: while an arm's z are kron(y, x), B is kron(yᵀ, A - λI), so that
u = λ kron(y, A⁻¹x). Where they are not, R is kept, what C has beyond that (docs/math.md).

A row of ``cum`` holds the factors of A, then t = A⁻¹b, then R row by row; a row of ``pre`` the
same for M_pre, then the window's sums of x, z and r. ``shared`` holds the factors of A0 and β:
row 0 is G_cum, row 1 G_pre.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import factors, lanes, uniform, vectors, windows
from whim.kernels.disjoint import CHANGED, GROW, NOT_FINITE, POPS, QUIET, SEEDED
from whim.kernels.jit import inline, jit, live
from whim.types import F64, I64

__all__ = [
    "CUM", "GIVEN", "MIXED", "PLAIN", "PRE", "apart", "best", "choose", "columns", "feature",
    "freeze", "join", "learn", "learn_many", "learn_one", "leave", "observe", "observe_many", "own",
    "pack", "recorded", "restart", "room", "score", "theta", "trade", "turn",
]  # fmt: skip

CUM, PRE = range(2)
# what z is: kron(y, x), as always before (R = 0); kron(y, x), but not always; the caller's rows
PLAIN, GIVEN, MIXED = uniform.CROSS, uniform.GIVEN, 3
SLACK = 1.01  # of the bound that spares a candidate: many times what rounding could take from it

FEW = 3  # candidates that are sooner done one by one than side by side


@inline
def columns(n: int) -> int:
    """Columns for n candidates side by side, or numbers for n: whole vectors."""
    return (n + 3) & ~3


def room(n: int, d: int, m: int, k: int) -> int:
    """Numbers of scratch for n candidates."""
    return (factors.packed_size(d) + 2 * d + m + k + 6) * ((n + 3) & ~3) + k


@inline
def feature(kind: int, x: F64, features: F64, row: int, cross: F64, c: int, z: F64) -> None:
    """``z`` of an arm: row c of ``cross`` if rows are given."""
    uniform.feature(GIVEN if kind == GIVEN else PLAIN, x, features, row, cross, c, z)


@inline
def _rest(kind: int, M: F64, row: int, x: F64, z: F64, features: F64, rest: F64) -> None:
    """``rest = z - kron(y, x) - Rᵀx``: what u has beyond λ kron(y, A⁻¹x). z counts if given."""
    d, k = x.shape[0], rest.shape[0]
    for j in range(k):
        rest[j] = z[j] if kind == GIVEN else 0.0
    for h in range(features.shape[1] if kind == GIVEN else 0):
        for i in range(d):
            rest[h * d + i] -= features[row, h] * x[i]
    vectors.subtract_rows(rest, k, x, 0, M[row], d * (d + 1) // 2 + d, k, d)


@inline
def _cast(features: F64, row: int, ridge: float, w: F64, d: int, u: F64) -> None:
    """``u += λ kron(y, w)``."""
    line, length = np.uint64(row), np.uint64(d)
    j = np.uint64(0)
    for h in range(np.uint64(features.shape[1])):
        y = ridge * features[line, h]
        for i in range(length):
            u[j + i] += y * w[i]
        j += length


@jit
def apart(
    kind: int, M: F64, row: int, x: F64, z: F64, features: F64, ridge: float, w: F64, u: F64
) -> float:
    """Leave u, and A⁻¹x in ``w``; returns xᵀA⁻¹x."""
    if kind == PLAIN:
        u[:] = 0.0
    else:
        _rest(kind, M, row, x, z, features, u)
    square = factors.times(M, row, x, w)
    _cast(features, row, ridge, w, x.shape[0], u)
    return square


@inline
def _side_by_side(
    x: F64, slots: I64, features: F64, cum: F64, shared: F64, ridge: float, k: int, scratch: F64
) -> tuple[F64, F64, F64, F64, F64, F64]:
    """Candidates side by side: y, λA⁻¹x, room for u, xᵀt + uᵀβ, xᵀA⁻¹x and |u|², if R = 0."""
    n, d, m = slots.shape[0], x.shape[0], features.shape[1]
    wide, last = columns(n), n - 1
    size = min(columns(d * (d + 1) // 2 + d), cum.shape[1])  # whole vectors, of R if need be
    P, rest = scratch[: size * wide], scratch[size * wide :]  # flat: reshaping is a call
    Y, rest = rest[: m * wide], rest[m * wide :]
    W, rest = rest[: d * wide], rest[d * wide :]
    U, rest = rest[: k * wide], rest[k * wide :]
    mean, square, length = rest[:wide], rest[wide : 2 * wide], rest[2 * wide : 3 * wide]
    for c in range(0, wide, 4):  # past the end, the last candidate once more
        a, b = slots[c], slots[min(c + 1, last)]
        e, f = slots[min(c + 2, last)], slots[min(c + 3, last)]
        lanes.beside(P, wide, c, cum, a, b, e, f, size)
        lanes.beside(Y, wide, c, features, a, b, e, f, m)
    lanes.solve(W, mean, square, wide, P, x)
    if ridge != 1.0:
        for i in range(d * wide):
            W[i] *= ridge
    lanes.crossed(mean, length, wide, Y, m, W, d, shared[CUM], k * (k + 1) // 2)
    return Y, W, U, mean, square, length


@jit
def score(
    kind: int, x: F64, slots: I64, features: F64, cross: F64, cum: F64, shared: F64, k: int,
    alpha: float, ridge: float, out: F64, scratch: F64,
) -> int:  # fmt: skip
    """Upper confidence bounds into ``out`` (score, mean, width); the best one's place or -1.

    All candidates at once, side by side: each one's sum keeps its order and the processor does
    several of them in one instruction. ``scratch`` needs ``room`` numbers.
    """
    if not factors.finite(x):
        return -1
    n, beta = slots.shape[0], k * (k + 1) // 2
    wide = columns(n)
    Y, W, U, mean, square, _ = _side_by_side(x, slots, features, cum, shared, ridge, k, scratch)
    if features.shape[1] == 0:
        U[:] = 0.0
    lanes.kron(U, wide, Y, features.shape[1], W, x.shape[0], wide)
    if kind != PLAIN:
        more = scratch[scratch.shape[0] - k :]
        for c in range(n):
            z = cross[c] if kind == GIVEN else more
            _rest(kind, cum, slots[c], x, z, features, more)
            mean[c] += vectors.dot(shared[CUM], beta, more, k)
            for j in range(k):
                U[j * wide + c] += more[j]
    lanes.forms(square, wide, shared[CUM], U, k)

    best = 0
    for c in range(n):
        out[c, 1] = mean[c]
        out[c, 2] = alpha * np.sqrt(square[c])
        out[c, 0] = out[c, 1] + out[c, 2]
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@inline
def best(
    x: F64, slots: I64, features: F64, cum: F64, shared: F64, alpha: float, ridge: float,
    scratch: F64,
) -> tuple[int, float, float, float]:  # fmt: skip
    """Place, score, mean and width of the best candidate if z is PLAIN; place -1 as in ``score``.

    As ``score`` to the last bit, with less work. uᵀA0⁻¹u is most of it, at least 0 and at most
    |u|²/λ, and u shrinks as an arm is played: a candidate whose score cannot reach what another
    is sure of is left out, and most are.
    """
    if not factors.finite(x):
        return -1, 0.0, 0.0, 0.0
    n, d, m = slots.shape[0], np.uint64(x.shape[0]), np.uint64(features.shape[1])
    k = x.shape[0] * features.shape[1]
    Y, W, U, mean, square, most = _side_by_side(x, slots, features, cum, shared, ridge, k, scratch)
    least, share = U[:n], SLACK / ridge  # u comes later
    sure = -np.inf
    for c in range(n):
        least[c] = mean[c] + alpha * np.sqrt(square[c])
        most[c] = mean[c] + alpha * np.sqrt(square[c] + share * most[c])
    for c in range(n):
        sure = max(sure, least[c])
    left = 0
    for c in range(n):  # without a branch that nobody could foresee
        out = most[c] < sure
        most[left] = c
        left += 1 - out
    few = left <= FEW
    u, wide = U[:k], np.uint64(columns(n))
    for i in range(np.uint64(left)):
        place = np.uint64(most[i])
        if few:
            for h in range(m):
                for j in range(d):
                    u[h * d + j] = Y[h * wide + place] * W[j * wide + place]
            square[i] = square[place] + vectors.quad(shared[CUM], 0, u, k)
        else:  # side by side, those who may win in front
            for h in range(m):
                Y[h * wide + i] = Y[h * wide + place]
            for j in range(d):
                W[j * wide + i] = W[j * wide + place]
            square[i] = square[place]
        mean[i] = mean[place]
    if not few:
        lanes.kron(U, columns(left), Y, features.shape[1], W, x.shape[0], columns(n))
        lanes.forms(square, columns(left), shared[CUM], U, k)

    found, score_found, mean_found, width_found = 0, -np.inf, 0.0, 0.0
    for i in range(left):
        width = alpha * np.sqrt(square[i])
        if mean[i] + width > score_found:
            found, score_found = int(most[i]), mean[i] + width
            mean_found, width_found = mean[i], width
    return found, score_found, mean_found, width_found


@live
def choose(
    features: F64, cum: F64, shared: F64, alpha: float, ridge: float, scratch: F64, x: F64,
    slots: I64,
) -> tuple[int, float, float, float]:  # fmt: skip
    """Slot, score, mean and width of the best candidate if z is PLAIN.

    Slot -1 if x is not finite or not an array as kernels want it.
    """
    if not factors.lies_well(x):
        return -1, 0.0, 0.0, 0.0
    place, value, mean, width = best(x, slots, features, cum, shared, alpha, ridge, scratch)
    return slots[place] if place >= 0 else -1, value, mean, width


@inline
def _own(
    kind: int, M: F64, row: int, x: F64, z: F64, features: F64, ridge: float, r: float, w: F64,
    u: F64,
) -> tuple[float, float]:  # fmt: skip
    d, k = x.shape[0], u.shape[0]
    at = d * (d + 1) // 2
    if kind == PLAIN:
        for j in range(k):
            u[j] = 0.0
    else:
        _rest(kind, M, row, x, z, features, u)
    error = r - factors.predict(M, row, x)
    g = 1.0 / factors.rank_one(M, row, x, 1.0, w)
    for i in range(d):
        step = g * w[i]
        M[row, at + i] += step * error
        if kind != PLAIN:
            R_i = M[row, at + d + i * k : at + d + i * k + k]
            for j in range(k):
                R_i[j] += step * u[j]
    _cast(features, row, ridge, w, d, u)
    return g, error


@jit
def own(
    kind: int, M: F64, row: int, x: F64, z: F64, features: F64, ridge: float, r: float, w: F64,
    u: F64,
) -> tuple[float, float]:  # fmt: skip
    """Let the arm's own model learn; leaves u of the model before, returns g and the error e."""
    return _own(kind, M, row, x, z, features, ridge, r, w, u)


@inline
def recorded(kind: int) -> int:
    """The kind of plays of before, whose z were kept: theirs may be another than kron(y, x)."""
    return PLAIN if kind == PLAIN else GIVEN


@jit
def turn(M: F64, row: int, change: F64, ridge: float, d: int, k: int) -> None:
    """An arm's features are new, y less ``change``: R takes what its plays so far had of it."""
    A_inv = np.empty((d, d))
    factors.dense(M, row, A_inv)
    at = d * (d + 1) // 2 + d
    for i in range(d):
        for h in range(change.shape[0]):
            M[row, at + i * k + h * d + i] += change[h]
            for j in range(d):
                M[row, at + i * k + h * d + j] -= change[h] * ridge * A_inv[i, j]


@inline
def _join(shared: F64, which: int, g: float, error: float, u: F64, h: F64) -> None:
    k = u.shape[0]
    beta = k * (k + 1) // 2
    miss = error - factors.predict(shared, which, u)
    gain = g * miss / factors.rank_one(shared, which, u, g, h)
    for j in range(k):
        shared[which, beta + j] += h[j] * gain


@jit
def join(shared: F64, which: int, g: float, error: float, u: F64, h: F64) -> None:
    """Let β learn: one least-squares step with feature u, target e and weight g."""
    _join(shared, which, g, error, u, h)


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


@inline
def learn(
    kind: int, x: F64, row: int, z: F64, features: F64, r: float, cum: F64, shared: F64,
    ridge: float, work: F64,
) -> None:  # fmt: skip
    """One play under LinUCB-Hybrid; z counts if given."""
    u, w = work[1, : z.shape[0]], work[2]
    g, error = _own(kind, cum, row, x, z, features, ridge, r, w, u)
    _join(shared, CUM, g, error, u, w)


@live
def learn_one(
    features: F64, cum: F64, shared: F64, ridge: float, work: F64, x: F64, row: int, r: float
) -> int:
    """``learn`` if z is PLAIN; NOT_FINITE, too, if x is not an array as kernels want it."""
    k = work.shape[1]
    fits = x.shape[0] * features.shape[1] == k
    if not (fits and factors.lies_well(x) and factors.finite(x)):
        return NOT_FINITE
    learn(PLAIN, x, row, work[0], features, r, cum, shared, ridge, work)
    return QUIET


@jit
def learn_many(
    kind: int, X: F64, slots: I64, features: F64, cross: F64, rewards: F64, cum: F64, shared: F64,
    k: int, ridge: float, work: F64,
) -> None:  # fmt: skip
    """Plays in order under LinUCB-Hybrid."""
    z = work[0, :k]
    for i in range(slots.shape[0]):
        if kind == GIVEN:
            feature(kind, X[i], features, slots[i], cross, i, z)
        learn(kind, X[i], slots[i], z, features, rewards[i], cum, shared, ridge, work)


@jit
def theta(
    M: F64, row: int, features: F64, ridge: float, shared: F64, which: int, d: int, k: int,
    w: F64, out: F64,
) -> None:  # fmt: skip
    """θ = t - Cβ = t - Rβ - q + λA⁻¹q, with q the sum of β's parts, each times its y."""
    at = d * (d + 1) // 2
    beta = k * (k + 1) // 2
    q = out[:d]
    for i in range(d):
        q[i] = 0.0
        for h in range(features.shape[1]):
            q[i] += features[row, h] * shared[which, beta + h * d + i]
    factors.times(M, row, q, w)
    for i in range(d):
        value = M[row, at + i] - q[i] + ridge * w[i]
        for j in range(k):
            value -= M[row, at + d + i * k + j] * shared[which, beta + j]
        out[i] = value


@jit
def trade(
    kind: int, row: int, d: int, k: int, z_at: int, r_at: int, exact: bool, features: F64,
    ridge: float, cum: F64, pre: F64, shared: F64, pool: F64, links: I64, table: I64, work: F64,
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
    kept = recorded(kind)
    factors.set_prior(cum, row, d, ridge)
    chunk, place = head, head_at
    for _ in range(count):
        old = pool[chunk, place]
        z, r = old[z_at : z_at + k], old[r_at]
        g, error = own(kept, cum, row, old[:d], z, features, ridge, r, w, u)
        join(shared, CUM, g, error, u, w)
        if exact:
            join(shared, PRE, g, error, u, w)
        chunk, place = windows.advance(pool, links, chunk, place)
    chunk, place = head, head_at
    for _ in range(count):
        old = pool[chunk, place]
        z, r = old[z_at : z_at + k], old[r_at]
        g, error = own(kept, pre, row, old[:d], z, features, ridge, r, w, u)
        leave(shared, CUM, g, error, u, w, v)
        chunk, place = windows.advance(pool, links, chunk, place)


@jit
def restart(
    kind: int, row: int, d: int, k: int, exact: bool, features: F64, ridge: float, cum: F64,
    pre: F64, shared: F64, pool: F64, links: I64, table: I64, work: F64,
) -> None:  # fmt: skip
    """After a change, ``trade``; M_pre is then M_cum, and G_pre becomes G_cum when literal."""
    size = cum.shape[1]
    trade(
        kind, row, d, k, d, d + k, exact, features, ridge, cum, pre, shared, pool, links, table,
        work,
    )  # fmt: skip
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
    kind: int, row: int, d: int, k: int, features: F64, ridge: float, pre: F64, shared: F64,
    pool: F64, links: I64, table: I64, work: F64,
) -> None:  # fmt: skip
    """Before an arm is retired or reset: its window, never to be tested again, joins G_pre."""
    u, w = work[1, :k], work[2]
    chunk, place = table[row, windows.HEAD], table[row, windows.HEAD_AT]
    for _ in range(table[row, windows.COUNT]):
        old = pool[chunk, place]
        z, r = old[d : d + k], old[d + k]
        g, error = own(recorded(kind), pre, row, old[:d], z, features, ridge, r, w, u)
        join(shared, PRE, g, error, u, w)
        chunk, place = windows.advance(pool, links, chunk, place)


@inline
def _observe(
    kind: int, row: int, x: F64, z: F64, features: F64, r: float, window: int, threshold: float,
    seed_first: bool, exact: bool, ridge: float, cum: F64, pre: F64, shared: F64, pool: F64,
    links: I64, table: I64, work: F64,
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
    g, error = own(kind, cum, row, x, z, features, ridge, r, w, u)
    join(shared, CUM, g, error, u, w)
    if table[row, windows.COUNT] < window:
        return QUIET

    # |x̄ᵀθ_pre + z̄ᵀβ_pre - r̄| = |x̄ᵀt_pre + uᵀβ_pre - r̄|, u that of x̄ and z̄
    at = d * (d + 1) // 2
    beta = k * (k + 1) // 2
    kept = recorded(kind)
    x_sum, z_sum = pre[row, size : size + d], pre[row, size + d : size + d + k]
    gap = -pre[row, size + d + k]
    for i in range(d):
        gap += x_sum[i] * pre[row, at + i]
    apart(kept, pre, row, x_sum, z_sum, features, ridge, w, u)
    for j in range(k):
        gap += u[j] * shared[PRE, beta + j]
    statistic = abs(gap) / window
    first = seed_first and table[row, SEEDED] == 0
    if first or statistic >= threshold:
        theta(cum, row, features, ridge, shared, CUM, d, k, w, work[4])
        restart(kind, row, d, k, exact, features, ridge, cum, pre, shared, pool, links, table, work)
        theta(cum, row, features, ridge, shared, CUM, d, k, w, work[5])
        work[6, 0] = statistic
        table[row, SEEDED] = 1
        return QUIET if first else CHANGED

    chunk, place = windows.pop(table, row, pool, links)
    old = pool[chunk, place]
    z, r = old[d : d + k], old[d + k]
    g, error = own(kept, pre, row, old[:d], z, features, ridge, r, w, u)
    join(shared, PRE, g, error, u, w)
    table[row, POPS] += 1
    if table[row, POPS] >= window:
        table[row, POPS] = 0
        windows.total(row, size, pre, pool, links, table)
    else:
        for j in range(d + k + 1):
            pre[row, size + j] -= old[j]
    return QUIET


@live
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
    feature(kind, x, features, row, cross, 0, z)
    return _observe(
        kind, row, x, z, features, r, window, threshold, seed_first, exact, ridge, cum, pre,
        shared, pool, links, table, work,
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
        feature(kind, X[i], features, slots[i], cross, i, z)
        status = _observe(
            kind, slots[i], X[i], z, features, rewards[i], window, threshold, seed_first, exact,
            ridge, cum, pre, shared, pool, links, table, work,
        )  # fmt: skip
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET


@jit
def pack(
    cum: F64, slots: I64, shared: F64, features: F64, ridge: float, d: int, k: int, T: F64, P: F64
) -> None:  # fmt: skip
    """For ``batch.bounds``: with u = Ex, E = λ kron(y, A⁻¹) - Rᵀ, the bound's mean and square in x.

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
        factors.dense(cum, row, square)
        for j in range(k):
            for i in range(d):
                E[j, i] = -cum[row, at + d + i * k + j]
        for h in range(features.shape[1]):
            for i in range(d):
                for g in range(d):
                    E[h * d + i, g] += ridge * features[row, h] * square[i, g]
        half[:, :] = 0.0
        for j in range(k):
            for h in range(k):
                for i in range(d):
                    half[j, i] += A0_inv[j, h] * E[h, i]
        for i in range(d):
            T[c, i] = cum[row, at + i]
        for j in range(k):
            for i in range(d):
                T[c, i] += E[j, i] * shared[CUM, beta + j]
                for g in range(d):
                    square[i, g] += E[j, i] * half[j, g]
        factors.symmetric(square, P[c])
