"""``HybridPolicy``: what LinUCB and PSLinUCB with hybrid payoffs share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.errors import InvalidInputError
from whim.kernels import batch, factors, hybrid
from whim.kernels.jit import Direct
from whim.policies.base import QUIET, Loop, Policy
from whim.policies.rows import NO_ROWS
from whim.types import F64, I64, ArmId

__all__ = ["HybridPolicy"]

_CHOOSE, _LEARN = Direct(hybrid.choose), Direct(hybrid.learn_one)


class HybridPolicy(Policy):
    """Arm coefficients of x and shared ones of the cross features z = kron(y, x)."""

    def __init__(
        self,
        params: dict[str, Any],
        *,
        n_features: int,
        n_item_features: int | None,
        n_cross_features: int | None,
        alpha: float,
        ridge: float,
        seed: int,
        ties: str,
    ) -> None:
        d = checks.integer("n_features", n_features, 1)
        self._alpha = checks.number("alpha", alpha, least=0)
        self._ridge = checks.number("ridge", ridge, least=1e-30, most=1e30)
        if n_cross_features is None:
            m = checks.integer("n_item_features", n_item_features, 1)
            k = d * m
            self._kind = hybrid.PLAIN
        else:
            m, k = 0, checks.integer("n_cross_features", n_cross_features, 1)
            self._kind = hybrid.GIVEN
            if n_item_features is not None:
                raise InvalidInputError(
                    "n_cross_features must come without n_item_features: the caller then passes "
                    f"cross rows in every call, got n_item_features={n_item_features}."
                )
        super().__init__(params, n_features=d, n_item_features=m, n_cross=k, seed=seed, ties=ties)
        self._width = d
        self._quick = type(self)._score is HybridPolicy._score and not self._random_ties
        self._cum: F64
        self._shared_rows: F64
        self._mixed: I64  # whether an arm has learnt from other rows than kron(y, x) of its y
        self._keep(
            _shared_rows=factors.prior(k, self._ridge)[None].repeat(2, 0),
            _mixed=np.zeros(1, np.int64),
        )
        self._work = np.zeros((7, max(d, k)))
        self._rows({"_cum": factors.prior(d, self._ridge, more=d * k)})

    def _reserve(self, slots: int) -> None:
        super()._reserve(slots)
        self._scratch = np.empty(hybrid.room(self._capacity, self._width, self._m, self._k))

    def _verify(self) -> None:
        super()._verify()
        if self._mixed.shape != (1,) or self._mixed[0] not in (0, 1):
            raise ValueError(f"mixed must be one number, 0 or 1, got {self._mixed}")
        if self._mixed[0]:
            self._mix()

    def _given(self, cross: F64 | None) -> tuple[int, F64]:
        return (self._kind, NO_ROWS) if cross is None else (hybrid.GIVEN, cross)

    def _taught(self, cross: F64 | None) -> tuple[int, F64]:
        """As ``_given``, for one row or several that are about to be learnt."""
        if cross is None:
            return self._kind, NO_ROWS
        self._mix()
        return hybrid.GIVEN, np.atleast_2d(cross)

    def _mix(self) -> None:
        """From now on z may be another than kron(y, x) was when it was learnt."""
        if self._kind == hybrid.PLAIN:
            self._kind = hybrid.MIXED
            self._mixed[0] = 1
            self._unbind()

    def _models(self) -> list[F64]:
        """Every table whose rows are an arm's own model."""
        return [self._cum]

    def set_features(self, arms: Iterable[ArmId], features: npt.ArrayLike) -> None:
        """Replace the item features of live arms."""
        before = self._features.copy()
        super().set_features(arms, features)
        for slot in np.flatnonzero((before != self._features).any(axis=1)).tolist():
            self._mix()
            change = before[slot] - self._features[slot]
            for model in self._models():
                hybrid.turn(model, slot, change, self._ridge, self._width, self._k)

    def _choose(self, x: F64, slots: I64, cross: F64 | None) -> tuple[int, float, float, float]:
        if not self._quick or cross is not None or self._kind != hybrid.PLAIN:
            return super()._choose(x, slots, cross)
        state = (
            self._features,
            self._cum,
            self._shared_rows,
            self._alpha,
            self._ridge,
            self._scratch,
        )
        found: tuple[int, float, float, float] = _CHOOSE.call(*state, x, slots)
        self._pick = _CHOOSE.bound(state)
        if found[0] < 0:
            checks.vector("x", x, self._d)
        return found

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        kind, rows = self._given(cross)
        return hybrid.score(
            kind, x, slots, self._features, rows, self._cum, self._shared_rows, self._k,
            self._alpha, self._ridge, self._out, self._scratch,
        )  # fmt: skip

    def _score_many(self, X: F64, slots: I64) -> F64:
        self._crossed(None, len(slots))
        d = self._width
        T = np.empty((len(slots), d))
        P = np.empty((len(slots), factors.packed_size(d)))
        hybrid.pack(
            self._cum, slots, self._shared_rows, self._features, self._ridge, d, self._k, T, P
        )
        return batch.bounds(X, T, P, self._alpha)

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        if cross is not None or self._kind != hybrid.PLAIN:
            checks.vector("x", x, self._d)
            rows = None if cross is None else cross[None]
            self._observe_many(0, np.array([slot]), x[None], rows, np.array([reward]))
            return QUIET
        state = self._features, self._cum, self._shared_rows, self._ridge, self._work
        status: int = _LEARN.call(*state, x, slot, reward)
        self._take = _LEARN.bound(state)
        return status

    def _loop(self) -> Loop | None:
        return Loop("linucb_hybrid", (*self._hybrid_state(), self._work))

    def _hybrid_state(self) -> tuple[Any, ...]:
        return (
            self._cum, self._shared_rows, self._k, self._alpha, self._ridge, self._kind,
            self._features, NO_ROWS, self._scratch,
        )  # fmt: skip

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        kind, rows = self._taught(cross)
        hybrid.learn_many(
            kind, X, slots, self._features, rows, rewards, self._cum, self._shared_rows,
            self._k, self._ridge, self._work,
        )  # fmt: skip
        return len(slots), QUIET

    def coefficients(self, arm: ArmId) -> F64:
        """The arm's own estimate θ̂, a copy."""
        d, k = self._width, self._k
        found, w = np.empty(d), np.empty(d)
        hybrid.theta(
            self._cum, self._table.slot(arm), self._features, self._ridge, self._shared_rows,
            hybrid.CUM, d, k, w, found,
        )  # fmt: skip
        return found

    def shared_coefficients(self) -> F64:
        """The shared estimate β̂, a copy."""
        return self._shared_rows[0, -self._k :].copy()
