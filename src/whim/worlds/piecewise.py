"""``PiecewiseLinear``: the paper's synthetic world, interests constant between changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whim import checks
from whim.types import F64
from whim.worlds.episode import Episode

__all__ = ["PiecewiseLinear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecewiseLinear:
    """Rewards x·θ_a + noise, where each θ_a is drawn anew at its change points.

    Parameters
    ----------
    n_arms, n_features
        K and d.
    period
        Steps between two changes of an arm.
    asynchronous
        Whether each arm's changes come at its own times (its first at a random step of the
        first period) or all arms change together.
    law
        Where vectors are drawn: uniformly in the unit ``"ball"``, on the unit ``"sphere"``, or
        from the ball's ``"nonnegative"`` part.
    users
        ``"random"``: a new user each step. ``"fixed"``: one user for the whole run, as in the
        paper.
    noise
        Standard deviation σ of the Gaussian noise.

    Examples
    --------
    >>> world = PiecewiseLinear(n_arms=3, n_features=2, period=100, asynchronous=False)
    >>> episode = world.episode(horizon=250, seed=0)
    >>> episode.changes[0], episode.expected.shape
    ([100, 200], (250, 3))
    """

    n_arms: int = 10
    n_features: int = 5
    period: int = 2000
    asynchronous: bool = True
    law: str = "ball"
    users: str = "random"
    noise: float = 0.2

    def __post_init__(self) -> None:
        for name in ("n_arms", "n_features", "period"):
            checks.integer(name, getattr(self, name), 1)
        checks.choice("law", self.law, ("ball", "sphere", "nonnegative"))
        checks.choice("users", self.users, ("random", "fixed"))
        checks.number("noise", self.noise, least=0)

    def _vectors(self, rng: np.random.Generator, n: int) -> F64:
        d = self.n_features
        v = rng.normal(size=(n, d))
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        if self.law != "sphere":
            v *= rng.random((n, 1)) ** (1 / d)
        return np.abs(v) if self.law == "nonnegative" else v

    def episode(self, *, horizon: int, seed: int, run: int = 0) -> Episode:
        """One run; interests, users and noise each from a random stream of their own."""
        T, K = checks.integer("horizon", horizon, 1), self.n_arms
        interest, user, chance = (
            np.random.default_rng([checks.integer("seed", seed, 0), run, part]) for part in range(3)
        )
        first = interest.integers(1, self.period + 1, size=K) if self.asynchronous else None
        changes: dict[int, list[int]] = {}
        theta = np.empty((T, K, self.n_features))
        for a in range(K):
            start = self.period if first is None else int(first[a])
            changes[a] = list(range(start, T, self.period))
            bounds = [0, *changes[a], T]
            for value, low, high in zip(
                self._vectors(interest, len(bounds) - 1), bounds[:-1], bounds[1:], strict=True
            ):
                theta[low:high, a] = value
        if self.users == "fixed":
            contexts = np.repeat(self._vectors(user, 1), T, axis=0)
        else:
            contexts = self._vectors(user, T)
        expected = np.einsum("td,tad->ta", contexts, theta)
        rewards = expected + self.noise * chance.normal(size=(T, K))
        return Episode(contexts, expected, rewards, changes)
