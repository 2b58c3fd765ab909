"""``RotatingLinear``: arms that come and go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.types import F64
from whim.worlds.draws import constant_between
from whim.worlds.linear import Changes, LinearWorld
from whim.worlds.rotation import Rotation, jittered, rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatingLinear(LinearWorld):
    """Linear rewards from a pool of fixed size, in which arms make room for others.

    An arm that leaves joins the end of the queue and comes back once all that left before it
    have. While it stays, its interest is constant.

    Parameters
    ----------
    n_arms
        K: arms in the pool and in the queue.
    pool_size
        Arms that can be chosen at a step; fewer than ``n_arms``.
    life
        Mean steps of a stay.
    returns
        ``"same"``: an arm comes back with the interest that it left with. ``"new"``: with
        another one, and its return is a change.
    n_features, n_item_features, joint, law, users, rewards, noise, rate
        See ``LinearWorld``.

    Examples
    --------
    >>> world = RotatingLinear(n_arms=6, pool_size=3, life=300)
    >>> episode = world.episode(horizon=1_000, seed=0)
    >>> episode.pool(0), episode.expected.shape
    (array([0, 1, 2]), (1000, 3))
    """

    n_arms: int = 50
    pool_size: int = 10
    life: int = 2000
    returns: str = "same"

    def __post_init__(self) -> None:
        LinearWorld.__post_init__(self)
        checks.integer("pool_size", self.pool_size, 1)
        checks.integer("life", self.life, 1)
        checks.choice("returns", self.returns, ("same", "new"))
        if self.pool_size >= self.n_arms:
            raise InvalidInputError(
                f"pool_size must be less than n_arms ({self.n_arms}), got {self.pool_size}."
            )

    def _what(self) -> str:
        back = "the interest that it left with" if self.returns == "same" else "a new interest"
        return f"Linear rewards; arms leave a pool of fixed size, and each returns with {back}."

    def _rotation(self, rng: np.random.Generator, T: int) -> Rotation:
        n = T * self.pool_size // self.life  # every place turns over once a life
        arrivals = np.unique(np.maximum((jittered(rng, n) * T).astype(np.int64), 1))
        return rotation(
            rng, arrivals[arrivals < T].tolist(), n_arms=self.n_arms, pool_size=self.pool_size,
            horizon=T,
        )  # fmt: skip

    def _interests(
        self, rng: np.random.Generator, T: int, rotated: Rotation | None
    ) -> tuple[F64, Changes]:
        assert rotated is not None
        d = self.n_features
        theta = np.empty((T, self.n_arms, d))
        changes: Changes = {}
        for arm, stays in enumerate(rotated.stays):
            returns = [low for low, _ in stays[1:]]
            changes[arm] = returns if self.returns == "new" else []
            theta[:, arm] = constant_between(rng, changes[arm], T, d, self.law)
        return theta, changes
