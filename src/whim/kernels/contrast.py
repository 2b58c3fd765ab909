"""Two tests for arms that share a model: does one differ from the others, have all changed.

Do the newest n plays of an arm have a θ of their own? With A = Σ x xᵀ and θ of all plays of the
group, and over the n plays G = Σ x xᵀ, g = Σ x (r - xᵀθ), Chow's
T = loss(all) - loss(arm) - loss(others) is gᵀ (G - G A⁻¹ G)⁺ g (docs/math.md). The law of T, the
lengths and the most likely beginning are those of ``kernels.scoretest``.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import factors, law, scoretest, windows
from whim.kernels.jit import jit
from whim.types import F64, I64

__all__ = [
    "BINARY", "FREE", "LOSS", "PAST", "PLAYS", "SQUARES", "differs", "totals_of", "turned",
]  # fmt: skip

# columns of ``past``, what the group's test had counted when the last arm left: that test starts
# anew then, but what it has learnt about the noise still counts
LOSS, SQUARES, PLAYS, FREE, BINARY = range(5)
PAST = 5

# plays of its own that an arm leaves with: fewer could be the first of a change of all, which the
# group's test then sees with the plays of others
_FEWEST = 4
_KNOWN = 1e-6  # less of a direction's weight than this is not known to the others


@jit
def _contrast(d: int, sums: F64, whole: F64, side: F64, room: F64) -> tuple[float, int]:
    """T and its degrees of freedom from the arm's sums and the model of all plays in ``whole``.

    Directions in which the others know nothing are left out: there is nothing to differ from.
    """
    size = d * (d + 1) // 2
    at = size + d + 1
    for i in range(d):  # G whole
        for j in range(i + 1):
            side[i, j] = sums[at + i * (i + 1) // 2 + j]
            side[j, i] = side[i, j]
    k = d + d * (d - 1) // 2
    for j in range(d - 1, -1, -1):  # Uᵀ G, from the last row up
        k -= j
        for i in range(j):
            u = whole[0, k + i]
            for h in range(d):
                side[j, h] += u * side[i, h]
    for j in range(at, at + size + d):
        room[j] = sums[j]
    room[at + size + d] = 0.0
    for h in range(d):
        p = at
        for i in range(d):
            scaled = whole[0, h] * side[h, i]
            for j in range(i + 1):
                room[p + j] -= scaled * side[h, j]
            p += i + 1
    for i in range(d):
        p = at + i * (i + 1) // 2
        if room[p + i] <= _KNOWN * sums[p + i]:
            for j in range(i + 1):
                room[p + j] = 0.0
            for j in range(i + 1, d):
                room[at + j * (j + 1) // 2 + i] = 0.0
            room[at + size + i] = 0.0
    loss, rank = scoretest.fit(d, room)
    return -loss, rank


@jit
def _own(d: int, sums: F64, room: F64) -> int:
    """Rank of the arm's plays; ``room`` is left with their fit."""
    at = d * (d + 3) // 2 + 1
    for j in range(at, 2 * at):
        room[j] = sums[j]
    return scoretest.fit(d, room)[1]


@jit
def _small(
    n: int, d: int, chunk: int, place: int, least: float, total: float, free: float, whole: F64,
    pool: F64, links: I64,
) -> bool:  # fmt: skip
    """Whether the residuals are too small for a value of ``least``: T <= Σ e² / (1 - Σ h)."""
    squares, lever = 0.0, 0.0
    for _ in range(n):
        x = pool[chunk, place, :d]
        e = pool[chunk, place, d] - factors.predict(whole, 0, x)
        squares += e * e
        lever += factors.quad(whole, 0, x)
        chunk, place = windows.advance(pool, links, chunk, place)
    if lever > 0.5:
        return False
    squares /= 1.0 - lever
    return free * squares < least * (total - squares)


@jit
def _value(
    n: int, d: int, chunk: int, place: int, least: float, gain: float, k: int, totals: F64,
    sums: F64, pool: F64, links: I64, room: F64,
) -> tuple[float, float]:  # fmt: skip
    """The χ² value of T = ``gain``, as ``scoretest.examine`` has it, and the noise."""
    free = totals[FREE] - k
    if k < 1 or free < max(scoretest.LEAST_FREE, 2 * k) or gain <= 0.0:
        return 0.0, 0.0
    noise = max(totals[LOSS] - gain, scoretest.ROUNDING * totals[SQUARES]) / free
    if noise <= 0.0:
        return 0.0, 0.0
    found = law.tempered(gain / noise, k, free)
    if found < least or totals[BINARY] < totals[PLAYS]:
        return found, noise
    if 1.5 * found >= least + (k - 1):
        rate = totals[SQUARES] / totals[PLAYS]
        if rate <= 0.0 or rate >= 1.0:
            return 0.0, noise
        _own(d, sums, room)
        found = law.clicked(n, d, chunk, place, gain, noise, rate, k, free, pool, links, room)
    return found, noise


@jit
def _since(
    slot: int, d: int, noise: float, ends: I64, whole: F64, pool: F64, links: I64, sums: F64,
    side: F64, room: F64,
) -> int:  # fmt: skip
    """How many of the arm's newest plays are of its own θ, most likely; see ``scoretest``."""
    sums[:] = 0.0
    most, kept = -np.inf, 1
    for n in range(1, ends[slot, windows.COUNT] + 1):
        chunk, place = scoretest.newest(slot, n, pool, links, ends)
        scoretest.gather(0, 1, d, chunk, place, whole, pool, links, sums)
        gain, _ = _contrast(d, sums, whole, side, room)
        gain -= scoretest.PRICE * noise * _own(d, sums, room)
        if gain > most + scoretest.EQUAL * noise:
            most, kept = gain, n
    return kept


@jit
def totals_of(row: int, d: int, flat: F64, table: I64, past: F64, totals: F64) -> None:
    """What is known of the noise: now, and before the last arm left."""
    at = d * (d + 3) // 2
    totals[LOSS] = past[row, LOSS] + flat[row, at]
    totals[SQUARES] = past[row, SQUARES] + flat[row, at + 1]
    totals[PLAYS] = past[row, PLAYS] + table[row, scoretest.PLAYS]
    totals[FREE] = past[row, FREE] + table[row, scoretest.FREE]
    totals[BINARY] = past[row, BINARY] + table[row, scoretest.BINARY]


@jit
def differs(
    slot: int, row: int, plays: int, x: F64, r: float, bounds: F64, ends: I64, flat: F64,
    pool: F64, links: I64, table: I64, past: F64, work: F64, room: F64, whole: F64, sums: F64,
    side: F64, totals: F64,
) -> int:  # fmt: skip
    """How many of the arm's newest plays, this one included, are not its group's; 0 for none.

    Every length n whose turn it is, once in n/4 plays of the arm. The group has not learnt the
    play yet: ``whole`` is its model with it.
    """
    if ends[slot, windows.COUNT] < scoretest.SHORTEST or plays & 1:
        return 0
    d = x.shape[0]
    totals_of(row, d, flat, table, past, totals)
    for j in range(whole.shape[1]):
        whole[0, j] = flat[row, j]
    rank = int(totals[PLAYS] - totals[FREE])
    square = scoretest.residual(whole, 0, x, r, rank, work[0])
    totals[PLAYS] += 1.0
    totals[SQUARES] += r * r
    if square >= 0.0:
        totals[FREE] += 1.0
        totals[LOSS] += square
    if r == 0.0 or r == 1.0:
        totals[BINARY] += 1.0
    most, noise = 1.0, 0.0
    for i in range(bounds.shape[0]):
        n = scoretest.SHORTEST << i
        if n > ends[slot, windows.COUNT] or plays % (n >> 2):
            break
        least = bounds[i, 1]
        chunk, place = scoretest.newest(slot, n, pool, links, ends)
        if _small(n, d, chunk, place, least, totals[LOSS], totals[FREE], whole, pool, links):
            continue
        sums[:] = 0.0
        scoretest.gather(0, n, d, chunk, place, whole, pool, links, sums)
        gain, k = _contrast(d, sums, whole, side, room)
        found, level = _value(n, d, chunk, place, least, gain, k, totals, sums, pool, links, room)
        if k > 0 and found >= most * bounds[i, k]:
            most, noise = found / bounds[i, k], level
            work[3, 0], work[3, 1], work[3, 2] = found, bounds[i, k], k
    if noise <= 0.0:
        return 0
    kept = _since(slot, d, noise, ends, whole, pool, links, sums, side, room)
    work[3, 3] = kept
    return kept if kept >= _FEWEST else 0


@jit
def _broad(
    row: int, n: int, d: int, found: float, bound: F64, flat: F64, pool: F64, links: I64,
    table: I64, room: F64, whole: F64, sums: F64, side: F64,
) -> bool:  # fmt: skip
    """Whether a change of the group is seen without the arm that shows it most.

    One stray among many arms is no change of all: what remains of the value must reach the bound
    as well. If there is but one arm in the window, what it shows is all there is.
    """
    for j in range(whole.shape[1]):
        whole[0, j] = flat[row, j]
    start, first = scoretest.newest(row, n, pool, links, table)
    worst, most = -1.0, -1.0
    chunk, place = start, first
    for _ in range(n):
        slot, total = pool[chunk, place, d + 2], 0.0
        c, p = start, first
        for _ in range(n):
            if pool[c, p, d + 2] == slot:
                e = pool[c, p, d] - factors.predict(whole, 0, pool[c, p, :d])
                total += e * e
            c, p = windows.advance(pool, links, c, p)
        if total > most:
            worst, most = slot, total
        chunk, place = windows.advance(pool, links, chunk, place)
    sums[:] = 0.0
    gain, k = 0.0, 0
    for turn in range(2):  # the others, then all
        chunk, place = start, first
        for _ in range(n):
            if (pool[chunk, place, d + 2] == worst) == (turn == 1):
                scoretest.gather(0, 1, d, chunk, place, whole, pool, links, sums)
            chunk, place = windows.advance(pool, links, chunk, place)
        if turn == 0:
            if sums[d * (d + 3) + 1] == 0.0:
                return True
            gain, k = _contrast(d, sums, whole, side, room)
    everything, _ = _contrast(d, sums, whole, side, room)
    return k > 0 and found * gain >= everything * bound[k]


@jit
def turned(
    row: int, d: int, bounds: F64, flat: F64, pool: F64, links: I64, table: I64, work: F64,
    room: F64, whole: F64, sums: F64, side: F64,
) -> int:  # fmt: skip
    """How many of a group's newest plays are of a new θ; 0 for none."""
    plays = table[row, scoretest.PLAYS]
    if plays & 1:
        return 0
    at = d * (d + 3) // 2
    room[at + 1 :] = 0.0
    most, noise, gathered = 1.0, 0.0, 0
    for i in range(bounds.shape[0]):
        n = scoretest.SHORTEST << i
        if n >= plays or plays % (n >> 2):
            break
        found, k, gathered = scoretest.examine(
            row, n, gathered, d, bounds[i, 1], flat, pool, links, table, room
        )
        if k < 1 or not found >= most * bounds[i, k]:
            continue
        level = room[at]
        if _broad(row, n, d, found, bounds[i], flat, pool, links, table, room, whole, sums, side):
            most, noise = found / bounds[i, k], level
            work[3, 0], work[3, 1], work[3, 2] = found, bounds[i, k], k
        room[at + 1 :] = 0.0
        gathered = 0
    if noise <= 0.0:
        return 0
    kept = scoretest.began(row, d, noise, pool, links, table, whole, work[0])
    work[3, 3] = kept
    return kept
