"""Looking again at neglected arms, on top of a literal policy with a test."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

from scipy.stats import norm  # type: ignore[import-untyped]

from .scoretest import Vector

Bound = Callable[[Vector, Hashable], tuple[float, float]]


class RevisitOracle:
    """Scores arms as a mixture of what they were and a new arm.

    ``own`` and ``new`` give mean and squared width (without α) of an arm as it is known and as if
    it were new; ``learn`` teaches a play and says what was found; ``rate`` is the probability
    that an arm changes in a step, None to learn it.
    """

    def __init__(
        self,
        own: Bound,
        new: Bound,
        learn: Callable[[Hashable, Vector, float], Any],
        rate: float | None,
        alpha: float,
    ) -> None:
        self.own, self.new, self.learn = own, new, learn
        self.rate, self.alpha = rate, alpha
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

    def mixed(self, x: Vector, a: Hashable) -> tuple[float, float]:
        """Mean and width that are decided by."""
        q = self.q(a)
        mean, square = self.own(x, a)
        new_mean, new_square = self.new(x, a)
        square = (1 - q) * square + q * new_square
        return (1 - q) * mean + q * new_mean, self.alpha * math.sqrt(square)

    def score(self, x: Vector, a: Hashable) -> float:
        """Upper confidence bound of one arm."""
        return sum(self.mixed(x, a))

    def update(self, a: Hashable, x: Vector, r: float) -> Any:
        """Learn one observation, and what it says about the doubt."""
        q = self.q(a)
        mean, square = self.own(x, a)
        new_mean, new_square = self.new(x, a)
        self.plays = min(self.plays + 1, 1000)
        self.noise += ((r - mean) ** 2 / (1 + square) - self.noise) / self.plays
        as_before = norm.logpdf(r, mean, math.sqrt(self.noise * (1 + square)))
        as_new = norm.logpdf(r, new_mean, math.sqrt(self.noise + self.alpha**2 * new_square))
        odds = q / (1 - q) * math.exp(min(0.0, as_new - as_before))
        found = self.learn(a, x, r)
        self.doubt[a] = 0.0 if found else odds / (1 + odds)
        if a in self.seen:
            self.watched += self.step + 1 - self.seen[a]
        self.changes += bool(found)
        self.step += 1
        self.seen[a] = self.step
        return found
