"""``DUCB``: discounted UCB of Garivier and Moulines 2011."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from whim import checks
from whim.kernels.models import contextfree
from whim.policies.base.contextfree import ContextFreePolicy, horizon_and_changes
from whim.types import F64


class DUCB(ContextFreePolicy):
    """UCB whose plays and rewards fade by γ with every update, of whichever arm.

    The index is mean + 2B √(ξ ln(Σ N) / N) with N the discounted plays of an arm.

    Parameters
    ----------
    gamma
        γ in (0, 1]: what a play is worth one update later.
    xi
        ξ >= 0: how much optimism.
    bound
        B > 0: rewards lie in [0, B].
    n_features
        Length d that contexts are checked to have; by default any context, or none, will do.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = DUCB(gamma=0.5, xi=0.0)
    >>> policy.add_arms(["a"])
    ['a']
    >>> policy.update_many(["a", "a"], None, [0.0, 1.0])
    []
    >>> round(policy.select().mean, 4)  # (0.5 * 0 + 1) / (0.5 + 1)
    0.6667
    """

    name = "ducb"
    _kernels = contextfree.DISCOUNTED
    _columns = contextfree.DISCOUNTED_COLUMNS

    def __init__(
        self,
        *,
        gamma: float,
        xi: float = 0.6,
        bound: float = 1.0,
        n_features: int | None = None,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(n_features=n_features, seed=seed, ties=ties)
        self._gamma = checks.number("gamma", gamma, above=0, most=1)
        self._xi = checks.number("xi", xi, least=0)
        self._reward_bound = checks.number("bound", bound, above=0)
        self._total: F64
        self._keep(_total=np.zeros(1))

    def _state(self) -> contextfree.DiscountedState:
        return contextfree.DiscountedState(
            self._stats, self._total, self._gamma, self._xi, self._reward_bound
        )

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        self._total[0] = contextfree.discounted_total(self._stats, self._step, self._gamma)

    @staticmethod
    def theory(horizon: int, changes: int) -> dict[str, Any]:
        """The paper's γ = 1 - √(changes / horizon) / 4.

        >>> DUCB.theory(horizon=10_000, changes=4)
        {'gamma': 0.995}
        """
        T, Y = horizon_and_changes(horizon, changes, least=0)
        return {"gamma": 1.0 - math.sqrt(Y / T) / 4.0}
