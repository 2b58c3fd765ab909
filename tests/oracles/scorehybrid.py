"""PSLinUCB-Hybrid with the score test: its arms tested as disjoint ones, G from whole stretches."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from .hybrid import Matrix, Vector, inv
from .scoretest import Found, ScoreTestOracle


class Stretch(NamedTuple):
    """Plays between two restarts of an arm."""

    X: Matrix
    Z: Matrix
    r: Vector


class ScoreTestHybridOracle:
    """Every stretch between two restarts of an arm has a θ of its own; all share β.

    ``rows`` says that the caller gives z, which is then tested with x.
    """

    def __init__(
        self, *, d: int, k: int, alpha: float, false_alarm: float, window: int,
        ridge: float = 1.0, rows: bool = False,
    ) -> None:  # fmt: skip
        self.d, self.k, self.alpha, self.ridge, self.rows = d, k, alpha, ridge, rows
        self.test = ScoreTestOracle(
            d=d + k if rows else d, alpha=alpha, false_alarm=false_alarm, window=window
        )
        self.live: dict[Hashable, Stretch] = {}
        self.frozen: list[Stretch] = []
        self.theta_before = np.zeros(d)

    def add(self, a: Hashable) -> None:
        """Create an arm, or make it new: what it has taught stays in the shared model."""
        if a in self.live:
            self.frozen.append(self.live[a])
        self.live[a] = Stretch(np.zeros((0, self.d)), np.zeros((0, self.k)), np.zeros(0))
        self.test.add(a)

    def new_features(self, a: Hashable) -> None:
        """Only the test of the arm starts afresh."""
        self.test.add(a)

    def own(self, s: Stretch) -> tuple[Matrix, Matrix, Vector]:
        """A, B and b of a stretch."""
        A = self.ridge * np.eye(self.d) + s.X.T @ s.X
        return np.asarray(A), np.asarray(s.X.T @ s.Z), np.asarray(s.X.T @ s.r)

    def shared(self) -> tuple[Matrix, Vector]:
        """A0 and b0 of all stretches, each with its own θ eliminated."""
        A0, b0 = self.ridge * np.eye(self.k), np.zeros(self.k)
        for s in [*self.frozen, *self.live.values()]:
            A, B, b = self.own(s)
            A0 = A0 + s.Z.T @ s.Z - B.T @ inv(A) @ B
            b0 = b0 + s.Z.T @ s.r - B.T @ inv(A) @ b
        return A0, b0

    def beta(self) -> Vector:
        """Estimate of the shared coefficients."""
        return np.asarray(np.linalg.solve(*self.shared()))

    def theta(self, a: Hashable) -> Vector:
        """Estimate of the arm's coefficients since its restart."""
        A, B, b = self.own(self.live[a])
        return np.asarray(np.linalg.solve(A, b - B @ self.beta()))

    def score(self, x: Vector, z: Vector, a: Hashable) -> float:
        """Upper confidence bound of one arm."""
        A, B, _ = self.own(self.live[a])
        u = z - B.T @ inv(A) @ x
        s = x @ inv(A) @ x + u @ inv(self.shared()[0]) @ u
        return float(x @ self.theta(a) + z @ self.beta() + self.alpha * np.sqrt(s))

    def update(self, a: Hashable, x: Vector, z: Vector, r: float) -> Found | None:
        """Learn one observation, then test; on a change the older plays are frozen."""
        X, Z, rewards = self.live[a]
        s = Stretch(np.vstack((X, x)), np.vstack((Z, z)), np.append(rewards, r))
        self.live[a] = s
        found = self.test.update(a, np.r_[x, z] if self.rows else x, r)
        if found is not None:
            self.theta_before = self.theta(a)
            old, new = slice(None, -found.kept), slice(-found.kept, None)
            self.frozen.append(Stretch(s.X[old], s.Z[old], s.r[old]))
            self.live[a] = Stretch(s.X[new], s.Z[new], s.r[new])
        return found
