"""dLinUCB: slaves on uniform payoffs, the least bad of which acts; those that fail are dropped.

Wu, Iyer, Wang, "Learning Contextual Bandits in a Non-stationary Environment" (SIGIR 2018).
Slaves are rows of ``model`` (factors, then theta, as in ``factors``); ``order`` and ``marks``
say which are in use (``roster``). A row of ``fails`` is the ring of a slave's last ``tau``
verdicts, 1 for a prediction too far from its reward; ``badness`` has their rate e_s and its
confidence radius CB_s.
"""

from __future__ import annotations

import math

import numpy as np

from whim.kernels import factors, roster, uniform
from whim.kernels.jit import inline, jit
from whim.kernels.roster import LIVE
from whim.types import F64, I64

__all__ = [
    "BEFORE",
    "COUNTS",
    "LIVE",
    "LOG_TAU",
    "MARKS",
    "STATISTIC",
    "WORK",
    "chosen",
    "observe",
    "observe_many",
    "score",
    "start",
]

QUIET, CHANGED, NOT_FINITE = 0, 1, 3

MARKS = 1
TRAINED, JUDGED, FAILED = range(3)  # of a row of ``counts``; FAILED is the sum of ``fails``
COUNTS = 3
RATE, CONFIDENCE = range(2)  # of a row of ``badness``

# of ``settings``; LOG_DELTA2 is ln(1/δ2), LOG_TAU is √ln τ
RIDGE, ALPHA, SIGMA, ETA, DELTA1, TDELTA1, LOG_DELTA2, LOG_TAU = range(8)

# rows of ``work``, p numbers each
SCRATCH, BEFORE, STATISTIC = range(3)
WORK = 3


@jit
def start(
    p: int, ridge: float, model: F64, fails: I64, counts: I64, badness: F64, order: I64, marks: I64
) -> None:
    """Add a slave that has seen nothing."""
    row = roster.add_row(order, marks)
    factors.set_prior(model, row, p, ridge)
    fails[row, :] = 0
    counts[row, :] = 0
    badness[row, RATE] = 0.0
    badness[row, CONFIDENCE] = 0.5


@jit
def chosen(root_log_tau: float, badness: F64, order: I64, marks: I64) -> int:
    """The row of the slave whose badness has the lowest lower bound, the oldest of equals."""
    best: int = order[0]
    lowest = np.inf
    for i in range(marks[LIVE]):
        row = order[i]
        lower = badness[row, RATE] - root_log_tau * badness[row, CONFIDENCE]
        if lower < lowest:
            best, lowest = row, lower
    return best


@jit
def score(
    kind: int, x: F64, slots: I64, features: F64, cross: F64, settings: F64, model: F64,
    badness: F64, order: I64, marks: I64, out: F64, phi: F64,
) -> int:  # fmt: skip
    """Upper confidence bounds under the chosen slave; the best one's place or -1."""
    row = chosen(settings[LOG_TAU], badness, order, marks)
    alpha = settings[ALPHA]
    return uniform.score(kind, x, slots, features, cross, model[row : row + 1], alpha, out, phi)


@inline
def _fails(row: int, phi: F64, r: float, settings: F64, model: F64, counts: I64) -> bool:
    """Whether the slave's prediction misses the reward by more than noise and width explain."""
    ridge = settings[RIDGE]
    inside = phi.shape[0] * math.log((ridge + counts[row, TRAINED]) / (0.01 * ridge))
    radius = settings[SIGMA] * math.sqrt(inside) + math.sqrt(ridge)
    error = abs(factors.predict(model, row, phi) - r)
    bound = radius * math.sqrt(factors.quad(model, row, phi)) + settings[ETA]
    return not error <= bound


@inline
def _judge(row: int, failed: int, log_delta2: float, fails: I64, counts: I64, badness: F64) -> None:
    """Enter one verdict: e_s over the last ``tau``, and CB_s = √(ln(1/δ2) / 2n)."""
    tau = fails.shape[1]
    place = counts[row, JUDGED] % tau
    counts[row, FAILED] += failed - fails[row, place]
    fails[row, place] = failed
    counts[row, JUDGED] += 1
    n = min(counts[row, JUDGED], tau)
    badness[row, RATE] = counts[row, FAILED] / n
    badness[row, CONFIDENCE] = math.sqrt(log_delta2 / (2.0 * n))


@jit
def _observe(
    phi: F64, r: float, settings: F64, model: F64, fails: I64, counts: I64, badness: F64,
    order: I64, marks: I64, work: F64,
) -> int:  # fmt: skip
    p = phi.shape[0]
    theta = p * (p + 1) // 2
    acting = chosen(settings[LOG_TAU], badness, order, marks)
    for j in range(p):
        work[BEFORE, j] = model[acting, theta + j]
    create, statistic = True, np.inf
    place = 0
    while place < marks[LIVE]:
        row = order[place]
        failed = _fails(row, phi, r, settings, model, counts)
        _judge(row, 1 if failed else 0, settings[LOG_DELTA2], fails, counts, badness)
        rate, confidence = badness[row, RATE], badness[row, CONFIDENCE]
        statistic = min(statistic, rate - confidence)
        if not failed:
            factors.learn(model, row, phi, r, work[SCRATCH])
            counts[row, TRAINED] += 1
        if rate <= confidence + settings[TDELTA1]:
            create = False
        elif rate > confidence + settings[DELTA1]:
            roster.drop_row(place, order, marks)
            place -= 1
        place += 1
    if not create:
        return QUIET
    work[STATISTIC, 0] = statistic
    start(p, settings[RIDGE], model, fails, counts, badness, order, marks)
    return CHANGED


@jit
def observe(
    kind: int, x: F64, slot: int, features: F64, cross: F64, r: float, settings: F64, model: F64,
    fails: I64, counts: I64, badness: F64, order: I64, marks: I64, work: F64, phi: F64,
) -> int:  # fmt: skip
    """One play under dLinUCB; CHANGED when no slave passed and one was added.

    ``work`` then holds the coefficients of the slave that acted in row BEFORE, and the smallest
    e_s - CB_s in row STATISTIC. NOT_FINITE before anything is touched.
    """
    if not factors.finite(x):
        return NOT_FINITE
    uniform.feature(kind, x, features, slot, cross, 0, phi)
    return _observe(phi, r, settings, model, fails, counts, badness, order, marks, work)


@jit
def observe_many(
    begin: int, kind: int, X: F64, slots: I64, features: F64, cross: F64, rewards: F64,
    settings: F64, model: F64, fails: I64, counts: I64, badness: F64, order: I64, marks: I64,
    work: F64, phi: F64,
) -> tuple[int, int]:  # fmt: skip
    """Plays in order from ``begin``; stops after a change. Where to go on, and why it stopped."""
    for i in range(begin, slots.shape[0]):
        uniform.feature(kind, X[i], features, slots[i], cross, i, phi)
        status = _observe(
            phi, rewards[i], settings, model, fails, counts, badness, order, marks, work
        )
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET
