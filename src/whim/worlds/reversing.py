"""``ReversingLinear``: some arms' interests turn into their opposite."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whim import checks
from whim.types import F64
from whim.worlds.draws import vectors
from whim.worlds.linear import Changes, LinearWorld
from whim.worlds.rotation import Rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class ReversingLinear(LinearWorld):
    """Clicks at rate × (1 + x·θ_a), where θ_a of some arms becomes −θ_a, all at the same time.

    The first feature of a context is 1, so that a linear policy can learn the rate; the others,
    and the interests in them, are drawn by ``law``.

    Parameters
    ----------
    share
        Share of the arms that reverse, drawn anew in each run.
    period
        Steps between two reversals; ``None``: interests never change.
    n_arms, n_features, n_item_features, joint, law, users, rewards, noise, rate
        See ``LinearWorld``; ``n_features`` counts the constant.

    Examples
    --------
    >>> world = ReversingLinear(n_arms=4, period=50)
    >>> episode = world.episode(horizon=100, seed=0)
    >>> sorted(episode.changes.values()), bool((episode.contexts[:, 0] == 1).all())
    ([[], [], [50], [50]], True)
    """

    n_arms: int = 30
    law: str = "sphere"
    rewards: str = "bernoulli"
    rate: float = 0.2
    share: float = 0.5
    period: int | None = 6000

    def __post_init__(self) -> None:
        LinearWorld.__post_init__(self)
        checks.integer("n_features", self.n_features, 2)
        checks.number("share", self.share, least=0, most=1)
        if self.period is not None:
            checks.integer("period", self.period, 1)

    def _what(self) -> str:
        if self.period is None:
            return "Linear rewards with a constant; interests never change."
        return (
            f"Linear rewards with a constant; every {self.period} steps the interests of a share "
            f"of {self.share:g} of the arms reverse."
        )

    def _contexts(self, rng: np.random.Generator, T: int) -> F64:
        n = 1 if self.users == "fixed" else T
        rest = vectors(rng, n, self.n_features - 1, self.law)
        return np.repeat(np.column_stack([np.ones(n), rest]), T // n, axis=0)

    def _interests(
        self, rng: np.random.Generator, T: int, rotated: Rotation | None
    ) -> tuple[F64, Changes]:
        K, d = self.n_arms, self.n_features
        theta = np.zeros((K, d))
        theta[:, 1:] = vectors(rng, K, d - 1, self.law)
        turning = rng.choice(K, round(self.share * K), replace=False)
        steps = list(range(self.period, T, self.period)) if self.period else []
        sign = np.ones((T, K))
        for step in steps:
            sign[step:, turning] *= -1.0
        changes: Changes = {a: steps if a in turning else [] for a in range(K)}
        return sign[:, :, None] * theta, changes
