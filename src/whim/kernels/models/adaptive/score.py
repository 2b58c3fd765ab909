"""Decisions of the adaptive mixture: what each model says, weighted, and optimism on top."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from whim.kernels.jit import inline, part
from whim.kernels.linalg import columns, elementary
from whim.kernels.linalg.f64x4 import joined, load, pick, root, splat, total
from whim.kernels.models.adaptive.state import (
    CLICKS,
    DRIFTS,
    ERRORS,
    EVER,
    EXPECTED,
    FREE,
    HAZARDS,
    JUMPING,
    JUMPS,
    LAST,
    MEAN,
    PLAYS,
    RATES,
    RETURNS,
    REWARDS_SQUARED,
    STEPS,
    UNSURE,
    VALUES,
    VARIANCE,
    VARIANCE_OF_ALL,
    WORLDS,
    Shared,
    State,
)
from whim.types import F64, I64

_HAZARDS = len(HAZARDS)
PROBIT = math.pi / 8  # σ(a) of a normal a is about σ of its mean, shrunk
ROUNDING = 1e-12  # of a mean square: the noise that arithmetic itself makes
BACK = 0.25  # how far new coefficients are expected from the mean of all towards the arm's own
LEAST_WEIGHT = 0.01  # of a model whose opinion is asked for
CLICK_OPTIMISM, OPTIMISM = 1.0, 1.5  # standard deviations


class Decision(NamedTuple):
    """What is the same for all candidates of a decision."""

    new_mean: float  # of an arm with new coefficients
    new_variance: float
    new_width: float  # what optimism adds to it
    jumping: float  # probability of the jump worlds
    deviations: float
    clicks: bool
    drifting: bool  # whether the opinion of a drift counts
    candidates: int
    step: int


@inline
def sigmoid(a: float) -> float:
    """The logistic function."""
    return 1.0 / (1.0 + math.exp(min(-a, 700.0)))


@inline
def shrink(variance: float) -> float:
    """By how much uncertainty about a takes E σ(a) towards one half."""
    return 1.0 / math.sqrt(1.0 + PROBIT * variance)


@inline
def clicking(shared: Shared) -> bool:
    """Whether rewards have had at most two values."""
    return bool(shared.sums[VALUES] <= CLICKS)


@inline
def variance_of(state: State, slot: int) -> float:
    """The noise of an arm, drawn towards that of all by as much as ten plays would."""
    sums, own = state.shared.sums, state.arms.noises[slot]
    variance: float = (10.0 * sums[VARIANCE_OF_ALL] + own[ERRORS]) / (10.0 + own[FREE])
    least: float = ROUNDING * sums[REWARDS_SQUARED] / (sums[STEPS] + 1.0)
    return max(variance, least)


@part
def with_constant(shared: Shared, x: F64, phi: F64) -> None:
    """The context and a 1 for clicks, or 0 where x has a constant: a number, or the sum of all."""
    d = x.shape[0]
    constant = 0.0
    if clicking(shared):
        constant = 1.0
        for j in range(d + 1):
            if shared.start[1, j] > 0.0 and shared.start[0, j] != 0.0:
                constant = 0.0
    for j in range(d):
        phi[j] = x[j]
    phi[d] = constant


@inline
def prepare(state: State, step: int, x: F64, candidates: int) -> Decision:
    """Features and the sums over worlds into scratch, and the rest."""
    shared, room = state.shared, state.scratch
    with_constant(shared, x, room.phi)
    mean, variance, jumping = 0.0, 0.0, 0.0
    for j in range(room.phi.shape[0]):
        mean += room.phi[j] * shared.prior[MEAN, j]
        variance += room.phi[j] * room.phi[j] * shared.prior[VARIANCE, j]
    for h in range(_HAZARDS):
        never, half = shared.worlds[1, h], shared.worlds[1, _HAZARDS + h]
        jumping += never + half
        room.hazards[0, h] = never + half
        room.hazards[1, h] = never * RETURNS[0] + half * RETURNS[1]
    drifting = False
    for z in range(DRIFTS):
        drifting |= shared.worlds[1, JUMPS + z] >= LEAST_WEIGHT
    clicks = clicking(shared)
    deviations = state.settings.optimism * (CLICK_OPTIMISM if clicks else OPTIMISM)
    width = deviations * math.sqrt(variance)
    return Decision(mean, variance, width, jumping, deviations, clicks, drifting, candidates, step)


@inline
def _jumped(state: State, gap: int) -> tuple[float, float]:
    """The probability that an arm has jumped since its last play: at all, and back to EVER."""
    scale, hazards = splat(2.0 / state.settings.arms * gap, 1), state.scratch.hazards
    any_jump, back = splat(0.0, 1), splat(0.0, 1)
    for h in range(0, _HAZARDS, 4):
        u = elementary.fallen(load(HAZARDS, h, 1) * scale)
        any_jump += load(hazards, h, 1) * u
        back += load(hazards, _HAZARDS + h, 1) * u
    return total(any_jump), total(back)


@inline
def _opinions(
    d: Decision, mean: Any, variance: Any, more: float, full: bool
) -> tuple[Any, Any, Any]:
    """What four models expect, the variance of that, and the optimistic values (clicks only)."""
    none = splat(0.0, 1)
    if not d.clicks:
        return mean, variance, none
    wide = root(variance * splat(d.deviations * d.deviations + more, 1))
    bound = elementary.sigmoid(mean + wide)
    if not full:
        return none, none, bound
    one = splat(1.0, 1)
    shrunk = mean / root(one + splat(PROBIT, 1) * variance)
    return elementary.sigmoid(shrunk), none, bound


@inline
def _drift(state: State, d: Decision, slot: int, new: float, gap: int) -> tuple[Any, Any, Any]:
    """Weights of the drifts, and what each expects now and the variance of that, four at once."""
    one, usual = splat(1.0, 1), splat(new, 1)
    weight, room = load(state.shared.worlds, WORLDS + JUMPS, 1), state.scratch.room
    means, squares = room[EXPECTED], room[UNSURE]
    columns.full_forms(
        state.arms.drifts[slot], state.scratch.phi, state.scratch.lines, means, squares
    )
    mean, square = load(means, 0, 1), load(squares, 0, 1)
    away = elementary.fallen(load(RATES, 0, 1) * splat(4.0 / state.settings.arms * gap, 1))
    left = one - away
    scale = 1.0 if d.clicks else variance_of(state, slot)
    mean = usual + root(left) * (mean - usual)
    return weight, mean, left * splat(scale, 1) * square + away * splat(d.new_variance, 1)


@inline
def _new_arm(d: Decision) -> tuple[float, float]:
    """Score and mean of an arm that was never played."""
    if not d.clicks:
        return d.new_mean + d.new_width, d.new_mean
    return sigmoid(d.new_mean + d.new_width), sigmoid(shrink(d.new_variance) * d.new_mean)


@inline
def _candidate(state: State, d: Decision, slot: int, full: bool) -> tuple[float, float]:
    """Score and mean of one candidate; clicks have the mean only if ``full``."""
    arms, scratch, mixed = state.arms, state.scratch, state.arms.mixed[slot]
    means, squares = scratch.room[EXPECTED], scratch.room[UNSURE]
    clock, n = arms.clock[slot], mixed.shape[0]
    gap = d.step - clock[LAST]
    more = math.log(gap / d.candidates) if gap > d.candidates else 0.0
    any_jump, back = _jumped(state, gap)
    keep = (d.jumping - any_jump) / arms.noises[slot, JUMPING]
    scale = 1.0 if d.clicks else variance_of(state, slot)
    columns.forms(arms.models[slot], scratch.phi, scratch.values, means, squares)
    new = d.new_mean + BACK * (means[EVER] - d.new_mean)
    none, least = splat(0.0, 1), splat(LEAST_WEIGHT, 1)
    weights, first, second, inside, upper = none, none, none, none, none
    for c in range(0, n + 4 if d.drifting else n, 4):
        if c == n:
            weight, mean, own = _drift(state, d, slot, new, gap)
        else:
            weight = load(mixed, c, 1) * splat(keep, 1)
            if c == 0:
                weight += joined(back, 0.0, 0.0, 0.0)
            mean, own = load(means, c, 1), load(squares, c, 1) * splat(scale, 1)
        weight = pick(weight, least, weight, none)
        if total(weight) == 0.0:
            continue
        mean, own, bound = _opinions(d, mean, own, more, full)
        weights = weights + weight
        first = first + weight * mean
        second = second + weight * (own + mean * mean)
        inside = inside + weight * own
        upper = upper + weight * bound
    changed = any_jump - back
    whole = changed + total(weights)
    if d.clicks:
        value = (changed * sigmoid(new + d.new_width) + total(upper)) / whole
        if not full:
            return value, 0.0
        mean_of_new = sigmoid(shrink(d.new_variance) * new)
        return value, (changed * mean_of_new + total(first)) / whole
    average = (changed * new + total(first)) / whole
    squares = changed * (d.new_variance + new * new) + total(second)
    variance = max(squares / whole - average * average, 0.0)
    within = min(total(inside) / whole, variance)
    width = math.sqrt(d.deviations * d.deviations * variance + more * within)
    return average + width, average


@part
def score(state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """Score, mean and width of each candidate; the best one's place."""
    d = prepare(state, step, x, slots.shape[0])
    best = 0
    for c in range(slots.shape[0]):
        if state.arms.clock[slots[c], PLAYS] == 0:
            out[c, 0], out[c, 1] = _new_arm(d)
        else:
            out[c, 0], out[c, 1] = _candidate(state, d, slots[c], True)
        out[c, 2] = out[c, 0] - out[c, 1]
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@part
def decide(
    state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> tuple[int, float, float, float]:
    """Place, score, mean and width of the best; of clicks, the others' means are not needed."""
    n = slots.shape[0]
    d = prepare(state, step, x, n)
    best, most, mean = 0, -math.inf, 0.0
    for c in range(n + 1 if d.clicks else n):
        full = c == n
        slot = slots[best] if full else slots[c]
        if state.arms.clock[slot, PLAYS] == 0:
            value, expected = _new_arm(d)
        else:
            value, expected = _candidate(state, d, slot, full)
        if full:
            mean = expected
        elif value > most:
            best, most, mean = c, value, expected
    return best, most, mean, most - mean
