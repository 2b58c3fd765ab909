"""What to believe: weights of an arm's models, evidence of the worlds, and which models to keep."""

from __future__ import annotations

from typing import Any

import numpy as np

from whim.kernels.jit import inline
from whim.kernels.linalg import elementary
from whim.kernels.linalg.f64x4 import load, pick, splat, store, total
from whim.kernels.models.adaptive.models import Play
from whim.kernels.models.adaptive.state import (
    AGE,
    ALL_FREE,
    APART,
    COUNT,
    EVER,
    HAZARDS,
    JUMPING,
    JUMPS,
    LIKELIHOOD,
    PLAY,
    RATES,
    REAL,
    REPORTED,
    RETURNS,
    WORLDS,
    State,
)

_HAZARDS = len(HAZARDS)
_FADE = 0.9998  # of evidence, per play: how interests change may change
_TEMPER = 0.5  # of evidence: models are wrong in ways that repeat
ENOUGH = 20.0  # plays that the noise must be known from before an arm may jump
_FAINT = 1e-3  # the share of a model, older than the likeliest, that is dropped first
# worlds of much change must earn it: prior odds fall with the root of the rate
_FAVOUR = np.full(WORLDS, -np.inf)
_FAVOUR[REAL] = -0.5 * np.log(
    np.append(np.tile(HAZARDS, len(RETURNS)), 10 * RATES)[REAL] / HAZARDS[0]
)
_LEAST = 1e-300  # of a likelihood
_BEYOND = 690.0  # worlds with odds of e to the minus this have none


@inline
def scale_likelihoods(state: State, slot: int, newest: bool) -> None:
    """Likelihoods relative to the greatest. ``newest``: the newest beginning may be the truth."""
    room, count = state.scratch.room, state.arms.clock[slot, COUNT]
    most = _LEAST
    for i in range(room.shape[1]):
        if newest or i != count:
            most = max(most, room[LIKELIHOOD, i])
    scale = 1.0 / most
    for i in range(room.shape[1]):
        room[LIKELIHOOD, i] *= scale


@inline
def count_gains(state: State, slot: int) -> None:
    """By how much each beginning predicted better than what was believed at the last report."""
    arms, room, count = state.arms, state.scratch.room, state.arms.clock[slot, COUNT]
    mixed, gains, n = arms.mixed[slot], arms.gains[slot], room.shape[1]
    weight = mixed[EVER] + 1e-30
    whole = weight * room[LIKELIHOOD, EVER]
    for i in range(1, count):
        if arms.born[slot, i, PLAY] <= arms.clock[slot, REPORTED]:
            weight += mixed[i]
            whole += mixed[i] * room[LIKELIHOOD, i]
    believed, least = splat(1.0 / max(whole / weight, _LEAST), 1), splat(_LEAST, 1)
    for c in range(0, arms.models.shape[2], 4):
        likelihood = load(room, LIKELIHOOD * n + c, 1)
        ratio = pick(likelihood, least, likelihood, least) * believed
        store(gains, c, load(gains, c, 1) + elementary.log(ratio))


@inline
def weigh(state: State, slot: int, play: Play) -> None:
    """Weights after the play in each jump world, and the evidence of every world."""
    room, logs = state.scratch.room, state.scratch.logs
    known = not play.first and state.shared.sums[ALL_FREE] >= ENOUGH
    most, least = splat(0.99, 1), splat(_LEAST, 1)
    gap = splat(2.0 / state.settings.arms * play.gap if known else 0.0, 1)
    for h in range(0, _HAZARDS, 4):
        jump = elementary.fallen(load(HAZARDS, h, 1) * gap)
        jump = pick(jump, most, most, jump)
        for back in range(len(RETURNS)):
            world, share = back * _HAZARDS + h, splat(RETURNS[back], 1)
            whole = _weigh_four(state, slot, world, jump, jump * share)
            store(logs, world, elementary.log(pick(whole, least, whole, least)))
    likelihood = load(room, LIKELIHOOD * room.shape[1] + state.arms.models.shape[2], 1)
    store(logs, JUMPS, elementary.log(pick(likelihood, least, likelihood, least)))
    _normalise(state, play.first)


@inline
def _weigh_four(state: State, slot: int, world: int, jump: Any, back: Any) -> Any:
    """Weights in four jump worlds; their sums before they were normalised."""
    weights, count = state.arms.weights[slot], state.arms.clock[slot, COUNT]
    likelihood, one = state.scratch.room[LIKELIHOOD], splat(1.0, 1)
    stay = one - jump
    before = one if count == 1 else stay * load(weights, world, 1)
    weight = (before + back) * splat(likelihood[EVER], 1)
    store(weights, world, weight)
    whole, at = weight, world
    for i in range(1, count):
        at += JUMPS
        weight = load(weights, at, 1) * stay * splat(likelihood[i], 1)
        store(weights, at, weight)
        whole = whole + weight
    at += JUMPS
    weight = (jump - back) * splat(likelihood[count], 1)
    store(weights, at, weight)
    whole = whole + weight
    least = splat(_LEAST, 1)
    inverse, at = one / pick(whole, least, whole, least), world
    for _ in range(count + 1):
        store(weights, at, load(weights, at, 1) * inverse)
        at += JUMPS
    return whole


@inline
def _normalise(state: State, first: bool) -> None:
    """Evidence of the worlds, unless the play was an arm's first, and their probabilities."""
    worlds, logs = state.shared.worlds, state.scratch.logs
    most, none = -np.inf, splat(0.0, 1)
    for c in range(0, WORLDS, 4):
        if not first:
            faded = splat(_FADE, 1) * load(worlds, c, 1)
            store(worlds, c, faded + splat(_TEMPER, 1) * load(logs, c, 1))
        store(logs, c, load(worlds, c, 1) + load(_FAVOUR, c, 1))
    for world in range(WORLDS):
        most = max(most, logs[world])
    sums = none
    for c in range(0, WORLDS, 4):
        below = load(logs, c, 1) - splat(most, 1)
        odds = pick(below, splat(-_BEYOND, 1), elementary.exp(below), none)
        store(worlds, WORLDS + c, odds)
        sums = sums + odds
    inverse = splat(1.0 / total(sums), 1)
    for c in range(0, WORLDS, 4):
        store(worlds, WORLDS + c, load(worlds, WORLDS + c, 1) * inverse)


@inline
def mix(state: State, slot: int) -> int:
    """Weights over all jump worlds; the column of the likeliest model."""
    arms, worlds = state.arms, state.shared.worlds
    weights, mixed = arms.weights[slot], arms.mixed[slot]
    whole, best = 1e-12, EVER
    for i in range(arms.clock[slot, COUNT] + 1):
        sums = splat(0.0, 1)
        for c in range(0, JUMPS, 4):
            sums += load(worlds, WORLDS + c, 1) * load(weights, i * JUMPS + c, 1)
        mixed[i] = total(sums)
        whole += mixed[i]
        if mixed[i] > mixed[best]:
            best = i
        if i != EVER:
            arms.born[slot, i, AGE] += 1
    arms.noises[slot, JUMPING] = whole
    return best


@inline
def likeliest(state: State, slot: int) -> int:
    """The column of the likeliest model of the jump worlds."""
    mixed, best = state.arms.mixed[slot], EVER
    for i in range(1, state.arms.clock[slot, COUNT] + 1):
        if mixed[i] > mixed[best]:
            best = i
    return best


@inline
def _superfluous(state: State, slot: int, best: int) -> int:
    """The beginning that is missed least: an old one of no weight, or one with near neighbours."""
    arms = state.arms
    born, mixed, count = arms.born[slot], arms.mixed[slot], arms.clock[slot, COUNT]
    whole = arms.noises[slot, JUMPING]
    place, least = 0, _FAINT * whole
    for i in range(1, min(best, count)):
        if mixed[i] < least:
            least, place = mixed[i], i
    if place > 0:
        return place
    lowest, apart = np.inf, state.scratch.room[APART]
    for i in range(mixed.shape[0]):
        apart[i] = 1.0  # a logarithm is taken of all columns
    for i in range(1, count):
        older = born[i - 1, AGE] if i > 1 else 4 * born[1, AGE]
        apart[i] = older / born[i + 1, AGE]
    for c in range(0, mixed.shape[0], 4):
        store(apart, c, elementary.log(load(apart, c, 1)))
    for i in range(1, count):
        value = apart[i] * (0.05 * whole + mixed[i])
        if value < lowest and i != best:
            lowest, place = value, i
    return place


@inline
def prune(state: State, slot: int, best: int) -> None:
    """Drop a beginning if there is one too many; its weight goes to the neighbour nearer in age."""
    arms, count = state.arms, state.arms.clock[slot, COUNT]
    if count <= state.settings.beginnings:
        return
    table, weights, born = arms.models[slot], arms.weights[slot], arms.born[slot]
    mixed, gains = arms.mixed[slot], arms.gains[slot]
    gone = _superfluous(state, slot, best)
    heir = gone + 1
    if gone > 1 and born[gone - 1, AGE] * born[gone + 1, AGE] < born[gone, AGE] * born[gone, AGE]:
        heir = gone - 1
    mixed[heir] += mixed[gone]
    for world in range(JUMPS):
        weights[heir, world] += weights[gone, world]
    for i in range(gone, count):
        mixed[i], gains[i] = mixed[i + 1], gains[i + 1]
        born[i, PLAY], born[i, AGE] = born[i + 1, PLAY], born[i + 1, AGE]
        for world in range(JUMPS):
            weights[i, world] = weights[i + 1, world]
        for j in range(table.shape[0]):  # down the columns: along a row it would be tiny calls
            table[j, i] = table[j, i + 1]
    mixed[count] = 0.0
    for world in range(JUMPS):
        weights[count, world] = 0.0
    arms.clock[slot, COUNT] = count - 1
