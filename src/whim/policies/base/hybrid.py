"""``HybridPolicy``: what LinUCB and PSLinUCB with hybrid payoffs share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.errors import InvalidInputError
from whim.kernels.linalg import batch, udu
from whim.kernels.models import hybrid
from whim.policies.base.compiled import CompiledPolicy
from whim.types import F64, I64, ArmId


class HybridPolicy(CompiledPolicy):
    """Arm coefficients of x and shared ones of the cross features z = kron(y, x)."""

    _kernels = hybrid.LINUCB

    def __init__(
        self,
        *,
        n_features: int,
        n_item_features: int | None = None,
        n_cross_features: int | None = None,
        alpha: float = 1.0,
        ridge: float = 1.0,
        seed: int = 0,
        ties: str = "first",
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
        super().__init__(n_features=d, n_item_features=m, n_cross=k, seed=seed, ties=ties)
        self._width = d
        self._cum: F64
        self._shared_rows: F64
        self._mixed: I64  # whether an arm has learnt from other rows than kron(y, x) of its y
        self._keep(
            _shared_rows=udu.prior(k, self._ridge)[None].repeat(2, 0),
            _mixed=np.zeros(1, np.int64),
        )
        self._work = np.zeros((4, d + k))
        self._rows({"_cum": udu.prior(d, self._ridge, more=d * k)})

    def _reserve(self, slots: int) -> None:
        super()._reserve(slots)
        self._scratch = np.zeros(hybrid.room_size(self._capacity, self._width, self._m, self._k))

    def _model(self) -> hybrid.Hybrid:
        sizes = np.array([self._width, self._k, self._kind])
        return hybrid.Hybrid(
            self._cum, self._shared_rows, self._features, sizes, self._alpha, self._ridge,
            self._scratch, self._work,
        )  # fmt: skip

    def _state(self) -> Any:
        return hybrid.State(self._model())

    def _decides_at_once(self) -> bool:
        return self._kind == hybrid.PLAIN and super()._decides_at_once()

    def _verify(self) -> None:
        super()._verify()
        if self._mixed.shape != (1,) or self._mixed[0] not in (0, 1):
            raise ValueError(f"mixed must be one number, 0 or 1, got {self._mixed}")
        if self._mixed[0]:
            self._mix()

    def _mix(self) -> None:
        """From now on z may be another than kron(y, x) was when it was learnt."""
        if self._kind == hybrid.PLAIN:
            self._kind = hybrid.MIXED
            self._mixed[0] = 1
            self._unbind()

    def _models(self) -> list[F64]:
        """Every table whose rows are an arm's own model."""
        return [self._cum]

    def _refeature(self, slots: I64, features: F64) -> None:
        before = {slot: self._features[slot].copy() for slot in slots.tolist()}
        super()._refeature(slots, features)
        for slot, old in before.items():
            change = old - self._features[slot]
            if change.any():
                self._mix()
                for table in self._models():
                    hybrid.set_features(table[slot], change, self._ridge, self._width, self._k)

    @contextlib.contextmanager
    def _visited(
        self, ids: Sequence[ArmId], features: Mapping[ArmId, npt.ArrayLike]
    ) -> Iterator[I64]:
        kind, mixed = self._kind, self._mixed[0]
        try:
            with super()._visited(ids, features) as slots:
                yield slots
        finally:
            if self._kind != kind:  # other features than those that were learnt were only a guess
                self._kind, self._mixed[0] = kind, mixed
                self._unbind()

    def _score_many(self, X: F64, slots: I64) -> F64:
        self._crossed(None, len(slots))
        d = self._width
        T = np.empty((len(slots), d))
        P = np.empty((len(slots), udu.packed_size(d)))
        hybrid.pack(self._model(), slots, T, P)
        return batch.bounds(X, T, P, self._alpha)

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        if cross is not None:
            self._mix()
        return super()._observe_many(start, slots, X, cross, rewards)

    def coefficients(self, arm: ArmId) -> F64:
        """The arm's own estimate θ̂, a copy."""
        theta = np.empty(self._width)
        model = self._model()._replace(work=np.zeros_like(self._work))  # other threads have theirs
        hybrid.coefficients(model, self._table.slot(arm), theta)
        return self._with_names(theta)

    def shared_coefficients(self) -> F64:
        """The shared estimate β̂, a copy."""
        return self._with_shared_names(self._shared_rows[0, -self._k :].copy(), crossed=True)
