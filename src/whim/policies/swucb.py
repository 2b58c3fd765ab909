"""``SWUCB``: sliding-window UCB of Garivier and Moulines 2011."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from whim import checks
from whim.kernels.models import contextfree
from whim.policies.base.contextfree import ContextFreePolicy, horizon_and_changes
from whim.types import F64, I64

_FIRST = 64  # plays the ring has room for before it first grows


class SWUCB(ContextFreePolicy):
    """UCB from the last ``window`` updates of all arms together.

    The index is mean + B √(ξ ln(min(t, τ)) / N) with N the arm's plays in the window. Plays of
    an arm that was since reset or retired are forgotten but keep their place in the window.

    Parameters
    ----------
    window
        τ >= 1: updates, of whichever arm, that count.
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
    >>> policy = SWUCB(window=3)
    >>> policy.add_arms(["a", "b"])
    ['a', 'b']
    >>> policy.update_many(["a", "a", "a", "b"], None, [0, 0, 1, 1])
    []
    >>> policy.rank()[1].mean  # the first play of "a" has left the window
    0.5
    """

    name = "swucb"
    _kernels = contextfree.SLIDING

    def __init__(
        self,
        *,
        window: int,
        xi: float = 0.6,
        bound: float = 1.0,
        n_features: int | None = None,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(n_features=n_features, seed=seed, ties=ties)
        self._window = checks.integer("window", window, 1)
        self._xi = checks.number("xi", xi, least=0)
        self._reward_bound = checks.number("bound", bound, above=0)
        self._clock: I64
        self._ring: I64
        self._values: F64
        self._keep(
            _clock=np.zeros(contextfree.RING, np.int64),
            _ring=np.zeros(0, np.int64),
            _values=np.zeros(0),
        )

    def _state(self) -> contextfree.SlidingState:
        return contextfree.SlidingState(
            self._stats, self._window, self._xi, self._reward_bound, self._ring, self._values,
            self._clock,
        )  # fmt: skip

    def _grow_pool(self) -> None:
        more = min(self._window, max(_FIRST, 2 * len(self._ring))) - len(self._ring)
        self._keep(
            _ring=np.concatenate([self._ring, np.zeros(more, np.int64)]),
            _values=np.concatenate([self._values, np.zeros(more)]),
        )

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        self._ring[np.isin(self._ring, slots)] = -1

    @staticmethod
    def theory(horizon: int, changes: int) -> dict[str, Any]:
        """The paper's window τ = 2 √(horizon · ln(horizon) / changes), rounded up.

        >>> SWUCB.theory(horizon=10_000, changes=4)
        {'window': 304}
        """
        T, Y = horizon_and_changes(horizon, changes)
        return {"window": math.ceil(2.0 * math.sqrt(T * math.log(T) / Y))}
