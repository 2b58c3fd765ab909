"""The works that every library does: contexts, the reward of every arm, and who may be chosen.

Only NumPy and the standard library: a peer's environment holds nothing of ours. The arrays are
made once, by ``benchmarks.peers.works``, and read by every worker, so all face the same users,
candidates and noise.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol

import numpy as np

__all__ = ["Learner", "Task", "Unable"]


class Unable(Exception):  # noqa: N818
    """Why a peer cannot do a work; shown in the table instead of a figure."""


@dataclass(frozen=True)
class Task:
    """One work.

    Attributes
    ----------
    name
        A, B, C, D, E, F or a point of the growth curves, such as K=1000.
    X
        (T, d): contexts.
    R
        (T, K): the reward that each arm would give.
    expected
        (T, K): its expectation.
    pools
        (T, 20): the candidates of each decision, or (0, 0): always all arms.
    features
        (K, m): item features (E), or (0, 0).
    alpha
        Widths of optimism.
    """

    name: str
    X: np.ndarray
    R: np.ndarray
    expected: np.ndarray
    pools: np.ndarray
    features: np.ndarray
    alpha: float

    @property
    def n_arms(self) -> int:
        """K."""
        return self.R.shape[1]

    @property
    def d(self) -> int:
        """Length of a context."""
        return self.X.shape[1]

    @property
    def m(self) -> int:
        """Length of an arm's features; 0 if it has none."""
        return self.features.shape[1]

    def save(self, path: Path) -> None:
        """Write it for the workers."""
        np.savez(path, **{f.name: np.asarray(getattr(self, f.name)) for f in fields(self)})

    @classmethod
    def load(cls, path: Path) -> Task:
        """Read what ``save`` wrote."""
        with np.load(path) as found:
            values = {f.name: found[f.name] for f in fields(cls)}
        return cls(**values | {"name": str(values["name"]), "alpha": float(values["alpha"])})


class Learner(Protocol):
    """What an adapter makes of its library for one work."""

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        """Choose among ``arms`` (all, if None) for one context: a float64 vector."""

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        """Learn the reward of the arm that was chosen last, for the same context."""
