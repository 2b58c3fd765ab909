"""``PiecewiseLinear``: the paper's synthetic world, interests constant between changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whim import checks
from whim.types import F64
from whim.worlds.draws import constant_between
from whim.worlds.linear import Changes, LinearWorld
from whim.worlds.rotation import Rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecewiseLinear(LinearWorld):
    """Rewards x·θ_a + noise, where each θ_a is drawn anew at its change points.

    Parameters
    ----------
    period
        Steps between two changes of an arm; ``None``: interests never change.
    asynchronous
        Whether each arm's changes come at its own times (its first at a random step of the
        first period) or all arms change together.
    states
        ``None``: every change brings an interest never seen before. A number: each arm has that
        many interests and goes through them in turn, over and over.
    n_arms, n_features, n_item_features, joint, law, users, rewards, noise, rate
        See ``LinearWorld``. ``n_item_features=5`` makes it the paper's hybrid world:
        rewards x·θ_a + kron(y_a, x)·β + noise.

    Examples
    --------
    >>> world = PiecewiseLinear(n_arms=3, n_features=2, period=100, asynchronous=False)
    >>> episode = world.episode(horizon=250, seed=0)
    >>> episode.changes[0], episode.expected.shape
    ([100, 200], (250, 3))
    >>> hybrid = PiecewiseLinear(n_item_features=5, users="fixed")
    >>> hybrid.episode(horizon=250, seed=0).features.shape
    (10, 5)
    """

    period: int | None = 2000
    asynchronous: bool = True
    states: int | None = None

    def __post_init__(self) -> None:
        LinearWorld.__post_init__(self)
        if self.period is not None:
            checks.integer("period", self.period, 1)
        if self.states is not None:
            checks.integer("states", self.states, 2)

    def _what(self) -> str:
        if self.period is None:
            return "Linear rewards; interests never change."
        when = "at its own times" if self.asynchronous else "when all others do"
        how = "is drawn anew" if self.states is None else f"turns to the next of its {self.states}"
        return f"Linear rewards; each arm's interest {how} {when}, every {self.period} steps."

    def _interests(
        self, rng: np.random.Generator, T: int, rotated: Rotation | None
    ) -> tuple[F64, Changes]:
        K, d, period = self.n_arms, self.n_features, self.period or T
        own = self.asynchronous and self.period is not None
        first = rng.integers(1, period + 1, size=K) if own else None
        changes: Changes = {}
        theta = np.empty((T, K, d))
        for a in range(K):
            start = period if first is None else int(first[a])
            changes[a] = list(range(start, T, period)) if self.period else []
            theta[:, a] = constant_between(rng, changes[a], T, d, self.law, self.states)
        return theta, changes
