"""``LinTS``: linear Thompson sampling (Agrawal & Goyal 2013)."""

from __future__ import annotations

import copy

import numpy as np

from whim.kernels import batch, disjoint, uniform
from whim.policies.base import Loop, Policy
from whim.policies.rows import RidgeRows
from whim.types import F64, I64

__all__ = ["LinTS"]


class LinTS(RidgeRows):
    """Thompson sampling: plays the best arm of a model drawn from N(θ̂, α²A⁻¹).

    ``Decision.mean`` is xᵀθ̂ and ``width`` the draw's standard deviation α√(xᵀA⁻¹x); ``score`` is
    the drawn value. ``scores`` shows what the next ``select`` would draw and leaves the random
    stream where it was.

    Parameters
    ----------
    n_features
        Length d of a context; not needed for ``payoff="item"``.
    n_item_features
        Length m of an arm's features; for the shared payoffs.
    n_cross_features
        Length k of the rows that the caller will pass as ``cross`` in every call, for a caller
        with no item features.
    payoff
        ``"disjoint"``: one model an arm, the reward is xᵀθ_a. ``"item"``: one model for all, yᵀθ.
        ``"cross"``: one for all, kron(y, x)ᵀβ = xᵀWy; all arms then share one draw of β.
    alpha
        α >= 0: scale of the draw's standard deviation.
    ridge
        λ > 0.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = LinTS(n_features=2, alpha=0.5, seed=1)
    >>> policy.add_arms(["a", "b"])
    ['a', 'b']
    >>> policy.update("a", [1.0, 0.0], 1.0)
    >>> decision = policy.select([1.0, 0.0])
    >>> decision.arm, round(decision.score, 4), decision.mean, round(decision.width, 4)
    ('a', 0.6222, 0.5, 0.3536)
    """

    name = "lints"
    _draws = True

    def __init__(
        self,
        *,
        n_features: int | None = None,
        n_item_features: int | None = None,
        n_cross_features: int | None = None,
        payoff: str = "disjoint",
        alpha: float = 1.0,
        ridge: float = 1.0,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(
            locals(),
            payoff=payoff,
            n_features=n_features,
            n_item_features=n_item_features,
            n_cross_features=n_cross_features,
            alpha=alpha,
            ridge=ridge,
            seed=seed,
            ties=ties,
        )

    def _noise(self, rng: np.random.Generator, n: int) -> F64:
        return rng.standard_normal(n if self._own else self._p)

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        assert noise is not None  # _draws
        if self._own:
            return disjoint.sample(x, slots, self._cum, self._alpha, noise, self._out)
        kind, rows = self._given(cross)
        return uniform.sample(
            kind, x, slots, self._features, rows, self._cum, self._alpha, noise, self._out,
            self._phi,
        )  # fmt: skip

    def _loop(self) -> Loop:
        if self._own:
            state = (self._cum, self._alpha, self._w)
            return Loop("thompson", state, "standard_normal", -1)
        return Loop("thompson_shared", self._shared_state(), "standard_normal", self._p)

    def _score_many(self, X: F64, slots: I64) -> F64:
        if not self._own:
            return Policy._score_many(self, X, slots)  # one draw of the whole model a context
        width = np.empty((len(X), len(slots)))
        result = batch.bounds(X, *self._forms(X.shape[1], slots), 0.0, width)
        width *= copy.deepcopy(self._rng).standard_normal(width.shape)
        width *= self._alpha
        return np.add(result, width, out=result)
