"""``PSLinUCBDisjoint``: Algorithm 1 of the paper, in rank-one form."""

from __future__ import annotations

import numpy as np

from whim import checks
from whim.detectors import MeanResidual
from whim.kernels import disjoint, factors
from whim.kernels.jit import Direct
from whim.policies.base import Loop
from whim.policies.rows import RidgeRows
from whim.policies.windowed import RowWindows
from whim.types import F64, I64, ChangeEvent

__all__ = ["PSLinUCBDisjoint"]

_OBSERVE = Direct(disjoint.observe)


class PSLinUCBDisjoint(RowWindows, RidgeRows):
    """LinUCB that tests each arm for a change of interest and restarts just that arm.

    Parameters
    ----------
    n_features
        Length d of a context.
    alpha
        α >= 0: how many widths of optimism.
    window
        ω >= 2: plays of an arm in its window.
    threshold
        δ > 0: mean residual, in units of the reward, that counts as a change.
    ridge
        λ > 0; the paper's 1.
    first_window
        ``"seed"``: an arm's first full window seeds the model that later windows are compared
        with, and reports nothing. ``"literal"``: the letter of Algorithm 1, which compares the
        first window with θ = 0 and so fires whenever its mean reward is at least δ.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = PSLinUCBDisjoint(n_features=1, alpha=0.2, window=10, threshold=0.5)
    >>> policy.add_arms(["toys"])
    ['toys']
    >>> rewards = [1.0] * 30 + [0.0] * 10
    >>> [event] = policy.update_many(["toys"] * 40, [[1.0]] * 40, rewards)
    >>> event.arm, event.step, round(event.statistic, 2)
    ('toys', 36, 0.56)
    """

    name = "pslinucb-disjoint"

    def __init__(
        self,
        *,
        n_features: int,
        alpha: float = 1.0,
        window: int = 100,
        threshold: float,
        ridge: float = 1.0,
        first_window: str = "seed",
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(
            locals(),
            payoff="disjoint",
            n_features=n_features,
            alpha=alpha,
            ridge=ridge,
            seed=seed,
            ties=ties,
        )
        self._test = MeanResidual(window, threshold)
        self._window, self._threshold = self._test.window, self._test.threshold
        words = ("seed", "literal")
        self._seed_first = checks.choice("first_window", first_window, words) == "seed"
        d = self._p
        self._pre: F64
        self._open_pool(d + 1, window)
        self._rows(
            {
                "_pre": factors.prior(d, self._ridge, more=d + 1),
                "_table_rows": np.zeros(disjoint.TABLE, np.int64),
            }
        )

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        status: int = _OBSERVE.call(
            slot, x, reward, self._window, self._threshold, self._seed_first, self._ridge,
            self._cum, self._pre, self._pool, self._links, self._table_rows, self._work,
        )  # fmt: skip
        return status

    def _loop(self) -> Loop:
        return Loop(
            "ps_disjoint",
            (
                self._cum, self._alpha, self._window, self._threshold, self._seed_first,
                self._ridge, self._pre, self._pool, self._links, self._table_rows, self._work,
            ),
        )  # fmt: skip

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        test = self._test
        return disjoint.observe_many(
            start, slots, X, rewards, test.window, test.threshold, self._seed_first, self._ridge,
            self._cum, self._pre, self._pool, self._links, self._table_rows, self._work,
        )  # fmt: skip

    def _event(self, slot: int) -> ChangeEvent:
        _, before, after, test = self._work.tolist()
        return ChangeEvent(
            arm=self._table.id_of[slot],
            step=self._step,
            plays=self._plays[slot],
            statistic=test[0],
            threshold=self._test.threshold,
            theta_before=tuple(before),
            theta_after=tuple(after),
            window=self._test.window,
        )
