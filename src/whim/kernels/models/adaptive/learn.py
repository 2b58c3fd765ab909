"""A reward to the adaptive mixture: the models learn it, then weights, noise, prior and events."""

from __future__ import annotations

import math

from whim.kernels.jit import inline, part
from whim.kernels.models.adaptive import mixture, models, prior
from whim.kernels.models.adaptive.models import Play
from whim.kernels.models.adaptive.score import clicking, variance_of, with_constant
from whim.kernels.models.adaptive.state import (
    ALL_FREE,
    ARCHIVED,
    AT_FIRST,
    CLICKS,
    COUNT,
    EVER,
    HIGH,
    HIGHS,
    JUMPING,
    LAST,
    LOW,
    PLAY,
    PLAYS,
    REPORTED,
    RING,
    STEPS,
    VALUES,
    WORLDS,
    Shared,
    State,
)
from whim.kernels.status import CHANGED, NO_CHANGE, TEST
from whim.types import F64

_SAME = 1e-9  # sums of a context's numbers that differ by less are the same
_SURE = 0.95  # of the jump worlds' weight must lie after a change
_JUMPY = 0.5  # and so much weight must be on jump worlds


# -- what kind of reward ------------------------------------------------------------------------


@inline
def meet(shared: Shared, r: float) -> bool:
    """Look at a reward; whether what was learnt took it, or those before it, for another kind."""
    sums = shared.sums
    if sums[VALUES] == 0.0:
        sums[LOW] = sums[HIGH] = r
        sums[VALUES] = 1.0
        return False
    if sums[VALUES] > CLICKS or r == sums[LOW] or r == sums[HIGH]:
        return False
    sums[VALUES] += 1.0
    if sums[VALUES] > CLICKS:
        return True
    before = sums[LOW]
    sums[LOW], sums[HIGH] = min(before, r), max(before, r)
    return bool((before > 0.0) != (before == sums[HIGH]))  # was it called a click, and is it one


@inline
def _as_click(shared: Shared, r: float) -> float:
    sums = shared.sums
    high = r == sums[HIGH] if sums[VALUES] >= CLICKS else r > 0.0
    return 1.0 if high else 0.0


@inline
def _watch(shared: Shared, x: F64) -> None:
    """Which numbers of the context, and whether their sum, have always been the same."""
    start, d, total = shared.start, x.shape[0], 0.0
    for j in range(d):
        total += x[j]
        if shared.sums[STEPS] == 0.0:
            start[0, j], start[1, j] = x[j], 1.0
        elif x[j] != start[0, j]:
            start[1, j] = 0.0
    if shared.sums[STEPS] == 0.0:
        start[0, d], start[1, d] = total, 1.0
    elif abs(total - start[0, d]) > _SAME * abs(start[0, d]):
        start[1, d] = 0.0


# -- one play -----------------------------------------------------------------------------------


@part
def _step(state: State, step: int, slot: int, x: F64, r: float) -> int:
    """A play of an arm whose models start from the present prior."""
    arms, shared = state.arms, state.shared
    clock, sums = arms.clock[slot], shared.sums
    clicks, first = clicking(shared), clock[PLAYS] == 0
    if sums[STEPS] == 0.0:
        prior.start(state, r, clicks)
    if first:
        models.set_anchor(state, slot)
    value = _as_click(shared, r) if clicks else r
    if clicks:
        sums[HIGHS] += value
    noise = 1.0 if clicks else variance_of(state, slot)
    rate = (0.5 + sums[HIGHS]) / (sums[STEPS] + 2.0)
    play = Play(clicks, value, noise, rate, step - clock[LAST], first)
    models.begin_all(state, slot, first)
    clock[PLAYS] += 1
    models.learn_all(state, play, slot)
    return _believe(state, step, slot, play)


@inline
def _believe(state: State, step: int, slot: int, play: Play) -> int:
    """What follows from a play for weights, noise, prior and events."""
    clock = state.arms.clock[slot]
    jumps = not play.first and state.shared.sums[ALL_FREE] >= mixture.ENOUGH
    mixture.scale_likelihoods(state, slot, jumps)
    mixture.count_gains(state, slot)
    mixture.weigh(state, slot, play)
    best = mixture.mix(state, slot)
    prior.learn_noise(state, slot, play)
    status = NO_CHANGE
    if play.first:
        clock[ARCHIVED] = clock[REPORTED] = 1
    else:
        status = _report(state, slot)
        prior.archive(state, slot, best)
    mixture.prune(state, slot, best)
    clock[LAST] = step
    prior.teach(state, slot, mixture.likeliest(state, slot))
    prior.learn_prior(state, play.clicks)
    return status


@inline
def _report(state: State, slot: int) -> int:
    """Whether an arm has changed for all one can say; what is said then is in the report."""
    arms, clock, report = state.arms, state.arms.clock[slot], state.scratch.report
    born, mixed = arms.born[slot], arms.mixed[slot]
    after, most, place = 0.0, 0.0, EVER
    for i in range(1, clock[COUNT] + 1):
        if born[i, PLAY] > clock[REPORTED]:
            after += mixed[i]
            if mixed[i] > most:
                most, place = mixed[i], i
    total = arms.noises[slot, JUMPING]
    if after <= _SURE * total or total <= _JUMPY:
        return NO_CHANGE
    before, p = EVER, state.scratch.phi.shape[0]
    gain, began = arms.gains[slot, place], born[place, PLAY]
    # what was believed predicts worse, the fewer plays it was learnt from: that is no change
    learning = p * math.log(clock[PLAYS] / (began - 1.0))
    bound = state.settings.least_gain + learning
    if gain < bound:
        return NO_CHANGE
    at = p * (p + 1) // 2
    for i in range(1, clock[COUNT] + 1):
        if born[i, PLAY] <= clock[REPORTED] and mixed[i] > mixed[before]:
            before = i
    for j in range(p):
        report[0, j] = arms.models[slot, at + j, before]
        report[1, j] = arms.models[slot, at + j, place]
    report[2, 0], report[2, 1] = gain, bound
    report[2, 2], report[2, 3] = after / total, began
    report[2, 4] = 1.0 if total > 0.5 else 0.0  # jumps, not drift, are the likelier world
    clock[REPORTED] = clock[PLAYS]
    return CHANGED


# -- as the loops call it -----------------------------------------------------------------------


@part
def learn(state: State, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One play; TEST where something rare must be done first (``finish``)."""
    ring, d = state.ring, x.shape[0]
    at = ring.at[0] % RING
    ring.place[at, 0], ring.place[at, 1] = slot, step
    for j in range(d):
        ring.play[at, j] = x[j]
    ring.play[at, d] = r
    ring.at[0] += 1
    if meet(state.shared, r):
        ring.at[1] = 1
        return TEST
    _watch(state.shared, x)
    with_constant(state.shared, x, state.scratch.phi)
    if state.arms.clock[slot, PLAYS] > 0 and models.has_moved(state, slot):
        return TEST
    return _step(state, step, slot, x, r)


@part
def _replay(state: State) -> None:
    """Forget all, and learn the kept plays, except the newest, as the kind that rewards are."""
    arms, shared, ring = state.arms, state.shared, state.ring
    for slot in range(arms.clock.shape[0]):
        arms.clock[slot, :] = 0
        arms.said[slot, :, :] = 0.0
        arms.noises[slot, :] = 0.0
        arms.weights[slot, :, :] = 0.0
        arms.mixed[slot, :] = 0.0
        arms.models[slot, :, :] = 0.0
        arms.drifts[slot, :, :] = 0.0
    low, high, values = shared.sums[LOW], shared.sums[HIGH], shared.sums[VALUES]
    shared.sums[:] = 0.0
    shared.sums[LOW], shared.sums[HIGH], shared.sums[VALUES] = low, high, values
    shared.totals[:, :] = 0.0
    shared.worlds[0, :] = 0.0
    for world in range(WORLDS):
        shared.worlds[1, world] = AT_FIRST[world]
    shared.prior[0, :] = 0.0
    shared.prior[1, :] = 1.0
    for i in range(max(0, ring.at[0] - RING), ring.at[0] - 1):
        slot = ring.place[i % RING, 0]
        if slot >= 0:
            _learn_kept(state, ring.place[i % RING, 1], slot, ring.play[i % RING])


@part
def _learn_kept(state: State, step: int, slot: int, record: F64) -> int:
    d = record.shape[0] - 1
    _watch(state.shared, record[:d])
    with_constant(state.shared, record[:d], state.scratch.phi)
    if state.arms.clock[slot, PLAYS] > 0 and models.has_moved(state, slot):
        models.move_prior(state, slot)
    return _step(state, step, slot, record[:d], record[d])


@part
def finish(state: State, step: int, slot: int) -> int:
    """The play that ``learn`` left: the prior moves first, or all starts over."""
    ring = state.ring
    if ring.at[1] == 1:
        ring.at[1] = 0
        _replay(state)
    return _learn_kept(state, step, slot, ring.play[(ring.at[0] - 1) % RING])
