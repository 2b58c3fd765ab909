"""One arm's models: how each begins, says a play and learns it, and changes its prior."""

from __future__ import annotations

import math
from typing import NamedTuple

from whim.kernels.jit import inline, part
from whim.kernels.linalg import udu
from whim.kernels.models.adaptive.score import (
    BACK,
    clicking,
    shrink,
    sigmoid,
    variance_of,
)
from whim.kernels.models.adaptive.state import (
    AGE,
    CENTRE,
    CONTEXTS_SQUARED,
    COUNT,
    ERROR,
    EVER_PRECISION,
    LOG,
    MEAN,
    PLAY,
    PLAYS,
    PRECISION,
    RATES,
    SPREAD,
    STEPS,
    VARIANCE,
    Scratch,
    State,
)
from whim.types import F64

_FLOOR = 0.3  # the least variance of EVER's prior, of what one play in each direction leaves
_MOVED = 0.25  # a prior that has moved by less, in its own scale, is left
_LOGITS = 4.0  # variance of a logit near 0, per play
_SURPRISE = 0.01  # a click that is not the context's: weight of the overall rate
_WILD, _WIDTH = 0.02, 5.0  # share and width of rewards that are far from normal


class Play(NamedTuple):
    """A reward as the models take it: a click as 0 or 1."""

    clicks: bool
    value: float
    noise: float
    rate: float  # of clicks so far
    gap: int  # steps since the arm's last play
    first: bool


# -- priors -------------------------------------------------------------------------------------


@inline
def target(state: State, slot: int, j: int) -> tuple[float, float]:
    """The precision of coefficient j that new models, and that EVER, should start from."""
    shared = state.shared
    sums = shared.sums
    noise = 1.0 if clicking(shared) else variance_of(state, slot)
    least = 0.0
    if sums[CONTEXTS_SQUARED] > 0.0:
        unit = _LOGITS if clicking(shared) else noise
        active = state.scratch.phi.shape[0] - 1
        least = _FLOOR * unit * sums[STEPS] * active / sums[CONTEXTS_SQUARED]
    variance = shared.prior[VARIANCE, j]
    return noise / variance, noise / max(variance, least)


@part
def has_moved(state: State, slot: int) -> bool:
    """Whether the prior has moved away from the one that an arm's models start from."""
    anchor, prior = state.arms.anchor[slot], state.shared.prior
    for j in range(prior.shape[1]):
        precision, _ = target(state, slot, j)
        shift = prior[MEAN, j] - anchor[CENTRE, j]
        if shift * shift > _MOVED * _MOVED * prior[VARIANCE, j]:
            return True
        if abs(math.log(anchor[PRECISION, j] / precision)) > _MOVED:
            return True
    return False


@part
def set_anchor(state: State, slot: int) -> None:
    """An arm's models start from the prior as it is now."""
    anchor, prior = state.arms.anchor[slot], state.shared.prior
    for j in range(prior.shape[1]):
        anchor[PRECISION, j], anchor[EVER_PRECISION, j] = target(state, slot, j)
        anchor[CENTRE, j] = prior[MEAN, j]


@part
def begin(row: F64, precision: F64, centre: F64) -> None:
    """A model that has learnt nothing."""
    p = precision.shape[0]
    at = p * (p + 1) // 2
    for j in range(at):
        row[j] = 1.0 / precision[j] if j < p else 0.0
    for j in range(p):
        row[at + j] = centre[j]


@part
def _shift(row: F64, j: int, by: float, weighted: float, room: Scratch) -> None:
    """Add ``by`` to the precision of coefficient j and ``weighted`` to precision times mean.

    One rank-one step, after which the coefficients move along column j of the new inverse.
    """
    p = room.e.shape[0]
    at = p * (p + 1) // 2
    for i in range(p):
        room.e[i] = 0.0
    room.e[j] = 1.0
    gain = weighted - by * row[at + j]
    if by > 0.0:
        gain /= udu.rank_one(row, room.e, by, room.w)
    elif by < 0.0:
        size = math.sqrt(-by)
        room.e[j] = size
        gain /= size * udu.downdate(row, room.e, room.w, room.v)
    else:
        udu.times(row, room.e, room.w)
    for i in range(p):
        row[at + i] += room.w[i] * gain


@part
def move_prior(state: State, slot: int) -> None:
    """Let an arm's models start from the prior as it is now, with the plays they have learnt."""
    arms, room = state.arms, state.scratch
    old, prior = arms.anchor[slot], state.shared.prior
    ever = arms.models.shape[1] - 1
    for place in range(arms.clock[slot, COUNT] + 1):
        last = place == arms.clock[slot, COUNT]
        row = arms.models[slot, ever if last else place]
        for j in range(prior.shape[1]):
            precision, ever_precision = target(state, slot, j)
            now = ever_precision if last else precision
            before = old[EVER_PRECISION, j] if last else old[PRECISION, j]
            weighted = now * prior[MEAN, j] - before * old[CENTRE, j]
            _shift(row, j, now - before, weighted, room)
    set_anchor(state, slot)


@part
def begin_all(state: State, slot: int, first: bool) -> None:
    """A beginning at this play, in the place after the last; at the first play also EVER."""
    arms = state.arms
    anchor, ever = arms.anchor[slot], arms.models.shape[1] - 1
    place, p = arms.clock[slot, COUNT], anchor.shape[1]
    at = p * (p + 1) // 2
    begin(arms.models[slot, place], anchor[PRECISION], anchor[CENTRE])
    if first:
        begin(arms.models[slot, ever], anchor[EVER_PRECISION], anchor[CENTRE])
    for j in range(p):
        away = arms.models[slot, ever, at + j] - anchor[CENTRE, j]
        arms.models[slot, place, at + j] += BACK * away
    arms.gains[slot, place, 0] = 0.0
    arms.gains[slot, place, 1] = 0.0
    arms.born[slot, place, PLAY] = arms.clock[slot, PLAYS] + 1
    arms.born[slot, place, AGE] = 0
    arms.clock[slot, COUNT] = place + 1


# -- a play -------------------------------------------------------------------------------------


@inline
def _click(play: Play, mean: float, square: float) -> tuple[float, float, float, float]:
    """Of a click: error, spread, log-likelihood, and the information of one play."""
    k = shrink(square)
    p = sigmoid(k * mean)
    flat = p * (1.0 - p)
    mixed = (1.0 - _SURPRISE) * p + _SURPRISE * play.rate
    log = math.log(mixed if play.value > 0.5 else 1.0 - mixed)
    return play.value - p, 1.0 + square * flat, log, k * k * flat


@inline
def _log_likelihood(play: Play, error: float, spread: float) -> float:
    """Of a reward: normal, or now and then far from it."""
    variance = play.noise * spread
    y = error * error / variance
    usual = (1.0 - _WILD) * math.exp(-0.5 * y)
    wild = _WILD / _WIDTH * (1.0 + y / (_WIDTH * _WIDTH)) ** -1.5
    return math.log(usual + wild + 1e-300) - 0.5 * math.log(variance)


@inline
def _note(room: F64, i: int, error: float, spread: float, log: float) -> None:
    room[ERROR, i] = error
    room[SPREAD, i] = spread
    room[LOG, i] = log


@part
def learn_place(state: State, play: Play, row: F64, i: int) -> None:
    """A play to the model of a place; what it said goes to column i of the room."""
    room, phi = state.scratch, state.scratch.phi
    p = phi.shape[0]
    at = p * (p + 1) // 2
    mean = udu.predict(row, phi)
    if play.clicks:
        square = udu.quad(row, phi)
        error, spread, log, information = _click(play, mean, square)
        step = shrink(square) * error
        weight = information / (1.0 - information * square)
        if weight > 0.0:
            udu.rank_one(row, phi, weight, room.w)
        else:  # so sure that a play says nothing about how sure
            udu.times(row, phi, room.w)
    else:
        spread = udu.rank_one(row, phi, 1.0, room.w)
        error = play.value - mean
        step = error / spread
        log = _log_likelihood(play, error, spread)
    for j in range(p):
        row[at + j] += room.w[j] * step
    _note(room.room, i, error, spread, log)


@part
def learn_drift(state: State, play: Play, slot: int, z: int) -> None:
    """A play to drift z, which has moved towards the usual since the last one."""
    arms, room, prior = state.arms, state.scratch, state.shared.prior
    row, anchor, phi = arms.drifts[slot, z], arms.anchor[slot], state.scratch.phi
    places, p = arms.models.shape[1], phi.shape[0]
    at, cov = p * (p + 1) // 2, p * p
    left = 0.0 if play.first else math.exp(-4.0 / state.settings.arms * RATES[z] * play.gap)
    root = math.sqrt(left)
    mean, square = 0.0, 0.0
    for j in range(p):
        usual = prior[MEAN, j]
        if not play.first:
            usual += BACK * (arms.models[slot, places - 1, at + j] - usual)
        row[cov + j] = usual + root * (row[cov + j] - usual)
        line = 0.0
        for i in range(p):
            row[j * p + i] *= left
            if i == j:
                row[j * p + j] += (1.0 - left) / anchor[PRECISION, j]
            line += row[j * p + i] * phi[i]
        room.w[j] = line
        square += line * phi[j]
        mean += row[cov + j] * phi[j]
    if play.clicks:
        error, spread, log, information = _click(play, mean, square)
        step = shrink(square) * error
    else:
        error, spread = play.value - mean, 1.0 + square
        information, step = 1.0 / spread, error / spread
        log = _log_likelihood(play, error, spread)
    for j in range(p):
        row[cov + j] += room.w[j] * step
        for i in range(p):
            row[j * p + i] -= room.w[j] * room.w[i] * information
    _note(room.room, places + z, error, spread, log)
