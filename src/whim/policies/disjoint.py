"""``DisjointPolicy``: what LinUCB, PSLinUCB and Thompson sampling share, one model an arm."""

from __future__ import annotations

from typing import Any

import numpy as np

from whim import checks
from whim.kernels import batch, disjoint, factors
from whim.policies.base import QUIET, Policy
from whim.types import F64, I64, ArmId

__all__ = ["DisjointPolicy"]


class DisjointPolicy(Policy):
    """One ridge model an arm, chosen by its upper confidence bound."""

    def __init__(
        self,
        params: dict[str, Any],
        *,
        n_features: int,
        alpha: float,
        ridge: float,
        seed: int,
        ties: str,
    ) -> None:
        d = checks.integer("n_features", n_features, 1)
        self._alpha = checks.number("alpha", alpha, least=0)
        self._ridge = checks.number("ridge", ridge, above=0)
        super().__init__(params, n_features=d, seed=seed, ties=ties)
        self._cum: F64
        self._work = np.zeros((4, d))
        self._rows({"_cum": factors.prior(d, self._ridge)})

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        return disjoint.score(x, slots, self._cum, self._alpha, self._out)

    def _score_many(self, X: F64, slots: I64) -> F64:
        T, P = self._packed(slots)
        return batch.bounds(X, T, P, self._alpha)

    def _packed(self, slots: I64) -> tuple[F64, F64]:
        d = self._work.shape[1]
        p = factors.packed_size(d)
        packed = np.empty((len(slots), p))
        batch.pack_rows(self._cum, slots, d, packed)
        return self._cum[slots, p:], packed

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        return disjoint.learn_one(slot, x, reward, self._cum, self._work[0])

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        disjoint.learn_many(slots, X, rewards, self._cum, self._work[0])
        return len(slots), QUIET

    def coefficients(self, arm: ArmId) -> F64:
        """The arm's current estimate θ̂, a copy."""
        d = self._work.shape[1]
        return self._cum[self._table.slot(arm), -d:].copy()

    def inverse(self, arm: ArmId) -> F64:
        """The arm's A⁻¹ as a full matrix, a copy."""
        d = self._work.shape[1]
        matrix = np.empty((d, d))
        factors.dense(self._cum, self._table.slot(arm), matrix)
        return matrix
