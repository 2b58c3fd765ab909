"""``ModifiedPSLinUCB``: the algorithm of the paper's appendix, which its theorem is about."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.kernels.models import contextfree_tests, two_halves
from whim.policies.base.detecting import Reporting
from whim.policies.base.ridge import RidgePolicy
from whim.policies.base.windows import RowWindows
from whim.types import F64, I64, ChangeEvent


class TheoryParameters(NamedTuple):
    """What the theorem asks of ``ModifiedPSLinUCB``.

    ``smallest_change`` is the shift of a window's mean reward, 2(b + c), that is surely seen.
    """

    alpha: float
    window: int
    b: float
    c: float
    gamma: float
    smallest_change: float


class ModifiedPSLinUCB(RowWindows, Reporting, RidgePolicy):
    """PSLinUCB as analysed: halves of the window compared, round robin, all arms restarted.

    For a fixed set of arms; with changing candidates the round robin skips a turn whose arm is
    not among them. The repairs of the printed pseudo-code are listed in docs/math.md.

    Parameters
    ----------
    n_features
        Length d of a context.
    alpha
        α >= 0: how many widths of optimism.
    window
        ω, even and >= 2: plays of an arm in its window.
    b, c
        A change is a difference of at least b + c between the newer half's mean reward and
        what the older half's fit predicts of it.
    gamma
        γ in [0, 1]: share of steps spent on the round robin; 0 for none.
    ridge
        λ > 0 of the models that choose arms; the test has none.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> found = ModifiedPSLinUCB.theory(horizon=20_000, arms=10, segments=10, d=5, sigma=0.2)
    >>> found.window, round(found.gamma, 2), round(found.alpha, 1)
    (12, 0.24, 3.1)
    >>> policy = ModifiedPSLinUCB(n_features=1, alpha=1.0, window=10, b=0.2, c=0.3, gamma=0.1)
    >>> policy.add_arms(["toys"])
    ['toys']
    >>> [event] = policy.update_many(["toys"] * 30, [[1.0]] * 30, [1.0] * 25 + [0.0] * 5)
    >>> event.step, round(event.statistic, 2)
    (28, 0.6)
    """

    name = "modified-pslinucb"
    _kernels = two_halves.TWO_HALVES
    restarts_all = True

    def __init__(
        self,
        *,
        n_features: int,
        alpha: float = 1.0,
        window: int = 100,
        b: float,
        c: float,
        gamma: float,
        ridge: float = 1.0,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(
            n_features=n_features,
            alpha=alpha,
            ridge=ridge,
            seed=seed,
            ties=ties,
        )
        self._window = checks.integer("window", window, 2)
        if window % 2:
            raise InvalidInputError(f"window must be even, got {window}.")
        b = checks.number("b", b, least=0, infinite=True)
        self._threshold = b + checks.number("c", c, above=0, infinite=True)
        self._gamma = checks.number("gamma", gamma, least=0, most=1)
        d = self._p
        self._half: F64
        self._restarted: I64
        self._keep(_restarted=np.zeros(1, np.int64))
        self._open_report(d)
        self._open_pool(d + 1, window + 1)
        self._rows(
            {
                "_half": np.zeros(d * d + 2 * d + 1),
                "_table_rows": np.zeros(two_halves.TABLE, np.int64),
            }
        )

    def _state(self) -> two_halves.State:
        d = self._p
        return two_halves.State(
            self._model(), self._windows(), self._window, self._threshold, self._gamma,
            self._half, self._live, self._restarted, self._report, np.zeros((d, d)),
            np.zeros((d, d)),
        )  # fmt: skip

    def _score_many(self, X: F64, slots: I64) -> F64:
        result = super()._score_many(X, slots)
        elapsed = self._step - self._restarted.item()
        turn = contextfree_tests.round_robin(self._live, elapsed, self._gamma)
        result[:, slots == turn] = np.inf
        return result

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        if not gone and len(slots) == len(self._table):  # what a detection does
            self._restarted[0] = self._step

    def _event(self, slot: int) -> ChangeEvent:
        self._restarted[0] = self._step
        return self._change(slot, self._p, self._threshold)

    @staticmethod
    def theory(
        *,
        horizon: int,
        arms: int,
        segments: int,
        d: int,
        sigma: float,
        smallest_change: float | None = None,
    ) -> TheoryParameters:
        """Parameters that the theorem's proof needs, with the repairs of docs/math.md.

        Parameters
        ----------
        horizon, arms, segments, d, sigma
            T, K, M, the length of a context and the noise's sub-Gaussian parameter.
        smallest_change
            If given, ω is the smallest window that surely sees such a shift of the mean reward.
            Otherwise ω is such that L = ω⌈K/γ⌉, which bounds the delay, is a quarter of a mean
            segment.

        Notes
        -----
        The bounds are those of a proof. At the paper's own size (T = 20,000, K = 10, M = 10,
        d = 5, σ = 0.2) the smallest change that they surely see is larger than any there is, so
        use them to study the theorem and tuned values to recommend.
        """
        T = checks.integer("horizon", horizon, 2)
        K = checks.integer("arms", arms, 1)
        M = checks.integer("segments", segments, 1)
        checks.integer("d", d, 1)
        sigma = checks.number("sigma", sigma, above=0)

        def bounds(window: int) -> tuple[float, float]:
            # contexts of both halves alike: the mean of |x| in the older half's norm is √(2d/ω)
            b = sigma * math.sqrt(2 * d * math.log(2 * window * T**2)) * math.sqrt(2 * d / window)
            c = sigma * math.sqrt(8 * math.log(2 * T) / window)
            return b, c

        if smallest_change is None:
            window = max(2, T // (16 * K * M) // 2 * 2)
        else:
            wanted = checks.number("smallest_change", smallest_change, above=0)
            low, high = 1, 1
            while 2 * sum(bounds(2 * high)) > wanted:
                high *= 2
            while low < high:
                middle = (low + high) // 2
                low, high = (
                    (low, middle) if 2 * sum(bounds(2 * middle)) <= wanted else (middle + 1, high)
                )
            window = 2 * low
        b, c = bounds(window)
        # the proof's formula for σ = 1, and the self-normalised bound that it simplifies
        alpha = max(
            sigma * math.sqrt(2 * d * math.log(K * T**2)),
            1 + sigma * math.sqrt(d * math.log(K * T * (1 + T))),
        )
        gamma = min(1.0, math.sqrt(K * M * window / T))
        return TheoryParameters(alpha, window, b, c, gamma, 2 * (b + c))
