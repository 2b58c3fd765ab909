"""Policies that keep several linear models at once: dLinUCB and DenBand."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class RidgeModel:
    """The LinUCB model inside each slave and each expert."""

    def __init__(self, p: int, ridge: float) -> None:
        self.A: Matrix = ridge * np.eye(p)
        self.b: Vector = np.zeros(p)
        self.n = 0

    def theta(self) -> Vector:
        """Ridge estimate."""
        return np.asarray(np.linalg.inv(self.A) @ self.b)

    def norm(self, phi: Vector) -> float:
        """sqrt(phi' A^-1 phi)."""
        return float(np.sqrt(phi @ np.linalg.inv(self.A) @ phi))

    def learn(self, phi: Vector, r: float) -> None:
        """Take in one observation."""
        self.A = self.A + np.outer(phi, phi)
        self.b = self.b + r * phi
        self.n += 1


class Slave(RidgeModel):
    """One slave of dLinUCB: its model and the record F of its failed predictions."""

    def __init__(self, p: int, ridge: float) -> None:
        super().__init__(p, ridge)
        self.F: list[int] = []
        self.e = 0.0
        self.CB = 0.5


class DynamicLinUCBOracle:
    """dLinUCB of Wu, Iyer and Wang (SIGIR 2018); sigma is not squared.

    `last_statistic` is the smallest e_s - CB_s over the slaves that judged the observation: a new
    slave is created when it exceeds `tdelta1`.
    """

    def __init__(
        self,
        *,
        p: int,
        alpha: float,
        ridge: float,
        tau: int,
        delta1: float,
        delta2: float,
        tdelta1: float,
        sigma: float,
        eta: float,
        max_models: int,
    ) -> None:
        self.p = p
        self.alpha = alpha
        self.ridge = ridge
        self.tau = tau
        self.delta1 = delta1
        self.delta2 = delta2
        self.tdelta1 = tdelta1
        self.sigma = sigma
        self.eta = eta
        self.max_models = max_models
        self.arms: list[Hashable] = []
        self.slaves: list[Slave] = [Slave(p, ridge)]
        self.t = 0
        self.last_statistic: float | None = None

    def add(self, a: Hashable) -> None:
        """Create an arm; the model is shared, so nothing else changes."""
        if a not in self.arms:
            self.arms.append(a)

    def radius(self, s: Slave) -> float:
        """B_s, the radius of a slave's prediction."""
        log_term = math.log((self.ridge + s.n) / (0.01 * self.ridge))
        return self.sigma * math.sqrt(self.p * log_term) + math.sqrt(self.ridge)

    def chosen(self) -> Slave:
        """The slave with the lowest lower bound of badness, the oldest of equals."""
        badness = [s.e - math.sqrt(math.log(self.tau)) * s.CB for s in self.slaves]
        return self.slaves[badness.index(min(badness))]

    def scores(self, phi: Matrix, arms: Sequence[Hashable]) -> Vector:
        """UCB index of each candidate under the chosen slave."""
        s = self.chosen()
        index = []
        for row, _ in zip(phi, arms, strict=True):
            index.append(s.theta() @ row + self.alpha * s.norm(row))
        return np.array(index, dtype=np.float64)

    def update(self, a: Hashable, phi_row: Vector, r: float) -> bool:
        """Let every slave judge and learn one observation; True if a slave was created."""
        self.t += 1
        create = True
        kept: list[Slave] = []
        learners: list[Slave] = []
        gaps: list[float] = []
        for s in self.slaves:
            ok = abs(s.theta() @ phi_row - r) <= self.radius(s) * s.norm(phi_row) + self.eta
            s.F.append(0 if ok else 1)
            n = min(len(s.F), self.tau)
            s.e = sum(s.F[-n:]) / n
            s.CB = math.sqrt(math.log(1.0 / self.delta2) / (2.0 * n))
            gaps.append(s.e - s.CB)
            discard = False
            if s.e <= s.CB + self.tdelta1:
                create = False
            elif s.e > s.CB + self.delta1:
                discard = True
            if not discard:
                kept.append(s)
            if ok:
                learners.append(s)
        for s in learners:
            s.learn(phi_row, r)
        self.slaves = kept
        self.last_statistic = min(gaps)
        if create or len(self.slaves) == 0:
            self.slaves.append(Slave(self.p, self.ridge))
            if len(self.slaves) > self.max_models:
                self.slaves.pop(0)
            return True
        return False


class Expert(RidgeModel):
    """One DenBand expert: its model, what its auditor has seen, and its residual window."""

    def __init__(self, p: int, ridge: float, gate_window: int) -> None:
        super().__init__(p, ridge)
        self.audit: list[tuple[Vector, float]] = []
        self.age = 0
        self.gate: deque[float] = deque(maxlen=gate_window)


class DenBandOracle:
    """DenBand of Wu et al. (WWW 2019); sigma is not squared.

    `scores` creates nothing: where no expert is admissible it answers with one never trained, and
    `update` creates it if the played row needs it. `last_statistic` is the smallest excess of
    |beta' phi| over its bound among the experts before that: one is created when it is >= 0.
    """

    def __init__(
        self,
        *,
        p: int,
        ridge: float,
        tau: int,
        delta1: float,
        delta_l: float,
        sigma: float,
        gate: Literal["single", "window"],
        max_experts: int,
        alpha: float | None = None,
        age_limit: int | None = None,
        gate_window: int = 500,
        gate_threshold: float = 0.06,
        kappa: float | None = None,
    ) -> None:
        self.p = p
        self.ridge = ridge
        self.tau = tau
        self.delta1 = delta1
        self.delta_l = delta_l
        self.sigma = sigma
        self.gate = gate
        self.max_experts = max_experts
        self.alpha = alpha
        self.age_limit = age_limit
        self.gate_window = gate_window
        self.gate_threshold = gate_threshold
        self.kappa = kappa
        self.arms: list[Hashable] = []
        self.experts: list[Expert] = [self.fresh()]
        self.t = 0
        self.last_statistic: float | None = None

    def add(self, a: Hashable) -> None:
        """Create an arm; the experts are shared, so nothing else changes."""
        if a not in self.arms:
            self.arms.append(a)

    def fresh(self) -> Expert:
        """An expert that has seen nothing."""
        return Expert(self.p, self.ridge, self.gate_window)

    def alpha_th(self, e: Expert) -> float:
        """Radius of the expert's own model."""
        if self.alpha is not None:
            return self.alpha
        inside = self.p * math.log(1.0 + e.n / (self.p * self.ridge))
        inside = inside + 2.0 * math.log(1.0 / self.delta1)
        return self.sigma * math.sqrt(inside) + math.sqrt(self.ridge)

    def alpha_b(self, e: Expert) -> float:
        """Radius of the auditor's residual model."""
        if self.kappa is not None:
            return self.kappa * self.sigma
        small = 0.01 * self.ridge
        n_b = min(len(e.audit), self.tau)
        width = self.sigma * math.sqrt(self.p * math.log((small + n_b) / (0.5 * small)))
        return 0.002 * (width + math.sqrt(small))

    def auditor(self, e: Expert) -> tuple[Matrix, Vector]:
        """Ab and beta_e, fitted to the last `tau` residuals of the current theta_e."""
        theta = e.theta()
        Ab = self.ridge * np.eye(self.p)
        bb = np.zeros(self.p)
        for phi_i, r_i in e.audit[-self.tau :]:
            Ab = Ab + np.outer(phi_i, phi_i)
            bb = bb + phi_i * (r_i - phi_i @ theta)
        return Ab, np.linalg.inv(Ab) @ bb

    def badness(self, e: Expert, phi_row: Vector) -> tuple[float, float]:
        """(excess over the admission bound, lower confidence bound of the badness)."""
        Ab, beta = self.auditor(e)
        bad = float(abs(beta @ phi_row))
        audit_width = self.alpha_b(e) * float(np.sqrt(phi_row @ np.linalg.inv(Ab) @ phi_row))
        bound = audit_width + self.alpha_th(e) * e.norm(phi_row) + self.delta_l
        return bad - bound, bad - audit_width

    def admissible(self, phi_row: Vector) -> list[Expert]:
        """The experts whose residual at this row is within its bound, oldest first."""
        return [e for e in self.experts if self.badness(e, phi_row)[0] < 0.0]

    def scores(self, phi: Matrix, arms: Sequence[Hashable]) -> Vector:
        """UCB index of each candidate under the expert that is best for it."""
        index = []
        for row, _ in zip(phi, arms, strict=True):
            candidates = self.admissible(row)
            if not candidates:
                candidates = [self.fresh()]
            lower = [self.badness(e, row)[1] for e in candidates]
            best = candidates[lower.index(min(lower))]
            index.append(best.theta() @ row + self.alpha_th(best) * best.norm(row))
        return np.array(index, dtype=np.float64)

    def update(self, a: Hashable, phi_row: Vector, r: float) -> bool:
        """Let every expert see, and those allowed learn, one observation; True if one was born."""
        self.t += 1
        phi_row = np.array(phi_row, dtype=np.float64)
        self.last_statistic = min(self.badness(e, phi_row)[0] for e in self.experts)
        admissible = self.admissible(phi_row)
        created = False
        if not admissible:
            new = self.fresh()
            self.experts.append(new)
            if len(self.experts) > self.max_experts:
                self.experts.pop(0)
            admissible = [new]
            created = True
        for e in self.experts:
            e.audit.append((phi_row, r))
            e.age += 1
            if e not in admissible:
                continue
            residual = float(r - e.theta() @ phi_row)
            e.gate.append(residual)
            if self.gate == "single":
                passed = abs(residual) <= self.alpha_th(e) * e.norm(phi_row) + self.delta_l
            else:
                mean = sum(e.gate) / len(e.gate)
                full = len(e.gate) == self.gate_window
                passed = not (full and abs(mean) >= self.gate_threshold)
            if passed and (self.age_limit is None or e.age < self.age_limit):
                e.learn(phi_row, r)
        return created
