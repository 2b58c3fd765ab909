"""The score test of PSLinUCB over nested window lengths (docs/math.md), for any payoff model.

Are the newest n plays explained as well by one θ with all plays before them as by a θ of their
own? With least-squares losses, T = loss(all) - loss(before) - loss(window) answers for every
direction of a change at once. loss(all) - loss(before) is the sum over the window of the squared
one-step-ahead residuals, each over its variance factor: they are kept with the plays, so a test
costs one fit of the window.

``learn`` and ``finish`` are templates: ``compose`` binds a payoff model's functions to the names
that stand for them. What is tested is linear in the first p numbers of a record; then come the
reward and the squared residual, or FRESH where x had a direction never seen before and no residual
exists; then what else the model keeps of a play.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from whim.kernels.detection import revisit, windows
from whim.kernels.detection.noise import Fit, Plays
from whim.kernels.detection.null_distribution import surprising, tempered
from whim.kernels.detection.windows import COUNT, Windows, advance, newest
from whim.kernels.jit import bind, part, splice
from whim.kernels.linalg import udu
from whim.kernels.status import CHANGED, GROW, NO_CHANGE, TEST
from whim.types import F64

# columns of the windows' table after those of the window: since the restart, plays, residuals
# that exist, and plays with a reward of 0 or 1, which nothing reads but is stored
PLAYS, FREE, BINARY, TABLE = range(windows.ENDS, windows.ENDS + 4)

SHORTEST = 8  # plays in the shortest window
FRESH = -1.0
_LOOSE = 1e12  # variance of θ before the first play, in units of σ²/|x|²
_FAINT = 1e2  # the least leverage of a new direction: 1e-5 of the first |x|
_STILL = 0.5  # of the variance that was left: less is found in any direction that was seen
_SINGULAR = 1e-9  # a pivot that is rounding, relative to its diagonal
LEAST_FREE = 8  # residuals that the noise must be known from, or 2k
PRICE = 6.0  # see price
EQUAL = 1e-6  # variances: equal but for rounding
ROUNDING = 1e-12  # of a mean square: the noise that arithmetic itself makes


class ScoreTest(NamedTuple):
    """The state of the test.

    ``bounds[i, k]`` is the value that counts as a change for the length ``SHORTEST · 2ⁱ`` with k
    degrees of freedom. ``flat`` has per arm a model of its plays without a ridge to speak of,
    whose residuals owe nothing to a prior, then the sum of its squared residuals and of r².
    ``report`` takes a change: θ before, θ after, and the statistic, its bound, its degrees of
    freedom and the plays since. ``room``, ``model``, ``w`` and ``atoms`` are scratch.
    """

    bounds: F64
    flat: F64
    report: F64
    room: F64
    model: F64
    w: F64
    atoms: F64


def room_size(d: int) -> int:
    """Numbers of scratch for a test: a fit and the noise; the sums it is made of; d pivots."""
    return 2 * (udu.packed_size(d) + d + 1) + d


# -- residuals ----------------------------------------------------------------------------------


@part
def residual(flat: F64, x: F64, r: float, rank: int, w: F64) -> float:
    """Teach a flat model, of ``rank`` directions, one play; its squared residual, or FRESH."""
    d = x.shape[0]
    if flat[0] == 0.0:
        size = 0.0
        for j in range(d):
            size += x[j] * x[j]
        if size > 0.0:
            for j in range(d):
                flat[j] = _LOOSE / size
    at = d * (d + 1) // 2
    loose = 0.0
    for j in range(d):
        loose = max(loose, flat[j])
    a = udu.rank_one(flat, x, 1.0, w)
    e = r - udu.predict(flat, x)
    square = 0.0
    for j in range(d):
        square += w[j] * w[j]
        flat[at + j] += w[j] * (e / a)
    # |Px|²/xᵀPx is the variance along Px: still the prior's in a direction never seen, however
    # faintly x shows it; a leverage alone cannot tell that from a long x in a known direction
    new = rank < d and a > _FAINT and square > _STILL * loose * (a - 1.0)
    return FRESH if new else e * e / a


@part
def learn_residual(t: ScoreTest, w: Windows, row: int, record: F64) -> None:
    """Teach the arm's flat model one record, which gets its residual, and count it."""
    p = t.bounds.shape[1] - 1
    flat, counts, r = t.flat[row], w.table[row], record[p]
    square = residual(flat, record[:p], r, counts[PLAYS] - counts[FREE], t.w)
    record[p + 1] = square
    at = p * (p + 3) // 2
    counts[PLAYS] += 1
    if r == 0.0 or r == 1.0:
        counts[BINARY] += 1
    if square >= 0.0:
        counts[FREE] += 1
        flat[at] += square
    flat[at + 1] += r * r


@part
def refit(t: ScoreTest, w: Windows, row: int) -> None:
    """The flat model and the counts anew from the plays in the window."""
    flat = t.flat[row]
    for j in range(flat.shape[0]):
        flat[j] = 0.0
    for j in range(windows.ENDS, TABLE):
        w.table[row, j] = 0
    chunk, place = w.table[row, windows.HEAD], w.table[row, windows.HEAD_AT]
    for _ in range(w.table[row, COUNT]):
        learn_residual(t, w, row, w.pool[chunk, place])
        chunk, place = advance(w, chunk, place)


# -- one length ---------------------------------------------------------------------------------


@part
def gather(w: Windows, chunk: int, place: int, count: int, flat: F64, d: int, room: F64) -> None:
    """Add ``count`` records to Σ x xᵀ packed by rows, Σ x e and Σ e² in ``room``'s second half.

    e is the residual under the flat model.
    """
    size = d * (d + 1) // 2
    at = size + d + 1
    for _ in range(count):
        record = w.pool[chunk, place]
        e = record[d]
        for j in range(d):
            e -= record[j] * flat[size + j]
        k = at
        for i in range(d):
            x_i = record[i]
            for j in range(i + 1):
                room[k + j] += x_i * record[j]
            room[at + size + i] += x_i * e
            k += i + 1
        room[at + size + d] += e * e
        chunk, place = advance(w, chunk, place)


@part
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


@part
def squared_residuals(w: Windows, row: int, n: int, d: int) -> tuple[float, int]:
    """Their sum over the newest n plays, and how many of these have none."""
    squares, fresh = 0.0, 0
    chunk, place = newest(w, row, n)
    for _ in range(n):
        square = w.pool[chunk, place, d + 1]
        if square >= 0.0:
            squares += square
        else:
            fresh += 1
        chunk, place = advance(w, chunk, place)
    return squares, fresh


@part
def too_small(squares: float, free: int, total: float, least: float) -> bool:
    """Whether residuals are too small for a value of ``least``: they need not be fitted."""
    return free * squares < least * (total - squares)


@part
def examine(
    t: ScoreTest, w: Windows, row: int, n: int, gathered: int, least: float
) -> tuple[float, int, int]:
    """The test of the newest n plays: a χ² value and its degrees of freedom, 0 for no test.

    The newest ``gathered`` plays are in the sums already; returns how many are now.
    """
    flat, room, counts = t.flat[row], t.room, w.table[row]
    d = t.bounds.shape[1] - 1
    size = d * (d + 1) // 2
    at = size + d
    squares, fresh = squared_residuals(w, row, n, d)
    total = flat[at]
    if too_small(squares, counts[FREE], total, least):
        return 0.0, 0, gathered
    chunk, place = newest(w, row, n)
    gather(w, chunk, place, n - gathered, flat, d, room)
    loss, rank = fit(d, room)
    k = rank - fresh
    free = counts[FREE] - k
    gain = squares - loss
    if k < 1 or free < max(LEAST_FREE, 2 * k) or gain <= 0.0:
        return 0.0, 0, n
    noise = max(total - gain, ROUNDING * flat[at + 1]) / free
    if noise <= 0.0:  # rewards whose squares are too small for a number
        return 0.0, 0, n
    room[at] = noise
    value = tempered(gain / noise, k, free)
    if value >= least + (k - 1):  # the bound of k lies k - 1 or more above that of 1
        window = Plays(w, chunk, place, n, -1.0)
        before = Plays(w, counts[windows.HEAD], counts[windows.HEAD_AT], counts[COUNT] - n, -1.0)
        fitted = Fit(gain, noise, flat[size:at], room[size:at], room, t.atoms)
        value = surprising(window, before, fitted, k, free)
    return value, k, n


@part
def price(bounds: F64, rank: int) -> float:
    """What directions that plays alone must teach cost: no more than a change that is found."""
    cost: float = min(PRICE * rank, bounds[0, rank])
    return cost


@part
def began(t: ScoreTest, w: Windows, row: int, noise: float) -> int:
    """How many of the newest plays are of the new regime, most likely: the largest T.

    Directions have their ``price``: a play that brings one is explained for nothing.
    """
    d = t.bounds.shape[1] - 1
    for j in range(t.model.shape[0]):
        t.model[j] = 0.0
    gain, most, kept, rank = 0.0, -np.inf, 1, 0
    for n in range(1, min(w.table[row, COUNT], w.table[row, PLAYS] - 1) + 1):
        chunk, place = newest(w, row, n)
        record = w.pool[chunk, place]
        square = residual(t.model, record[:d], record[d], rank, t.w)
        if square < 0.0:
            square = noise * (price(t.bounds, rank + 1) - price(t.bounds, rank))
            rank += 1
        gain += max(record[d + 1], 0.0) - square
        if gain > most + EQUAL * noise:
            most, kept = gain, n
    return kept


# -- all lengths --------------------------------------------------------------------------------


@part
def due(t: ScoreTest, w: Windows, row: int) -> bool:
    """Whether ``changed`` may find something after this play; each length n has n/4 plays' rest."""
    plays = w.table[row, PLAYS]
    if plays & 1 or plays <= SHORTEST:
        return False
    if plays & 3 == 0 and plays > 2 * SHORTEST:
        return True
    d = t.bounds.shape[1] - 1
    total = t.flat[row, d * (d + 3) // 2]
    squares, _ = squared_residuals(w, row, SHORTEST, d)
    return not too_small(squares, w.table[row, FREE], total, t.bounds[0, 1])


@part
def changed(t: ScoreTest, w: Windows, row: int) -> int:
    """How many of the newest plays are of a new regime, 0 if nothing has changed.

    On a change the last row of ``report`` holds the statistic, its bound, its degrees of freedom
    and what is returned.
    """
    plays, d = w.table[row, PLAYS], t.bounds.shape[1] - 1
    verdict, room = t.report[2], t.room
    most = 1.0
    at = d * (d + 3) // 2
    for j in range(at + 1, room.shape[0]):
        room[j] = 0.0
    noise, gathered, reached = 0.0, 0, False
    for i in range(t.bounds.shape[0]):
        n = SHORTEST << i
        if n >= plays or plays % (n >> 2):
            break
        value, k, gathered = examine(t, w, row, n, gathered, t.bounds[i, 1])
        if k > 0 and value >= most * t.bounds[i, k]:
            most = value / t.bounds[i, k]
            reached = True
            verdict[0], verdict[1], verdict[2] = value, t.bounds[i, k], k
            noise = room[at]
    if not reached:
        return 0
    kept = began(t, w, row, noise)
    verdict[3] = kept
    return kept


# -- with a payoff model ------------------------------------------------------------------------


def _placeholder(*arguments: Any) -> Any:
    raise NotImplementedError  # bound to a payoff model's own by ``compose``


write = expected = teach = leave = restart = theta = _placeholder


def learn(state: Any, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One play: what it says of an arm that was left alone, then the models learn it."""
    w, t, v = state.windows, state.test, state.revisit
    if windows.full(w, slot):
        return GROW
    chunk, place = windows.push(w, slot)
    record = w.pool[chunk, place]
    write(state, slot, x, z, r, record)
    if v.rate >= 0.0:
        own, new = expected(state, slot, record)
        q, noise = revisit.weigh(v, slot, step, r, own, new, state.model.alpha)
        revisit.note(v, slot, step, q, noise)
    teach(state, slot, record)
    learn_residual(t, w, slot, record)
    if w.table[slot, COUNT] > SHORTEST << (t.bounds.shape[0] - 1):  # more than the longest needs
        chunk, place = windows.pop(w, slot)
        leave(state, slot, w.pool[chunk, place])
    return TEST if due(t, w, slot) else NO_CHANGE


def finish(state: Any, step: int, slot: int) -> int:
    """Test the lengths whose turn it is; on a change restart the arm from the plays since."""
    w, t = state.windows, state.test
    kept = changed(t, w, slot)
    if kept == 0:
        return NO_CHANGE
    theta(state, slot, t.report[0])
    keep_newest(state, slot, kept)
    restart(state, slot)
    theta(state, slot, t.report[1])
    revisit.note_change(state.revisit, slot)
    return CHANGED


def keep_newest(state: Any, slot: int, kept: int) -> None:
    """Only the newest ``kept`` plays are to be tested again: the others leave the window."""
    w = state.windows
    while w.table[slot, COUNT] > kept:
        chunk, place = windows.pop(w, slot)
        leave(state, slot, w.pool[chunk, place])
    refit(state.test, w, slot)


def compose(name: str, **model: Callable[..., Any]) -> dict[str, Any]:
    """``learn`` and ``finish`` for a payoff model, for ``Kernels``.

    The model has ``write(state, slot, x, z, r, record)``, ``expected(state, slot, record)``: mean
    and squared width of the arm and of a new one; ``teach(state, slot, record)``, ``leave(state,
    slot, record)`` for a play that leaves the window, ``restart(state, slot)`` from the window, and
    ``theta(state, slot, out)``.
    """
    name = f"score_test_{name}"
    hot = {hook: splice(function) for hook, function in model.items()}
    hot |= {f.__name__: splice(f) for f in (learn_residual, due)}
    model["keep_newest"] = part(bind(keep_newest, name, **model))
    return {"learn": part(bind(learn, name, **hot)), "finish": part(bind(finish, name, **model))}
