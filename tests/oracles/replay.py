"""Replay evaluation on a log with uniformly random arms, literally (Li et al. 2010 and 2011)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import whim

__all__ = ["Logged", "Replayed", "replay"]


class Logged(NamedTuple):
    """One visit: the context, the pool, the arm that was shown and its reward."""

    x: npt.NDArray[np.float64]
    pool: list[int]
    shown: int
    reward: float


class Replayed(NamedTuple):
    """The retained visits: how many, and the sum of their rewards."""

    kept: int
    total: float

    @property
    def rate(self) -> float:
        return self.total / self.kept


def replay(policy: whim.Policy, log: Iterable[Logged]) -> Replayed:
    """Keep a visit only if the policy chooses what was shown; let it learn from no other."""
    kept, total = 0, 0.0
    for visit in log:
        if policy.select(visit.x, visit.pool).arm == visit.shown:
            policy.update(visit.shown, visit.x, visit.reward)
            kept += 1
            total += visit.reward
    return Replayed(kept, total)
