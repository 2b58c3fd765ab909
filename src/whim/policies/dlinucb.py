"""``DLinUCB``: discounted LinUCB (Russac, Vernade & Cappé 2019)."""

from __future__ import annotations

import math

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.kernels.linalg import udu
from whim.kernels.models import discounted
from whim.policies.base.ridge import RowPolicy
from whim.types import F64, I64, ArmId


class DLinUCB(RowPolicy):
    """LinUCB in which an observation that is n updates old weighs γⁿ.

    Every update of the policy ages every arm, played or not.

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
        ``"disjoint"``: one model per arm, the reward is xᵀθ_a. ``"item"``: one model for all, yᵀθ.
        ``"cross"``: one for all, kron(y, x)ᵀβ = xᵀWy.
    gamma
        0 < γ <= 1: the discount of one update; 1 forgets nothing. See ``theory``.
    alpha
        α >= 0: how many widths of optimism. ``None``: the paper's β_t, from the four below.
    sigma
        σ >= 0: (sub-Gaussian) scale of the reward's noise.
    delta
        0 < δ < 1: probability with which the bounds may fail.
    bound_theta, bound_x
        S and L: bounds of ‖θ‖ and of the features' norm.
    ridge
        λ > 0; it does not fade.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = DLinUCB(n_features=1, gamma=0.5, alpha=0.0)
    >>> policy.add_arms(["a", "b"])
    ['a', 'b']
    >>> policy.update("a", [1.0], 1.0)
    >>> policy.scores([1.0]).tolist()
    [0.5, 0.0]
    >>> policy.update("b", [1.0], 0.0)
    >>> policy.scores([1.0]).round(4).tolist()
    [0.3333, 0.0]
    """

    name = "dlinucb"
    _kernels = discounted.DISCOUNTED

    def __init__(
        self,
        *,
        n_features: int | None = None,
        n_item_features: int | None = None,
        n_cross_features: int | None = None,
        payoff: str = "disjoint",
        gamma: float,
        alpha: float | None = None,
        sigma: float = 1.0,
        delta: float = 0.05,
        bound_theta: float = 1.0,
        bound_x: float = 1.0,
        ridge: float = 1.0,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(
            payoff=payoff,
            n_features=n_features,
            n_item_features=n_item_features,
            n_cross_features=n_cross_features,
            ridge=ridge,
            seed=seed,
            ties=ties,
        )
        self._gamma = checks.number("gamma", gamma, above=0, most=1)
        fixed = checks.optional("alpha", alpha, least=0)
        p = self._p
        self._bounds = (
            math.nan if fixed is None else fixed,
            checks.number("sigma", sigma, least=0),
            checks.number("delta", delta, above=0, below=1),
            checks.number("bound_x", bound_x, least=0),
            checks.number("bound_theta", bound_theta, least=0),
        )
        self._start: I64
        self._keep(_start=np.zeros(1, np.int64))
        self._factors = np.zeros(udu.packed_size(p + 1))
        self._work = np.zeros((2, p + 1))
        self._sums: F64
        self._touched: I64
        self._tables({"_sums": discounted.empty_row(p), "_touched": np.zeros((), np.int64)})

    @staticmethod
    def theory(horizon: int, variation: float, dim: int) -> dict[str, float]:
        """The discount that the regret bound of Russac et al. asks for, γ = 1 - (B/(dT))^(2/3).

        Parameters
        ----------
        horizon
            T: updates in all.
        variation
            B >= 0: Σ‖θ_{t+1} - θ_t‖ over the horizon, less than d·T.
        dim
            d: length of θ.

        Examples
        --------
        >>> round(DLinUCB.theory(horizon=20_000, variation=5.0, dim=5)["gamma"], 6)
        0.998643
        """
        T = checks.integer("horizon", horizon, 1)
        B = checks.number("variation", variation, least=0)
        d = checks.integer("dim", dim, 1)
        gamma = 1.0 - (B / (d * T)) ** (2 / 3)
        if gamma <= 0.0:
            raise InvalidInputError(f"variation must be < dim * horizon = {d * T}, got {B!r}.")
        return {"gamma": gamma}

    def _state(self) -> discounted.State:
        return discounted.State(
            self._sums, self._touched, self._gamma, self._ridge, self._pairs(),
            discounted.Radius(self._start, *self._bounds), self._factors, self._work,
        )  # fmt: skip

    def _score_many(self, X: F64, slots: I64) -> F64:
        self._crossed(None, len(slots))
        result = np.empty((len(X), len(slots)))
        discounted.score_many(self._aside(), self._step, X, slots, result)
        return result

    def _aside(self) -> discounted.State:
        """The state with scratch of its own, for kernels that other threads run beside."""
        state: discounted.State = self._current()
        pairs = state.pairs._replace(phi=np.zeros_like(self._phi))
        return state._replace(
            pairs=pairs, V=np.zeros_like(self._factors), work=np.zeros_like(self._work)
        )

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        if not gone and (not self._own or len(slots) == len(self._table)):
            self._start[0] = self._step  # nothing learnt is left, so β_t starts again too

    def coefficients(self, arm: ArmId | None = None) -> F64:
        """The estimate θ̂ = V⁻¹b of an arm (of all arms, for a shared model) as of now, a copy."""
        theta = np.empty(self._p)
        discounted.coefficients(self._aside(), self._step, self._row_of(arm), theta)
        return self._named(theta)
