"""``PSLinUCBHybrid``: Algorithm 2 of the paper, in rank-one form, and its score test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.detectors import ScoreTest
from whim.kernels import disjoint, factors, hybrid, scorehybrid, scoretest
from whim.kernels import revisit as looks
from whim.kernels.jit import Direct
from whim.policies.base import Loop, Policy
from whim.policies.hybrid import HybridPolicy
from whim.policies.revisiting import Revisiting
from whim.policies.scored import chosen_test, detailed
from whim.policies.windowed import RowWindows
from whim.types import F64, I64, ArmId, ChangeEvent

__all__ = ["PSLinUCBHybrid"]

_OBSERVE, _EXAMINE = Direct(hybrid.observe), Direct(scorehybrid.observe)
_CHOOSE_AGAIN, _OBSERVE_AGAIN = Direct(looks.choose_hybrid), Direct(looks.observe_hybrid)


class PSLinUCBHybrid(RowWindows, Revisiting, HybridPolicy):
    """Hybrid LinUCB that restarts an arm whose interest changed and keeps what all arms share.

    Without ``threshold`` the test is the score test (``whim.detectors.ScoreTest``), which needs
    no tuning; with it the paper's, Algorithm 2.

    Parameters
    ----------
    n_features, n_item_features
        Lengths d of a context and m of an arm's features; z = kron(y, x) has k = d·m.
    n_cross_features
        Instead of ``n_item_features``: the length k of rows that the caller passes as ``cross``.
    alpha
        α >= 0: how many widths of optimism.
    window, threshold, false_alarm
        As for ``PSLinUCBDisjoint``. The score test asks whether the arm's rewards, in x, are what
        they were: with item features it takes z to be kron(y, x), with cross rows of the caller's
        it is a test in x and z.
    revisit
        As for ``PSLinUCBDisjoint``; a new arm is here one that knows β.
    ridge
        λ > 0; the paper's 1.
    first_window
        As for ``PSLinUCBDisjoint``.
    g_pre
        For the paper's test. ``"exact"``: the shared model before the windows counts each
        observation once. ``"literal"``: the letter of Algorithm 2, which after a detection has
        seen the other arms' windows, and counts them again as they slide out (docs/math.md).
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = PSLinUCBHybrid(n_features=1, n_item_features=1, alpha=0.2)
    >>> policy.add_arms(["toys"], features=[[1.0]])
    ['toys']
    >>> rewards = [1.0, 0.8] * 20 + [0.0, 0.2] * 5
    >>> [event] = policy.update_many(["toys"] * 50, [[1.0]] * 50, rewards)
    >>> event.arm, event.step, event.began, event.window
    ('toys', 46, 41, 6)

    The paper's test:

    >>> policy = PSLinUCBHybrid(
    ...     n_features=1, n_item_features=1, alpha=0.2, window=10, threshold=0.5
    ... )
    >>> policy.add_arms(["toys"], features=[[1.0]])
    ['toys']
    >>> [event] = policy.update_many(["toys"] * 40, [[1.0]] * 40, [1.0] * 30 + [0.0] * 10)
    >>> event.arm, event.step
    ('toys', 36)
    """

    name = "pslinucb-hybrid"
    _threshold: float
    _pre: F64
    _flat: F64

    def __init__(
        self,
        *,
        n_features: int,
        n_item_features: int | None = None,
        n_cross_features: int | None = None,
        alpha: float = 1.0,
        window: int | None = None,
        threshold: float | None = None,
        false_alarm: float | None = None,
        revisit: float | str | None = None,
        ridge: float = 1.0,
        first_window: str = "seed",
        g_pre: str = "exact",
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(
            locals(),
            n_features=n_features,
            n_item_features=n_item_features,
            n_cross_features=n_cross_features,
            alpha=alpha,
            ridge=ridge,
            seed=seed,
            ties=ties,
        )
        words = ("seed", "literal")
        self._seed_first = checks.choice("first_window", first_window, words) == "seed"
        self._exact = checks.choice("g_pre", g_pre, ("exact", "literal")) == "exact"
        self._test = chosen_test(window, threshold, false_alarm)
        d, k = self._width, self._k
        if isinstance(self._test, ScoreTest):
            p = d if self._m else d + k  # z = kron(y, x) says nothing of an arm that x does not
            self._bounds = self._test.bounds(p)
            self._work = np.zeros((7, max(d + k, 4)))
            self._room, self._regime = np.zeros(scoretest.room(p)), factors.prior(p, 1.0)[None]
            self._open_pool(d + k + 2, self._test.lengths[-1])
            rows = {
                "_pre": factors.prior(d, self._ridge, more=d * k),
                "_flat": np.zeros(factors.packed_size(p) + p + 2),
                "_table_rows": np.zeros(scoretest.TABLE, np.int64),
            }
        else:
            self._threshold = self._test.threshold
            self._open_pool(d + k + 1, self._test.window)
            rows = {
                "_pre": factors.prior(d, self._ridge, more=d * k + d + k + 1),
                "_table_rows": np.zeros(disjoint.TABLE, np.int64),
            }
        self._window = self._test.window
        self._rows(rows)
        self._scored = isinstance(self._test, ScoreTest)
        self._open_revisit(revisit, self._scored)
        self._quick = type(self)._score is PSLinUCBHybrid._score and not self._random_ties
        if self._revisits and self._quick:  # bound once: a test in every call would be paid for
            self._choose = self._look  # type: ignore[method-assign]

    def _models(self) -> list[F64]:
        return [self._cum, self._pre]

    def _score_state(self, x: F64, slots: I64, cross: F64 | None) -> tuple[Any, ...]:
        """What the kernels that score with doubts take."""
        kind, rows = self._given(cross)
        return (
            kind, x, slots, self._features, rows, self._cum, self._shared_rows, self._k,
            self._alpha, self._ridge, self._out, self._scratch, self._rate, self._step,
            self._doubts, self._tally,
        )  # fmt: skip

    def _look(self, x: F64, slots: I64, cross: F64 | None) -> tuple[int, float, float, float]:
        found: tuple[int, float, float, float] = _CHOOSE_AGAIN.call(
            *self._score_state(x, slots, cross)
        )
        if found[0] < 0:
            checks.vector("x", x, self._d)
        return found

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        if not self._revisits:
            return super()._score(x, slots, cross, noise)
        return looks.score_hybrid(*self._score_state(x, slots, cross))

    def _score_many(self, X: F64, slots: I64) -> F64:
        if self._doubted(slots).any():
            return Policy._score_many(self, X, slots)
        return super()._score_many(X, slots)

    def _score_test(self) -> tuple[Any, ...]:
        """What the kernels that test take after the play itself."""
        return (
            self._bounds, self._ridge, self._cum, self._pre, self._flat, self._shared_rows,
            self._k, self._pool, self._links, self._table_rows, self._work, self._room,
            self._regime,
        )  # fmt: skip

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        kind, rows = self._taught(cross)
        status: int
        if self._scored:
            play = kind, x, slot, self._features, rows, reward
            if self._revisits:
                status = _OBSERVE_AGAIN.call(
                    *play, self._step, *self._doubt_state(), *self._score_test()
                )
            else:
                status = _EXAMINE.call(*play, *self._score_test())
            return status
        status = _OBSERVE.call(
            kind, x, slot, self._features, rows, reward, self._window, self._threshold,
            self._seed_first, self._exact, self._ridge, self._cum, self._pre, self._shared_rows,
            self._k, self._pool, self._links, self._table_rows, self._work,
        )  # fmt: skip
        return status

    def _loop(self) -> Loop:
        if self._scored:
            test = (
                self._bounds, self._pre, self._flat, self._pool, self._links, self._table_rows,
                self._work, self._room, self._regime,
            )  # fmt: skip
            if self._revisits:
                doubts = self._doubt_state()
                return Loop("ps_revisit_hybrid", (*self._hybrid_state(), *doubts, *test))
            return Loop("ps_scored_hybrid", (*self._hybrid_state(), *test))
        return Loop(
            "ps_hybrid",
            (
                *self._hybrid_state(), self._window, self._threshold, self._seed_first,
                self._exact, self._pre, self._pool, self._links, self._table_rows, self._work,
            ),
        )  # fmt: skip

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        kind, rows = self._taught(cross)
        if self._scored:
            plays = start, kind, X, slots, self._features, rows, rewards
            if self._revisits:
                doubts = self._doubt_state()
                return looks.observe_many_hybrid(*plays, self._step, *doubts, *self._score_test())
            return scorehybrid.observe_many(*plays, *self._score_test())
        return hybrid.observe_many(
            start, kind, X, slots, self._features, rows, rewards, self._window, self._threshold,
            self._seed_first, self._exact, self._ridge, self._cum, self._pre, self._shared_rows,
            self._k, self._pool, self._links, self._table_rows, self._work,
        )  # fmt: skip

    def set_features(self, arms: Iterable[ArmId], features: npt.ArrayLike) -> None:
        """Replace the item features of live arms.

        What an arm earns in x is then another, which is no change of interest: the score test of
        an arm whose features are new starts again from its next play.
        """
        ids = self._id_list(arms, "arms")
        slots = self._table.slots(ids)
        before = self._features[slots]
        super().set_features(ids, features)
        if not self._scored:
            return
        for slot in slots[(before != self._features[slots]).any(axis=1)].tolist():
            scorehybrid.settle(
                self._kind, slot, 0, self._width, self._k, self._bounds.shape[1] - 1,
                self._features, self._ridge, self._pre, self._flat, self._pool, self._links,
                self._table_rows, self._work,
            )  # fmt: skip

    def _forget(self, slots: list[int], gone: bool) -> None:
        for slot in () if self._scored else slots:
            hybrid.freeze(
                self._kind, slot, self._width, self._k, self._features, self._ridge, self._pre,
                self._shared_rows, self._pool, self._links, self._table_rows, self._work,
            )  # fmt: skip
        super()._forget(slots, gone)

    def _event(self, slot: int) -> ChangeEvent:
        d = self._width
        before, after, found = self._work[4:].tolist()
        event = ChangeEvent(
            arm=self._table.id_of[slot],
            step=self._step,
            plays=self._plays[slot],
            statistic=found[0],
            threshold=found[1] if self._scored else self._threshold,
            theta_before=tuple(before[:d]),
            theta_after=tuple(after[:d]),
            window=int(found[3]) if self._scored else self._window,
        )
        return detailed(event, int(found[2])) if self._scored else event
