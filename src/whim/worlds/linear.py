"""``LinearWorld``: what the worlds with linear rewards share; each adds how interests move."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from whim import checks
from whim.types import F64
from whim.worlds.draws import LAWS, joint_rewards, streams, vectors
from whim.worlds.episode import Episode
from whim.worlds.rotation import Rotation

Changes = dict[int, list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearWorld:
    """Interest x·θ_a(t) + kron(y_a, x)·β in arm a, and rewards made of it.

    Subclasses say how θ_a moves. This class by itself is not a world.

    Parameters
    ----------
    n_arms, n_features
        K and d.
    n_item_features
        m. 0 is the disjoint payoff, without y and β; more is the hybrid one.
    joint
        Radius of the ball (or sphere) that β, of length d·m, is drawn from; it never changes.
        With 0 the arms have features that say nothing.
    law
        Where vectors are drawn: uniformly in the unit ``"ball"``, on the unit ``"sphere"``, or
        from the ball's ``"nonnegative"`` part.
    users
        ``"random"``: a new user each step. ``"fixed"``: one user for the whole run, as in the
        paper.
    rewards
        ``"gaussian"``: the interest plus noise. ``"bernoulli"``: clicks, 0 or 1, with
        probability rate × (1 + interest), cut to [0, 1].
    noise
        Standard deviation σ of the Gaussian noise.
    rate
        The click rate where the interest is 0: with signed laws the mean rate as well.
    """

    n_arms: int = 10
    n_features: int = 5
    n_item_features: int = 0
    joint: float = 1.0
    law: str = "ball"
    users: str = "random"
    rewards: str = "gaussian"
    noise: float = 0.2
    rate: float = 0.05

    def __post_init__(self) -> None:
        for name in ("n_arms", "n_features"):
            checks.integer(name, getattr(self, name), 1)
        checks.integer("n_item_features", self.n_item_features, 0)
        checks.choice("law", self.law, LAWS)
        checks.choice("users", self.users, ("random", "fixed"))
        checks.choice("rewards", self.rewards, ("gaussian", "bernoulli"))
        checks.number("joint", self.joint, least=0)
        checks.number("noise", self.noise, least=0)
        checks.number("rate", self.rate, above=0, below=1)

    def describe(self) -> dict[str, Any]:
        """The kind of world, its parameters, and one sentence on what it is."""
        return {"kind": type(self).__name__, **asdict(self), "what": self._what()}

    def episode(self, *, horizon: int, seed: int, run: int = 0) -> Episode:
        """One run; interests, users, noise, items and pools each from a stream of their own."""
        T = checks.integer("horizon", horizon, 1)
        K, d, m = self.n_arms, self.n_features, self.n_item_features
        interest, user, chance, item, pool = streams(seed, run)
        rotated = self._rotation(pool, T)
        theta, changes = self._interests(interest, T, rotated)
        contexts = self._contexts(user, T)
        expected = np.einsum("td,tad->ta", contexts, theta)
        features = np.zeros((K, 0))
        if m:
            features = vectors(item, K, m, self.law)
            beta = self.joint * vectors(item, 1, d * m, self.law)[0]
            expected += joint_rewards(contexts, features, beta)
        if self.rewards == "gaussian":
            rewards = expected + self.noise * chance.normal(size=(T, K))
        else:
            expected = np.clip(self.rate * (1 + expected), 0.0, 1.0)
            rewards = (chance.random((T, K)) < expected).astype(np.float64)
        if rotated is None:
            return Episode(contexts, expected, rewards, changes, features)
        pool_of = rotated.pool_of(T)
        places = rotated.pools[pool_of]
        return Episode(
            contexts, np.take_along_axis(expected, places, 1),
            np.take_along_axis(rewards, places, 1), changes, features, pool_of, rotated.offsets,
            rotated.pools.ravel(),
        )  # fmt: skip

    def _contexts(self, rng: np.random.Generator, T: int) -> F64:
        """(T, d): the user of each step."""
        if self.users == "fixed":
            return np.repeat(vectors(rng, 1, self.n_features, self.law), T, axis=0)
        return vectors(rng, T, self.n_features, self.law)

    def _what(self) -> str:
        """One sentence on how interests move."""
        raise NotImplementedError

    def _rotation(self, rng: np.random.Generator, T: int) -> Rotation | None:
        """Which arms are there when; by default all, always."""
        return None

    def _interests(
        self, rng: np.random.Generator, T: int, rotated: Rotation | None
    ) -> tuple[F64, Changes]:
        """(T, K, d): θ_a of each step, and each arm's changes."""
        raise NotImplementedError
