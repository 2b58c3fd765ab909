"""``DriftingLinear``: interests that turn slowly and never jump."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.types import F64
from whim.worlds.draws import vectors
from whim.worlds.linear import Changes, LinearWorld
from whim.worlds.rotation import Rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftingLinear(LinearWorld):
    """Rewards x·θ_a + noise, where each θ_a turns in a plane of its own at constant length.

    There is no step at which interests become new, so ``changes`` of its episodes are empty. With
    ``law="nonnegative"`` the turning vector is reflected at the walls (absolute values).

    Parameters
    ----------
    turn
        Steps of one full turn: the lower, the faster interests drift.
    n_arms, n_features, n_item_features, joint, law, users, rewards, noise, rate
        See ``LinearWorld``; ``n_features`` must be 2 or more.

    Examples
    --------
    >>> episode = DriftingLinear(users="fixed", turn=5_000).episode(horizon=2_000, seed=0)
    >>> episode.changes[0]
    []
    >>> bool(abs(np.diff(episode.expected, axis=0)).max() < 2 * np.pi / 5_000)
    True
    """

    turn: int = 20_000

    def __post_init__(self) -> None:
        LinearWorld.__post_init__(self)
        checks.integer("turn", self.turn, 2)
        if self.n_features < 2:
            raise InvalidInputError(
                f"n_features must be 2 or more for interests to turn, got {self.n_features}."
            )

    def _what(self) -> str:
        return "Linear rewards; interests turn slowly and never jump, so no changes are listed."

    def _interests(
        self, rng: np.random.Generator, T: int, rotated: Rotation | None
    ) -> tuple[F64, Changes]:
        K, d = self.n_arms, self.n_features
        start = vectors(rng, K, d, self.law)
        length = np.linalg.norm(start, axis=1, keepdims=True)
        u = start / length
        v = rng.normal(size=(K, d))
        v -= (v * u).sum(1, keepdims=True) * u  # u and v span the arm's plane
        v *= length / np.linalg.norm(v, axis=1, keepdims=True)
        angle = 2 * np.pi * np.arange(T)[:, None, None] / self.turn
        theta = np.cos(angle) * start + np.sin(angle) * v
        if self.law == "nonnegative":
            np.abs(theta, out=theta)
        return theta, {a: [] for a in range(K)}
