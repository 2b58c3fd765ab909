"""``PSLinUCBDisjoint``: Algorithm 1 of the paper, in rank-one form, and its score test."""

from __future__ import annotations

from typing import Any

import numpy as np

from whim import checks
from whim.detectors import ScoreTest
from whim.kernels import disjoint, factors, scoretest
from whim.kernels import revisit as looks
from whim.kernels.jit import Direct, again
from whim.policies.base import Loop
from whim.policies.revisiting import Revisiting
from whim.policies.rows import RidgeRows
from whim.policies.scored import chosen_test, detailed
from whim.policies.windowed import RowWindows
from whim.types import F64, I64, ChangeEvent

__all__ = ["PSLinUCBDisjoint"]

_OBSERVE, _EXAMINE = Direct(disjoint.observe), Direct(scoretest.observe)
_CHOOSE_AGAIN, _OBSERVE_AGAIN = Direct(looks.choose), Direct(looks.observe)
_CHOOSE_AGAIN_LIGHT = Direct(again(looks.choose))


class PSLinUCBDisjoint(RowWindows, Revisiting, RidgeRows):
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
    revisit
        Looking again at arms that have not been played lately, which no test can see: an arm
        unplayed for n steps is scored as one that is new with the probability that it has changed
        since. By default ``"auto"``: by the rate of changes found so far, so that nothing differs
        until a first change is found. A number in (0, 1): the probability that an arm changes in
        a step, where it is known. ``"off"``: not at all. Only for the score test.
    ridge
        λ > 0; the paper's 1.
    first_window
        For the paper's test. ``"seed"``: an arm's first full window seeds the model that later
        windows are compared with, and reports nothing. ``"literal"``: the letter of Algorithm 1,
        which compares the first window with θ = 0 and so fires whenever its mean reward is at
        least δ.
    scoring
        As for ``LinUCBDisjoint``.
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

    Looking again, where an arm changes in one step of a thousand:

    >>> policy = PSLinUCBDisjoint(n_features=1, revisit=0.001)
    >>> policy.add_arms(["toys", "books"])
    ['toys', 'books']
    >>> policy.update_many(["toys", "books"] * 50, [[1.0]] * 100, [0.2, 0.6] * 50)
    []
    >>> policy.select([1.0]).arm
    'books'
    >>> policy.update_many(["books"] * 1000, [[1.0]] * 1000, [0.6] * 1000)
    []
    >>> policy.select([1.0]).arm
    'toys'

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
        revisit: float | str | None = None,
        ridge: float = 1.0,
        first_window: str = "seed",
        scoring: str = "float64",
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(
            locals(),
            payoff="disjoint",
            n_features=n_features,
            alpha=alpha,
            scoring=scoring,
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
        self._open_revisit(revisit, self._scored)
        self._quick = type(self)._score is PSLinUCBDisjoint._score and not self._random_ties
        if self._revisits and self._quick:  # bound once: a test in every call would be paid for
            self._choose = self._look  # type: ignore[method-assign]

    def _look(self, x: F64, slots: I64, cross: F64 | None) -> tuple[int, float, float, float]:
        kernel = _CHOOSE_AGAIN if self._light is None else _CHOOSE_AGAIN_LIGHT
        found: tuple[int, float, float, float] = kernel.call(
            x, slots, self._shown, self._alpha, self._ridge, self._rate, self._step, self._doubts,
            self._tally, self._out,
        )  # fmt: skip
        if found[0] < 0:  # not finite
            checks.vector("x", x, self._d)
        return found

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        if not self._revisits:
            return super()._score(x, slots, cross, noise)
        return looks.score(
            x, slots, self._shown, self._alpha, self._ridge, self._rate, self._step, self._doubts,
            self._tally, self._out,
        )  # fmt: skip

    def _forms(self, d: int, slots: I64) -> tuple[F64, F64]:
        T, P = super()._forms(d, slots)
        q = self._doubted(slots)
        if q.any():
            T *= (1 - q)[:, None]
            P *= (1 - q)[:, None]
            i = np.arange(d)
            P[:, i * d - i * (i - 1) // 2] += (q / self._ridge)[:, None]  # the squares of x
        return T, P

    def _test_state(self) -> tuple[Any, ...]:
        """What the kernels that observe take after the play itself."""
        if self._scored:
            return (
                self._bounds, self._ridge, self._cum, self._pre, self._pool, self._links,
                self._table_rows, self._work, self._room, self._scratch,
            )  # fmt: skip
        return (
            self._window, self._threshold, self._seed_first, self._ridge, self._cum, self._pre,
            self._pool, self._links, self._table_rows, self._work,
        )  # fmt: skip

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        status: int
        if self._revisits:
            status = _OBSERVE_AGAIN.call(
                slot, x, reward, self._step, *self._doubt_state(), *self._test_state()
            )
            return status
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

    def _loop(self) -> Loop | None:
        if self._light is not None:
            return super()._loop()
        test = self._test_state()
        if self._revisits:
            return Loop("ps_revisit", (self._cum, self._ridge, *self._doubt_state(), *test))
        if self._scored:
            return Loop("ps_scored", (self._cum, self._alpha, *test))
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
        plays, test = (start, slots, X, rewards), self._test_state()
        if self._revisits:
            return looks.observe_many(*plays, self._step, *self._doubt_state(), *test)
        many = scoretest.observe_many if self._scored else disjoint.observe_many
        return many(*plays, *test)

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
