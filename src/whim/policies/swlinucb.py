"""``SWLinUCB``: LinUCB over a sliding window (Cheung, Simchi-Levi & Zhu 2019)."""

from __future__ import annotations

import math

import numpy as np

from whim import checks
from whim.kernels.detection import windows
from whim.kernels.loops import Kernels
from whim.kernels.models import sliding
from whim.policies.base.ridge import RidgePolicy
from whim.policies.base.windows import WindowPool
from whim.types import I64


class SWLinUCB(WindowPool, RidgePolicy):
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
        ``"disjoint"``: one model per arm, the reward is xᵀθ_a. ``"item"``: one model for all, yᵀθ.
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
        self._tables({"_chain": np.zeros(sliding.CHAIN, np.int64)})
        self._ends: I64
        self._open_pool(sliding.record_size(self._p), self._window)
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

    @property
    def _kernels(self) -> Kernels:
        return sliding.OWN if self._own else sliding.SHARED

    def _state(self) -> sliding.State:
        queue = windows.Windows(self._ends, self._pool, self._links)
        return sliding.State(
            self._model(), self._pairs(), self._window, self._chain, queue, np.zeros((3, self._p))
        )

    def _forget(self, slots: list[int], gone: bool) -> None:
        if self._own or not gone:
            for row in {self._row(slot) for slot in slots}:
                sliding.drop(row, self._chain, self._pool)
        super()._forget(slots, gone)
