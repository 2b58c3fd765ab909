"""``UniformPolicy``: what policies with one model for all arms share: which features, and where."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.errors import InvalidInputError
from whim.kernels import batch, factors, uniform
from whim.policies.base import QUIET, Policy
from whim.types import F64, I64

__all__ = ["UniformPolicy"]


class UniformPolicy(Policy):
    """One ridge model of φ, chosen by its upper confidence bound.

    ``payoff="item"``: φ is the arm's features y (the paper's uniform model; x is not used).
    ``payoff="cross"``: φ = kron(y, x), or the rows that the caller passes as ``cross``.
    """

    def __init__(
        self,
        params: dict[str, Any],
        *,
        n_item_features: int | None,
        n_features: int | None,
        n_cross_features: int | None,
        payoff: str,
        alpha: float,
        ridge: float,
        seed: int,
        ties: str,
    ) -> None:
        self._alpha = checks.number("alpha", alpha, least=0)
        self._ridge = checks.number("ridge", ridge, above=0)
        checks.choice("payoff", payoff, ("item", "cross"))
        d = None if n_features is None else checks.integer("n_features", n_features, 1)
        if n_cross_features is not None:
            self._kind = uniform.GIVEN
            m, p = 0, checks.integer("n_cross_features", n_cross_features, 1)
            if n_item_features is not None or payoff != "cross":
                raise InvalidInputError(
                    "n_cross_features must come alone, with payoff='cross': the caller then "
                    f"passes cross rows, got n_item_features={n_item_features}, payoff={payoff!r}."
                )
        else:
            m = checks.integer("n_item_features", n_item_features, 1)
            if payoff == "cross" and d is None:
                raise InvalidInputError("n_features must be given for payoff='cross', got None.")
            self._kind = uniform.ITEM if payoff == "item" else uniform.CROSS
            p = m if payoff == "item" or d is None else m * d
        self._p = p
        super().__init__(params, n_features=d, n_item_features=m, n_cross=p, seed=seed, ties=ties)
        self._model = factors.prior(p, self._ridge)[None]
        self._phi = np.zeros(p)
        self._w = np.zeros(p)

    def _given(self, cross: F64 | None) -> tuple[int, F64]:
        """The kind of features for this call, and rows for the kernel."""
        return (self._kind, _NO_ROWS) if cross is None else (uniform.GIVEN, cross)

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        kind, rows = self._given(cross)
        return uniform.score(
            kind, x, slots, self._features, rows, self._model, self._alpha, self._out, self._phi
        )

    def _score_many(self, X: F64, slots: I64) -> F64:
        if self._kind != uniform.CROSS or self._draws:
            return super()._score_many(X, slots)
        d = X.shape[1]
        T = np.empty((len(slots), d))
        P = np.empty((len(slots), factors.packed_size(d)))
        uniform.pack(self._model, self._p, self._features[slots], d, T, P)
        return batch.bounds(X, T, P, self._alpha)

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        kind, rows = self._given(None if cross is None else cross[None])
        return uniform.learn_one(
            kind, x, slot, self._features, rows, reward, self._model, self._phi, self._w
        )

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        kind, rows = self._given(cross)
        uniform.learn_many(
            kind, X, slots, self._features, rows, rewards, self._model, self._phi, self._w
        )
        return len(slots), QUIET

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        if not gone:
            self._model[:] = factors.prior(self._p, self._ridge)

    def _shared(self) -> dict[str, npt.NDArray[Any]]:
        return super()._shared() | {"model": self._model}

    def _restore_shared(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        super()._restore_shared(arrays)
        self._model = arrays["model"]

    def coefficients(self) -> F64:
        """The shared estimate θ̂, a copy."""
        return self._model[0, -self._p :].copy()


_NO_ROWS: F64 = np.zeros((0, 0))
