"""The score test of PSLinUCB over nested window lengths (docs/math.md), and disjoint payoffs.

Is the newest stretch of n plays explained as well by one θ with all plays before it as by a θ of
its own? With least-squares losses, T = loss(all) - loss(before) - loss(window) answers for every
direction of a change at once. loss(all) - loss(before) is the sum over the window of the squared
one-step-ahead residuals, each over its variance factor: they are kept with the plays, so a test
costs one fit of the window.

``flat`` is a model of the arm's plays without a ridge to speak of, whose residuals owe nothing to
a prior, then the sum of its squared residuals and of r². A window's record is x, r and the squared
residual, or ``FRESH`` where x had a direction never seen before and no residual exists; then what
else the policy keeps of a play. ``learn``, ``changed`` and ``anew`` are the test, for any model
that is linear in x. ``take`` has ``cum`` decide, a ridge model an arm; hybrid payoffs are in
``scorehybrid``.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import factors, law, windows
from whim.kernels.disjoint import CHANGED, GROW, NOT_FINITE, QUIET
from whim.kernels.jit import inline, jit, lean, live
from whim.types import F64, I64

__all__ = [
    "BINARY", "EQUAL", "FREE", "FRESH", "LEAST_FREE", "PLAYS", "PRICE", "ROUNDING", "SHORTEST",
    "TABLE", "anew", "began", "changed", "examine", "fit", "gather", "learn", "newest", "observe",
    "observe_many", "residual", "restart", "room", "slides", "take",
]  # fmt: skip

# columns of ``table`` after those of the window: since the restart, plays, residuals that exist,
# and plays with a reward of 0 or 1
PLAYS = windows.ENDS
FREE = windows.ENDS + 1
BINARY = windows.ENDS + 2
TABLE = windows.ENDS + 3

SHORTEST = 8  # plays in the shortest window
FRESH = -1.0
_LOOSE = 1e12  # variance of θ before the first play, in units of σ²/|x|²
_FAINT = 1e2  # the least leverage of a new direction: 1e-5 of the first |x|
_STILL = 0.5  # of the variance that was left: less is found in any direction that was seen
_SINGULAR = 1e-9  # a pivot that is rounding, relative to its diagonal
LEAST_FREE = 8  # residuals that the noise must be known from, or 2k
PRICE = 6.0  # see began
EQUAL = 1e-6  # variances: equal but for rounding
ROUNDING = 1e-12  # of a mean square: the noise that arithmetic itself makes


def room(d: int) -> int:
    """Numbers of scratch for a test: a fit and the noise; the sums it is made of; d pivots."""
    return 2 * (factors.packed_size(d) + d + 1) + d


@inline
def residual(flat: F64, row: int, x: F64, r: float, rank: int, w: F64) -> float:
    """Teach the flat model, of ``rank`` directions, one play; its squared residual, or FRESH."""
    d = x.shape[0]
    if flat[row, 0] == 0.0:
        size = 0.0
        for j in range(d):
            size += x[j] * x[j]
        if size > 0.0:
            for j in range(d):
                flat[row, j] = _LOOSE / size
    at = d * (d + 1) // 2
    loose = 0.0
    for j in range(d):
        loose = max(loose, flat[row, j])
    a = factors.rank_one(flat, row, x, 1.0, w)
    e = r - factors.predict(flat, row, x)
    found = 0.0
    for j in range(d):
        found += w[j] * w[j]
        flat[row, at + j] += w[j] * (e / a)
    # |Px|²/xᵀPx is the variance along Px: still the prior's in a direction never seen, however
    # faintly x shows it; a leverage alone cannot tell that from a long x in a known direction
    new = rank < d and a > _FAINT and found > _STILL * loose * (a - 1.0)
    return FRESH if new else e * e / a


@inline
def _count(row: int, r: float, square: float, d: int, flat: F64, table: I64) -> None:
    at = d * (d + 3) // 2
    table[row, PLAYS] += 1
    if r == 0.0 or r == 1.0:
        table[row, BINARY] += 1
    if square >= 0.0:
        table[row, FREE] += 1
        flat[row, at] += square
    flat[row, at + 1] += r * r


@inline
def newest(row: int, n: int, pool: F64, links: I64, table: I64) -> tuple[int, int]:
    """Where the newest n records of a window start."""
    skip = table[row, windows.HEAD_AT] + table[row, windows.COUNT] - n
    chunk = table[row, windows.HEAD]
    for _ in range(skip // pool.shape[1]):
        chunk = links[chunk]
    return chunk, skip % pool.shape[1]


@jit
def gather(
    row: int, count: int, d: int, chunk: int, place: int, flat: F64, pool: F64, links: I64,
    room: F64,
) -> None:  # fmt: skip
    """Add ``count`` records to Σ x xᵀ packed by rows, Σ x e and Σ e² in ``room``'s second half.

    e is the residual under the flat model.
    """
    size = d * (d + 1) // 2
    at = size + d + 1
    for _ in range(count):
        e = pool[chunk, place, d]
        for j in range(d):
            e -= pool[chunk, place, j] * flat[row, size + j]
        k = at
        for i in range(d):
            x_i = pool[chunk, place, i]
            for j in range(i + 1):
                room[k + j] += x_i * pool[chunk, place, j]
            room[at + size + i] += x_i * e
            k += i + 1
        room[at + size + d] += e * e
        chunk, place = windows.advance(pool, links, chunk, place)


@jit
def fit(d: int, room: F64) -> tuple[float, int]:
    """Least squares of what was gathered: loss and rank.

    ``room`` is left with the factors L, D of Σ x xᵀ packed by rows and, after them, D⁻¹L⁻¹ Σ x e.
    """
    size = d * (d + 1) // 2
    at = size + d + 1
    for i in range(size + d):
        room[i] = room[at + i]
    loss = room[at + size + d]
    rank = 0
    k = 0
    for i in range(d):
        whole = room[k + i]
        m = 0
        for j in range(i):  # row i of L, times D for now
            for h in range(j):
                room[k + j] -= room[k + h] * room[m + h]
            m += j + 1
        m = 0
        for j in range(i):
            pivot = room[m + j]
            share = room[k + j] / pivot if pivot > 0.0 else 0.0
            room[k + i] -= share * room[k + j]
            room[size + i] -= share * room[size + j] * pivot
            room[k + j] = share
            m += j + 1
        pivot = room[k + i]
        if pivot > _SINGULAR * whole:
            rank += 1
            loss -= room[size + i] * room[size + i] / pivot
            room[size + i] /= pivot
        else:
            room[k + i] = 0.0
            room[size + i] = 0.0
        k += i + 1
    return loss, rank


@jit
def examine(
    row: int, n: int, gathered: int, d: int, least: float, flat: F64, pool: F64, links: I64,
    table: I64, room: F64,
) -> tuple[float, int, int]:  # fmt: skip
    """The test of the newest n plays: a χ² value and its degrees of freedom, 0 for no test.

    A window whose residuals are too small for a value of ``least`` is not fitted. The newest
    ``gathered`` plays are in the sums already; returns how many are now.
    """
    size = d * (d + 1) // 2
    at = size + d
    chunk, place = newest(row, n, pool, links, table)
    squares = 0.0
    fresh = 0
    c, p = chunk, place
    for _ in range(n):
        square = pool[c, p, d + 1]
        if square >= 0.0:
            squares += square
        else:
            fresh += 1
        c, p = windows.advance(pool, links, c, p)
    total = flat[row, at]
    if table[row, FREE] * squares < least * (total - squares):
        return 0.0, 0, gathered
    gather(row, n - gathered, d, chunk, place, flat, pool, links, room)
    loss, rank = fit(d, room)
    k = rank - fresh
    free = table[row, FREE] - k
    gain = squares - loss
    if k < 1 or free < max(LEAST_FREE, 2 * k) or gain <= 0.0:
        return 0.0, 0, n
    noise = max(total - gain, ROUNDING * flat[row, at + 1]) / free
    if noise <= 0.0:  # rewards whose squares are too small for a number
        return 0.0, 0, n
    room[size + d] = noise
    found = law.tempered(gain / noise, k, free)
    if found < least or table[row, BINARY] < table[row, PLAYS]:
        return found, k, n
    # the bound of k lies k - 1 or more above that of 1; clicks add less than half
    if 1.5 * found >= least + (k - 1):
        rate = flat[row, at + 1] / table[row, PLAYS]
        if rate <= 0.0 or rate >= 1.0:  # all rewards are equal
            return 0.0, 0, n
        found = law.clicked(n, d, chunk, place, gain, noise, rate, k, free, pool, links, room)
    return found, k, n


@jit
def began(
    row: int, d: int, noise: float, pool: F64, links: I64, table: I64, scratch: F64, w: F64
) -> int:
    """How many of the newest plays are of the new regime, most likely: the largest T.

    Each direction that they alone must teach costs ``PRICE`` variances: a play that brings one
    is explained for nothing, whichever regime it is of.
    """
    for j in range(scratch.shape[1]):
        scratch[0, j] = 0.0
    gain, most, kept, rank = 0.0, -np.inf, 1, 0
    for n in range(1, min(table[row, windows.COUNT], table[row, PLAYS] - 1) + 1):
        chunk, place = newest(row, n, pool, links, table)
        x = pool[chunk, place, :d]
        square = residual(scratch, 0, x, pool[chunk, place, d], rank, w)
        before = pool[chunk, place, d + 1]
        if square < 0.0:
            rank += 1
        gain += max(before, 0.0) - (square if square >= 0.0 else PRICE * noise)
        if gain > most + EQUAL * noise:
            most, kept = gain, n
    return kept


@inline
def learn(
    row: int, d: int, chunk: int, place: int, flat: F64, pool: F64, table: I64, w: F64
) -> None:
    """Teach the flat model one record, which gets its residual, and count it."""
    r = pool[chunk, place, d]
    rank = table[row, PLAYS] - table[row, FREE]
    square = residual(flat, row, pool[chunk, place, :d], r, rank, w)
    pool[chunk, place, d + 1] = square
    _count(row, r, square, d, flat, table)


@inline
def slides(row: int, bounds: F64, table: I64) -> bool:
    """Whether a window holds one play more than the longest test needs."""
    longest: int = SHORTEST << (bounds.shape[0] - 1)
    over: bool = table[row, windows.COUNT] > longest
    return over


@inline
def changed(
    row: int, d: int, bounds: F64, flat: F64, pool: F64, links: I64, table: I64, w: F64,
    verdict: F64, room: F64, scratch: F64,
) -> int:  # fmt: skip
    """After a play: how many of the newest are of a new regime, 0 if nothing has changed.

    ``bounds[i, k]`` is the value that counts as a change for the length ``SHORTEST · 2ⁱ`` with k
    degrees of freedom. On a change ``verdict`` holds the statistic, its bound, its degrees of
    freedom and what is returned.
    """
    plays = table[row, PLAYS]
    if plays & 1:
        return 0
    return _test(row, d, plays, bounds, flat, pool, links, table, w, verdict, room, scratch)


@jit
def _test(
    row: int, d: int, plays: int, bounds: F64, flat: F64, pool: F64, links: I64, table: I64,
    w: F64, verdict: F64, room: F64, scratch: F64,
) -> int:  # fmt: skip
    """Every length n whose turn it is, once in n/4 plays."""
    most = 1.0
    at = d * (d + 3) // 2
    for j in range(at + 1, room.shape[0]):
        room[j] = 0.0
    noise, gathered = 0.0, 0
    reached = False
    for i in range(bounds.shape[0]):
        n = SHORTEST << i
        if n >= plays or plays % (n >> 2):
            break
        found, k, gathered = examine(
            row, n, gathered, d, bounds[i, 1], flat, pool, links, table, room
        )
        if k > 0 and found >= most * bounds[i, k]:
            most = found / bounds[i, k]
            reached = True
            verdict[0], verdict[1], verdict[2] = found, bounds[i, k], k
            noise = room[at]
    if not reached:
        return 0
    kept = began(row, d, noise, pool, links, table, scratch, w)
    verdict[3] = kept
    return kept


@jit
def anew(row: int, d: int, flat: F64, pool: F64, links: I64, table: I64, w: F64) -> None:
    """The flat model and the counts anew from the plays in the window."""
    for j in range(flat.shape[1]):
        flat[row, j] = 0.0
    for j in range(windows.ENDS, TABLE):
        table[row, j] = 0
    chunk, place = table[row, windows.HEAD], table[row, windows.HEAD_AT]
    for _ in range(table[row, windows.COUNT]):
        learn(row, d, chunk, place, flat, pool, table, w)
        chunk, place = windows.advance(pool, links, chunk, place)


@jit
def restart(
    row: int, kept: int, d: int, ridge: float, cum: F64, flat: F64, pool: F64, links: I64,
    table: I64, w: F64,
) -> None:  # fmt: skip
    """Both models anew from the newest ``kept`` plays, which stay in the window."""
    while table[row, windows.COUNT] > kept:
        windows.pop(table, row, pool, links)
    anew(row, d, flat, pool, links, table, w)
    factors.set_prior(cum, row, d, ridge)
    chunk, place = table[row, windows.HEAD], table[row, windows.HEAD_AT]
    for _ in range(kept):
        factors.learn(cum, row, pool[chunk, place, :d], pool[chunk, place, d], w)
        chunk, place = windows.advance(pool, links, chunk, place)


@inline
def take(
    row: int, x: F64, r: float, bounds: F64, ridge: float, cum: F64, flat: F64, pool: F64,
    links: I64, table: I64, work: F64, room: F64, scratch: F64,
) -> int:  # fmt: skip
    """``observe`` for a context that is known to be finite."""
    if windows.full(table, row, pool, links):
        return GROW
    d = x.shape[0]
    chunk, place = windows.push(table, row, pool, links)
    for j in range(d):
        pool[chunk, place, j] = x[j]
    pool[chunk, place, d] = r
    factors.learn(cum, row, x, r, work[0])
    learn(row, d, chunk, place, flat, pool, table, work[0])
    if slides(row, bounds, table):
        windows.pop(table, row, pool, links)
    kept = changed(row, d, bounds, flat, pool, links, table, work[0], work[3], room, scratch)
    if kept == 0:
        return QUIET
    theta = d * (d + 1) // 2
    for j in range(d):
        work[1, j] = cum[row, theta + j]
    restart(row, kept, d, ridge, cum, flat, pool, links, table, work[0])
    for j in range(d):
        work[2, j] = cum[row, theta + j]
    return CHANGED


@live
def observe(
    row: int, x: F64, r: float, bounds: F64, ridge: float, cum: F64, flat: F64, pool: F64,
    links: I64, table: I64, work: F64, room: F64, scratch: F64,
) -> int:  # fmt: skip
    """One play: learn, test the lengths whose turn it is, restart after a change.

    Returns NOT_FINITE or, when the pool has no room, GROW before anything is touched. On a change
    ``work`` holds θ before and after in rows 1 and 2 and the verdict of ``changed`` in row 3.
    """
    if not factors.finite(x):
        return NOT_FINITE
    return take(row, x, r, bounds, ridge, cum, flat, pool, links, table, work, room, scratch)


@lean
def observe_many(
    start: int, slots: I64, X: F64, rewards: F64, bounds: F64, ridge: float, cum: F64, flat: F64,
    pool: F64, links: I64, table: I64, work: F64, room: F64, scratch: F64,
) -> tuple[int, int]:  # fmt: skip
    """Plays in order from ``start``; stops after a change, or before a play the pool cannot hold.

    Returns where to go on and why it stopped.
    """
    for i in range(start, slots.shape[0]):
        status = take(
            slots[i], X[i], rewards[i], bounds, ridge, cum, flat, pool, links, table, work, room,
            scratch,
        )  # fmt: skip
        if status == GROW:
            return i, GROW
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET
