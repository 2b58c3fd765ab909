"""``MUCB``: monitored UCB of Cao et al. 2019, which restarts all arms on a change of one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.kernels.models import contextfree_tests as kernels
from whim.policies.base.contextfree import ContextFreePolicy
from whim.policies.base.windows import RowWindows
from whim.types import I64


class MUCB(RowWindows, ContextFreePolicy):
    """UCB1 that compares the two halves of each arm's window, and plays every arm now and then.

    A fraction γ of the steps goes round the arms in the order of ``policy.arms``, so that each
    is tested. The arm whose turn it is scores +inf and the others are capped at the largest
    float; if it is not a candidate, the index decides.

    Parameters
    ----------
    window
        ω >= 2, even: plays of an arm in its window.
    threshold
        b > 0: a change when the sums of rewards of the halves differ by more (infinity: never).
    gamma
        γ from 0 (no round robin) to 1 (nothing else).
    n_features
        Length d that contexts are checked to have; by default any context, or none, will do.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = MUCB(window=10, threshold=3, gamma=0.1)
    >>> policy.add_arms(["toys", "news"])
    ['toys', 'news']
    >>> [event] = policy.update_many(["toys"] * 30, None, [1] * 20 + [0] * 10)
    >>> event.arm, event.step, event.statistic, event.threshold
    ('toys', 24, 4.0, 3.0)
    """

    name = "mucb"
    _kernels = kernels.MONITORED
    _columns = kernels.MONITORED_COLUMNS
    restarts_all = True

    def __init__(
        self,
        *,
        window: int,
        threshold: float,
        gamma: float,
        n_features: int | None = None,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(n_features=n_features, seed=seed, ties=ties)
        if checks.integer("window", window, 2) % 2:
            raise InvalidInputError(f"window must be even, got {window!r}.")
        self._window = int(window)
        self._threshold = checks.number("threshold", threshold, above=0, infinite=True)
        self._gamma = checks.number("gamma", gamma, least=0, most=1)
        self._clock: I64
        self._keep(_clock=np.zeros(1, np.int64))
        self._open_pool(1, self._window)
        self._rows({"_table_rows": np.zeros(kernels.MONITOR_TABLE, np.int64)})

    def _state(self) -> kernels.MonitoredState:
        return kernels.MonitoredState(
            self._stats, self._windows(), self._live, self._clock, self._gamma, self._window,
            self._threshold, self._report,
        )  # fmt: skip

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        if not gone and len(slots) == len(self._table):  # what a detection does
            self._clock[kernels.TAU] = self._step

    @staticmethod
    def theory(horizon: int, n_arms: int, segments: int, smallest_change: float) -> dict[str, Any]:
        """Parameters that the paper's analysis asks for; γ is that of its experiments.

        They suit rewards that use all of [0, 1]. For clicks the window is too long to fill and
        the threshold too high to reach: see ``click_threshold``.

        Parameters
        ----------
        horizon
            T: steps.
        n_arms
            K.
        segments
            M: periods without a change, one more than there are changes.
        smallest_change
            δ > 0: the smallest change of a mean reward that must be detected.

        Examples
        --------
        >>> found = MUCB.theory(horizon=20_000, n_arms=6, segments=5, smallest_change=0.6)
        >>> found["window"], round(found["threshold"], 2), round(found["gamma"], 3)
        (708, 88.83, 0.393)
        >>> policy = MUCB(**found)
        """
        T = checks.integer("horizon", horizon, 1)
        K = checks.integer("n_arms", n_arms, 1)
        M = checks.integer("segments", segments, 1)
        delta = checks.number("smallest_change", smallest_change, above=0)
        log = math.log(2 * K * T * T)
        root = math.sqrt(log) + math.sqrt(math.log(2 * T))
        window = 2 * math.ceil(2 * (root / delta) ** 2)
        threshold = math.sqrt(window / 2 * log)
        forced = (M - 1) * K * (2 * threshold + 3 * math.sqrt(window)) / (2 * T)
        return {"window": window, "threshold": threshold, "gamma": min(1.0, math.sqrt(forced))}

    @staticmethod
    def click_threshold(window: int, rate: float, horizon: int, n_arms: int) -> float:
        """A threshold for clicks of this rate p: the variance p(1 - p) in place of the bound 1/4.

        Ours, not the paper's: b = √(2 ω p(1 - p) ln(2 K T²)).

        >>> round(MUCB.click_threshold(window=4000, rate=0.04, horizon=229_000, n_arms=20))
        93
        """
        T = checks.integer("horizon", horizon, 1)
        K = checks.integer("n_arms", n_arms, 1)
        p = checks.number("rate", rate, above=0, below=1)
        spread = 2 * checks.integer("window", window, 2) * p * (1 - p)
        return math.sqrt(spread * math.log(2 * K * T * T))
