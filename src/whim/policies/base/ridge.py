"""``RowPolicy``: one class for both payoffs, one model per arm or one for all.

Every payoff comes down to "which row of the tables, and which features": the arm's slot and the
context x (``payoff="disjoint"``), or row 0 and φ (``"item"``: φ = y; ``"cross"``: φ = kron(y, x) or
the caller's own rows). ``RidgePolicy`` adds the ridge model that most of them start from,
``PooledPolicy`` a pool of models that come and go.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.errors import InvalidInputError
from whim.kernels.linalg import batch, udu
from whim.kernels.loops import Kernels
from whim.kernels.models import disjoint, uniform
from whim.policies.base import float32
from whim.policies.base.compiled import CompiledPolicy
from whim.types import F64, I64, ArmId


class RowPolicy(CompiledPolicy):
    """A policy with tables of one row per arm, or of one row in all."""

    _payoffs: ClassVar[tuple[str, ...]] = ("disjoint", "item", "cross")

    def __init__(
        self,
        *,
        payoff: str = "disjoint",
        n_features: int | None,
        n_item_features: int | None = None,
        n_cross_features: int | None = None,
        ridge: float,
        seed: int,
        ties: str,
    ) -> None:
        checks.choice("payoff", payoff, self._payoffs)
        self._ridge = checks.number("ridge", ridge, least=1e-30, most=1e30)
        self._kind, d, m, self._p = _sizes(payoff, n_features, n_item_features, n_cross_features)
        self._own = self._kind == uniform.OWN
        self._single: dict[str, npt.NDArray[Any]] = {}
        if self._p < udu.SHORT:
            self._unused = (*self._unused, "VECTORS")
        k = 0 if self._own else self._p
        super().__init__(n_features=d, n_item_features=m, n_cross=k, seed=seed, ties=ties)
        self._phi = np.zeros(self._p)

    def _tables(self, priors: dict[str, npt.NDArray[Any]]) -> None:
        """Declare the model's arrays by the row of a model that has learnt nothing."""
        if self._own:
            self._rows(priors)
            return
        self._single.update(priors)
        self._keep(**{name: prior[None].copy() for name, prior in priors.items()})

    def _pairs(self) -> uniform.Pairs:
        """How the features of an arm and a context are made."""
        return uniform.Pairs(self._kind, self._features, self._phi)

    def _row(self, slot: int) -> int:
        return slot if self._own else 0

    def _scaled(self, slots: I64, X: F64, cross: F64 | None, scale: F64) -> tuple[F64, F64 | None]:
        if self._kind == uniform.ITEM and cross is None:  # the item's features are all there is
            cross = self._features[slots]
        return super()._scaled(slots, X, cross, scale)

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        if not gone:
            for name, prior in self._single.items():
                getattr(self, name)[0] = prior

    def _named(self, theta: F64) -> F64:
        """Coefficients with the names of what they belong to."""
        if self._own:
            return self._with_names(theta)
        return self._with_shared_names(theta, crossed=self._kind == uniform.CROSS)

    def _row_of(self, arm: ArmId | None) -> int:
        return 0 if arm is None and not self._own else self._row(self._table.slot(arm))


class PooledPolicy(RowPolicy):
    """A pool of models that all arms share; a change adds one, and no arm alone gave it away."""

    restarts_all = True
    _payoffs = ("item", "cross")
    _start_first: ClassVar[staticmethod[[Any], None]]  # the kernel that begins the first model
    _model: F64
    _counts: I64
    _order: I64
    _marks: I64

    def _open_models(self, **blanks: npt.NDArray[Any]) -> None:
        """Declare the arrays of the models, as they are before the first of them begins."""
        self._blanks = blanks
        self._keep(**{name: blank.copy() for name, blank in blanks.items()})
        self._start_first(self._state())

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        if gone:
            return
        # rows out of use are cleared as well, so that a reset policy saves as a new one does
        for name, blank in self._blanks.items():
            getattr(self, name)[:] = blank
        self._start_first(self._state())


class RidgePolicy(RowPolicy):
    """Ridge models that learn by rank-one steps, chosen by their upper confidence bounds.

    With ``scoring="float32"`` decisions read a copy of half the size, which kernels keep up to
    date, and many contexts are multiplied in single precision; what is learnt and saved is float64
    as ever.
    """

    _cum: F64

    def __init__(
        self, *, alpha: float, more: int = 0, scoring: str = "float64", **rest: Any
    ) -> None:
        self._alpha = checks.number("alpha", alpha, least=0)
        self._single_precision = (
            checks.choice("scoring", scoring, ("float64", "float32")) == "float32"
        )
        if not self._single_precision:
            self._unused = ("COPIES",)
        super().__init__(**rest)
        self._w = np.zeros(self._p)
        self._tables({"_cum": udu.prior(self._p, self._ridge, more)})

    @property
    def _kernels(self) -> Kernels:
        return disjoint.LINUCB if self._own else uniform.LINUCB

    def _state(self) -> Any:
        if self._own:
            return disjoint.State(self._model())
        w, draw = self._w, np.zeros(self._p)
        return uniform.State(self._cum, self._alpha, self._pairs(), w, draw)

    def _model(self) -> disjoint.Ridge:
        """One ridge model per arm, as the kernels take it; the copy is made anew."""
        shown: Any = self._cum.astype(np.float32) if self._single_precision else self._cum
        return disjoint.Ridge(self._cum, shown, self._alpha, self._ridge, self._w)

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        self._unbind()  # the copy, if there is one, must follow

    def _score_many(self, X: F64, slots: I64) -> F64:
        if self._kind not in (uniform.OWN, uniform.CROSS):
            return super()._score_many(X, slots)
        bounds = float32.bounds if self._single_precision else batch.bounds
        return bounds(X, *self._forms(X.shape[1], slots), self._alpha)

    def _forms(self, d: int, slots: I64) -> tuple[F64, F64]:
        """Means and squared widths of the candidates as forms in x, for ``batch.bounds``."""
        T = np.empty((len(slots), d))
        P = np.empty((len(slots), udu.packed_size(d)))
        if self._own:
            shown, at = self._current().model.shown, P.shape[1]
            T[:] = shown[slots, at : at + d]
            batch.pack_rows(shown, slots, d, P)
        else:
            uniform.pack(self._cum[0], self._p, self._features[slots], d, T, P)
        return T, P

    def coefficients(self, arm: ArmId | None = None) -> F64:
        """The estimate θ̂ of an arm (of all arms, for a shared model), a copy.

        What its plays taught: with ``revisit``, the mean of a decision also has the chance that
        the arm has changed since (``chance_changed``).
        """
        at = udu.packed_size(self._p)
        theta: F64 = self._cum[self._row_of(arm), at : at + self._p].copy()
        return self._named(theta)

    def inverse(self, arm: ArmId | None = None) -> F64:
        """The kept A⁻¹ of an arm (of all arms, for a shared model), as a full matrix."""
        matrix = np.empty((self._p, self._p))
        udu.dense(self._cum[self._row_of(arm)], matrix)
        return matrix


def _sizes(
    payoff: str, n_features: int | None, n_item_features: int | None, n_cross_features: int | None
) -> tuple[int, int | None, int, int]:
    """The kernel's kind of features, d, m and p, from what the constructor was given."""
    got = f"got n_item_features={n_item_features}, n_cross_features={n_cross_features}"
    if payoff == "disjoint":
        if n_item_features is not None or n_cross_features is not None:
            raise InvalidInputError(
                "n_item_features and n_cross_features must be None for payoff='disjoint', "
                f"which has one model per arm over the context, {got}."
            )
        d = checks.integer("n_features", n_features, 1)
        return uniform.OWN, d, 0, d
    d_or_none = None if n_features is None else checks.integer("n_features", n_features, 1)
    if n_cross_features is not None:
        p = checks.integer("n_cross_features", n_cross_features, 1)
        if n_item_features is not None or payoff != "cross":
            raise InvalidInputError(
                "n_cross_features must come alone, with payoff='cross': the caller then passes "
                f"cross rows, {got}, payoff={payoff!r}."
            )
        return uniform.GIVEN, d_or_none, 0, p
    m = checks.integer("n_item_features", n_item_features, 1)
    if payoff == "item":
        return uniform.ITEM, d_or_none, m, m
    if d_or_none is None:
        raise InvalidInputError("n_features must be given for payoff='cross', got None.")
    return uniform.CROSS, d_or_none, m, m * d_or_none
