"""``DynamicLinUCB``: dLinUCB, submodels of which the least bad acts."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from whim import checks
from whim.kernels.linalg import udu
from whim.kernels.models import model_pool, submodels
from whim.policies.base.ridge import PooledPolicy
from whim.types import F64, I64, ChangeEvent


class DynamicLinUCB(PooledPolicy):
    """dLinUCB: several LinUCB models, dropped when they mispredict and replaced by new ones.

    Wu, Iyer, Wang, SIGIR 2018. Every submodel (the authors' slave) is a LinUCB model shared by all
    arms; each judges and, unless it failed, learns every observation. The submodel with the lowest
    bound on its rate of failures acts. A submodel that fails too often is dropped; when none is
    good, a new one is added and reported as a change. The discounted ``DLinUCB`` is another policy.

    A click is far from any prediction near the click rate, so with 0/1 rewards nearly every
    click counts as a failure; take ``DenBand`` or a policy of the paper there.

    Parameters
    ----------
    n_item_features
        Length m of an arm's features.
    n_features
        Length d of a context; needed for ``payoff="cross"`` only.
    n_cross_features
        Length k of the rows that the caller will pass as ``cross`` in every call, for a caller
        with no item features.
    payoff
        ``"item"``: the reward is yᵀθ. ``"cross"``: it is kron(y, x)ᵀβ = xᵀWy.
    alpha
        α >= 0: how many widths of optimism.
    ridge
        λ > 0.
    tau
        τ >= 1: verdicts that a submodel's badness is the mean of.
    delta1
        δ₁ in (0, 1): a submodel is dropped when its badness is more than this over its bound.
    delta2
        δ₂ in (0, 1): confidence of the bound √(ln(1/δ₂) / 2n) of the badness.
    tdelta1
        δ̃₁ in [0, δ₁]: a submodel is good while its badness is at most this over its bound;
        ``None``: δ₁ / 5.
    sigma
        σ >= 0: standard deviation of the noise.
    eta
        Error that noise alone explains, >= 0; ``None``: √2 σ erf⁻¹(1 - δ₁). With ``math.inf``
        no prediction ever fails and the policy is ``LinUCBUniform``.
    max_models
        Submodels kept; a newer one takes the place of the oldest.
    seed, ties
        See ``Policy``.

    Notes
    -----
    An event's ``statistic`` is the smallest badness over its bound, e - CB, among the submodels;
    ``threshold`` is δ̃₁. ``theta_before`` are the coefficients of the submodel that acted and
    ``theta_after`` the zeros of the new one, which does not learn this play.

    Examples
    --------
    >>> policy = DynamicLinUCB(n_item_features=1, tau=20)
    >>> policy.add_arms(["toys"], features=[[1.0]])
    ['toys']
    >>> rewards = [1.0] * 50 + [0.0] * 10
    >>> events = policy.update_many(["toys"] * 60, None, rewards)
    >>> [(event.arm, event.step) for event in events], policy.n_models
    ([(None, 55)], 1)
    """

    name = "dynamic-linucb"
    _kernels = submodels.SUBMODELS
    _start_first = staticmethod(submodels.start)

    def __init__(
        self,
        *,
        n_item_features: int | None = None,
        n_features: int | None = None,
        n_cross_features: int | None = None,
        payoff: str = "item",
        alpha: float = 0.6,
        ridge: float = 0.1,
        tau: int = 100,
        delta1: float = 0.01,
        delta2: float = 0.1,
        tdelta1: float | None = None,
        sigma: float = 0.1,
        eta: float | None = None,
        max_models: int = 20,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(
            n_item_features=n_item_features,
            n_features=n_features,
            n_cross_features=n_cross_features,
            payoff=payoff,
            ridge=ridge,
            seed=seed,
            ties=ties,
        )
        tau = checks.integer("tau", tau, 1)
        size = checks.integer("max_models", max_models, 1)
        delta1 = checks.number("delta1", delta1, above=0, below=1)
        delta2 = checks.number("delta2", delta2, above=0, below=1)
        sigma = checks.number("sigma", sigma, least=0)
        if tdelta1 is None:
            tdelta1 = delta1 / 5.0
        if eta is None:
            # √2 erf⁻¹(1 - δ) is the normal quantile of 1 - δ/2
            eta = sigma * NormalDist().inv_cdf(1.0 - delta1 / 2.0)
        self._tdelta1 = checks.number("tdelta1", tdelta1, least=0, most=delta1)
        self._settings = submodels.Settings(
            ridge=self._ridge,
            alpha=checks.number("alpha", alpha, least=0),
            sigma=sigma,
            eta=checks.number("eta", eta, least=0, infinite=True),
            delta1=delta1,
            tdelta1=self._tdelta1,
            log_delta2=math.log(1.0 / delta2),
            root_log_tau=math.sqrt(math.log(tau)),
        )
        self._fails: I64
        self._badness: F64
        self._work = np.zeros((submodels.WORK, self._p))
        self._open_models(
            _model=udu.prior(self._p, self._ridge)[None].repeat(size, 0),
            _fails=np.zeros((size, tau), np.int64),
            _counts=np.zeros((size, submodels.COUNTS), np.int64),
            _badness=np.zeros((size, 2)),
            _order=np.arange(size),
            _marks=np.zeros(submodels.MARKS, np.int64),
        )

    def _in_force(self) -> dict[str, Any]:
        return {"tdelta1": self._tdelta1, "eta": self._settings.eta}

    @property
    def n_models(self) -> int:
        """Submodels at present."""
        return int(self._marks[model_pool.LIVE])

    def coefficients(self) -> F64:
        """The estimate θ̂ of the submodel that acts, a copy."""
        return self._model[submodels.acting(self._state()), -self._p :].copy()

    def _state(self) -> submodels.State:
        return submodels.State(
            self._settings, self._pairs(), self._model, self._fails, self._counts, self._badness,
            self._order, self._marks, self._work,
        )  # fmt: skip

    def _event(self, slot: int) -> ChangeEvent:
        return self._changed(
            slot,
            arm=None,
            statistic=float(self._work[submodels.STATISTIC, 0]),
            threshold=self._tdelta1,
            theta_before=tuple(self._work[submodels.BEFORE].tolist()),
            theta_after=(0.0,) * self._p,
        )
