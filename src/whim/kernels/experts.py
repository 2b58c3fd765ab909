"""DenBand: experts on uniform payoffs, each with an auditor that says where it is to be trusted.

Wu, Wang, Li, Wang, "Dynamic Ensemble of Contextual Bandits to Satisfy Users' Changing Interests"
(WWW 2019). Experts are rows of ``model`` (factors, then theta, as in ``factors``); ``order`` and
``marks`` say which are in use (``roster``).

The auditor is a ridge model of its expert's residuals over the last ``tau`` observations since
the expert's birth. All these windows are ends of one history, kept once in ``ring`` (φ, then r;
the oldest stands at ``marks[HEAD]`` when the ring is full). A row of ``audit`` is the window's
own ridge model (factors of Ab, then its coefficients μ), followed by the auditor's β and the
radii of the expert and of the auditor. With θ the expert's coefficients,

    β = Ab⁻¹ Σ φ (r - φᵀθ) = μ + ridge · Ab⁻¹θ - θ,

so a new θ needs no second pass over the window. A row of ``gates`` is the ring of residuals that
the windowed gate averages, then their sum; the single-step gate has no ring.
"""

from __future__ import annotations

import math

import numpy as np

from whim.kernels import factors, roster, uniform
from whim.kernels.jit import inline, jit
from whim.types import F64, I64

__all__ = [
    "BEFORE",
    "COUNTS",
    "LIVE",
    "MARKS",
    "STATISTIC",
    "WORK",
    "audit_row",
    "observe",
    "observe_many",
    "score",
    "start",
]

QUIET, CHANGED, NOT_FINITE = 0, 1, 3

LIVE, HEAD = roster.LIVE, roster.LIVE + 1  # of ``marks``
MARKS = 2
TRAINED, AGE, GATED = range(3)  # of a row of ``counts``
COUNTS = 3

# of ``settings``; a negative ALPHA or KAPPA stands for the authors' own radius
RIDGE, DELTA_L, SIGMA, ALPHA, KAPPA, LOG_TERM, GATE, AGE_LIMIT = range(8)

# rows of ``work``, p + 1 numbers each
SCRATCH, MORE, BEFORE, STATISTIC, LEAVING = range(5)
WORK = 5

# a removal that leaves less than this of an observation's direction loses too many digits
_SAFE = 1e-4


def audit_row(p: int, ridge: float) -> F64:
    """A row of ``audit`` before ``start`` fills its radii."""
    return factors.prior(p, ridge, more=p + 2)


@inline
def _model_radius(trained: int, p: int, settings: F64) -> float:
    radius: float = settings[ALPHA]
    if radius < 0.0:
        inside = p * math.log(1.0 + trained / (p * settings[RIDGE])) + settings[LOG_TERM]
        # the authors square sigma here; the same group's later code and the theory do not
        radius = settings[SIGMA] * math.sqrt(inside) + math.sqrt(settings[RIDGE])
    return radius


@inline
def _audit_radius(audited: int, p: int, settings: F64) -> float:
    radius: float = settings[KAPPA] * settings[SIGMA]
    if settings[KAPPA] < 0.0:
        # 0.002, 0.01 and 0.5 are constants of the authors' code
        small = 0.01 * settings[RIDGE]
        inside = p * math.log((small + audited) / (0.5 * small))
        radius = 0.002 * (settings[SIGMA] * math.sqrt(inside) + math.sqrt(small))
    return radius


@jit
def _refit(
    row: int, p: int, tau: int, settings: F64, model: F64, audit: F64, counts: I64, w: F64
) -> None:
    """β and the radii for the current θ."""
    theta = p * (p + 1) // 2
    beta = theta + p
    factors.times(audit, row, model[row, theta:], w)
    for j in range(p):
        shrunk = audit[row, theta + j] + settings[RIDGE] * w[j]
        audit[row, beta + j] = shrunk - model[row, theta + j]
    audit[row, beta + p] = _model_radius(counts[row, TRAINED], p, settings)
    audit[row, beta + p + 1] = _audit_radius(min(counts[row, AGE], tau), p, settings)


@jit
def start(
    p: int, settings: F64, model: F64, audit: F64, gates: F64, counts: I64, order: I64,
    marks: I64, w: F64,
) -> int:  # fmt: skip
    """Add an expert that has seen nothing; its row."""
    row = roster.add_row(order, marks)
    factors.set_prior(model, row, p, settings[RIDGE])
    factors.set_prior(audit, row, p, settings[RIDGE])
    gates[row, :] = 0.0
    counts[row, :] = 0
    _refit(row, p, 0, settings, model, audit, counts, w)
    return row


@inline
def _badness(row: int, phi: F64, delta_l: float, model: F64, audit: F64) -> tuple[float, float]:
    """How far |βᵀφ| is over the bound of admission, and its lower confidence bound."""
    p = phi.shape[0]
    beta = p * (p + 1) // 2 + p
    bad = 0.0
    for j in range(p):
        bad += audit[row, beta + j] * phi[j]
    bad = abs(bad)
    audit_width = audit[row, beta + p + 1] * math.sqrt(factors.quad(audit, row, phi))
    model_width = audit[row, beta + p] * math.sqrt(factors.quad(model, row, phi))
    return bad - (audit_width + model_width + delta_l), bad - audit_width


@jit
def score(
    kind: int, x: F64, slots: I64, features: F64, cross: F64, settings: F64, model: F64,
    audit: F64, order: I64, marks: I64, out: F64, phi: F64,
) -> int:  # fmt: skip
    """Bounds of each candidate under its least bad expert; the best one's place or -1.

    A candidate for which no expert is admissible is scored by one that has seen nothing.
    """
    if not factors.finite(x):
        return -1
    p = phi.shape[0]
    radius = p * (p + 1) // 2 + 2 * p
    best = 0
    for c in range(slots.shape[0]):
        uniform.feature(kind, x, features, slots[c], cross, c, phi)
        chosen, lowest = -1, np.inf
        for i in range(marks[LIVE]):
            excess, lower = _badness(order[i], phi, settings[DELTA_L], model, audit)
            if excess < 0.0 and (chosen < 0 or lower < lowest):
                chosen, lowest = order[i], lower
        if chosen >= 0:
            mean = factors.predict(model, chosen, phi)
            width = audit[chosen, radius] * math.sqrt(factors.quad(model, chosen, phi))
        else:
            mean, squared = 0.0, 0.0
            for j in range(p):
                squared += phi[j] * phi[j] / settings[RIDGE]
            width = _model_radius(0, p, settings) * math.sqrt(squared)
        out[c, 0] = mean + width
        out[c, 1] = mean
        out[c, 2] = width
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@jit
def _passes(
    row: int, residual: float, width: float, settings: F64, gates: F64, counts: I64
) -> bool:
    """Whether the gate lets an admissible expert learn this observation."""
    window = gates.shape[1] - 1
    if window == 0:
        within: bool = abs(residual) <= width + settings[DELTA_L]
        return within
    place = counts[row, GATED] % window
    counts[row, GATED] += 1
    leaving = gates[row, place]
    gates[row, place] = residual
    if place + 1 < window:
        gates[row, window] += residual - leaving
    else:  # once a round the sum is taken anew, so that rounding cannot pile up
        total = 0.0
        for j in range(window):
            total += gates[row, j]
        gates[row, window] = total
    full = counts[row, GATED] >= window
    return not (full and abs(gates[row, window] / window) >= settings[GATE])


@jit
def _rebuild(row: int, p: int, ridge: float, audit: F64, ring: F64, head: int, w: F64) -> None:
    """The auditor's window model from the full ring, oldest observation first."""
    factors.set_prior(audit, row, p, ridge)
    tau = ring.shape[0]
    for i in range(tau):
        at = head + i if head + i < tau else head + i - tau
        factors.learn(audit, row, ring[at, :p], ring[at, p], w)


@jit
def _slide(
    row: int, phi: F64, r: float, ridge: float, audit: F64, age: int, ring: F64, head: int,
    work: F64,
) -> None:  # fmt: skip
    """Take the newest observation into an auditor's window, and the one that leaves it out.

    Once every ``tau`` steps, and when a removal would lose digits, the window is fitted anew.
    """
    p = phi.shape[0]
    tau = ring.shape[0]
    w = work[SCRATCH]
    if age <= tau:
        factors.learn(audit, row, phi, r, w)
        return
    rest = 0.0
    if age % tau != 0:
        factors.learn(audit, row, phi, r, w)
        old = work[LEAVING, :p]
        residual = work[LEAVING, p] - factors.predict(audit, row, old)
        rest = factors.downdate(audit, row, old, w, work[MORE])
        mu = p * (p + 1) // 2
        for j in range(p):
            audit[row, mu + j] -= w[j] * residual / rest
    if not rest >= _SAFE:
        _rebuild(row, p, ridge, audit, ring, head, w)


@jit
def _observe(
    phi: F64, r: float, settings: F64, model: F64, audit: F64, gates: F64, counts: I64,
    order: I64, marks: I64, ring: F64, admitted: I64, work: F64,
) -> int:  # fmt: skip
    p = phi.shape[0]
    theta = p * (p + 1) // 2
    radius = theta + 2 * p
    tau = ring.shape[0]
    least, statistic = order[0], np.inf
    for i in range(marks[LIVE]):
        row = order[i]
        excess, _ = _badness(row, phi, settings[DELTA_L], model, audit)
        admitted[row] = excess < 0.0
        if excess < statistic:
            least, statistic = row, excess

    status = QUIET
    if not statistic < 0.0:
        status = CHANGED
        work[STATISTIC, 0] = statistic
        for j in range(p):
            work[BEFORE, j] = model[least, theta + j]
        row = start(p, settings, model, audit, gates, counts, order, marks, work[SCRATCH])
        admitted[row] = 1

    head = marks[HEAD]
    for j in range(p + 1):
        work[LEAVING, j] = ring[head, j]
    for j in range(p):
        ring[head, j] = phi[j]
    ring[head, p] = r
    head = head + 1 if head + 1 < tau else 0
    marks[HEAD] = head

    for i in range(marks[LIVE]):
        row = order[i]
        counts[row, AGE] += 1
        if admitted[row]:
            residual = r - factors.predict(model, row, phi)
            width = audit[row, radius] * math.sqrt(factors.quad(model, row, phi))
            passed = _passes(row, residual, width, settings, gates, counts)
            if passed and counts[row, AGE] < settings[AGE_LIMIT]:
                factors.learn(model, row, phi, r, work[SCRATCH])
                counts[row, TRAINED] += 1
        _slide(row, phi, r, settings[RIDGE], audit, counts[row, AGE], ring, head, work)
        _refit(row, p, tau, settings, model, audit, counts, work[SCRATCH])
    return status


@jit
def observe(
    kind: int, x: F64, slot: int, features: F64, cross: F64, r: float, settings: F64, model: F64,
    audit: F64, gates: F64, counts: I64, order: I64, marks: I64, ring: F64, admitted: I64,
    work: F64, phi: F64,
) -> int:  # fmt: skip
    """One play under DenBand; CHANGED when no expert was admissible and one was born.

    ``work`` then holds the coefficients of the expert nearest to its bound in row BEFORE, and its
    excess over the bound in row STATISTIC. NOT_FINITE before anything is touched.
    """
    if not factors.finite(x):
        return NOT_FINITE
    uniform.feature(kind, x, features, slot, cross, 0, phi)
    return _observe(
        phi, r, settings, model, audit, gates, counts, order, marks, ring, admitted, work
    )


@jit
def observe_many(
    begin: int, kind: int, X: F64, slots: I64, features: F64, cross: F64, rewards: F64,
    settings: F64, model: F64, audit: F64, gates: F64, counts: I64, order: I64, marks: I64,
    ring: F64, admitted: I64, work: F64, phi: F64,
) -> tuple[int, int]:  # fmt: skip
    """Plays in order from ``begin``; stops after a change. Where to go on, and why it stopped."""
    for i in range(begin, slots.shape[0]):
        uniform.feature(kind, X[i], features, slots[i], cross, i, phi)
        status = _observe(
            phi, rewards[i], settings, model, audit, gates, counts, order, marks, ring, admitted,
            work,
        )  # fmt: skip
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET
