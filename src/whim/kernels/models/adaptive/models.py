"""One arm's models: how each begins, says a play and learns it, and changes its prior."""

from __future__ import annotations

import math
from typing import NamedTuple

from whim.kernels.jit import inline, part
from whim.kernels.linalg import columns, elementary
from whim.kernels.linalg.f64x4 import load, root, splat, store
from whim.kernels.models.adaptive.score import BACK, PROBIT, clicking, variance_of
from whim.kernels.models.adaptive.state import (
    AGE,
    CENTRE,
    CONTEXTS_SQUARED,
    COUNT,
    ERROR,
    EVER,
    EVER_PRECISION,
    EXPECTED,
    GAIN,
    INFORMATION,
    LIKELIHOOD,
    MEAN,
    PLAY,
    PLAYS,
    PRECISION,
    RATES,
    SPREAD,
    STEP,
    STEPS,
    UNSURE,
    VARIANCE,
    State,
)
from whim.types import F64

_FLOOR = 0.3  # the least variance of EVER's prior, of what one play in each direction leaves
_MOVED = 0.25  # a prior that has moved by less, in its own scale, is left
_TIMES = math.exp(_MOVED)
_STEPS_BY = 0.1  # the least share of a precision that one step may leave
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
def targets(state: State, slot: int) -> tuple[float, float]:
    """The noise of an arm, and the least variance of EVER's prior."""
    sums = state.shared.sums
    noise = 1.0 if clicking(state.shared) else variance_of(state, slot)
    least = 0.0
    if sums[CONTEXTS_SQUARED] > 0.0:
        unit = _LOGITS if clicking(state.shared) else noise
        active = state.scratch.phi.shape[0] - 1
        least = _FLOOR * unit * (sums[STEPS] + 1.0) * active / sums[CONTEXTS_SQUARED]
    return noise, least


@inline
def has_moved(state: State, slot: int) -> bool:
    """Whether the prior has moved away from the one that an arm's models start from."""
    anchor, prior = state.arms.anchor[slot], state.shared.prior
    noise, _ = targets(state, slot)
    for j in range(prior.shape[1]):
        shift = prior[MEAN, j] - anchor[CENTRE, j]
        if shift * shift > _MOVED * _MOVED * prior[VARIANCE, j]:
            return True
        ratio = anchor[PRECISION, j] * prior[VARIANCE, j]
        if ratio > _TIMES * noise or noise > _TIMES * ratio:
            return True
    return False


@part
def set_anchor(state: State, slot: int) -> None:
    """An arm's models start from the prior as it is now."""
    anchor, prior = state.arms.anchor[slot], state.shared.prior
    noise, least = targets(state, slot)
    for j in range(prior.shape[1]):
        anchor[PRECISION, j] = noise / prior[VARIANCE, j]
        anchor[EVER_PRECISION, j] = noise / max(prior[VARIANCE, j], least)
        anchor[CENTRE, j] = prior[MEAN, j]


@inline
def _shift(state: State, slot: int, by: tuple[float, float], weighted: tuple[float, float]) -> None:
    """Add to the precision of one coefficient and to precision times mean: EVER's, and all others'.

    One rank-one step along the axis, after which the coefficients move with its column of the new
    inverse.
    """
    table, scratch, room = state.arms.models[slot], state.scratch, state.scratch.room
    n, one = room.shape[1], splat(1.0, 1)
    columns.forms(table, scratch.axis, scratch.values, room[EXPECTED], room[UNSURE])
    for i in range(table.shape[1]):
        room[GAIN, i] = by[0] if i == EVER else by[1]
        room[STEP, i] = weighted[0] if i == EVER else weighted[1]
    for c in range(0, table.shape[1], 4):
        gain, mean = load(room, GAIN * n + c, 1), load(room, EXPECTED * n + c, 1)
        step = load(room, STEP * n + c, 1) - gain * mean
        store(room, STEP * n + c, step / (one + gain * load(room, UNSURE * n + c, 1)))
    columns.learn(table, scratch.values, room[GAIN], room[STEP], scratch.pulls)


@part
def move_prior(state: State, slot: int) -> None:
    """Let an arm's models start from the prior as it is now, with the plays they have learnt."""
    old, prior, axis = state.arms.anchor[slot], state.shared.prior, state.scratch.axis
    noise, least = targets(state, slot)
    for j in range(prior.shape[1]):
        variance, mean = prior[VARIANCE, j], prior[MEAN, j]
        ever, others = old[EVER_PRECISION, j], old[PRECISION, j]
        ever_end, end = noise / max(variance, least), noise / variance
        moved = ever_end * mean - ever * old[CENTRE, j], end * mean - others * old[CENTRE, j]
        axis[j] = 1.0
        while True:  # what is taken away goes in steps, each of which leaves most digits
            ever_to, to = max(ever_end, _STEPS_BY * ever), max(end, _STEPS_BY * others)
            _shift(state, slot, (ever_to - ever, to - others), moved)
            ever, others, moved = ever_to, to, (0.0, 0.0)
            if ever == ever_end and others == end:
                break
        axis[j] = 0.0
    set_anchor(state, slot)


@inline
def _begin(table: F64, i: int, precision: F64, centre: F64, back: float) -> None:
    """Model i has learnt nothing; its mean lies ``back`` of the way to EVER's."""
    p = precision.shape[0]
    at = p * (p + 1) // 2
    for j in range(p):
        table[j, i] = 1.0 / precision[j]
        table[at + j, i] = centre[j] + back * (table[at + j, EVER] - centre[j])
    for j in range(p, at):
        table[j, i] = 0.0


@inline
def begin_all(state: State, slot: int, first: bool) -> None:
    """A beginning at this play, in the column after the last; at the first play also EVER."""
    arms = state.arms
    anchor, i = arms.anchor[slot], arms.clock[slot, COUNT] + 1
    if first:
        _begin(arms.models[slot], EVER, anchor[EVER_PRECISION], anchor[CENTRE], 0.0)
    _begin(arms.models[slot], i, anchor[PRECISION], anchor[CENTRE], BACK)
    arms.gains[slot, i] = 0.0
    arms.born[slot, i, PLAY] = arms.clock[slot, PLAYS] + 1
    arms.born[slot, i, AGE] = 0
    arms.clock[slot, COUNT] = i


# -- a play -------------------------------------------------------------------------------------


@inline
def _say_click(room: F64, c: int, n: int, play: Play) -> None:
    """What models c to c + 3 say of a click."""
    one, mean = splat(1.0, 1), load(room, EXPECTED * n + c, 1)
    square = load(room, UNSURE * n + c, 1)
    k = one / root(one + splat(PROBIT, 1) * square)
    p = elementary.sigmoid(k * mean)
    error, flat = splat(play.value, 1) - p, p * (one - p)
    mixed = splat(1.0 - _SURPRISE, 1) * p + splat(_SURPRISE * play.rate, 1)
    information = k * k * flat
    store(room, ERROR * n + c, error)
    store(room, SPREAD * n + c, one + square * flat)
    store(room, LIKELIHOOD * n + c, mixed if play.value > 0.5 else one - mixed)
    store(room, INFORMATION * n + c, information)
    store(room, GAIN * n + c, information / (one - information * square))
    store(room, STEP * n + c, k * error)


@inline
def _say_number(room: F64, c: int, n: int, play: Play) -> None:
    """What models c to c + 3 say of a reward: normal around it, or now and then far from that."""
    one = splat(1.0, 1)
    error = splat(play.value, 1) - load(room, EXPECTED * n + c, 1)
    spread = one + load(room, UNSURE * n + c, 1)
    inverse = one / spread
    y = error * error * inverse * splat(1.0 / play.noise, 1)
    usual = splat(1.0 - _WILD, 1) * elementary.exp(splat(-0.5, 1) * y)
    wide = one + y * splat(1.0 / (_WIDTH * _WIDTH), 1)
    likelihood = usual + splat(_WILD / _WIDTH, 1) / (wide * root(wide))
    store(room, ERROR * n + c, error)
    store(room, SPREAD * n + c, spread)
    store(room, LIKELIHOOD * n + c, likelihood / root(spread))
    store(room, INFORMATION * n + c, inverse)
    store(room, GAIN * n + c, one)
    store(room, STEP * n + c, error * inverse)


@inline
def _forget(state: State, play: Play, slot: int) -> None:
    """The drifts have moved towards the usual since the last play."""
    arms, prior = state.arms, state.shared.prior
    table, ever, p = arms.drifts[slot], arms.models[slot], prior.shape[1]
    one, gap = splat(1.0, 1), splat(4.0 / state.settings.arms * play.gap, 1)
    away = one if play.first else elementary.fallen(load(RATES, 0, 1) * gap)
    left = one - away
    slower, at, rows = root(left), 0, p * (p + 1) // 2
    for j in range(p):
        for _ in range(j):
            store(table, at, left * load(table, at, 1))
            at += 4
        fresh = splat(1.0 / arms.anchor[slot, PRECISION, j], 1)
        store(table, at, left * load(table, at, 1) + away * fresh)
        at += 4
    for j in range(p):
        centre = prior[MEAN, j]
        if not play.first:
            centre += BACK * (ever[rows + j, EVER] - centre)
        usual = splat(centre, 1)
        store(table, at, usual + slower * (load(table, at, 1) - usual))
        at += 4


@inline
def learn_all(state: State, play: Play, slot: int) -> None:
    """A play to all models of an arm; what each said of it is left in the room."""
    scratch, room, phi = state.scratch, state.scratch.room, state.scratch.phi
    table, drifts = state.arms.models[slot], state.arms.drifts[slot]
    last, n = table.shape[1], room.shape[1]
    _forget(state, play, slot)
    columns.forms(table, phi, scratch.values, room[EXPECTED], room[UNSURE])
    columns.full_forms(drifts, phi, scratch.lines, room[EXPECTED, last:], room[UNSURE, last:])
    for c in range(0, n, 4):
        if play.clicks:
            _say_click(room, c, n, play)
        else:
            _say_number(room, c, n, play)
    for i in range(state.arms.clock[slot, COUNT] + 1, last):
        room[LIKELIHOOD, i] = 0.0
    room[LIKELIHOOD, n - 1] = 0.0  # the drift that is none
    columns.learn(table, scratch.values, room[GAIN], room[STEP], scratch.pulls)
    columns.full_learn(drifts, scratch.lines, room[INFORMATION, last:], room[STEP, last:])
