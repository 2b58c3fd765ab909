"""Two tests for arms that share a model: does one differ from the others, have all changed.

Do the newest n plays of an arm have a θ of their own? With A = Σ x xᵀ and θ of all plays of the
group, and over the n plays G = Σ x xᵀ, g = Σ x (r - xᵀθ), Chow's
T = loss(all) - loss(arm) - loss(others) is gᵀ (G - G A⁻¹ G)⁺ g (docs/math.md). The distribution of
T, the lengths and the most likely beginning are those of ``score_test``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.kernels.detection import score_test
from whim.kernels.detection.noise import Fit, Plays
from whim.kernels.detection.null_distribution import surprising, tempered
from whim.kernels.detection.score_test import ScoreTest
from whim.kernels.detection.windows import COUNT, HEAD, HEAD_AT, Windows, advance, newest
from whim.kernels.jit import part
from whim.kernels.linalg import udu
from whim.types import F64

# columns of ``past``, what the group's test had counted when the last arm left: that test starts
# anew then, but what it has learnt about the noise still counts
LOSS, SQUARES, PLAYS, FREE, BINARY = range(5)
PAST = 5

# plays of its own that an arm leaves with: fewer could be the first of a change of all, which the
# group's test then sees with the plays of others
_FEWEST = 4
_KNOWN = 1e-6  # less of a direction's weight than this is not known to the others


class Contrast(NamedTuple):
    """What the tests of a group keep beyond the score test's: ``past`` by row, the rest scratch."""

    past: F64
    sums: F64
    side: F64
    totals: F64


@part
def _contrast(t: ScoreTest, g: Contrast) -> tuple[float, int]:
    """T and its degrees of freedom from the arm's sums and the model of all plays in ``t.model``.

    Directions in which the others know nothing are left out: there is nothing to differ from.
    """
    d, whole, sums, side, room = g.side.shape[0], t.model, g.sums, g.side, t.room
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
            u = whole[k + i]
            for h in range(d):
                side[j, h] += u * side[i, h]
    for j in range(at, at + size + d):
        room[j] = sums[j]
    room[at + size + d] = 0.0
    for h in range(d):
        p = at
        for i in range(d):
            scaled = whole[h] * side[h, i]
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
    loss, rank = score_test.fit(d, room)
    return -loss, rank


@part
def _own_rank(t: ScoreTest, g: Contrast) -> int:
    """Rank of the arm's plays; ``room`` is left with their fit."""
    d = g.side.shape[0]
    at = d * (d + 3) // 2 + 1
    for j in range(at, 2 * at):
        t.room[j] = g.sums[j]
    return score_test.fit(d, t.room)[1]


@part
def _small(t: ScoreTest, g: Contrast, w: Windows, slot: int, n: int, least: float) -> bool:
    """Whether the residuals are too small for a value of ``least``: T <= Σ e² / (1 - Σ h)."""
    d, squares, lever = g.side.shape[0], 0.0, 0.0
    chunk, place = newest(w, slot, n)
    for _ in range(n):
        x = w.pool[chunk, place, :d]
        e = w.pool[chunk, place, d] - udu.predict(t.model, x)
        squares += e * e
        lever += udu.quad(t.model, x)
        chunk, place = advance(w, chunk, place)
    if lever > 0.5:
        return False
    squares /= 1.0 - lever
    smaller: bool = g.totals[FREE] * squares < least * (g.totals[LOSS] - squares)
    return smaller


@part
def _value(
    t: ScoreTest, g: Contrast, window: Plays, before: Plays, least: float, gain: float, k: int
) -> tuple[float, float]:
    """The χ² value of T = ``gain``, as ``score_test.examine`` has it, and the noise."""
    totals, d = g.totals, g.side.shape[0]
    free = totals[FREE] - k
    if k < 1 or free < max(score_test.LEAST_FREE, 2 * k) or gain <= 0.0:
        return 0.0, 0.0
    noise = max(totals[LOSS] - gain, score_test.ROUNDING * totals[SQUARES]) / free
    if noise <= 0.0:
        return 0.0, 0.0
    value = tempered(gain / noise, k, free)
    if value >= least + (k - 1):
        _own_rank(t, g)
        size, end = d * (d + 1) // 2, d * (d + 3) // 2
        fitted = Fit(gain, noise, t.model[size:end], t.room[size:end], t.room, t.atoms)
        value = surprising(window, before, fitted, k, free)
    return value, noise


@part
def _since(t: ScoreTest, g: Contrast, w: Windows, slot: int, noise: float) -> int:
    """How many of the arm's newest plays are of its own θ, most likely; see ``score_test``."""
    g.sums[:] = 0.0
    most, kept = -np.inf, 1
    for n in range(1, w.table[slot, COUNT] + 1):
        chunk, place = newest(w, slot, n)
        score_test.gather(w, chunk, place, 1, t.model, g.side.shape[0], g.sums)
        gain, _ = _contrast(t, g)
        gain -= noise * score_test.price(t.bounds, _own_rank(t, g))
        if gain > most + score_test.EQUAL * noise:
            most, kept = gain, n
    return kept


@part
def count_noise(t: ScoreTest, g: Contrast, models: Windows, row: int) -> None:
    """What is known of the noise: now, and before the last arm left."""
    d, past, counts = g.side.shape[0], g.past[row], models.table[row]
    at = d * (d + 3) // 2
    g.totals[LOSS] = past[LOSS] + t.flat[row, at]
    g.totals[SQUARES] = past[SQUARES] + t.flat[row, at + 1]
    g.totals[PLAYS] = past[PLAYS] + counts[score_test.PLAYS]
    g.totals[FREE] = past[FREE] + counts[score_test.FREE]
    g.totals[BINARY] = past[BINARY] + counts[score_test.BINARY]


@part
def _learn_apart(t: ScoreTest, g: Contrast, models: Windows, row: int, record: F64) -> None:
    """The group's model as it would be with one more play, in ``t.model`` and ``totals``."""
    d: int = g.side.shape[0]
    r: float = record[d]
    totals = g.totals
    count_noise(t, g, models, row)
    for j in range(t.model.shape[0]):
        t.model[j] = t.flat[row, j]
    rank = int(totals[PLAYS] - totals[FREE])
    square = score_test.residual(t.model, record[:d], r, rank, t.w)
    totals[PLAYS] += 1.0
    totals[SQUARES] += r * r
    if square >= 0.0:
        totals[FREE] += 1.0
        totals[LOSS] += square
    if r == 0.0 or r == 1.0:
        totals[BINARY] += 1.0


@part
def differs(
    t: ScoreTest, g: Contrast, models: Windows, own: Windows, row: int, slot: int, plays: int,
    record: F64,
) -> int:  # fmt: skip
    """How many of the arm's newest plays, this one included, are not its group's; 0 for none.

    Every length n whose turn it is, once in n/4 plays of the arm. The group has not learnt the
    play yet: ``t.model`` is its model with it.
    """
    held, bounds, verdict = own.table[slot, COUNT], t.bounds, t.report[2]
    if held < score_test.SHORTEST or plays & 1:
        return 0
    _learn_apart(t, g, models, row, record)
    d, most, noise = g.side.shape[0], 1.0, 0.0
    counts = models.table[row]
    others = Plays(models, counts[HEAD], counts[HEAD_AT], counts[COUNT], float(slot))
    for i in range(bounds.shape[0]):
        n = score_test.SHORTEST << i
        if n > held or plays % (n >> 2):
            break
        if _small(t, g, own, slot, n, bounds[i, 1]):
            continue
        g.sums[:] = 0.0
        chunk, place = newest(own, slot, n)
        score_test.gather(own, chunk, place, n, t.model, d, g.sums)
        gain, k = _contrast(t, g)
        window = Plays(own, chunk, place, n, -1.0)
        value, level = _value(t, g, window, others, bounds[i, 1], gain, k)
        if k > 0 and value >= most * bounds[i, k]:
            most, noise = value / bounds[i, k], level
            verdict[0], verdict[1], verdict[2] = value, bounds[i, k], k
    if noise <= 0.0:
        return 0
    kept = _since(t, g, own, slot, noise)
    verdict[3] = kept
    return kept if kept >= _FEWEST else 0


@part
def _worst(t: ScoreTest, w: Windows, row: int, n: int, d: int) -> float:
    """The slot of the arm whose residuals are the largest of a group's newest n plays."""
    start, first = newest(w, row, n)
    worst, most = -1.0, -1.0
    chunk, place = start, first
    for _ in range(n):
        slot, total = w.pool[chunk, place, d + 2], 0.0
        c, p = start, first
        for _ in range(n):
            if w.pool[c, p, d + 2] == slot:
                e = w.pool[c, p, d] - udu.predict(t.model, w.pool[c, p, :d])
                total += e * e
            c, p = advance(w, c, p)
        if total > most:
            worst, most = slot, total
        chunk, place = advance(w, chunk, place)
    return worst


@part
def _broad(
    t: ScoreTest, g: Contrast, w: Windows, row: int, n: int, value: float, bound: F64
) -> bool:
    """Whether a change of the group is seen without the arm that shows it most.

    One stray among many arms is no change of all: what remains of the value must reach the bound
    as well. If there is but one arm in the window, what it shows is all there is.
    """
    d = g.side.shape[0]
    for j in range(t.model.shape[0]):
        t.model[j] = t.flat[row, j]
    worst = _worst(t, w, row, n, d)
    g.sums[:] = 0.0
    gain, k = 0.0, 0
    for turn in range(2):  # the others, then all
        chunk, place = newest(w, row, n)
        for _ in range(n):
            if (w.pool[chunk, place, d + 2] == worst) == (turn == 1):
                score_test.gather(w, chunk, place, 1, t.model, d, g.sums)
            chunk, place = advance(w, chunk, place)
        if turn == 0:
            if g.sums[d * (d + 3) + 1] == 0.0:
                return True
            gain, k = _contrast(t, g)
    everything, _ = _contrast(t, g)
    broad: bool = k > 0 and value * gain >= everything * bound[k]
    return broad


@part
def turned(t: ScoreTest, g: Contrast, w: Windows, row: int) -> int:
    """How many of a group's newest plays are of a new θ; 0 for none."""
    plays, d = w.table[row, score_test.PLAYS], g.side.shape[0]
    if plays & 1:
        return 0
    bounds, room, verdict = t.bounds, t.room, t.report[2]
    at = d * (d + 3) // 2
    room[at + 1 :] = 0.0
    most, noise, gathered = 1.0, 0.0, 0
    for i in range(bounds.shape[0]):
        n = score_test.SHORTEST << i
        if n >= plays or plays % (n >> 2):
            break
        value, k, gathered = score_test.examine(t, w, row, n, gathered, bounds[i, 1])
        if k < 1 or not value >= most * bounds[i, k]:
            continue
        level = room[at]
        if _broad(t, g, w, row, n, value, bounds[i]):
            most, noise = value / bounds[i, k], level
            verdict[0], verdict[1], verdict[2] = value, bounds[i, k], k
        room[at + 1 :] = 0.0
        gathered = 0
    if noise <= 0.0:
        return 0
    kept = score_test.began(t, w, row, noise)
    verdict[3] = kept
    return kept
