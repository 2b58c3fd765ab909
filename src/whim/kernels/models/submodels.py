"""dLinUCB: submodels on uniform payoffs, the least bad of which acts; those that fail are dropped.

Wu, Iyer, Wang, "Learning Contextual Bandits in a Non-stationary Environment" (SIGIR 2018), which
calls them slaves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from whim.kernels.jit import jit, part
from whim.kernels.linalg import udu
from whim.kernels.loops import Kernels
from whim.kernels.models import model_pool
from whim.kernels.models.model_pool import LIVE
from whim.kernels.models.uniform import Pairs, feature, score_row
from whim.kernels.status import CHANGED, NO_CHANGE
from whim.types import F64, I64

MARKS = 1
TRAINED, JUDGED, FAILED = range(3)  # of a row of ``counts``; FAILED is the sum of ``fails``
COUNTS = 3
RATE, CONFIDENCE = range(2)  # of a row of ``badness``

# rows of ``work``, p numbers each
SCRATCH, BEFORE, STATISTIC = range(3)
WORK = 3


class Settings(NamedTuple):
    """The policy's parameters: ``log_delta2`` is ln(1/δ2), ``root_log_tau`` is √ln τ."""

    ridge: float
    alpha: float
    sigma: float
    eta: float
    delta1: float
    tdelta1: float
    log_delta2: float
    root_log_tau: float


class State(NamedTuple):
    """Submodels are rows of ``model``; ``order`` and ``marks`` say which are in use.

    A row of ``fails`` is the ring of a submodel's last ``tau`` verdicts, 1 for a prediction too far
    from its reward; ``badness`` has their rate e_s and its confidence radius CB_s. After a change
    ``work`` holds the coefficients of the submodel that acted in row BEFORE, and the smallest
    e_s - CB_s in row STATISTIC.
    """

    settings: Settings
    pairs: Pairs
    model: F64
    fails: I64
    counts: I64
    badness: F64
    order: I64
    marks: I64
    work: F64


@part
def _add(s: State) -> None:
    """Add a submodel that has seen nothing."""
    row = model_pool.add_row(s.order, s.marks)
    udu.set_prior(s.model[row], s.pairs.phi.shape[0], s.settings.ridge)
    s.fails[row, :] = 0
    s.counts[row, :] = 0
    s.badness[row, RATE] = 0.0
    s.badness[row, CONFIDENCE] = 0.5


@jit
def start(s: State) -> None:
    """The first submodel."""
    _add(s)


@part
def _acting(s: State) -> int:
    """The row whose badness has the lowest lower bound, the oldest of equals."""
    best: int = s.order[0]
    lowest = np.inf
    for i in range(s.marks[LIVE]):
        row = s.order[i]
        lower = s.badness[row, RATE] - s.settings.root_log_tau * s.badness[row, CONFIDENCE]
        if lower < lowest:
            best, lowest = row, lower
    return best


@jit
def acting(s: State) -> int:
    """The row of the submodel that acts, for Python to call."""
    return _acting(s)


@part
def score(s: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """Upper confidence bounds under the submodel that acts; the best one's place."""
    return score_row(s.model[_acting(s)], s.settings.alpha, s.pairs, x, slots, cross, out)


@part
def _fails(s: State, row: int, r: float) -> bool:
    """Whether the prediction misses the reward by more than noise and width explain."""
    phi, ridge = s.pairs.phi, s.settings.ridge
    inside = phi.shape[0] * math.log((ridge + s.counts[row, TRAINED]) / (0.01 * ridge))
    radius = s.settings.sigma * math.sqrt(inside) + math.sqrt(ridge)
    error = abs(udu.predict(s.model[row], phi) - r)
    bound = radius * math.sqrt(udu.quad(s.model[row], phi)) + s.settings.eta
    return not error <= bound


@part
def _judge(s: State, row: int, failed: int) -> None:
    """Enter one verdict: e_s over the last ``tau``, and CB_s = √(ln(1/δ2) / 2n)."""
    fails, counts = s.fails[row], s.counts[row]
    tau = fails.shape[0]
    place = counts[JUDGED] % tau
    counts[FAILED] += failed - fails[place]
    fails[place] = failed
    counts[JUDGED] += 1
    n = min(counts[JUDGED], tau)
    s.badness[row, RATE] = counts[FAILED] / n
    s.badness[row, CONFIDENCE] = math.sqrt(s.settings.log_delta2 / (2.0 * n))


@part
def learn(s: State, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One play; CHANGED when no submodel passed and one was added."""
    feature(s.pairs, x, slot, z)
    phi = s.pairs.phi
    p = phi.shape[0]
    theta = p * (p + 1) // 2
    row = _acting(s)
    for j in range(p):
        s.work[BEFORE, j] = s.model[row, theta + j]
    create, statistic = True, np.inf
    place = 0
    while place < s.marks[LIVE]:
        row = s.order[place]
        failed = _fails(s, row, r)
        _judge(s, row, 1 if failed else 0)
        rate, confidence = s.badness[row, RATE], s.badness[row, CONFIDENCE]
        statistic = min(statistic, rate - confidence)
        if not failed:
            udu.learn(s.model[row], phi, r, s.work[SCRATCH])
            s.counts[row, TRAINED] += 1
        if rate <= confidence + s.settings.tdelta1:
            create = False
        elif rate > confidence + s.settings.delta1:
            model_pool.drop_row(place, s.order, s.marks)
            place -= 1
        place += 1
    if not create:
        return NO_CHANGE
    s.work[STATISTIC, 0] = statistic
    _add(s)
    return CHANGED


SUBMODELS = Kernels("dynamic_linucb", score, learn)
