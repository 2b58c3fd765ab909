"""``CUSUMUCB``: CUSUM-UCB of Liu, Lee and Shroff 2018, which restarts just the changed arm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from whim import checks
from whim.kernels.models import contextfree_tests as kernels
from whim.policies.base.contextfree import ContextFreePolicy, horizon_and_changes
from whim.types import F64, I64

_EXPLOIT = np.array([1.0, 0.0])  # the draw with which no candidate is forced


class CUSUMUCB(ContextFreePolicy):
    """UCB1 that runs a two-sided CUSUM test on each arm's rewards, and explores at random.

    After the first M plays of an arm, with mean u, g⁺ = max(0, g⁺ + r - u - ε) and
    g⁻ = max(0, g⁻ + u - r - ε); the arm is reset when either exceeds h. A random candidate scores
    +inf when it is drawn and the others are capped at the largest float.

    Parameters
    ----------
    warmup
        M >= 1: plays of an arm that set the mean its later rewards are compared with.
    drift
        ε >= 0: difference that the test tolerates at each play.
    threshold
        h > 0; infinity never fires.
    explore
        Probability of a uniformly random candidate.
    n_features
        Length d that contexts are checked to have; by default any context, or none, will do.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = CUSUMUCB(warmup=10, drift=0.05, threshold=2.0)
    >>> policy.add_arms(["toys", "news"])
    ['toys', 'news']
    >>> [event] = policy.update_many(["toys"] * 25, None, [1] * 20 + [0] * 5)
    >>> event.arm, event.step, round(event.statistic, 2)
    ('toys', 23, 2.85)
    """

    name = "cusum-ucb"
    _kernels = kernels.CUSUM
    _columns = kernels.CUSUM_COLUMNS
    _draws = True
    _draw = "random"
    _each = 2

    def __init__(
        self,
        *,
        warmup: int = 100,
        drift: float = 0.05,
        threshold: float,
        explore: float = 0.0,
        n_features: int | None = None,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(n_features=n_features, seed=seed, ties=ties)
        self._warmup = checks.integer("warmup", warmup, 1)
        self._drift = checks.number("drift", drift, least=0)
        self._threshold = checks.number("threshold", threshold, above=0, infinite=True)
        self._explore = checks.number("explore", explore, least=0, most=1)
        self._total: F64
        self._keep(_total=np.zeros(1))

    def _state(self) -> kernels.CusumState:
        return kernels.CusumState(
            self._stats, self._total, self._explore, self._warmup, self._drift, self._threshold,
            self._report,
        )  # fmt: skip

    def _probabilities(self, x: F64, slots: I64, cross: F64 | None) -> F64:
        checks.vector("x", x, self._d)
        best = self._score(x, slots, cross, _EXPLOIT)
        own: F64 = self._explore / len(slots) + (1 - self._explore) * self._sure(best, len(slots))
        return own

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        self._total[0] = self._stats[:, 0].sum()  # whole numbers: exact in any order

    @staticmethod
    def theory(horizon: int, changes: int) -> dict[str, Any]:
        """The paper's h = ln(T / Y) and exploration √(Y / T · ln(T / Y)).

        >>> found = CUSUMUCB.theory(horizon=10_000, changes=1)
        >>> round(found["threshold"], 3), round(found["explore"], 4)
        (9.21, 0.0303)
        """
        T, Y = horizon_and_changes(horizon, changes)
        log = math.log(T / Y)
        return {"threshold": log, "explore": min(1.0, math.sqrt(Y / T * log))}
