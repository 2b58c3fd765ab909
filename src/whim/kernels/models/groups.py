"""Arms in groups: one model per group, decisions among them, and arms that get one of their own.

While an arm is in a group its own newest plays are kept beside the group's, as a queue of the same
pool with records x, r and the group's count of plays at the time. An arm that nobody plays has
none. A group's records have the arm's slot in a last column. The tests are ``detection.contrast``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.kernels.detection import contrast, score_test, windows
from whim.kernels.detection.contrast import Contrast
from whim.kernels.detection.score_test import SHORTEST, ScoreTest
from whim.kernels.detection.windows import COUNT, HEAD, HEAD_AT, TAIL, TAIL_AT, Windows
from whim.kernels.jit import part
from whim.kernels.linalg import udu
from whim.kernels.loops import Kernels
from whim.kernels.models import disjoint
from whim.kernels.models.disjoint import Ridge
from whim.kernels.status import CHANGED, GROW, NO_CHANGE, TEST
from whim.types import F64, I64

UNUSED, SHARED, ONE = -1, 0, 1  # kinds of rows
EVER, SINCE = range(2)  # columns of ``clock``

_THIN = 1e-6  # 1 - leverage below which taking a play out would lose too many digits


class Arms(NamedTuple):
    """Which arm has which model: ``model[slot]`` is its row, ``kind[row]`` whether arms share it.

    ``ends`` are the arms' own queues. ``clock[row]`` counts the plays of a model ever and those
    before its last restart: older records are stale. ``spare`` is an unused row for the next arm
    that leaves.
    """

    model: I64
    kind: I64
    played: I64
    ends: I64
    clock: I64
    spare: int


class Among(NamedTuple):
    """Scratch of a decision: models of the candidates, each once, and what they score.

    ``known`` has them already where the candidates are ``everyone``, that very array; ``mark``
    holds -1 everywhere, before and after.
    """

    everyone: I64
    known: I64
    mark: I64
    rows: I64
    scores: F64


class State(NamedTuple):
    """Rows of ``model``, ``windows`` and ``test`` are models, of groups and of single arms.

    ``test`` has the bounds of an arm alone, ``shared`` those of each of the two tests in a group;
    ``copies`` is scratch.
    """

    model: Ridge
    windows: Windows
    test: ScoreTest
    shared: F64
    contrast: Contrast
    arms: Arms
    among: Among
    copies: F64


# -- decisions ----------------------------------------------------------------------------------


@part
def _models_of(state: State, slots: I64) -> int:
    """The models of the candidates into ``rows``, each once; ``mark`` has a model's place there."""
    a, every = state.among, state.arms.model
    n = 0
    if slots.ctypes.data == a.everyone.ctypes.data and slots.shape[0] == a.everyone.shape[0]:
        n = a.known.shape[0]
        for i in range(n):
            a.rows[i] = a.known[i]
            a.mark[a.known[i]] = i
    else:
        for c in range(slots.shape[0]):
            row = every[slots[c]]
            if a.mark[row] < 0:
                a.mark[row] = n
                a.rows[n] = row
                n += 1
    return n


@part
def _unmark(state: State, n: int) -> None:
    for i in range(n):
        state.among.mark[state.among.rows[i]] = -1


@part
def decide(
    state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> tuple[int, float, float, float]:
    """Each model is scored once; among equal scores the arm with the fewest plays wins."""
    a, arms = state.among, state.arms
    n = _models_of(state, slots)
    first = disjoint.score_rows(state.model, x, a.rows[:n], a.scores)
    chosen, fewest = -1, np.int64(2**62)
    for c in range(slots.shape[0]):
        slot = slots[c]
        best = a.scores[a.mark[arms.model[slot]], 0] == a.scores[first, 0]
        if best and arms.played[slot] < fewest:
            chosen, fewest = c, arms.played[slot]
    _unmark(state, n)
    return chosen, a.scores[first, 0], a.scores[first, 1], a.scores[first, 2]


@part
def played_less(state: State, a: int, b: int) -> bool:
    """Which of two arms with equal scores goes first in a list."""
    fewer: bool = state.arms.played[a] < state.arms.played[b]
    return fewer


@part
def score(state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """As ``disjoint.score``, for candidates that share models."""
    a = state.among
    n = _models_of(state, slots)
    disjoint.score_rows(state.model, x, a.rows[:n], a.scores)
    best = 0
    for i in range(slots.shape[0]):
        c = a.mark[state.arms.model[slots[i]]]
        for j in range(3):
            out[i, j] = a.scores[c, j]
        if out[i, 0] > out[best, 0]:
            best = i
    _unmark(state, n)
    return best


# -- rewards ------------------------------------------------------------------------------------


@part
def _unlearn(f: F64, x: F64, r: float, w: F64, v: F64) -> tuple[float, float]:
    """Take one play out of a model; 1 - its leverage, and what the loss falls by."""
    d = x.shape[0]
    theta = d * (d + 1) // 2
    e = r - udu.predict(f, x)
    rest = udu.downdate(f, x, w, v)
    for j in range(d):
        f[theta + j] -= w[j] * (e / rest)
    return rest, e * e / rest


@part
def _forget_plays(state: State, row: int, own: int) -> None:
    """Take the plays of model ``own``, but the newest, out of a group's, if that can be done.

    Where the others know next to nothing of a direction that would lose too many digits: the
    group then keeps them. Else its window is emptied, whose residuals knew those plays.
    """
    m, w, t, g = state.model, state.windows, state.test, state.contrast
    d, cum, flat, totals = m.w.shape[0], m.cum[row], t.flat[row], g.totals
    one, other = state.copies[0], state.copies[1]
    wide, width = flat.shape[0], cum.shape[0]
    for j in range(width):
        one[j] = cum[j]
    for j in range(wide):
        other[j] = flat[j]
    contrast.count_noise(t, g, w, row)
    chunk, place = w.table[own, HEAD], w.table[own, HEAD_AT]
    for _ in range(w.table[own, COUNT] - 1):
        x, r = w.pool[chunk, place, :d], w.pool[chunk, place, d]
        rest, _ = _unlearn(one, x, r, m.w, t.report[1])
        rest_flat, loss = _unlearn(other, x, r, m.w, t.report[1])
        if not min(rest, rest_flat) > _THIN:
            return
        totals[contrast.LOSS] = max(totals[contrast.LOSS] - loss, 0.0)
        totals[contrast.SQUARES] -= r * r
        totals[contrast.PLAYS] -= 1.0
        totals[contrast.FREE] -= 1.0
        if r == 0.0 or r == 1.0:
            totals[contrast.BINARY] -= 1.0
        chunk, place = windows.advance(w, chunk, place)
    for j in range(width):
        cum[j] = one[j]
    for j in range(wide):
        flat[j] = other[j] if j < wide - 2 else 0.0
    for j in range(contrast.PAST):
        g.past[row, j] = totals[j]
    windows.empty(w, row)  # its counts with it


@part
def _leave(state: State, slot: int, row: int, kept: int) -> None:
    """Give the arm the spare model, of its newest ``kept`` plays, which the group forgets."""
    arms, w = state.arms, state.windows
    own, queue = arms.spare, Windows(arms.ends, w.pool, w.links)
    while arms.ends[slot, COUNT] > kept:
        windows.pop(queue, slot)
    for j in range(windows.ENDS):
        w.table[own, j] = arms.ends[slot, j]
        arms.ends[slot, j] = 0
    score_test.refit(state.test, w, own)
    disjoint.relearn(state, own)
    _forget_plays(state, row, own)
    disjoint.theta(state, own, state.test.report[1])
    arms.model[slot] = own
    arms.kind[own] = ONE


@part
def _learn_row(state: State, row: int, x: F64, r: float) -> None:
    """One play to a model, its window and its residuals; GROW was ruled out."""
    w, t = state.windows, state.test
    chunk, place = windows.push(w, row)
    record = w.pool[chunk, place]
    disjoint.write(state, row, x, x[:0], r, record)
    disjoint.teach(state, row, record)
    score_test.learn_residual(t, w, row, record)
    if w.table[row, COUNT] > SHORTEST << (t.bounds.shape[0] - 1):
        windows.pop(w, row)


@part
def learn(state: State, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One play of an arm with its own model; one in a group is kept, and learnt by ``finish``."""
    arms, w = state.arms, state.windows
    row, d = arms.model[slot], x.shape[0]
    if arms.kind[row] == ONE:
        if windows.full(w, row):
            return GROW
        _learn_row(state, row, x, r)
        arms.played[slot] += 1
        return TEST if score_test.due(state.test, w, row) else NO_CHANGE
    if w.links[0] == 0 or w.links[w.links[0]] == 0:  # the group and the arm may need a chunk each
        return GROW
    queue = Windows(arms.ends, w.pool, w.links)
    while arms.ends[slot, COUNT] > 0:
        stamp = w.pool[arms.ends[slot, HEAD], arms.ends[slot, HEAD_AT], d + 1]
        if stamp > arms.clock[row, SINCE]:
            break
        windows.pop(queue, slot)
    chunk, place = windows.push(queue, slot)
    disjoint.write(state, slot, x, z, r, w.pool[chunk, place])
    w.pool[chunk, place, d + 1] = arms.clock[row, EVER] + 1
    if arms.ends[slot, COUNT] > SHORTEST << (state.shared.shape[0] - 1):
        windows.pop(queue, slot)
    arms.played[slot] += 1
    return TEST


@part
def _restart(state: State, row: int, kept: int) -> None:
    """A model anew from its newest ``kept`` plays."""
    w = state.windows
    disjoint.theta(state, row, state.test.report[0])
    while w.table[row, COUNT] > kept:
        windows.pop(w, row)
    score_test.refit(state.test, w, row)
    disjoint.relearn(state, row)
    disjoint.theta(state, row, state.test.report[1])


@part
def finish(state: State, step: int, slot: int) -> int:
    """Does the arm still belong to its group, has the group's or the arm's θ changed."""
    arms, w, t, g = state.arms, state.windows, state.test, state.contrast
    row, d = arms.model[slot], state.model.w.shape[0]
    if arms.kind[row] == ONE:
        kept = score_test.changed(t, w, row)
        if kept > 0:
            _restart(state, row, kept)
        return CHANGED if kept > 0 else NO_CHANGE
    both = ScoreTest(state.shared, t.flat, t.report, t.room, t.model, t.w, t.atoms)
    queue = Windows(arms.ends, w.pool, w.links)
    record = w.pool[arms.ends[slot, TAIL], arms.ends[slot, TAIL_AT] - 1]
    kept = contrast.differs(both, g, w, queue, row, slot, arms.played[slot], record)
    if kept > 0:  # the play is not taught to the group
        disjoint.theta(state, row, t.report[0])
        _leave(state, slot, row, kept)
        return CHANGED
    _learn_row(state, row, record[:d], record[d])
    w.pool[w.table[row, TAIL], w.table[row, TAIL_AT] - 1, d + 2] = slot
    arms.clock[row, EVER] += 1
    kept = contrast.turned(both, g, w, row)
    if kept == 0:
        return NO_CHANGE
    _restart(state, row, kept)
    for j in range(contrast.PAST):
        g.past[row, j] = 0.0
    arms.clock[row, SINCE] = arms.clock[row, EVER] - kept
    return CHANGED


GROUPS = Kernels("pslinucb_groups", score, learn, decide=decide, finish=finish, prefers=played_less)
