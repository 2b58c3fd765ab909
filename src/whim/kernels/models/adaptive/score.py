"""Decisions of the adaptive mixture: what each model says, weighted, and optimism on top."""

from __future__ import annotations

import math
from typing import NamedTuple

from whim.kernels.jit import inline, part
from whim.kernels.linalg import udu
from whim.kernels.models.adaptive.state import (
    CLICKS,
    COUNT,
    DRIFTS,
    ERRORS,
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
    VALUES,
    VARIANCE,
    VARIANCE_OF_ALL,
    Shared,
    State,
)
from whim.types import F64, I64

_HAZARDS = len(HAZARDS)
_PROBIT = math.pi / 8  # σ(a) of a normal a is about σ of its mean, shrunk
ROUNDING = 1e-12  # of a mean square: the noise that arithmetic itself makes
BACK = 0.25  # how far new coefficients are expected from the mean of all towards the arm's own
LEAST_WEIGHT = 0.01  # of a model whose opinion is asked for
CLICK_OPTIMISM, OPTIMISM = 1.0, 1.5  # standard deviations


class Decision(NamedTuple):
    """What is the same for all candidates of a decision."""

    new_mean: float  # of an arm with new coefficients
    new_variance: float
    jumping: float  # probability of the jump worlds
    deviations: float
    clicks: bool
    candidates: int
    step: int


@inline
def sigmoid(a: float) -> float:
    """The logistic function."""
    return 1.0 / (1.0 + math.exp(min(-a, 700.0)))


@inline
def shrink(variance: float) -> float:
    """By how much uncertainty about a takes E σ(a) towards one half."""
    return 1.0 / math.sqrt(1.0 + _PROBIT * variance)


@inline
def clicking(shared: Shared) -> bool:
    """Whether rewards have had at most two values."""
    return bool(shared.sums[VALUES] <= CLICKS)


@inline
def variance_of(state: State, slot: int) -> float:
    """The noise of an arm, drawn towards that of all by as much as ten plays would."""
    sums, own = state.shared.sums, state.arms.noise[slot]
    variance = (10.0 * sums[VARIANCE_OF_ALL] + own[ERRORS]) / (10.0 + own[FREE])
    return max(variance, ROUNDING * sums[REWARDS_SQUARED] / max(sums[STEPS], 1.0))


@part
def with_constant(shared: Shared, x: F64, phi: F64) -> None:
    """The context and a 1 for clicks, or 0 where x itself has always had a constant number."""
    d = x.shape[0]
    constant = 0.0
    if clicking(shared):
        constant = 1.0
        for j in range(d):
            if shared.start[1, j] > 0.0 and shared.start[0, j] != 0.0:
                constant = 0.0
    for j in range(d):
        phi[j] = x[j]
    phi[d] = constant


@inline
def drift_form(row: F64, phi: F64) -> tuple[float, float]:
    """Mean and variance factor of a drift."""
    p = phi.shape[0]
    mean, square = 0.0, 0.0
    for j in range(p):
        line = 0.0
        for i in range(j):
            line += row[j * p + i] * phi[i]
        square += (2.0 * line + row[j * p + j] * phi[j]) * phi[j]
        mean += row[p * p + j] * phi[j]
    return mean, square


@part
def prepare(state: State, step: int, x: F64, candidates: int) -> Decision:
    """Features and the sums over worlds into scratch, and the rest."""
    shared, room = state.shared, state.scratch
    with_constant(shared, x, room.phi)
    mean, variance, jumping = 0.0, 0.0, 0.0
    for j in range(room.phi.shape[0]):
        mean += room.phi[j] * shared.prior[MEAN, j]
        variance += room.phi[j] * room.phi[j] * shared.prior[VARIANCE, j]
    for h in range(_HAZARDS):
        room.hazards[0, h] = 0.0
        room.hazards[1, h] = 0.0
    for world in range(JUMPS):
        weight = shared.worlds[1, world]
        jumping += weight
        room.hazards[0, world % _HAZARDS] += weight
        room.hazards[1, world % _HAZARDS] += weight * RETURNS[world // _HAZARDS]
    clicks = clicking(shared)
    deviations = state.settings.optimism * (CLICK_OPTIMISM if clicks else OPTIMISM)
    return Decision(mean, variance, jumping, deviations, clicks, candidates, step)


@inline
def _jumped(state: State, gap: int) -> tuple[float, float]:
    """The probability that an arm has jumped since its last play: at all, and back to EVER."""
    scale = -2.0 / state.settings.arms * gap
    any_jump, back = 0.0, 0.0
    for h in range(_HAZARDS):
        u = 1.0 - math.exp(HAZARDS[h] * scale)
        any_jump += state.scratch.hazards[0, h] * u
        back += state.scratch.hazards[1, h] * u
    return any_jump, back


@inline
def _opinion(d: Decision, mean: float, variance: float, more: float) -> tuple[float, float, float]:
    """What one model expects, the variance of that, and its optimistic value (clicks only)."""
    if not d.clicks:
        return mean, variance, 0.0
    expected = sigmoid(shrink(variance) * mean)
    bound = sigmoid(mean + math.sqrt(variance * (d.deviations * d.deviations + more)))
    return expected, 0.0, bound


@part
def _candidate(state: State, d: Decision, slot: int) -> tuple[float, float]:
    """Score and mean of one candidate."""
    arms, phi = state.arms, state.scratch.phi
    clock = arms.clock[slot]
    if clock[PLAYS] == 0:
        mean, variance, bound = _opinion(d, d.new_mean, d.new_variance, 0.0)
        return (bound if d.clicks else mean + d.deviations * math.sqrt(variance)), mean
    gap = d.step - clock[LAST]
    more = math.log(gap / d.candidates) if gap > d.candidates else 0.0
    ever = arms.models.shape[1] - 1
    any_jump, back = _jumped(state, gap)
    keep = (d.jumping - any_jump) / arms.noise[slot, JUMPING]
    new = d.new_mean + BACK * (udu.predict(arms.models[slot, ever], phi) - d.new_mean)
    weight = any_jump - back
    mean, own, bound = _opinion(d, new, d.new_variance, 0.0)
    total, inside = weight, 0.0
    first, second, upper = weight * mean, weight * (own + mean * mean), weight * bound
    scale = 1.0 if d.clicks else variance_of(state, slot)
    for i in range(clock[COUNT] + 1 + DRIFTS):
        drift = i - clock[COUNT] - 1
        if drift >= 0:
            weight = state.shared.worlds[1, JUMPS + drift]
        elif drift == -1:
            weight = arms.mixed[slot, ever] * keep + back
        else:
            weight = arms.mixed[slot, i] * keep
        if weight < LEAST_WEIGHT:
            continue
        if drift >= 0:
            mean, own = drift_form(arms.drifts[slot, drift], phi)
            left = math.exp(-4.0 / state.settings.arms * RATES[drift] * gap)
            mean = new + math.sqrt(left) * (mean - new)
            own = left * scale * own + (1.0 - left) * d.new_variance
        else:
            row = arms.models[slot, ever if drift == -1 else i]
            mean, own = udu.predict(row, phi), scale * udu.quad(row, phi)
        mean, own, bound = _opinion(d, mean, own, more)
        total += weight
        first += weight * mean
        second += weight * (own + mean * mean)
        inside += weight * own
        upper += weight * bound
    mean = first / total
    if d.clicks:
        return upper / total, mean
    variance = max(second / total - mean * mean, 0.0)
    inside = min(inside / total, variance)
    return mean + math.sqrt(d.deviations * d.deviations * variance + more * inside), mean


@part
def score(state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """Score, mean and width of each candidate; the best one's place."""
    d = prepare(state, step, x, slots.shape[0])
    best = 0
    for c in range(slots.shape[0]):
        out[c, 0], out[c, 1] = _candidate(state, d, slots[c])
        out[c, 2] = out[c, 0] - out[c, 1]
        if out[c, 0] > out[best, 0]:
            best = c
    return best
