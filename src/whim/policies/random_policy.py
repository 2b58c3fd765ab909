"""``Random``: uniform choice, the floor that every policy must beat."""

from __future__ import annotations

from typing import cast

import numpy as np

from whim.kernels import contextfree
from whim.policies.base import QUIET, Loop
from whim.policies.contextfree import ContextFreePolicy
from whim.types import F64, I64

__all__ = ["Random"]


class Random(ContextFreePolicy):
    """Choose uniformly among the candidates; learn nothing.

    Parameters
    ----------
    n_features
        Length d that contexts are checked to have; by default any context, or none, will do.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = Random(seed=1)
    >>> policy.add_arms(["a", "b", "c"])
    ['a', 'b', 'c']
    >>> [policy.select().arm for _ in range(6)]
    ['b', 'a', 'a', 'b', 'b', 'a']
    """

    name = "random"
    _draws = True

    def __init__(
        self, *, n_features: int | None = None, seed: int = 0, ties: str = "first"
    ) -> None:
        super().__init__(locals(), n_features=n_features, seed=seed, ties=ties)

    def _noise(self, rng: np.random.Generator, n: int) -> F64:
        return rng.random(n)

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        return contextfree.score_drawn(x, len(slots), cast("F64", noise), self._out)

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        return contextfree.skip_one(x)

    def _loop(self) -> Loop:
        return Loop("drawn", (), "random", -1)

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        return len(slots), QUIET
