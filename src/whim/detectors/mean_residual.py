"""The paper's change test: the mean residual of the window under the model before it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from whim import checks


@dataclass(frozen=True, slots=True)
class MeanResidual:
    """Fire when ``|mean of (xᵀθ_pre - r) over the window| >= threshold``.

    Only the window's mean context and mean reward matter, so a change θ → θ' with
    ``x̄ᵀ(θ' - θ) = 0`` cannot be seen (docs/math.md).

    Attributes
    ----------
    window
        Plays of an arm in its window, ω >= 2.
    threshold
        δ > 0, in units of the reward; infinity never fires.

    Examples
    --------
    >>> MeanResidual(window=1000, threshold=0.025).deviations(rate=0.05)
    3.6
    """

    window: int
    threshold: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", checks.integer("window", self.window, 2))
        threshold = checks.number("threshold", self.threshold, above=0, infinite=True)
        object.__setattr__(self, "threshold", threshold)

    def deviations(self, rate: float) -> float:
        """How many standard deviations δ is for clicks of this rate: a guide to choosing it."""
        checks.number("rate", rate, above=0, below=1)
        return round(self.threshold / math.sqrt(rate * (1 - rate) / self.window), 1)
