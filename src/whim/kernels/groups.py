"""Arms in groups: one model a group, and the test of whether an arm's record is its group's.

Rows of ``cum``, ``flat`` and ``table`` are models, those of ``kernels.scoretest``: of groups and,
where ``kind`` says so, of single arms that have left theirs. ``model[slot]`` is the row of an arm.

While an arm is in a group its own newest plays are kept beside the group's, as a queue of the same
pool (``ends[slot]``) with records x, r and the group's count of plays at the time. An arm that
nobody plays has none. ``clock[row]`` counts the plays of a model ever and those before its last
restart: older records are stale. A group's records have the arm's slot in a last column.

Do the newest n plays of an arm have a θ of their own? With A = Σ x xᵀ and θ of all plays of the
group, and over the n plays G = Σ x xᵀ, g = Σ x (r - xᵀθ), Chow's
T = loss(all) - loss(arm) - loss(others) is gᵀ (G - G A⁻¹ G)⁺ g (docs/math.md).
"""

from __future__ import annotations

import numpy as np

from whim.kernels import disjoint, factors, scoretest, windows
from whim.kernels.disjoint import CHANGED, GROW, NOT_FINITE, QUIET
from whim.kernels.jit import inline, jit, lean
from whim.types import F64, I64

__all__ = [
    "EVER", "ONE", "PAST", "SHARED", "SINCE", "UNUSED", "best", "choose", "observe",
    "observe_many", "score",
]  # fmt: skip

UNUSED, SHARED, ONE = -1, 0, 1  # kinds of rows
EVER, SINCE = range(2)  # columns of ``clock``

# columns of ``past``, what the group's test had counted when the last arm left: that test starts
# anew then, but what it has learnt about the noise still counts
LOSS, SQUARES, PLAYS, FREE, BINARY = range(5)
PAST = 5

_KNOWN = 1e-6  # less of a direction's weight than this is not known to the others
_THIN = 1e-6  # 1 - leverage below which taking a play out would lose too many digits


# -- decisions --------------------------------------------------------------------------------


@inline
def _rows(slots: I64, known: I64, model: I64, mark: I64, rows: I64) -> int:
    """The models of the candidates into ``rows``, each once; ``mark`` has a model's place there.

    ``known`` may have them already, where the candidates are every arm.
    """
    n: int = known.shape[0]
    for i in range(n):
        rows[i] = known[i]
        mark[known[i]] = i
    if n == 0:
        for c in range(slots.shape[0]):
            row = model[slots[c]]
            if mark[row] < 0:
                mark[row] = n
                rows[n] = row
                n += 1
    return n


@inline
def best(
    x: F64, slots: I64, known: I64, model: I64, played: I64, cum: F64, alpha: float, mark: I64,
    rows: I64, out: F64,
) -> tuple[int, int]:  # fmt: skip
    """Place of the best candidate and that of its model in ``rows``; -1 if x is not finite.

    Each model is scored once. Among equal scores the arm with the fewest plays wins, then the
    first. ``mark`` holds -1 everywhere, before and after.
    """
    n = _rows(slots, known, model, mark, rows)
    first = disjoint.score(x, rows[:n], cum, alpha, out)
    chosen, fewest = -1, np.int64(2**62)
    if first >= 0:
        for c in range(slots.shape[0]):
            slot = slots[c]
            if out[mark[model[slot]], 0] == out[first, 0] and played[slot] < fewest:
                chosen, fewest = c, played[slot]
    for i in range(n):
        mark[rows[i]] = -1
    return chosen, first


@lean
def choose(
    x: F64, slots: I64, known: I64, model: I64, played: I64, cum: F64, alpha: float, mark: I64,
    rows: I64, out: F64,
) -> tuple[int, float, float, float]:  # fmt: skip
    """Slot, score, mean and width of the best candidate; slot -1 if x is not finite."""
    place, c = best(x, slots, known, model, played, cum, alpha, mark, rows, out)
    if place < 0:
        return -1, 0.0, 0.0, 0.0
    return slots[place], out[c, 0], out[c, 1], out[c, 2]


@lean
def score(
    x: F64, slots: I64, model: I64, cum: F64, alpha: float, mark: I64, rows: I64, found: F64,
    out: F64,
) -> int:  # fmt: skip
    """As ``disjoint.score``, for candidates that share models."""
    n = _rows(slots, rows[:0], model, mark, rows)
    finite = disjoint.score(x, rows[:n], cum, alpha, found) >= 0
    best = 0
    for i in range(slots.shape[0]):
        c = mark[model[slots[i]]]
        for j in range(3):
            out[i, j] = found[c, j]
        if out[i, 0] > out[best, 0]:
            best = i
    for i in range(n):
        mark[rows[i]] = -1
    return best if finite else -1


# -- the test ---------------------------------------------------------------------------------


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
    for j in range(at, room.shape[0] - 1):
        room[j] = sums[j]
    room[room.shape[0] - 1] = 0.0
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
    loss, rank = scoretest._fit(d, room)
    return -loss, rank


@jit
def _own(d: int, sums: F64, room: F64) -> int:
    """Rank of the arm's plays; ``room`` is left with their fit."""
    at = d * (d + 3) // 2 + 1
    for j in range(at, room.shape[0]):
        room[j] = sums[j]
    return scoretest._fit(d, room)[1]


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
    """The χ² value of T = ``gain``, as ``scoretest._examine`` has it, and the noise."""
    free = totals[FREE] - k
    if k < 1 or free < max(scoretest._LEAST_FREE, 2 * k) or gain <= 0.0:
        return 0.0, 0.0
    noise = max(totals[LOSS] - gain, scoretest._ROUNDING * totals[SQUARES]) / free
    ratio = gain / noise
    found = scoretest._tempered(ratio, k, free)
    if found >= least and totals[BINARY] == totals[PLAYS]:
        rate = totals[SQUARES] / totals[PLAYS]
        spread = rate * (1.0 - rate)
        if spread <= 0.0:
            return 0.0, noise
        _own(d, sums, room)
        known = free * min(1.0, 2.0 * spread / max(1.0 - 4.0 * spread, 1e-9))
        deviance = scoretest._clicks(n, d, chunk, place, gain, noise, rate, pool, links, room)
        deviance += (scoretest._STEP + scoretest._STEP_MORE * k) * (1.0 - 4.0 * spread)
        if deviance > ratio:
            deviance = ratio + 2.0 * spread * (deviance - ratio)
        found = scoretest._tempered(deviance, k, known)
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
        chunk, place = scoretest._newest(slot, n, pool, links, ends)
        scoretest._gather(0, 1, d, chunk, place, whole, pool, links, sums)
        gain, _ = _contrast(d, sums, whole, side, room)
        gain -= scoretest._PRICE * noise * _own(d, sums, room)
        if gain > most + scoretest._EQUAL * noise:
            most, kept = gain, n
    return kept


@jit
def _totals(row: int, d: int, flat: F64, table: I64, past: F64, totals: F64) -> None:
    """What is known of the noise: now, and before the last arm left."""
    at = d * (d + 3) // 2
    totals[LOSS] = past[row, LOSS] + flat[row, at]
    totals[SQUARES] = past[row, SQUARES] + flat[row, at + 1]
    totals[PLAYS] = past[row, PLAYS] + table[row, scoretest.PLAYS]
    totals[FREE] = past[row, FREE] + table[row, scoretest.FREE]
    totals[BINARY] = past[row, BINARY] + table[row, scoretest.BINARY]


@jit
def _differs(
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
    _totals(row, d, flat, table, past, totals)
    for j in range(whole.shape[1]):
        whole[0, j] = flat[row, j]
    rank = int(totals[PLAYS] - totals[FREE])
    square = scoretest._residual(whole, 0, x, r, rank, work[0])
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
        chunk, place = scoretest._newest(slot, n, pool, links, ends)
        if _small(n, d, chunk, place, least, totals[LOSS], totals[FREE], whole, pool, links):
            continue
        sums[:] = 0.0
        scoretest._gather(0, n, d, chunk, place, whole, pool, links, sums)
        gain, k = _contrast(d, sums, whole, side, room)
        found, level = _value(n, d, chunk, place, least, gain, k, totals, sums, pool, links, room)
        if k > 0 and found >= most * bounds[i, k]:
            most, noise = found / bounds[i, k], level
            work[3, 0], work[3, 1], work[3, 2] = found, bounds[i, k], k
    if noise <= 0.0:
        return 0
    kept = _since(slot, d, noise, ends, whole, pool, links, sums, side, room)
    work[3, 3] = kept
    return kept


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
    start, first = scoretest._newest(row, n, pool, links, table)
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
                scoretest._gather(0, 1, d, chunk, place, whole, pool, links, sums)
            chunk, place = windows.advance(pool, links, chunk, place)
        if turn == 0:
            if sums[sums.shape[0] - 1] == 0.0:
                return True
            gain, k = _contrast(d, sums, whole, side, room)
    everything, _ = _contrast(d, sums, whole, side, room)
    return k > 0 and found * gain >= everything * bound[k]


@jit
def _turned(
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
        found, k, gathered = scoretest._examine(
            row, n, gathered, d, bounds[i, 1], flat, pool, links, table, room
        )
        if k < 1 or found < most * bounds[i, k]:
            continue
        level = room[at]
        if _broad(row, n, d, found, bounds[i], flat, pool, links, table, room, whole, sums, side):
            most, noise = found / bounds[i, k], level
            work[3, 0], work[3, 1], work[3, 2] = found, bounds[i, k], k
        room[at + 1 :] = 0.0
        gathered = 0
    if noise <= 0.0:
        return 0
    kept = scoretest._began(row, d, noise, pool, links, table, whole, work[0])
    work[3, 3] = kept
    return kept


# -- rewards ----------------------------------------------------------------------------------


@inline
def _untaught(F: F64, row: int, x: F64, r: float, w: F64, v: F64) -> tuple[float, float]:
    """Take one play out of a model; 1 - its leverage, and what the loss falls by."""
    d = x.shape[0]
    theta = d * (d + 1) // 2
    e = r - factors.predict(F, row, x)
    rest = factors.downdate(F, row, x, w, v)
    for j in range(d):
        F[row, theta + j] -= w[j] * (e / rest)
    return rest, e * e / rest


@jit
def _without(
    row: int, own: int, d: int, cum: F64, flat: F64, pool: F64, links: I64, table: I64,
    past: F64, work: F64, copies: F64, totals: F64,
) -> bool:  # fmt: skip
    """Take the plays of model ``own``, but the newest, out of a group's; False if it cannot be.

    Where the others know next to nothing of a direction that would lose too many digits: the
    group then keeps them. Else its window is emptied, whose residuals knew those plays.
    """
    wide, width = flat.shape[1], cum.shape[1]
    for j in range(width):
        copies[0, j] = cum[row, j]
    for j in range(wide):
        copies[1, j] = flat[row, j]
    _totals(row, d, flat, table, past, totals)
    chunk, place = table[own, windows.HEAD], table[own, windows.HEAD_AT]
    for _ in range(table[own, windows.COUNT] - 1):
        x, r = pool[chunk, place, :d], pool[chunk, place, d]
        rest, _ = _untaught(copies, 0, x, r, work[0], work[2])
        rest_flat, loss = _untaught(copies, 1, x, r, work[0], work[2])
        if not min(rest, rest_flat) > _THIN:
            return False
        totals[LOSS] = max(totals[LOSS] - loss, 0.0)
        totals[SQUARES] -= r * r
        totals[PLAYS] -= 1.0
        totals[FREE] -= 1.0
        if r == 0.0 or r == 1.0:
            totals[BINARY] -= 1.0
        chunk, place = windows.advance(pool, links, chunk, place)
    for j in range(width):
        cum[row, j] = copies[0, j]
    for j in range(wide - 2):
        flat[row, j] = copies[1, j]
    flat[row, wide - 2], flat[row, wide - 1] = 0.0, 0.0
    for j in range(PAST):
        past[row, j] = totals[j]
    windows.clear(table, row, links)  # its counts with it
    return True


@jit
def _leave(
    slot: int, row: int, own: int, kept: int, d: int, ridge: float, model: I64, kind: I64,
    ends: I64, cum: F64, flat: F64, pool: F64, links: I64, table: I64, past: F64, work: F64,
    copies: F64, totals: F64,
) -> None:  # fmt: skip
    """Give the arm the model ``own``, of its newest ``kept`` plays, which the group forgets."""
    theta = d * (d + 1) // 2
    while ends[slot, windows.COUNT] > kept:
        windows.pop(ends, slot, pool, links)
    for j in range(windows.ENDS):
        table[own, j] = ends[slot, j]
        ends[slot, j] = 0
    scoretest._restart(own, kept, d, ridge, cum, flat, pool, links, table, work[0])
    _without(row, own, d, cum, flat, pool, links, table, past, work, copies, totals)
    for j in range(d):
        work[2, j] = cum[own, theta + j]
    model[slot] = own
    kind[own] = ONE


@lean
def observe(
    slot: int, x: F64, r: float, own: int, bounds: F64, shared: F64, never: F64, ridge: float,
    model: I64, kind: I64, played: I64, ends: I64, clock: I64, past: F64, cum: F64, flat: F64,
    pool: F64, links: I64, table: I64, work: F64, room: F64, scratch: F64, sums: F64, side: F64,
    copies: F64, totals: F64,
) -> int:  # fmt: skip
    """One play: does the arm still belong to its group, has the group's or the arm's θ changed.

    ``own`` is an unused row for the case that the arm leaves; the play is then not taught to the
    group. ``bounds`` are those of an arm alone, ``shared`` those of each of the two tests in a
    group, and ``never`` those that nothing reaches. Returns NOT_FINITE or GROW before anything is
    touched. On CHANGED, which a leaving arm is too, ``work`` is as ``scoretest.observe`` leaves it.
    """
    if not factors.finite(x):
        return NOT_FINITE
    row = model[slot]
    if kind[row] == ONE:
        status = scoretest.observe(
            row, x, r, bounds, ridge, cum, flat, pool, links, table, work, room, scratch
        )
        if status != GROW:
            played[slot] += 1
        return status
    if links[0] == 0 or links[links[0]] == 0:  # the group and the arm may need a chunk each
        return GROW
    d = x.shape[0]
    while ends[slot, windows.COUNT] > 0:
        stamp = pool[ends[slot, windows.HEAD], ends[slot, windows.HEAD_AT], d + 1]
        if stamp > clock[row, SINCE]:
            break
        windows.pop(ends, slot, pool, links)
    chunk, place = windows.push(ends, slot, pool, links)
    for j in range(d):
        pool[chunk, place, j] = x[j]
    pool[chunk, place, d] = r
    pool[chunk, place, d + 1] = clock[row, EVER] + 1
    if ends[slot, windows.COUNT] > scoretest.SHORTEST << (bounds.shape[0] - 1):
        windows.pop(ends, slot, pool, links)
    played[slot] += 1
    kept = _differs(
        slot, row, played[slot], x, r, shared, ends, flat, pool, links, table, past, work, room,
        scratch, sums, side, totals,
    )  # fmt: skip
    theta = d * (d + 1) // 2
    if kept > 0:
        for j in range(d):
            work[1, j] = cum[row, theta + j]
        _leave(
            slot, row, own, kept, d, ridge, model, kind, ends, cum, flat, pool, links, table,
            past, work, copies, totals,
        )  # fmt: skip
        return CHANGED
    scoretest.observe(row, x, r, never, ridge, cum, flat, pool, links, table, work, room, scratch)
    pool[table[row, windows.TAIL], table[row, windows.TAIL_AT] - 1, d + 2] = slot
    clock[row, EVER] += 1
    kept = _turned(row, d, shared, flat, pool, links, table, work, room, scratch, sums, side)
    if kept == 0:
        return QUIET
    for j in range(d):
        work[1, j] = cum[row, theta + j]
    scoretest._restart(row, kept, d, ridge, cum, flat, pool, links, table, work[0])
    for j in range(d):
        work[2, j] = cum[row, theta + j]
    for j in range(PAST):
        past[row, j] = 0.0
    clock[row, SINCE] = clock[row, EVER] - kept
    return CHANGED


@lean
def observe_many(
    start: int, slots: I64, X: F64, rewards: F64, own: int, bounds: F64, shared: F64,
    never: F64, ridge: float, model: I64, kind: I64, played: I64, ends: I64, clock: I64,
    past: F64, cum: F64, flat: F64, pool: F64, links: I64, table: I64, work: F64, room: F64, scratch: F64, sums: F64,
    side: F64, copies: F64, totals: F64,
) -> tuple[int, int]:  # fmt: skip
    """Plays in order from ``start``; stops after a change, or before a play the pool cannot hold.

    Returns where to go on and why it stopped.
    """
    for i in range(start, slots.shape[0]):
        status = observe(
            slots[i], X[i], rewards[i], own, bounds, shared, never, ridge, model, kind, played,
            ends, clock, past, cum, flat, pool, links, table, work, room, scratch, sums, side,
            copies, totals,
        )  # fmt: skip
        if status == GROW:
            return i, GROW
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET
