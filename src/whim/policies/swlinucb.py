"""``SWLinUCB``: LinUCB over a sliding window (Cheung, Simchi-Levi & Zhu 2019)."""

from __future__ import annotations

import math

import numpy as np

from whim import checks
from whim.kernels import forgetting, windows
from whim.policies.base import Loop
from whim.policies.rows import NO_ROWS, RidgeRows
from whim.policies.windowed import WindowPool
from whim.types import F64, I64

__all__ = ["SWLinUCB"]


class SWLinUCB(WindowPool, RidgeRows):
    """LinUCB that learns from the last ``window`` updates only, over all arms together.

    An arm that was not played in the window is as good as new.

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
        ``"cross"``: one for all, kron(y, x)ᵀβ = xᵀWy.
    window
        w >= 1: updates of the policy, not plays of an arm. See ``theory``.
    alpha
        α >= 0: how many widths of optimism.
    ridge
        λ > 0.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = SWLinUCB(n_features=1, window=2, alpha=0.0)
    >>> policy.add_arms(["a", "b"])
    ['a', 'b']
    >>> policy.update("a", [1.0], 1.0)
    >>> policy.update("b", [1.0], 0.5)
    >>> policy.scores([1.0]).tolist()
    [0.5, 0.25]
    >>> policy.update("b", [1.0], 0.5)
    >>> policy.scores([1.0]).round(4).tolist()
    [0.0, 0.3333]
    """

    name = "swlinucb"

    def __init__(
        self,
        *,
        n_features: int | None = None,
        n_item_features: int | None = None,
        n_cross_features: int | None = None,
        payoff: str = "disjoint",
        window: int,
        alpha: float = 1.0,
        ridge: float = 1.0,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(
            locals(),
            more=1,
            payoff=payoff,
            n_features=n_features,
            n_item_features=n_item_features,
            n_cross_features=n_cross_features,
            alpha=alpha,
            ridge=ridge,
            seed=seed,
            ties=ties,
        )
        self._window = checks.integer("window", window, 1)
        self._chain: I64
        self._tables({"_chain": np.zeros(forgetting.CHAIN, np.int64)})
        self._ends: I64
        self._open_pool(forgetting.record_size(self._p), self._window)
        self._keep(_ends=np.zeros((1, windows.ENDS), np.int64))

    @staticmethod
    def theory(horizon: int, variation: float, dim: int) -> dict[str, int]:
        """The window that the regret bound of Cheung et al. asks for, w = (dT/B)^(2/3).

        Parameters
        ----------
        horizon
            T: updates in all.
        variation
            B >= 0: Σ‖θ_{t+1} - θ_t‖ over the horizon; 0 gives a window as long as the horizon.
        dim
            d: length of θ.

        Examples
        --------
        >>> SWLinUCB.theory(horizon=20_000, variation=5.0, dim=5)
        {'window': 737}
        """
        T = checks.integer("horizon", horizon, 1)
        B = checks.number("variation", variation, least=0)
        d = checks.integer("dim", dim, 1)
        asked = (d * T / B) ** (2 / 3) if B > 0 else math.inf
        return {"window": T if asked > T else math.ceil(asked)}

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        kind, rows = self._given(None if cross is None else cross[None])
        return forgetting.slide_one(
            kind, slot, x, self._features, rows, reward, self._window, self._ridge,
            self._cum, self._chain, self._pool, self._links, self._ends, self._work,
        )  # fmt: skip

    def _loop(self) -> Loop:
        state = (
            self._cum, self._alpha, self._kind, self._features, NO_ROWS, self._phi, self._window,
            self._ridge, self._chain, self._pool, self._links, self._ends, self._work,
        )  # fmt: skip
        return Loop("sliding_linear" if self._own else "sliding_shared", state)

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        kind, rows = self._given(cross)
        return forgetting.slide_many(
            start, kind, slots, X, self._features, rows, rewards, self._window, self._ridge,
            self._cum, self._chain, self._pool, self._links, self._ends, self._work,
        )  # fmt: skip

    def _forget(self, slots: list[int], gone: bool) -> None:
        if self._own or not gone:
            for row in {self._row(slot) for slot in slots}:
                forgetting.drop(row, self._chain, self._pool)
        super()._forget(slots, gone)
