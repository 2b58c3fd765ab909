"""``Episode``: one run of a world with its truth; ``World``: what every world offers."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from whim.types import F64, I64


@dataclass(frozen=True)
class Episode:
    """One run of a world, with its truth beside its data.

    Arms are numbers from 0. A pool is the list of arms that can be chosen at a step; a *place*
    is a position in that list.

    Attributes
    ----------
    contexts
        (T, d): the user of each step.
    expected
        (T, W): the expected reward of each place of the step's pool; nan past its end.
    rewards
        (T, W): the reward that each place would give; the noise is part of the world, so every
        policy meets the same.
    changes
        For each arm, the steps after which its interests are new: 2000 means that step 2001 is the
        first with the new ones (what ``OracleRestart`` takes).
    features
        (K, m): the arms' features; m is 0 in a world without them.
    pool_of
        (T,): the number of each step's pool.
    offsets, members
        Pool p holds the arms ``members[offsets[p] : offsets[p + 1]]``.
    """

    contexts: F64
    expected: F64
    rewards: F64
    changes: dict[int, list[int]]
    features: F64 = field(default_factory=lambda: np.zeros((0, 0)))
    pool_of: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    offsets: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    members: I64 = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        if not len(self.offsets):  # one pool: every arm, at every step
            n_steps, n_arms = self.expected.shape
            object.__setattr__(self, "pool_of", np.zeros(n_steps, np.int64))
            object.__setattr__(self, "offsets", np.array([0, n_arms]))
            object.__setattr__(self, "members", np.arange(n_arms))

    def pool(self, step: int) -> I64:
        """The arms that can be chosen at a step (from 0)."""
        p = self.pool_of[step]
        return self.members[self.offsets[p] : self.offsets[p + 1]]

    @cached_property
    def best(self) -> F64:
        """(T,): the largest expected reward of each step's pool."""
        best: F64 = np.nanmax(self.expected, axis=1)
        return best


class World(Protocol):
    """What ``simulate`` asks of a world."""

    @property
    def n_arms(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def n_item_features(self) -> int: ...

    def episode(self, *, horizon: int, seed: int, run: int = 0) -> Episode: ...
    def describe(self) -> dict[str, Any]: ...
