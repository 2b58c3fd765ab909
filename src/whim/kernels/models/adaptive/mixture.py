"""What to believe: weights of an arm's models, evidence of the worlds, and which models to keep."""

from __future__ import annotations

import math

import numpy as np

from whim.kernels.jit import inline, part
from whim.kernels.models.adaptive.models import Play
from whim.kernels.models.adaptive.state import (
    AGE,
    ALL_FREE,
    COUNT,
    DRIFTS,
    HAZARDS,
    JUMPING,
    JUMPS,
    LIKELIHOOD,
    LOG,
    PLAY,
    RATES,
    REPORTED,
    RETURNS,
    WORLDS,
    State,
)

_HAZARDS = len(HAZARDS)
_FADE = 0.9998  # of evidence, per play: how interests change may change
_TEMPER = 0.5  # of evidence: models are wrong in ways that repeat
_ENOUGH = 20.0  # plays that the noise must be known from before an arm may jump
_FAINT = 1e-3  # the share of a model, older than the likeliest, that is dropped first
# worlds of much change must earn it: prior odds fall with the root of the rate
_FAVOUR = np.concatenate(
    [np.tile(-0.5 * np.log(HAZARDS / HAZARDS[0]), len(RETURNS)), -0.5 * np.log(10 * RATES / HAZARDS[0])]
)


@part
def likelihoods(state: State, slot: int, newest: bool) -> float:
    """Likelihoods relative to the greatest; its logarithm. ``newest``: it may be the truth."""
    room, places = state.scratch.room, state.arms.models.shape[1]
    count = state.arms.clock[slot, COUNT]
    most = -np.inf
    for i in range(room.shape[1]):
        if (i < count or i >= places - 1) and (newest or i != count - 1):
            most = max(most, room[LOG, i])
    for i in range(room.shape[1]):
        if i < count or i >= places - 1:
            room[LIKELIHOOD, i] = math.exp(room[LOG, i] - most)
    return most


@part
def count_gains(state: State, slot: int, most: float) -> None:
    """By how much each beginning predicted better than what was believed at the last report."""
    arms, room = state.arms, state.scratch.room
    ever, count = arms.models.shape[1] - 1, arms.clock[slot, COUNT]
    weight = arms.mixed[slot, ever] + 1e-30
    total = weight * room[LIKELIHOOD, ever]
    for i in range(count - 1):
        if arms.born[slot, i, PLAY] <= arms.clock[slot, REPORTED]:
            weight += arms.mixed[slot, i]
            total += arms.mixed[slot, i] * room[LIKELIHOOD, i]
    believed = math.log(total / weight + 1e-300) + most
    for i in range(count):
        gain = room[LOG, i] - believed
        arms.gains[slot, i, 0] += gain
        arms.gains[slot, i, 1] += gain * gain


@part
def weigh(state: State, slot: int, play: Play) -> None:
    """Weights after the play in each jump world, and the evidence of every world."""
    arms, room, worlds = state.arms, state.scratch.room, state.shared.worlds
    ever, count = arms.models.shape[1] - 1, arms.clock[slot, COUNT]
    known = not play.first and state.shared.sums[ALL_FREE] >= _ENOUGH
    for world in range(JUMPS):
        jump = 0.0
        if known:
            hazard = HAZARDS[world % _HAZARDS] * 2.0 / state.settings.arms
            jump = min(0.99, 1.0 - math.exp(-hazard * play.gap))
        back = jump * RETURNS[world // _HAZARDS]
        total = 0.0
        for i in range(count):
            before = jump - back if i == count - 1 else (1.0 - jump) * arms.weights[slot, i, world]
            arms.weights[slot, i, world] = before * room[LIKELIHOOD, i]
            total += arms.weights[slot, i, world]
        before = 1.0 if play.first else (1.0 - jump) * arms.weights[slot, ever, world] + back
        arms.weights[slot, ever, world] = before * room[LIKELIHOOD, ever]
        total = max(total + arms.weights[slot, ever, world], 1e-300)
        for i in range(count):
            arms.weights[slot, i, world] /= total
        arms.weights[slot, ever, world] /= total
        if not play.first:
            worlds[0, world] = _FADE * worlds[0, world] + _TEMPER * math.log(total)
    for z in range(DRIFTS if not play.first else 0):
        log = math.log(max(room[LIKELIHOOD, ever + 1 + z], 1e-300))
        worlds[0, JUMPS + z] = _FADE * worlds[0, JUMPS + z] + _TEMPER * log
    _normalise(state)


@inline
def _normalise(state: State) -> None:
    worlds = state.shared.worlds
    most, total = -np.inf, 0.0
    for world in range(WORLDS):
        most = max(most, worlds[0, world] + _FAVOUR[world])
    for world in range(WORLDS):
        worlds[1, world] = math.exp(worlds[0, world] + _FAVOUR[world] - most)
        total += worlds[1, world]
    for world in range(WORLDS):
        worlds[1, world] /= total


@part
def mix(state: State, slot: int) -> int:
    """Weights over all jump worlds; the place of the likeliest model."""
    arms, worlds = state.arms, state.shared.worlds
    ever, count = arms.models.shape[1] - 1, arms.clock[slot, COUNT]
    total = 1e-12
    best = ever
    for n in range(count + 1):
        i = ever if n == 0 else n - 1
        weight = 0.0
        for world in range(JUMPS):
            weight += worlds[1, world] * arms.weights[slot, i, world]
        arms.mixed[slot, i] = weight
        total += weight
        if weight > arms.mixed[slot, best]:
            best = i
        if i != ever:
            arms.born[slot, i, AGE] += 1
    arms.noise[slot, JUMPING] = total
    return best


@part
def likeliest(state: State, slot: int) -> int:
    """The place of the likeliest model of the jump worlds."""
    arms = state.arms
    best = arms.models.shape[1] - 1
    for i in range(arms.clock[slot, COUNT]):
        if arms.mixed[slot, i] > arms.mixed[slot, best]:
            best = i
    return best


@part
def _superfluous(state: State, slot: int, best: int) -> int:
    """The beginning that is missed least: an old one of no weight, or one with near neighbours."""
    arms = state.arms
    ever, count, total = arms.models.shape[1] - 1, arms.clock[slot, COUNT], arms.noise[slot, JUMPING]
    place, least = -1, _FAINT * total
    if best < ever:
        for i in range(min(best, count - 1)):
            if arms.mixed[slot, i] < least:
                least, place = arms.mixed[slot, i], i
    if place >= 0:
        return place
    lowest = np.inf
    for i in range(count - 1):
        if i == best:
            continue
        older = arms.born[slot, i - 1, AGE] if i > 0 else 4 * arms.born[slot, 0, AGE]
        apart = math.log(older / arms.born[slot, i + 1, AGE])
        value = apart * (0.05 + arms.mixed[slot, i] / total)
        if value < lowest:
            lowest, place = value, i
    return place


@part
def prune(state: State, slot: int, best: int) -> None:
    """Drop a beginning if there is one too many; its weight goes to the neighbour nearer in age."""
    arms = state.arms
    count = arms.clock[slot, COUNT]
    if count < arms.models.shape[1] - 1:
        return
    gone = _superfluous(state, slot, best)
    heir = gone + 1
    if gone > 0:
        age = arms.born[slot, gone, AGE]
        if arms.born[slot, gone - 1, AGE] * arms.born[slot, gone + 1, AGE] < age * age:
            heir = gone - 1
    arms.mixed[slot, heir] += arms.mixed[slot, gone]
    for world in range(JUMPS):
        arms.weights[slot, heir, world] += arms.weights[slot, gone, world]
    for i in range(gone, count - 1):
        arms.mixed[slot, i] = arms.mixed[slot, i + 1]
        for world in range(JUMPS):
            arms.weights[slot, i, world] = arms.weights[slot, i + 1, world]
        for j in range(2):
            arms.born[slot, i, j] = arms.born[slot, i + 1, j]
            arms.gains[slot, i, j] = arms.gains[slot, i + 1, j]
        for j in range(arms.models.shape[2]):
            arms.models[slot, i, j] = arms.models[slot, i + 1, j]
    arms.clock[slot, COUNT] = count - 1
