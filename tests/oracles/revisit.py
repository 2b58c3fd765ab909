"""Looking again at neglected arms, on top of the literal score test or the paper's test."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from scipy.stats import norm  # type: ignore[import-untyped]

from .scoretest import Matrix, Vector

Model = Callable[[Hashable], tuple[Matrix, Vector]]


class RevisitOracle:
    """Scores arms as a mixture of what they were and a new arm.

    ``inner`` detects; ``model`` gives the matrix and θ of an arm that it decides by; ``rate`` is
    the probability that an arm changes in a step, None to learn it.
    """

    def __init__(
        self, inner: Any, model: Model, rate: float | None, *, alpha: float, ridge: float
    ) -> None:
        self.inner, self.model = inner, model
        self.rate, self.alpha, self.ridge = rate, alpha, ridge
        self.step = self.changes = self.watched = 0
        self.noise, self.plays = 0.0, 0
        self.doubt: dict[Hashable, float] = {}
        self.seen: dict[Hashable, int] = {}

    def hazard(self) -> float:
        """Changes an arm and step, known or counted."""
        if self.rate is not None:
            return self.rate
        return min(0.5, self.changes / self.watched) if self.changes else 0.0

    def q(self, a: Hashable) -> float:
        """Probability that the arm is another than its model."""
        if a not in self.seen:
            return 0.0
        same = (1 - self.doubt[a]) * (1 - self.hazard()) ** (self.step - self.seen[a])
        return min(0.99, 1 - same)

    def parts(self, x: Vector, a: Hashable) -> tuple[float, float]:
        """Mean and squared width (without α) of the arm's own model."""
        A, theta = self.model(a)
        return float(x @ theta), float(x @ np.linalg.solve(A, x))

    def mixed(self, x: Vector, a: Hashable) -> tuple[float, float]:
        """Mean and width that are decided by."""
        q = self.q(a)
        mean, square = self.parts(x, a)
        square = (1 - q) * square + q * float(x @ x) / self.ridge
        return (1 - q) * mean, self.alpha * math.sqrt(square)

    def score(self, x: Vector, a: Hashable) -> float:
        """Upper confidence bound of one arm."""
        return sum(self.mixed(x, a))

    def update(self, a: Hashable, x: Vector, r: float) -> Any:
        """Learn one observation, and what it says about the doubt."""
        q = self.q(a)
        mean, square = self.parts(x, a)
        self.plays = min(self.plays + 1, 1000)
        self.noise += ((r - mean) ** 2 / (1 + square) - self.noise) / self.plays
        as_before = norm.logpdf(r, mean, math.sqrt(self.noise * (1 + square)))
        fresh = self.alpha**2 * float(x @ x) / self.ridge
        as_new = norm.logpdf(r, 0, math.sqrt(self.noise + fresh))
        odds = q / (1 - q) * math.exp(min(0.0, as_new - as_before))
        found = self.inner.update(a, x, r)
        self.doubt[a] = 0.0 if found else odds / (1 + odds)
        if a in self.seen:
            self.watched += self.step + 1 - self.seen[a]
        self.changes += bool(found)
        self.step += 1
        self.seen[a] = self.step
        return found
