"""``GroupedLinear``: very many arms of few kinds, and some that are not what they seem."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from whim import checks
from whim.types import F64, I64
from whim.worlds.draws import LAWS, constant_between, streams, vectors
from whim.worlds.episode import Episode


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedLinear:
    """Rewards x·θ + noise, with one θ for all arms of a group, and a θ of its own for a stray.

    Arm a is of group a mod ``n_groups``. Each step offers a pool of arms drawn anew.

    Parameters
    ----------
    n_arms, n_groups, n_features, n_item_features
        K, G, d and m. An arm's features are its group's centre, on the unit sphere, plus normal
        noise of size ``blur`` in each.
    strays
        Share of arms with a θ of their own, whatever their group and features say.
    pool
        Arms on offer at each step.
    period
        Steps between two changes of a group's θ, each group at its own times; ``None``: it never
        changes. Strays never do.
    law, noise
        Where θ and contexts are drawn, and the standard deviation of rewards; see
        ``PiecewiseLinear``.
    blur
        See above.

    Examples
    --------
    >>> world = GroupedLinear(n_arms=40, n_groups=4, strays=0.1, pool=5)
    >>> episode = world.episode(horizon=100, seed=0)
    >>> episode.expected.shape, episode.features.shape, len(world.stray_arms(seed=0))
    ((100, 5), (40, 5), 4)
    """

    n_arms: int = 2000
    n_groups: int = 20
    n_features: int = 5
    n_item_features: int = 5
    strays: float = 0.05
    pool: int = 50
    period: int | None = None
    law: str = "sphere"
    noise: float = 0.2
    blur: float = 0.2

    def __post_init__(self) -> None:
        for name in ("n_arms", "n_groups", "n_features", "n_item_features", "pool"):
            checks.integer(name, getattr(self, name), 1)
        if self.period is not None:
            checks.integer("period", self.period, 1)
        checks.number("strays", self.strays, least=0, most=1)
        checks.number("noise", self.noise, least=0)
        checks.number("blur", self.blur, least=0)
        checks.choice("law", self.law, LAWS)
        checks.number("pool", self.pool, most=self.n_arms)

    def describe(self) -> dict[str, Any]:
        """The kind of world, its parameters, and one sentence on what it is."""
        what = (
            f"Linear rewards; {self.n_arms} arms in {self.n_groups} groups with one interest "
            f"each, but for a share of {self.strays:g} with one of their own; pools of "
            f"{self.pool} arms drawn anew each step."
        )
        return {"kind": type(self).__name__, **asdict(self), "what": what}

    def labels(self) -> I64:
        """The group of each arm."""
        return np.arange(self.n_arms) % self.n_groups

    def stray_arms(self, *, seed: int, run: int = 0) -> I64:
        """The arms of a run that have an interest of their own, in rising order."""
        item = streams(seed, run)[3]
        chosen: I64 = item.choice(self.n_arms, round(self.strays * self.n_arms), replace=False)
        return np.sort(chosen)

    def episode(self, *, horizon: int, seed: int, run: int = 0) -> Episode:
        """One run; interests, users, noise, items and pools each from a stream of their own."""
        T, K, d = checks.integer("horizon", horizon, 1), self.n_arms, self.n_features
        interest, user, chance, item, pools = streams(seed, run)
        stray = np.sort(item.choice(K, round(self.strays * K), replace=False))
        centre = vectors(item, self.n_groups, self.n_item_features, "sphere")
        features = centre[self.labels()]
        features = features + self.blur * item.normal(size=features.shape)
        theta, changes = self._interests(interest, T)
        own = np.full(K, -1)
        own[stray] = np.arange(len(stray))
        theirs = vectors(interest, max(len(stray), 1), d, self.law)
        members = np.array([pools.choice(K, self.pool, replace=False) for _ in range(T)])
        contexts = vectors(user, T, d, self.law)
        now = np.einsum("td,tgd->tg", contexts, theta)
        shared = np.take_along_axis(now, members % self.n_groups, 1)
        apart = np.take_along_axis(contexts @ theirs.T, np.maximum(own[members], 0), 1)
        expected = np.where(own[members] >= 0, apart, shared)
        rewards = expected + self.noise * chance.normal(size=expected.shape)
        return Episode(
            contexts, expected, rewards,
            {a: [] if own[a] >= 0 else changes[a % self.n_groups] for a in range(K)}, features,
            np.arange(T), np.arange(0, (T + 1) * self.pool, self.pool), members.ravel(),
        )  # fmt: skip

    def _interests(self, rng: np.random.Generator, T: int) -> tuple[F64, list[list[int]]]:
        """(T, G, d): θ of each group at each step, and each group's changes."""
        theta = np.empty((T, self.n_groups, self.n_features))
        changes = []
        for g in range(self.n_groups):
            first = int(rng.integers(1, (self.period or T) + 1))
            changes.append(list(range(first, T, self.period)) if self.period else [])
            theta[:, g] = constant_between(rng, changes[g], T, self.n_features, self.law)
        return theta, changes
