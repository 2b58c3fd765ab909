"""``RowPolicy``: one class for both payoffs, one model an arm or one for all.

Every payoff comes down to "which row of the tables, and which features": the arm's slot and the
context x (``payoff="disjoint"``), or row 0 and φ (``"item"``: φ = y; ``"cross"``: φ = kron(y, x) or
the caller's own rows). ``RidgeRows`` adds the ridge model that most of them start from.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.errors import InvalidInputError
from whim.kernels import batch, disjoint, factors, forgetting, uniform
from whim.kernels.jit import Direct, again
from whim.policies import light
from whim.policies.base import QUIET, Loop, Policy
from whim.types import F64, I64, ArmId, ChangeEvent

__all__ = ["NO_ROWS", "RidgeRows", "RowPolicy"]

NO_ROWS: F64 = np.zeros((0, 0))
_CHOOSE, _LEARN = Direct(disjoint.choose), Direct(disjoint.learn_one)
_CHOOSE_LIGHT = Direct(again(disjoint.choose))


class RowPolicy(Policy):
    """A policy with tables of one row an arm, or of one row in all."""

    _payoffs: ClassVar[tuple[str, ...]] = ("disjoint", "item", "cross")

    def __init__(
        self,
        params: dict[str, Any],
        *,
        payoff: str,
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
        self._own = self._kind == forgetting.OWN
        self._single: dict[str, npt.NDArray[Any]] = {}
        k = 0 if self._own else self._p
        super().__init__(params, n_features=d, n_item_features=m, n_cross=k, seed=seed, ties=ties)

    def _tables(self, priors: dict[str, npt.NDArray[Any]]) -> None:
        """Declare the model's arrays by the row of a model that has learnt nothing."""
        if self._own:
            self._rows(priors)
            return
        self._single.update(priors)
        self._keep(**{name: prior[None].copy() for name, prior in priors.items()})

    def _row(self, slot: int) -> int:
        return slot if self._own else 0

    def _given(self, cross: F64 | None) -> tuple[int, F64]:
        """The kind of features for this call, and rows for the kernel."""
        return (self._kind, NO_ROWS) if cross is None else (uniform.GIVEN, cross)

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        if not gone:
            for name, prior in self._single.items():
                getattr(self, name)[0] = prior

    def _row_of(self, arm: ArmId | None) -> int:
        return 0 if arm is None and not self._own else self._row(self._table.slot(arm))


class RidgeRows(RowPolicy):
    """Ridge models that learn by rank-one steps, chosen by their upper confidence bounds.

    With ``scoring="float32"`` decisions read a copy of half the size, ``_light``, which follows
    ``_cum`` row by row, and many contexts are multiplied in single precision; what is learnt and
    saved is float64 as ever.
    """

    _cum: F64
    _light: npt.NDArray[np.float32] | None = None

    def __init__(
        self,
        params: dict[str, Any],
        *,
        alpha: float,
        more: int = 0,
        scoring: str = "float64",
        **rest: Any,
    ) -> None:
        self._alpha = checks.number("alpha", alpha, least=0)
        single = checks.choice("scoring", scoring, ("float64", "float32")) == "float32"
        super().__init__(params, **rest)
        self._work = np.zeros((4, self._p))
        self._phi, self._w = self._work[:2]
        # one model an arm, scored as here: the best of them can be found in one compiled step
        plain = type(self)._score is RidgeRows._score
        self._quick = self._own and plain and not self._random_ties
        self._tables({"_cum": factors.prior(self._p, self._ridge, more)})
        if single:
            self._light = self._cum.astype(np.float32)
            self.update = self._update_light  # type: ignore[method-assign]

    # -- the copy that decisions read -----------------------------------------------------------

    @property
    def _shown(self) -> npt.NDArray[Any]:
        """The models as decisions read them."""
        return self._cum if self._light is None else self._light

    def _copy(self, slots: Any = slice(None)) -> None:
        if self._light is None:
            return
        if len(self._light) != len(self._cum):
            self._light, slots = np.empty(self._cum.shape, np.float32), slice(None)
        self._light[slots] = self._cum[slots]

    def _update_light(self, arm: ArmId, *rest: Any, **named: Any) -> ChangeEvent | None:
        event = super().update(arm, *rest, **named)
        self._copy(self._table.slot(arm))
        return event

    def _learn_many(self, slots: I64, X: F64, r: F64, z: F64 | None) -> list[ChangeEvent]:
        events = super()._learn_many(slots, X, r, z)
        self._copy(np.unique(slots))
        return events

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        self._copy(slots)

    def _relist(self) -> None:
        super()._relist()
        self._copy()  # arms have come or gone

    # -- decisions ------------------------------------------------------------------------------

    def _choose(self, x: F64, slots: I64, cross: F64 | None) -> tuple[int, float, float, float]:
        if not self._quick:
            return super()._choose(x, slots, cross)
        kernel = _CHOOSE if self._light is None else _CHOOSE_LIGHT
        found: tuple[int, float, float, float] = kernel.call(x, slots, self._shown, self._alpha)
        if found[0] < 0:  # not finite
            checks.vector("x", x, self._d)
        return found

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        if self._own:
            return disjoint.score(x, slots, self._shown, self._alpha, self._out)
        kind, rows = self._given(cross)
        return uniform.score(
            kind, x, slots, self._features, rows, self._cum, self._alpha, self._out, self._phi
        )

    def _score_many(self, X: F64, slots: I64) -> F64:
        if self._kind not in (forgetting.OWN, uniform.CROSS):
            return super()._score_many(X, slots)
        bounds = batch.bounds if self._light is None else light.bounds
        return bounds(X, *self._forms(X.shape[1], slots), self._alpha)

    def _forms(self, d: int, slots: I64) -> tuple[F64, F64]:
        """Means and squared widths of the candidates as forms in x, for ``batch.bounds``."""
        T = np.empty((len(slots), d))
        P = np.empty((len(slots), factors.packed_size(d)))
        if self._own:
            at = P.shape[1]
            T[:] = self._shown[slots, at : at + d]
            batch.pack_rows(self._shown, slots, d, P)
        else:
            uniform.pack(self._cum, self._p, self._features[slots], d, T, P)
        return T, P

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        if self._own:
            status: int = _LEARN.call(slot, x, reward, self._cum, self._w)
            return status
        kind, rows = self._given(None if cross is None else cross[None])
        return uniform.learn_one(
            kind, x, slot, self._features, rows, reward, self._cum, self._phi, self._w
        )

    def _loop(self) -> Loop | None:
        if self._light is not None:
            return None  # its loops are live calls: the copy must follow each reward
        if self._own:
            return Loop("linucb", (self._cum, self._alpha, self._w))
        return Loop("linucb_shared", self._shared_state())

    def _shared_state(self) -> tuple[Any, ...]:
        return self._cum, self._alpha, self._kind, self._features, NO_ROWS, self._phi, self._w

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        if self._own:
            disjoint.learn_many(slots, X, rewards, self._cum, self._w)
        else:
            kind, rows = self._given(cross)
            uniform.learn_many(
                kind, X, slots, self._features, rows, rewards, self._cum, self._phi, self._w
            )
        return len(slots), QUIET

    def coefficients(self, arm: ArmId | None = None) -> F64:
        """The estimate θ̂ of an arm (of all arms, for a shared model), a copy."""
        at = factors.packed_size(self._p)
        return self._cum[self._row_of(arm), at : at + self._p].copy()

    def inverse(self, arm: ArmId | None = None) -> F64:
        """The kept A⁻¹ of an arm (of all arms, for a shared model), as a full matrix."""
        matrix = np.empty((self._p, self._p))
        factors.dense(self._cum, self._row_of(arm), matrix)
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
                f"which has one model an arm over the context, {got}."
            )
        d = checks.integer("n_features", n_features, 1)
        return forgetting.OWN, d, 0, d
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
