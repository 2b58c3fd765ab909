"""A discounted logistic bandit by assumed density, refitted from all plays at every question.

Dense matrices throughout: the discounted plays as weighted least squares, and the move of mean and
covariance in the form in which it is usually written.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class DiscountedLogisticOracle:
    """One arm: theta ~ N(m, P) after plays at known update numbers."""

    def __init__(self, d: int, gamma: float, ridge: float) -> None:
        self.d, self.gamma, self.ridge = d, gamma, ridge
        self.plays: list[tuple[int, Vector, float, float]] = []  # when, x, weight, response

    def beliefs(self, t: int) -> tuple[Vector, Matrix]:
        """Mean m and covariance P after t updates; a play at update s weighs gamma^(t - s)."""
        precision = self.ridge * np.eye(self.d)
        b = np.zeros(self.d)
        for s, x, weight, response in self.plays:
            faded = self.gamma ** (t - s) * weight
            precision = precision + faded * np.outer(x, x)
            b = b + faded * response * x
        P = np.linalg.inv(precision)
        return P @ b, P

    def moved(self, t: int, x: Vector, r: float) -> tuple[Vector, Matrix]:
        """Mean and covariance right after a play that comes after t updates, by moments."""
        m, P = self.beliefs(t)
        kappa = 1 / math.sqrt(1 + math.pi * (x @ P @ x) / 8)
        p = 1 / (1 + math.exp(-kappa * (x @ m)))
        Px = P @ x
        return m + Px * kappa * (r - p), P - np.outer(Px, Px) * kappa**2 * p * (1 - p)

    def update(self, t: int, x: Vector, r: float) -> None:
        """Learn a play, the weighted plays chosen so that the moments are those of ``moved``."""
        m, P = self.beliefs(t)
        after_m, after_P = self.moved(t, x, r)
        gained = np.linalg.inv(after_P) - np.linalg.inv(P)  # weight * x x'
        weight = float(x @ gained @ x) / float(x @ x) ** 2
        b = np.linalg.solve(after_P, after_m) - np.linalg.solve(P, m)  # weight * response * x
        self.plays.append((t + 1, x, weight, float(x @ b) / (weight * float(x @ x))))
