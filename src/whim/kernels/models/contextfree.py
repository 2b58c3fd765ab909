"""Context-free payoffs: an arm is its rewards; contexts are only checked to be finite.

Random choice, UCB, discounted and sliding-window UCB. ``stats`` has a row per
slot, which starts with the number of plays and the sum of rewards that the index is made of. Every
index is ``mean + scale · sqrt(level / plays)``; an arm without plays has mean 0 and an infinite
width. ``step`` is the number of updates so far, so the play being decided is number ``step + 1``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.kernels.jit import jit, part
from whim.kernels.loops import Kernels
from whim.kernels.status import GROW, NO_CHANGE
from whim.types import F64, I64

# columns of ``stats``; the last name of each line is how many a policy has
PLAYS, SUM, PLAIN_COLUMNS = range(3)
LAST, DISCOUNTED_COLUMNS = range(2, 4)  # D-UCB: step of the last play, which the sums are as of

# SW-UCB: where ``ring`` takes the next play, how many it holds, pops since its sums were exact
AT, FILLED, POPS, RING = range(4)
_REFRESH = 1024  # at least this many pops between refreshes, which visit every row

_LARGEST = np.finfo(np.float64).max


# -- what the indices share ---------------------------------------------------------------------


@part
def _bound(c: int, mean: float, plays: float, level: float, scale: float, out: F64) -> None:
    width = scale * np.sqrt(level / plays) if plays > 0.0 else np.inf
    out[c, 0] = mean + width
    out[c, 1] = mean
    out[c, 2] = width


@part
def bounds(slots: I64, stats: F64, level: float, scale: float, out: F64) -> int:
    """Score, mean and width of each candidate into ``out``; the best one's place."""
    best = 0
    for c in range(slots.shape[0]):
        plays = stats[slots[c], PLAYS]
        mean = stats[slots[c], SUM] / plays if plays > 0.0 else 0.0
        _bound(c, mean, plays, level, scale, out)
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@part
def force(place: int, n: int, out: F64) -> None:
    """Make one candidate the best: +inf for it, and finite scores for the others."""
    for c in range(n):
        out[c, 0] = min(out[c, 0], _LARGEST)
    out[place, 0] = np.inf


@part
def count(stats: F64, slot: int, r: float) -> None:
    """One more play."""
    stats[slot, PLAYS] += 1.0
    stats[slot, SUM] += r


# -- random choice ------------------------------------------------------------------------------


class RandomState(NamedTuple):
    """Nothing is learnt; the field is there since a state needs one."""

    stats: F64


@part
def _score_random(
    state: RandomState, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> int:
    """The scores are the draws."""
    best = 0
    for c in range(slots.shape[0]):
        out[c, 0] = noise[c]
        out[c, 1] = 0.0
        out[c, 2] = 0.0
        if noise[c] > noise[best]:
            best = c
    return best


@part
def _learn_nothing(state: RandomState, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    return NO_CHANGE


RANDOM = Kernels("random", _score_random, _learn_nothing)


# -- UCB ----------------------------------------------------------------------------------------


class UCBState(NamedTuple):
    """UCB1's ``alpha · sqrt(2 ln t / n)`` or, without the logarithm, ``alpha / sqrt(n)``."""

    stats: F64
    logarithm: bool
    alpha: float


@part
def _score_ucb(
    state: UCBState, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> int:
    level = 2.0 * np.log(max(step, 1)) if state.logarithm else 1.0
    return bounds(slots, state.stats, level, state.alpha, out)


@part
def _learn_ucb(state: UCBState, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    count(state.stats, slot, r)
    return NO_CHANGE


UCB = Kernels("ucb", _score_ucb, _learn_ucb)


# -- discounted UCB -----------------------------------------------------------------------------


class DiscountedState(NamedTuple):
    """D-UCB: mean + 2B sqrt(ξ ln(ΣN) / N), N discounted; ``total`` is ΣN."""

    stats: F64
    total: F64
    gamma: float
    xi: float
    bound: float


@part
def _score_discounted(
    state: DiscountedState, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> int:
    """The discount cancels in the mean.

    An N that has underflowed to 0 gives +inf, as it should: that arm is all but unknown.
    """
    stats = state.stats
    level = state.xi * np.log(max(state.total[0], 1.0))
    best = 0
    for c in range(slots.shape[0]):
        row = slots[c]
        plays = stats[row, PLAYS]
        mean = stats[row, SUM] / plays if plays > 0.0 else 0.0
        left = plays * state.gamma ** (step - stats[row, LAST])
        _bound(c, mean, left, level, 2.0 * state.bound, out)
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@part
def _learn_discounted(
    state: DiscountedState, step: int, slot: int, x: F64, z: F64, r: float
) -> int:
    # only the played arm is touched: the others are discounted when they are next read
    stats = state.stats
    weight = state.gamma ** (step + 1 - stats[slot, LAST])
    stats[slot, PLAYS] = stats[slot, PLAYS] * weight + 1.0
    stats[slot, SUM] = stats[slot, SUM] * weight + r
    stats[slot, LAST] = step + 1
    state.total[0] = state.total[0] * state.gamma + 1.0
    return NO_CHANGE


@jit
def discounted_total(stats: F64, step: int, gamma: float) -> float:
    """ΣN, each discounted to this step."""
    total = 0.0
    for row in range(stats.shape[0]):
        total += stats[row, PLAYS] * gamma ** (step - stats[row, LAST])
    return total


DISCOUNTED = Kernels("ducb", _score_discounted, _learn_discounted)


# -- sliding-window UCB -------------------------------------------------------------------------


class SlidingState(NamedTuple):
    """SW-UCB: mean + B sqrt(ξ ln(min(t, τ)) / N) over the last τ plays of all arms.

    ``ring`` holds their slots (-1: forgotten) and ``values`` their rewards.
    """

    stats: F64
    window: int
    xi: float
    bound: float
    ring: I64
    values: F64
    clock: I64


@part
def _score_sliding(
    state: SlidingState, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> int:
    level = state.xi * np.log(max(min(step, state.window), 1))
    return bounds(slots, state.stats, level, state.bound, out)


@part
def _sum_ring(state: SlidingState) -> None:
    """Recompute every arm's sum from the ring, oldest play first."""
    stats, clock = state.stats, state.clock
    for row in range(stats.shape[0]):
        stats[row, SUM] = 0.0
    for i in range(clock[FILLED]):
        at = (clock[AT] + i) % clock[FILLED]
        if state.ring[at] >= 0:
            stats[state.ring[at], SUM] += state.values[at]


@part
def _learn_sliding(state: SlidingState, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One play enters the ring and the oldest leaves it; GROW where the ring is too short."""
    stats, clock, ring, window = state.stats, state.clock, state.ring, state.window
    at = clock[AT]
    if clock[FILLED] < window:
        if at == ring.shape[0]:
            return GROW
        clock[FILLED] += 1
    else:
        old = ring[at]
        if old >= 0:  # not a play of an arm that was retired or reset since
            stats[old, PLAYS] -= 1.0
            stats[old, SUM] -= state.values[at]
            if stats[old, PLAYS] == 0.0:
                stats[old, SUM] = 0.0
        clock[POPS] += 1
    ring[at] = slot
    state.values[at] = r
    count(stats, slot, r)
    clock[AT] = at + 1 if at + 1 < window else 0
    if clock[POPS] >= max(window, _REFRESH):
        clock[POPS] = 0
        _sum_ring(state)
    return NO_CHANGE


SLIDING = Kernels("swucb", _score_sliding, _learn_sliding)
