"""``DenBand``: an ensemble of experts, each trusted where its auditor finds no fault."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from whim import checks
from whim.kernels.linalg import udu
from whim.kernels.models import experts
from whim.policies.base.ridge import PooledPolicy
from whim.types import F64, ChangeEvent


class DenBand(PooledPolicy):
    """Experts that are trusted arm by arm, as far as their recent residuals allow.

    Wu et al., WWW 2019. Each expert is a LinUCB model shared by all arms, and has an auditor, a
    ridge model of its residuals over the last ``tau`` observations. An expert is admissible for
    an arm while the residual that its auditor predicts there is within a bound; of the
    admissible experts the least bad one scores the arm. When an arm without one is played, a
    new expert is born and reported as a change.

    The authors let an expert learn an observation only if its own residual is small. That
    refuses nearly every click, so the default is a windowed gate: an expert learns unless the
    mean of its last residuals is large. ``DenBand.authors`` gives the authors' configuration.

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
        ``"item"``: the reward is yᵀθ, as in the paper. ``"cross"``: it is kron(y, x)ᵀβ = xᵀWy.
    alpha
        α >= 0: how many widths of optimism. ``None``: the radius of the theory, which grows
        with ``sigma`` and the observations learnt.
    ridge
        λ > 0.
    tau
        τ >= 1: observations that an auditor looks back on.
    delta1
        δ₁ in (0, 1): confidence of the radius of the theory (``alpha=None`` only).
    delta_l
        Δ_L > 0: residual, in units of the reward, that is no reason for distrust.
    sigma
        Standard deviation of the noise: for clicks √(p(1-p)) with p the usual click rate,
        about 0.2 at 4 %.
    gate
        ``"window"``: learn unless the mean residual of the last ``gate_window`` plays reaches
        ``gate_threshold``. ``"single"``: learn if this residual is within its bound.
    gate_window
        Residuals that the windowed gate averages, >= 1.
    gate_threshold
        > 0; ``math.inf`` lets everything pass.
    kappa
        κ >= 0: width of an auditor's bound, in units of ``sigma``. ``None``: the authors'.
    age_limit
        An expert learns nothing from its ``age_limit``-th observation on; ``None``: no limit.
    max_experts
        Experts kept; a newer one takes the place of the oldest.
    seed, ties
        See ``Policy``.

    Notes
    -----
    An event's ``statistic`` is by how much the expert nearest to being admissible missed its
    bound, and ``threshold`` is 0; ``theta_before`` are that expert's coefficients and
    ``theta_after`` the zeros with which the new one is born, before it learns the play.

    Examples
    --------
    >>> policy = DenBand(n_item_features=1, tau=20, delta_l=0.1, sigma=0.1)
    >>> policy.add_arms(["toys"], features=[[1.0]])
    ['toys']
    >>> rewards = [1.0] * 50 + [0.0] * 10
    >>> events = policy.update_many(["toys"] * 60, None, rewards)
    >>> [(event.arm, event.step) for event in events], policy.n_experts
    ([(None, 58)], 2)
    """

    name = "denband"
    _kernels = experts.EXPERTS
    _start_first = staticmethod(experts.start)

    def __init__(
        self,
        *,
        n_item_features: int | None = None,
        n_features: int | None = None,
        n_cross_features: int | None = None,
        payoff: str = "item",
        alpha: float | None = 0.2,
        ridge: float = 1.0,
        tau: int = 1000,
        delta1: float = 0.1,
        delta_l: float = 0.04,
        sigma: float = 0.2,
        gate: str = "window",
        gate_window: int = 500,
        gate_threshold: float = 0.06,
        kappa: float | None = 3.0,
        age_limit: int | None = None,
        max_experts: int = 20,
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
        size = checks.integer("max_experts", max_experts, 1)
        window = checks.integer("gate_window", gate_window, 1)
        if checks.choice("gate", gate, ("window", "single")) == "single":
            window = 0
        if age_limit is not None:
            checks.integer("age_limit", age_limit, 1)
        alpha = checks.optional("alpha", alpha, least=0)
        kappa = checks.optional("kappa", kappa, least=0)
        self._settings = experts.Settings(
            ridge=self._ridge,
            delta_l=checks.number("delta_l", delta_l, above=0),
            sigma=checks.number("sigma", sigma, least=0),
            alpha=-1.0 if alpha is None else alpha,
            kappa=-1.0 if kappa is None else kappa,
            log_term=2.0 * math.log(1.0 / checks.number("delta1", delta1, above=0, below=1)),
            gate=checks.number("gate_threshold", gate_threshold, above=0, infinite=True),
            age_limit=math.inf if age_limit is None else float(age_limit),
        )
        p = self._p
        self._audit: F64
        self._gates: F64
        self._ring: F64
        self._admitted = np.zeros(size, np.int64)
        self._work = np.zeros((experts.WORK, p + 1))
        self._open_models(
            _model=udu.prior(p, self._ridge)[None].repeat(size, 0),
            _audit=experts.audit_row(p, self._ridge)[None].repeat(size, 0),
            _gates=np.zeros((size, window + 1)),
            _counts=np.zeros((size, experts.COUNTS), np.int64),
            _order=np.arange(size),
            _marks=np.zeros(experts.MARKS, np.int64),
            _ring=np.zeros((tau, p + 1)),
        )

    @classmethod
    def authors(cls, **changes: Any) -> Self:
        """The configuration of the authors' code, with the single-step gate.

        It suits rewards with little noise, not clicks. ``changes`` are further or other
        parameters of ``DenBand``, such as ``n_item_features``. The authors set ``age_limit`` to
        half of the run and keep every expert.

        >>> DenBand.authors(n_item_features=25, age_limit=1000).params["tau"]
        20
        """
        theirs: dict[str, Any] = {
            "alpha": None,
            "ridge": 0.1,
            "tau": 20,
            "delta1": 0.1,
            "delta_l": 0.1,
            "sigma": 0.1,
            "gate": "single",
            "kappa": None,
            "age_limit": 3000,
        }
        return cls(**(theirs | changes))

    @property
    def n_experts(self) -> int:
        """Experts at present."""
        return int(self._marks[experts.LIVE])

    def coefficients(self) -> F64:
        """The experts' estimates θ̂, one per row, oldest first; a copy."""
        return self._model[self._order[: self.n_experts], -self._p :]

    def _state(self) -> experts.State:
        return experts.State(
            self._settings, self._pairs(), self._model, self._audit, self._gates, self._counts,
            self._order, self._marks, self._ring, self._admitted, self._work,
        )  # fmt: skip

    def _event(self, slot: int) -> ChangeEvent:
        return self._changed(
            slot,
            arm=None,
            statistic=float(self._work[experts.STATISTIC, 0]),
            threshold=0.0,
            theta_before=tuple(self._work[experts.BEFORE, : self._p].tolist()),
            theta_after=(0.0,) * self._p,
        )
