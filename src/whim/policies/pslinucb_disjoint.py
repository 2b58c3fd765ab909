"""``PSLinUCBDisjoint``: Algorithm 1 of the paper, in rank-one form, and its score test."""

from __future__ import annotations

from typing import Any

import numpy as np

from whim import checks
from whim.detectors import ScoreTest
from whim.kernels import disjoint, factors, scoretest
from whim.kernels.jit import Direct
from whim.policies.base import Loop
from whim.policies.rows import RidgeRows
from whim.policies.scored import chosen_test, detailed
from whim.policies.windowed import RowWindows
from whim.types import F64, I64, ChangeEvent

__all__ = ["PSLinUCBDisjoint"]

_OBSERVE, _EXAMINE = Direct(disjoint.observe), Direct(scoretest.observe)


class PSLinUCBDisjoint(RowWindows, RidgeRows):
    """LinUCB that tests each arm for a change of interest and restarts just that arm.

    Without ``threshold`` the test is the score test (``whim.detectors.ScoreTest``), which needs
    no tuning; with it the paper's, Algorithm 1 as printed.

    Parameters
    ----------
    n_features
        Length d of a context.
    alpha
        α >= 0: how many widths of optimism.
    window
        Plays of an arm in its window: for the score test at least 8, by default 256 (the lengths
        tested are 8, 16, 32, … up to it); for the paper's ω >= 2, by default 100.
    threshold
        δ > 0: mean residual, in units of the reward, that counts as a change in the paper's test.
    false_alarm
        Expected false alarms per play of an arm that does not change, by default 1e-5; only for
        the score test.
    ridge
        λ > 0; the paper's 1.
    first_window
        For the paper's test. ``"seed"``: an arm's first full window seeds the model that later
        windows are compared with, and reports nothing. ``"literal"``: the letter of Algorithm 1,
        which compares the first window with θ = 0 and so fires whenever its mean reward is at
        least δ.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = PSLinUCBDisjoint(n_features=1, alpha=0.2)
    >>> policy.add_arms(["toys"])
    ['toys']
    >>> rewards = [1.0, 0.8] * 20 + [0.0, 0.2] * 5
    >>> [event] = policy.update_many(["toys"] * 50, [[1.0]] * 50, rewards)
    >>> event.arm, event.step, event.began, event.window
    ('toys', 46, 41, 6)

    The paper's test:

    >>> policy = PSLinUCBDisjoint(n_features=1, alpha=0.2, window=10, threshold=0.5)
    >>> policy.add_arms(["toys"])
    ['toys']
    >>> rewards = [1.0] * 30 + [0.0] * 10
    >>> [event] = policy.update_many(["toys"] * 40, [[1.0]] * 40, rewards)
    >>> event.arm, event.step, round(event.statistic, 2)
    ('toys', 36, 0.56)
    """

    name = "pslinucb-disjoint"
    _threshold: float
    _pre: F64

    def __init__(
        self,
        *,
        n_features: int,
        alpha: float = 1.0,
        window: int | None = None,
        threshold: float | None = None,
        false_alarm: float | None = None,
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
        words = ("seed", "literal")
        self._seed_first = checks.choice("first_window", first_window, words) == "seed"
        d = self._p
        self._test = chosen_test(window, threshold, false_alarm)
        if isinstance(self._test, ScoreTest):
            self._bounds = self._test.bounds(d)
            self._work = np.zeros((4, max(d, 4)))
            self._room, self._scratch = np.zeros(scoretest.room(d)), factors.prior(d, 1.0)[None]
            rows = np.zeros(factors.packed_size(d) + d + 2), np.zeros(scoretest.TABLE, np.int64)
            self._open_pool(d + 2, self._test.lengths[-1])
        else:
            self._threshold = self._test.threshold
            rows = factors.prior(d, self._ridge, more=d + 1), np.zeros(disjoint.TABLE, np.int64)
            self._open_pool(d + 1, self._test.window)
        self._window = self._test.window
        self._rows(dict(zip(("_pre", "_table_rows"), rows, strict=True)))
        self._scored = isinstance(self._test, ScoreTest)

    def _score_state(self) -> tuple[Any, ...]:
        return (
            self._bounds, self._ridge, self._cum, self._pre, self._pool, self._links,
            self._table_rows, self._work, self._room, self._scratch,
        )  # fmt: skip

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        status: int
        if self._scored:
            status = _EXAMINE.call(
                slot, x, reward, self._bounds, self._ridge, self._cum, self._pre, self._pool,
                self._links, self._table_rows, self._work, self._room, self._scratch,
            )  # fmt: skip
            return status
        status = _OBSERVE.call(
            slot, x, reward, self._window, self._threshold, self._seed_first, self._ridge,
            self._cum, self._pre, self._pool, self._links, self._table_rows, self._work,
        )  # fmt: skip
        return status

    def _loop(self) -> Loop:
        if self._scored:
            return Loop("ps_scored", (self._cum, self._alpha, *self._score_state()))
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
        if self._scored:
            return scoretest.observe_many(start, slots, X, rewards, *self._score_state())
        return disjoint.observe_many(
            start, slots, X, rewards, self._window, self._threshold, self._seed_first, self._ridge,
            self._cum, self._pre, self._pool, self._links, self._table_rows, self._work,
        )  # fmt: skip

    def _event(self, slot: int) -> ChangeEvent:
        d = self._p
        _, before, after, found = self._work.tolist()
        scored = isinstance(self._test, ScoreTest)
        event = ChangeEvent(
            arm=self._table.id_of[slot],
            step=self._step,
            plays=self._plays[slot],
            statistic=found[0],
            threshold=found[1] if scored else self._threshold,
            theta_before=tuple(before[:d]),
            theta_after=tuple(after[:d]),
            window=int(found[3]) if scored else self._window,
        )
        return detailed(event, int(found[2])) if scored else event
