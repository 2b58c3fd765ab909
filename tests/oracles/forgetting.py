"""Linear policies that forget: discounted and sliding-window ridge regression.

The shared models take one feature row phi per candidate; the disjoint ones take the context x.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Play = tuple[Hashable, Vector, float]


def discounted_sums(
    plays: Iterable[tuple[int, Vector, float]], t: int, p: int, gamma: float, ridge: float
) -> tuple[Matrix, Matrix, Vector]:
    """V, Vt and b at time t from (s, phi, r), the s-th update weighing gamma^(t - s)."""
    V = ridge * np.eye(p)
    Vt = ridge * np.eye(p)
    b = np.zeros(p)
    for s, phi, r in plays:
        V = V + gamma ** (t - s) * np.outer(phi, phi)
        Vt = Vt + gamma ** (2 * (t - s)) * np.outer(phi, phi)
        b = b + gamma ** (t - s) * r * phi
    return V, Vt, b


def discounted_radius(
    t: int,
    p: int,
    gamma: float,
    ridge: float,
    sigma: float,
    delta: float,
    bound_theta: float,
    bound_x: float,
) -> float:
    """beta_t of D-LinUCB after t updates."""
    mass = float(t) if gamma == 1.0 else (1.0 - gamma ** (2 * t)) / (1.0 - gamma**2)
    log_term = p * math.log(1.0 + bound_x**2 * mass / (ridge * p))
    return math.sqrt(ridge) * bound_theta + sigma * math.sqrt(
        2.0 * math.log(1.0 / delta) + log_term
    )


def discounted_score(phi: Vector, V: Matrix, Vt: Matrix, b: Vector, beta_t: float) -> float:
    """Score theta' phi + beta_t sqrt(phi' V^-1 Vt V^-1 phi)."""
    V_inv = np.linalg.inv(V)
    theta = V_inv @ b
    return float(theta @ phi + beta_t * np.sqrt(phi @ V_inv @ Vt @ V_inv @ phi))


def ridge_score(
    phi: Vector, plays: Iterable[tuple[Vector, float]], alpha: float, ridge: float
) -> float:
    """Score theta' phi + alpha sqrt(phi' A^-1 phi) of a ridge regression on these plays."""
    A = ridge * np.eye(len(phi))
    b = np.zeros(len(phi))
    for phi_s, r_s in plays:
        A = A + np.outer(phi_s, phi_s)
        b = b + r_s * phi_s
    A_inv = np.linalg.inv(A)
    return float((A_inv @ b) @ phi + alpha * np.sqrt(phi @ A_inv @ phi))


class _History:
    """All plays so far; time counts the updates over all arms."""

    def __init__(self) -> None:
        self.arms: list[Hashable] = []
        self.history: list[Play] = []
        self.t = 0
        self.last_statistic: float | None = None

    def add(self, a: Hashable) -> None:
        """Create an arm; a known arm is left as it is."""
        if a not in self.arms:
            self.arms.append(a)

    def update(self, a: Hashable, phi_row: Vector, r: float) -> bool:
        """Remember one observation; never a change."""
        self._check(a)
        self.t += 1
        self.history.append((a, np.array(phi_row, dtype=np.float64), r))
        return False

    def _check(self, a: Hashable) -> None:
        if a not in self.arms:
            raise KeyError(a)


class DLinUCBOracle(_History):
    """D-LinUCB of Russac et al. (2019), one model shared by all arms."""

    def __init__(
        self,
        *,
        p: int,
        gamma: float,
        alpha: float | None = None,
        ridge: float = 1.0,
        sigma: float = 1.0,
        delta: float = 0.05,
        bound_theta: float = 1.0,
        bound_x: float = 1.0,
    ) -> None:
        super().__init__()
        self.p = p
        self.gamma = gamma
        self.alpha = alpha
        self.ridge = ridge
        self.sigma = sigma
        self.delta = delta
        self.bound_theta = bound_theta
        self.bound_x = bound_x

    def sums(self) -> tuple[Matrix, Matrix, Vector]:
        """V, Vt and b of the whole history."""
        plays = [(s, phi, r) for s, (_, phi, r) in enumerate(self.history, start=1)]
        return discounted_sums(plays, self.t, self.p, self.gamma, self.ridge)

    def beta_t(self) -> float:
        """Radius after the updates so far, or alpha if that was given."""
        if self.alpha is not None:
            return self.alpha
        return discounted_radius(
            self.t,
            self.p,
            self.gamma,
            self.ridge,
            self.sigma,
            self.delta,
            self.bound_theta,
            self.bound_x,
        )

    def scores(self, phi: Matrix, arms: Sequence[Hashable]) -> Vector:
        """Index of each candidate; row i of phi belongs to candidate i."""
        V, Vt, b = self.sums()
        beta_t = self.beta_t()
        index = []
        for row, a in zip(phi, arms, strict=True):
            self._check(a)
            index.append(discounted_score(row, V, Vt, b, beta_t))
        return np.array(index, dtype=np.float64)


class DLinUCBDisjointOracle(_History):
    """D-LinUCB with V, Vt and b of its own for each arm; every update ages every arm."""

    def __init__(
        self,
        *,
        d: int,
        gamma: float,
        alpha: float | None = None,
        ridge: float = 1.0,
        sigma: float = 1.0,
        delta: float = 0.05,
        bound_theta: float = 1.0,
        bound_x: float = 1.0,
    ) -> None:
        super().__init__()
        self.d = d
        self.gamma = gamma
        self.alpha = alpha
        self.ridge = ridge
        self.sigma = sigma
        self.delta = delta
        self.bound_theta = bound_theta
        self.bound_x = bound_x

    def sums(self, a: Hashable) -> tuple[Matrix, Matrix, Vector]:
        """V, Vt and b of one arm's plays, aged by all updates since."""
        numbered = enumerate(self.history, start=1)
        plays = [(s, x, r) for s, (b, x, r) in numbered if b == a]
        return discounted_sums(plays, self.t, self.d, self.gamma, self.ridge)

    def beta_t(self) -> float:
        """Radius after the updates so far (over all arms), or alpha if that was given."""
        if self.alpha is not None:
            return self.alpha
        return discounted_radius(
            self.t,
            self.d,
            self.gamma,
            self.ridge,
            self.sigma,
            self.delta,
            self.bound_theta,
            self.bound_x,
        )

    def scores(self, x: Vector, arms: Sequence[Hashable]) -> Vector:
        """Index of each candidate."""
        index = []
        for a in arms:
            self._check(a)
            V, Vt, b = self.sums(a)
            index.append(discounted_score(x, V, Vt, b, self.beta_t()))
        return np.array(index, dtype=np.float64)


class SWLinUCBOracle(_History):
    """SW-LinUCB of Cheung et al. (2019), one model shared by all arms."""

    def __init__(self, *, p: int, window: int, alpha: float, ridge: float = 1.0) -> None:
        super().__init__()
        self.p = p
        self.window = window
        self.alpha = alpha
        self.ridge = ridge

    def scores(self, phi: Matrix, arms: Sequence[Hashable]) -> Vector:
        """Index of each candidate; row i of phi belongs to candidate i."""
        recent = [(phi_s, r_s) for _, phi_s, r_s in self.history[-self.window :]]
        index = []
        for row, a in zip(phi, arms, strict=True):
            self._check(a)
            index.append(ridge_score(row, recent, self.alpha, self.ridge))
        return np.array(index, dtype=np.float64)


class SWLinUCBDisjointOracle(_History):
    """SW-LinUCB per arm: this arm's plays among the last `window` updates over all arms."""

    def __init__(self, *, d: int, window: int, alpha: float, ridge: float = 1.0) -> None:
        super().__init__()
        self.d = d
        self.window = window
        self.alpha = alpha
        self.ridge = ridge

    def scores(self, x: Vector, arms: Sequence[Hashable]) -> Vector:
        """Index of each candidate."""
        index = []
        for a in arms:
            self._check(a)
            recent = [(x_s, r_s) for b, x_s, r_s in self.history[-self.window :] if b == a]
            index.append(ridge_score(x, recent, self.alpha, self.ridge))
        return np.array(index, dtype=np.float64)
