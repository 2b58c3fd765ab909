"""DenBand: experts on uniform payoffs, each with an auditor that says where it is to be trusted.

Wu, Wang, Li, Wang, "Dynamic Ensemble of Contextual Bandits to Satisfy Users' Changing Interests"
(WWW 2019). The auditor is a ridge model of its expert's residuals over the last ``tau``
observations since the expert's birth. All these windows are ends of one history, kept once in
``ring``. With θ the expert's coefficients and Ab, μ the window's own ridge model, the auditor's
coefficients are

    β = Ab⁻¹ Σ φ (r - φᵀθ) = μ + ridge · Ab⁻¹θ - θ,

so a new θ needs no second pass over the window.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from whim.kernels.jit import jit, part
from whim.kernels.linalg import udu
from whim.kernels.loops import Kernels
from whim.kernels.models import model_pool
from whim.kernels.models.uniform import Pairs, feature
from whim.kernels.status import CHANGED, NO_CHANGE
from whim.types import F64, I64

LIVE, HEAD = model_pool.LIVE, model_pool.LIVE + 1  # of ``marks``
MARKS = 2
TRAINED, AGE, GATED = range(3)  # of a row of ``counts``
COUNTS = 3

# rows of ``work``, p + 1 numbers each
SCRATCH, MORE, BEFORE, STATISTIC, LEAVING = range(5)
WORK = 5

# a removal that leaves less than this of an observation's direction loses too many digits
_SAFE = 1e-4


class Settings(NamedTuple):
    """The policy's parameters; a negative alpha or kappa stands for the authors' own radius."""

    ridge: float
    delta_l: float
    sigma: float
    alpha: float
    kappa: float
    log_term: float
    gate: float
    age_limit: float


class State(NamedTuple):
    """Experts are rows of ``model``; ``order`` and ``marks`` say which are in use (``model_pool``).

    A row of ``audit`` is the window's own ridge model, then the auditor's β and the radii of the
    expert and of the auditor. A row of ``gates`` is the ring of residuals that the windowed gate
    averages, then their sum; the single-step gate has no ring. ``ring`` is the history, φ and then
    r; the oldest stands at ``marks[HEAD]`` when it is full. After a change ``work`` holds the
    coefficients of the expert nearest to its bound in row BEFORE and its excess in row STATISTIC.
    """

    settings: Settings
    pairs: Pairs
    model: F64
    audit: F64
    gates: F64
    counts: I64
    order: I64
    marks: I64
    ring: F64
    admitted: I64
    work: F64


def audit_row(p: int, ridge: float) -> F64:
    """A row of ``audit`` before ``start`` fills its radii."""
    return udu.prior(p, ridge, more=p + 2)


@part
def _model_radius(trained: int, p: int, settings: Settings) -> float:
    radius: float = settings.alpha
    if radius < 0.0:
        inside = p * math.log(1.0 + trained / (p * settings.ridge)) + settings.log_term
        # the authors square sigma here; the same group's later code and the theory do not
        radius = settings.sigma * math.sqrt(inside) + math.sqrt(settings.ridge)
    return radius


@part
def _audit_radius(audited: int, p: int, settings: Settings) -> float:
    radius: float = settings.kappa * settings.sigma
    if settings.kappa < 0.0:
        # 0.002, 0.01 and 0.5 are constants of the authors' code
        small = 0.01 * settings.ridge
        inside = p * math.log((small + audited) / (0.5 * small))
        radius = 0.002 * (settings.sigma * math.sqrt(inside) + math.sqrt(small))
    return radius


@part
def _refit(s: State, row: int, tau: int) -> None:
    """β and the radii for the current θ."""
    p = s.pairs.phi.shape[0]
    theta = p * (p + 1) // 2
    beta = theta + p
    model, audit, w = s.model[row], s.audit[row], s.work[SCRATCH]
    udu.times(audit, model[theta:], w)
    for j in range(p):
        shrunk = audit[theta + j] + s.settings.ridge * w[j]
        audit[beta + j] = shrunk - model[theta + j]
    audit[beta + p] = _model_radius(s.counts[row, TRAINED], p, s.settings)
    audit[beta + p + 1] = _audit_radius(min(s.counts[row, AGE], tau), p, s.settings)


@part
def _add(s: State) -> int:
    """Add an expert that has seen nothing; its row."""
    p = s.pairs.phi.shape[0]
    row = model_pool.add_row(s.order, s.marks)
    udu.set_prior(s.model[row], p, s.settings.ridge)
    udu.set_prior(s.audit[row], p, s.settings.ridge)
    s.gates[row, :] = 0.0
    s.counts[row, :] = 0
    _refit(s, row, 0)
    return row


@jit
def start(s: State) -> None:
    """The first expert."""
    _add(s)


@part
def _badness(s: State, row: int) -> tuple[float, float]:
    """How far |βᵀφ| is over the bound of admission, and its lower confidence bound."""
    phi, audit = s.pairs.phi, s.audit[row]
    p = phi.shape[0]
    beta = p * (p + 1) // 2 + p
    bad = 0.0
    for j in range(p):
        bad += audit[beta + j] * phi[j]
    bad = abs(bad)
    audit_width = audit[beta + p + 1] * math.sqrt(udu.quad(audit, phi))
    model_width = audit[beta + p] * math.sqrt(udu.quad(s.model[row], phi))
    return bad - (audit_width + model_width + s.settings.delta_l), bad - audit_width


@part
def score(s: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """Bounds of each candidate under its least bad expert; the best one's place.

    A candidate for which no expert is admissible is scored by one that has seen nothing.
    """
    phi = s.pairs.phi
    p = phi.shape[0]
    radius = p * (p + 1) // 2 + 2 * p
    best = 0
    for c in range(slots.shape[0]):
        feature(s.pairs, x, slots[c], cross[c] if cross.shape[0] > 0 else x[:0])
        chosen, lowest = -1, np.inf
        for i in range(s.marks[LIVE]):
            excess, lower = _badness(s, s.order[i])
            if excess < 0.0 and (chosen < 0 or lower < lowest):
                chosen, lowest = s.order[i], lower
        if chosen >= 0:
            mean = udu.predict(s.model[chosen], phi)
            width = s.audit[chosen, radius] * math.sqrt(udu.quad(s.model[chosen], phi))
        else:
            mean, squared = 0.0, 0.0
            for j in range(p):
                squared += phi[j] * phi[j] / s.settings.ridge
            width = _model_radius(0, p, s.settings) * math.sqrt(squared)
        out[c, 0] = mean + width
        out[c, 1] = mean
        out[c, 2] = width
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@part
def _passes(s: State, row: int, residual: float, width: float) -> bool:
    """Whether the gate lets an admissible expert learn this observation."""
    gates, counts = s.gates[row], s.counts[row]
    window = gates.shape[0] - 1
    if window == 0:
        within: bool = abs(residual) <= width + s.settings.delta_l
        return within
    place = counts[GATED] % window
    counts[GATED] += 1
    leaving = gates[place]
    gates[place] = residual
    if place + 1 < window:
        gates[window] += residual - leaving
    else:  # once a round the sum is taken anew, so that rounding cannot pile up
        total = 0.0
        for j in range(window):
            total += gates[j]
        gates[window] = total
    full = counts[GATED] >= window
    return not (full and abs(gates[window] / window) >= s.settings.gate)


@part
def _rebuild(s: State, row: int) -> None:
    """The auditor's window model from the full ring, oldest observation first."""
    p, tau, head = s.pairs.phi.shape[0], s.ring.shape[0], s.marks[HEAD]
    udu.set_prior(s.audit[row], p, s.settings.ridge)
    for i in range(tau):
        at = head + i if head + i < tau else head + i - tau
        udu.learn(s.audit[row], s.ring[at, :p], s.ring[at, p], s.work[SCRATCH])


@part
def _slide(s: State, row: int, r: float) -> None:
    """Take the newest observation into an auditor's window, and the one that leaves it out.

    Once every ``tau`` steps, and when a removal would lose digits, the window is fitted anew.
    """
    phi, audit, w = s.pairs.phi, s.audit[row], s.work[SCRATCH]
    p, tau, age = phi.shape[0], s.ring.shape[0], s.counts[row, AGE]
    if age <= tau:
        udu.learn(audit, phi, r, w)
        return
    rest = 0.0
    if age % tau != 0:
        udu.learn(audit, phi, r, w)
        old = s.work[LEAVING, :p]
        residual = s.work[LEAVING, p] - udu.predict(audit, old)
        rest = udu.downdate(audit, old, w, s.work[MORE])
        mu = p * (p + 1) // 2
        for j in range(p):
            audit[mu + j] -= w[j] * residual / rest
    if not rest >= _SAFE:
        _rebuild(s, row)


@part
def _admit(s: State) -> int:
    """Which experts may be judged by this play; CHANGED when none, and one was born."""
    p = s.pairs.phi.shape[0]
    theta = p * (p + 1) // 2
    least, statistic = s.order[0], np.inf
    for i in range(s.marks[LIVE]):
        row = s.order[i]
        excess, _ = _badness(s, row)
        s.admitted[row] = excess < 0.0
        if excess < statistic:
            least, statistic = row, excess
    if statistic < 0.0:
        return NO_CHANGE
    s.work[STATISTIC, 0] = statistic
    for j in range(p):
        s.work[BEFORE, j] = s.model[least, theta + j]
    s.admitted[_add(s)] = 1
    return CHANGED


@part
def learn(s: State, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One play; CHANGED when no expert was admissible and one was born."""
    feature(s.pairs, x, slot, z)
    phi = s.pairs.phi
    p = phi.shape[0]
    radius, tau = p * (p + 1) // 2 + 2 * p, s.ring.shape[0]
    status = _admit(s)
    head = s.marks[HEAD]
    for j in range(p + 1):
        s.work[LEAVING, j] = s.ring[head, j]
    for j in range(p):
        s.ring[head, j] = phi[j]
    s.ring[head, p] = r
    s.marks[HEAD] = head + 1 if head + 1 < tau else 0
    for i in range(s.marks[LIVE]):
        row = s.order[i]
        s.counts[row, AGE] += 1
        if s.admitted[row]:
            residual = r - udu.predict(s.model[row], phi)
            width = s.audit[row, radius] * math.sqrt(udu.quad(s.model[row], phi))
            passed = _passes(s, row, residual, width)
            if passed and s.counts[row, AGE] < s.settings.age_limit:
                udu.learn(s.model[row], phi, r, s.work[SCRATCH])
                s.counts[row, TRAINED] += 1
        _slide(s, row, r)
        _refit(s, row, tau)
    return status


EXPERTS = Kernels("denband", score, learn)
