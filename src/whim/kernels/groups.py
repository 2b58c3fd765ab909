"""Arms in groups: one model a group, decisions among them, and arms that get one of their own.

Rows of ``cum``, ``flat`` and ``table`` are models, those of ``kernels.scoretest``: of groups and,
where ``kind`` says so, of single arms that have left theirs. ``model[slot]`` is the row of an arm.

While an arm is in a group its own newest plays are kept beside the group's, as a queue of the same
pool (``ends[slot]``) with records x, r and the group's count of plays at the time. An arm that
nobody plays has none. ``clock[row]`` counts the plays of a model ever and those before its last
restart: older records are stale. A group's records have the arm's slot in a last column.
The tests are those of ``kernels.contrast``.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import contrast, disjoint, factors, scoretest, windows
from whim.kernels.disjoint import CHANGED, GROW, NOT_FINITE, QUIET
from whim.kernels.jit import inline, jit, lean, live
from whim.types import F64, I64

__all__ = [
    "EVER", "ONE", "SHARED", "SINCE", "UNUSED", "best", "choose", "observe", "observe_many",
    "score",
]  # fmt: skip

UNUSED, SHARED, ONE = -1, 0, 1  # kinds of rows
EVER, SINCE = range(2)  # columns of ``clock``

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


@live
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
    contrast.totals_of(row, d, flat, table, past, totals)
    chunk, place = table[own, windows.HEAD], table[own, windows.HEAD_AT]
    for _ in range(table[own, windows.COUNT] - 1):
        x, r = pool[chunk, place, :d], pool[chunk, place, d]
        rest, _ = _untaught(copies, 0, x, r, work[0], work[2])
        rest_flat, loss = _untaught(copies, 1, x, r, work[0], work[2])
        if not min(rest, rest_flat) > _THIN:
            return False
        totals[contrast.LOSS] = max(totals[contrast.LOSS] - loss, 0.0)
        totals[contrast.SQUARES] -= r * r
        totals[contrast.PLAYS] -= 1.0
        totals[contrast.FREE] -= 1.0
        if r == 0.0 or r == 1.0:
            totals[contrast.BINARY] -= 1.0
        chunk, place = windows.advance(pool, links, chunk, place)
    for j in range(width):
        cum[row, j] = copies[0, j]
    for j in range(wide - 2):
        flat[row, j] = copies[1, j]
    flat[row, wide - 2], flat[row, wide - 1] = 0.0, 0.0
    for j in range(contrast.PAST):
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
    scoretest.restart(own, kept, d, ridge, cum, flat, pool, links, table, work[0])
    _without(row, own, d, cum, flat, pool, links, table, past, work, copies, totals)
    for j in range(d):
        work[2, j] = cum[own, theta + j]
    model[slot] = own
    kind[own] = ONE


@live
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
    kept = contrast.differs(
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
    kept = contrast.turned(
        row, d, shared, flat, pool, links, table, work, room, scratch, sums, side
    )
    if kept == 0:
        return QUIET
    for j in range(d):
        work[1, j] = cum[row, theta + j]
    scoretest.restart(row, kept, d, ridge, cum, flat, pool, links, table, work[0])
    for j in range(d):
        work[2, j] = cum[row, theta + j]
    for j in range(contrast.PAST):
        past[row, j] = 0.0
    clock[row, SINCE] = clock[row, EVER] - kept
    return CHANGED


@lean
def observe_many(
    start: int, slots: I64, X: F64, rewards: F64, own: int, bounds: F64, shared: F64,
    never: F64, ridge: float, model: I64, kind: I64, played: I64, ends: I64, clock: I64,
    past: F64, cum: F64, flat: F64, pool: F64, links: I64, table: I64, work: F64, room: F64,
    scratch: F64, sums: F64, side: F64, copies: F64, totals: F64,
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
