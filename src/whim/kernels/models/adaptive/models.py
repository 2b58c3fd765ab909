"""One arm's models: how each begins, says a play and learns it, and changes its prior."""

from __future__ import annotations

import math
from typing import NamedTuple

from whim.kernels.jit import inline, part
from whim.kernels.linalg import columns, elementary, udu
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


@part
def _shift(rare: F64, p: int, j: int, by: float, weighted: float) -> None:
    """Add ``by`` to the precision of coefficient j and ``weighted`` to precision times mean.

    Of the model in the first row of ``rare``: one rank-one step, after which the coefficients move
    along column j of the new inverse.
    """
    row, e, w, v = rare[0], rare[1, :p], rare[2, :p], rare[3, :p]
    at = p * (p + 1) // 2
    for i in range(p):
        e[i] = 0.0
    e[j] = 1.0
    gain = weighted - by * row[at + j]
    if by > 0.0:
        gain /= udu.rank_one(row, e, by, w)
    elif by < 0.0:
        size = math.sqrt(-by)
        e[j] = size
        gain /= size * udu.downdate(row, e, w, v)
    else:
        udu.times(row, e, w)
    for i in range(p):
        row[at + i] += w[i] * gain


@part
def move_prior(state: State, slot: int) -> None:
    """Let an arm's models start from the prior as it is now, with the plays they have learnt."""
    arms, rare = state.arms, state.scratch.rare
    old, prior = arms.anchor[slot], state.shared.prior
    noise, least = targets(state, slot)
    for i in range(arms.clock[slot, COUNT] + 1):
        columns.take(arms.models[slot], i, rare[0])
        for j in range(prior.shape[1]):
            variance = prior[VARIANCE, j]
            now = noise / (max(variance, least) if i == EVER else variance)
            before = old[EVER_PRECISION, j] if i == EVER else old[PRECISION, j]
            weighted = now * prior[MEAN, j] - before * old[CENTRE, j]
            _shift(rare, prior.shape[1], j, now - before, weighted)
        columns.put(arms.models[slot], i, rare[0])
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
    arms, scratch = state.arms, state.scratch
    room, count, last = scratch.room, arms.clock[slot, COUNT], arms.models.shape[2]
    n = room.shape[1]
    _forget(state, play, slot)
    for c in range(0, last, 4):
        mean, square = columns.forms(arms.models[slot], c, last, scratch.phi, scratch.values)
        store(room, EXPECTED * n + c, mean)
        store(room, UNSURE * n + c, square)
    mean, square = columns.full_forms(arms.drifts[slot], scratch.phi, scratch.lines)
    store(room, EXPECTED * n + last, mean)
    store(room, UNSURE * n + last, square)
    for c in range(0, n, 4):
        if play.clicks:
            _say_click(room, c, n, play)
        else:
            _say_number(room, c, n, play)
    for i in range(count + 1, last):
        room[LIKELIHOOD, i] = 0.0
    room[LIKELIHOOD, n - 1] = 0.0  # the drift that is none
    for c in range(0, last, 4):
        gain, step = load(room, GAIN * n + c, 1), load(room, STEP * n + c, 1)
        columns.learn(arms.models[slot], c, last, scratch.values, gain, step, scratch.pulls)
    seen, step = load(room, INFORMATION * n + last, 1), load(room, STEP * n + last, 1)
    columns.full_learn(arms.drifts[slot], scratch.lines, seen, step)
