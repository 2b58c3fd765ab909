"""Ridge models over a sliding window: SW-LinUCB (Cheung et al. 2019).

One queue of the last plays over all arms; the records of a row are chained, so that a row is
rebuilt or dropped without a way over the others. What leaves is taken out of the row's factors.
That multiplies the error already there by 1 / (1 - leverage), so a row is rebuilt from its records
once these factors reach ``_TRUST``, or as many plays have left as stay. Leverages of few plays are
near one (log det A cannot fall for long), so this too is amortised.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.kernels.detection import windows
from whim.kernels.detection.windows import Windows
from whim.kernels.jit import jit, part
from whim.kernels.linalg import udu
from whim.kernels.loops import Kernels
from whim.kernels.models import disjoint
from whim.kernels.models.disjoint import Ridge
from whim.kernels.models.uniform import Pairs, feature, row_of, score_row
from whim.kernels.status import GROW, NO_CHANGE
from whim.types import F64, I64

# a record: its row (-1 once that row was dropped), the next record of that row, reward, φ
ROW, NEXT, REWARD, PHI = range(4)
# ``chain[row]``: records in the window, the first and the last one, removals since it was rebuilt
COUNT, FIRST, LAST, REMOVED = range(4)
CHAIN = 4
_TRUST = np.log(1e3)


class State(NamedTuple):
    """Models by row, whose last number is the log of the error's growth; one queue, row 0."""

    model: Ridge
    pairs: Pairs
    window: int
    chain: I64
    windows: Windows
    work: F64


def record_size(p: int) -> int:
    """Numbers in a record of the pool."""
    return PHI + p


@part
def _score_shared(
    state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> int:
    m = state.model
    return score_row(m.cum[0], m.alpha, state.pairs, x, slots, cross, out)


@part
def _rebuild(state: State, row: int) -> None:
    """The row's model afresh from its records, oldest first."""
    model, pool, chain = state.model.cum[row], state.windows.pool, state.chain
    udu.set_prior(model, state.pairs.phi.shape[0], state.model.ridge)
    size = pool.shape[1]
    at = chain[row, FIRST]
    for _ in range(chain[row, COUNT]):
        record = pool[at // size, at % size]
        udu.learn(model, record[PHI:], record[REWARD], state.work[1])
        at = int(record[NEXT])
    chain[row, REMOVED] = 0


@part
def _remove(state: State, record: F64) -> None:
    """Take the oldest record of its row out of the chain and out of the model."""
    chain, row = state.chain, int(record[ROW])
    model, phi, w = state.model.cum[row], record[PHI:], state.work[1]
    p = phi.shape[0]
    chain[row, FIRST] = int(record[NEXT])
    chain[row, COUNT] -= 1
    chain[row, REMOVED] += 1
    if chain[row, REMOVED] >= chain[row, COUNT]:
        _rebuild(state, row)
        return
    growth = model.shape[0] - 1
    theta = growth - p
    rest = udu.downdate(model, phi, w, state.work[2])
    # an empty direction leaves rest = 0 or rounding below it: the log is then inf or nan
    model[growth] -= np.log(rest)
    if not model[growth] < _TRUST:
        _rebuild(state, row)
        return
    # the inverse after is A⁻¹ + wwᵀ/rest, so that A⁻¹φ after is w/rest
    loss = (record[REWARD] - udu.predict(model, phi)) / rest
    for j in range(p):
        model[theta + j] -= w[j] * loss


@part
def learn(state: State, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One play in, the one that is ``window`` older out."""
    w, pairs, chain = state.windows, state.pairs, state.chain
    if windows.full(w, 0):
        return GROW
    row = row_of(pairs, slot)
    feature(pairs, x, slot, z)
    udu.learn(state.model.cum[row], pairs.phi, r, state.work[1])
    size = w.pool.shape[1]
    chunk, place = windows.push(w, 0)
    here = chunk * size + place
    record = w.pool[chunk, place]
    record[ROW], record[NEXT], record[REWARD] = row, 0.0, r
    for j in range(pairs.phi.shape[0]):
        record[PHI + j] = pairs.phi[j]
    if chain[row, COUNT] == 0:
        chain[row, FIRST] = here
    else:
        last = chain[row, LAST]
        w.pool[last // size, last % size, NEXT] = here
    chain[row, LAST] = here
    chain[row, COUNT] += 1
    # the new play is in before the old one leaves: leverages are then at their smallest
    if w.table[0, windows.COUNT] > state.window:
        chunk, place = windows.pop(w, 0)
        if w.pool[chunk, place, ROW] >= 0.0:
            _remove(state, w.pool[chunk, place])
    return NO_CHANGE


@jit
def drop(row: int, chain: I64, pool: F64) -> None:
    """Mark a row's records dead: they still count as steps, and leave without a trace."""
    size = pool.shape[1]
    at = chain[row, FIRST]
    for _ in range(chain[row, COUNT]):
        record = pool[at // size, at % size]
        record[ROW] = -1.0
        at = int(record[NEXT])
    chain[row, :] = 0


OWN = Kernels("swlinucb", disjoint.score, learn, decide=disjoint.decide)
SHARED = Kernels("swlinucb_shared", _score_shared, learn)
