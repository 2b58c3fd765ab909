"""What all arms teach: the noise, and where the coefficients of new arms and new days lie."""

from __future__ import annotations

import numpy as np

from whim.kernels.jit import inline, part
from whim.kernels.linalg.f64x4 import load, splat, total
from whim.kernels.models.adaptive.models import Play
from whim.kernels.models.adaptive.state import (
    ALL_ERRORS,
    ALL_FREE,
    ARCHIVED,
    CONTEXTS_SQUARED,
    COUNT,
    DRIFTS,
    ERROR,
    ERRORS,
    EVER,
    FREE,
    HIGH,
    JUMPING,
    JUMPS,
    KNOWN,
    LOW,
    MEAN,
    PLAY,
    PLAYS,
    PRECISION,
    REWARDS_SQUARED,
    SPREAD,
    SQUARE,
    STEPS,
    VALUE,
    VARIANCE,
    VARIANCE_OF_ALL,
    WORLDS,
    State,
)
from whim.types import F64

_FADE = 1.0 - 1.0 / 2000.0  # of the noise, per play
_LOGITS = 4.0  # a coefficient's variance at first, times plays per squared context, for clicks
_MOST = 1000.0  # of that at first: where classes can be told apart, likelihood asks for ever more
_ALIKE, _ALIKE_CLICKS = 3.0, 10.0  # plays' worth of belief that coefficients vary alike
_OFTEN, _EVERY = 200, 16  # steps for which the prior follows each play; from then on, some


@part
def start(state: State, r: float, clicks: bool) -> None:
    """Noise and prior before the first play, in the units of what is seen first.

    It counts as one play of that size in the sums.
    """
    shared, phi = state.shared, state.scratch.phi
    sums = shared.sums
    square, length = max(sums[LOW] * sums[LOW], sums[HIGH] * sums[HIGH], r * r), 0.0
    for j in range(phi.shape[0]):
        length += phi[j] * phi[j]
    sums[VARIANCE_OF_ALL] = sums[REWARDS_SQUARED] = square
    sums[CONTEXTS_SQUARED] = length
    size = _LOGITS if clicks else square
    for j in range(phi.shape[0]):
        shared.prior[VARIANCE, j] = size / length if length > 0.0 else size


@inline
def learn_noise(state: State, slot: int, play: Play) -> None:
    """The fixed point of EM for the noise, of the arm and of all."""
    arms, sums, room = state.arms, state.shared.sums, state.scratch.room
    last, n = arms.models.shape[2], room.shape[1]
    all_errors, all_free = splat(0.0, 1), splat(0.0, 1)
    for c in range(0, n, 4):
        if c < last:
            weight = load(arms.mixed[slot], c, 1)
        else:
            weight = load(state.shared.worlds, WORLDS + JUMPS, 1)
        inverse = splat(1.0, 1) / load(room, SPREAD * n + c, 1)
        error = load(room, ERROR * n + c, 1) * inverse
        all_errors += weight * error * error
        all_free += weight * inverse
    errors, free = total(all_errors), total(all_free)
    sums[ALL_ERRORS] = _FADE * sums[ALL_ERRORS] + errors
    sums[ALL_FREE] = _FADE * sums[ALL_FREE] + free
    sums[STEPS] += 1.0
    sums[REWARDS_SQUARED] += play.value * play.value
    for j in range(state.scratch.phi.shape[0]):
        sums[CONTEXTS_SQUARED] += state.scratch.phi[j] * state.scratch.phi[j]
    usual = sums[REWARDS_SQUARED] / (sums[STEPS] + 1.0)
    sums[VARIANCE_OF_ALL] = (usual + sums[ALL_ERRORS]) / (1.0 + sums[ALL_FREE])
    own = arms.noises[slot]
    own[ERRORS] = _FADE * own[ERRORS] + errors
    own[FREE] = _FADE * own[FREE] + free


@inline
def archive(state: State, slot: int, best: int) -> None:
    """Keep what an arm's coefficients were for the prior, once they are most likely others."""
    arms = state.arms
    clock = arms.clock[slot]
    after = 0.0
    if best == EVER or arms.born[slot, best, PLAY] <= clock[ARCHIVED]:
        return
    for i in range(1, clock[COUNT] + 1):
        if arms.born[slot, i, PLAY] > clock[ARCHIVED]:
            after += arms.mixed[slot, i]
    if after > 0.5 * arms.noises[slot, JUMPING]:
        clock[ARCHIVED] = clock[PLAYS]
        arms.said[slot, :, :] = 0.0  # the totals keep it


@inline
def teach(state: State, slot: int, best: int) -> None:
    """What the arm's likeliest model says of its coefficients, to the totals."""
    arms, totals, prior = state.arms, state.shared.totals, state.shared.prior
    p = prior.shape[1]
    at, weight, drift = p * (p + 1) // 2, arms.mixed[slot, best], -1
    for z in range(DRIFTS):
        if state.shared.worlds[1, JUMPS + z] > weight:
            weight, drift = state.shared.worlds[1, JUMPS + z], z
    said, drifts, table = arms.said[slot], arms.drifts[slot], arms.models[slot]
    for j in range(p):
        if drift >= 0:
            variance, value = drifts[j * (j + 3) // 2, drift], drifts[at + j, drift]
        else:
            variance, value = diagonal(table, best, j, p), table[at + j, best]
        known = min(1.0, max(0.0, 1.0 - variance * arms.anchor[slot, PRECISION, j]))
        away = value - prior[MEAN, j]
        totals[KNOWN, j] += known - said[KNOWN, j]
        totals[VALUE, j] += known * value - said[VALUE, j]
        totals[SQUARE, j] += away * away - said[SQUARE, j]
        said[KNOWN, j], said[VALUE, j], said[SQUARE, j] = known, known * value, away * away


@inline
def diagonal(table: F64, c: int, j: int, p: int) -> float:
    """Element (j, j) of the inverse of model c: Σ U_ji² D_i."""
    whole: float = table[j, c]
    at = p + j * (j + 1) // 2 + j
    for i in range(j + 1, p):
        u = table[at, c]
        whole += u * u * table[i, c]
        at += i
    return whole


@inline
def learn_prior(state: State, clicks: bool) -> None:
    """Mean and variance of coefficients from the totals (MacKay's evidence)."""
    sums, totals, prior = state.shared.sums, state.shared.totals, state.shared.prior
    step = sums[STEPS] - 1.0
    if sums[CONTEXTS_SQUARED] <= 0.0 or (step >= _OFTEN and step % _EVERY):
        return
    p, known, square = prior.shape[1], 0.0, 0.0
    for j in range(p):
        known += totals[KNOWN, j]
        square += totals[SQUARE, j]
        prior[MEAN, j] = totals[VALUE, j] / (totals[KNOWN, j] + 1.0)
    size = _LOGITS * (sums[STEPS] + 1.0) if clicks else sums[REWARDS_SQUARED]
    usual = (size / sums[CONTEXTS_SQUARED] + square) / (1.0 + known)
    alike = _ALIKE_CLICKS if clicks else _ALIKE
    most = _MOST * size / sums[CONTEXTS_SQUARED] if clicks else np.inf
    for j in range(p):
        variance = (alike * usual + totals[SQUARE, j]) / (alike + totals[KNOWN, j])
        prior[VARIANCE, j] = min(variance, most)
