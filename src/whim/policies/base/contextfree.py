"""``ContextFreePolicy``: what the policies share that look at rewards only."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.kernels.models import contextfree
from whim.policies.base.compiled import CompiledPolicy
from whim.policies.base.lists import no_features
from whim.types import F64, I64, ChangeEvent


class ContextFreePolicy(CompiledPolicy):
    """A few sums per arm; contexts are checked and otherwise ignored.

    ``_columns`` is the length of an arm's row in the kernel's ``stats``.
    """

    _columns: ClassVar[int] = contextfree.PLAIN_COLUMNS
    _threshold: float = math.inf

    def __init__(
        self, *, n_features: int | None = None, seed: int = 0, ties: str = "first"
    ) -> None:
        d = None if n_features is None else checks.integer("n_features", n_features, 1)
        super().__init__(n_features=d, seed=seed, ties=ties)
        self._stats: F64
        self._report = np.zeros(2)  # of a change: the statistic, and the arm's mean before
        self._rows({"_stats": np.zeros(self._columns)})

    def _score_many(self, X: F64, slots: I64) -> F64:
        if self._draws or not len(X):
            return super()._score_many(X, slots)
        self._score(X[0], slots, None, None)
        return np.tile(self._out[: len(slots), 0], (len(X), 1))

    def _scaled(self, slots: I64, X: F64, cross: F64 | None, scale: F64) -> tuple[F64, F64 | None]:
        raise no_features(self)

    def _event(self, slot: int) -> ChangeEvent:
        statistic, mean = self._report.tolist()
        threshold = self._threshold
        return self._changed(
            slot, statistic=statistic, threshold=threshold, theta_before=(mean,), theta_after=(0.0,)
        )


def horizon_and_changes(horizon: int, changes: int, least: int = 1) -> tuple[int, int]:
    """Both checked: at least ``least`` changes, and fewer than there are steps."""
    steps = checks.integer("horizon", horizon, 1)
    if checks.integer("changes", changes, least) >= steps:
        raise InvalidInputError(
            f"changes must be fewer than the horizon of {steps} steps, got {changes!r}."
        )
    return steps, int(changes)
