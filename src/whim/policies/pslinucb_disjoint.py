"""``PSLinUCBDisjoint``: Algorithm 1 of the paper, in rank-one form, and its score test."""

from __future__ import annotations

from typing import Any

import numpy as np

from whim.kernels.linalg import udu
from whim.kernels.loops import Kernels
from whim.kernels.models import disjoint
from whim.policies.base.detecting import Detecting
from whim.policies.base.ridge import RidgePolicy
from whim.types import F64, I64


class PSLinUCBDisjoint(Detecting, RidgePolicy):
    """LinUCB that tests each arm for a change of interest and restarts just that arm.

    Without ``threshold`` the test is the score test (``whim.detectors.ScoreTest``), which is set
    by its rate of false alarms; with it the paper's, Algorithm 1 as printed.

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
        the score test. It is kept, to a factor of 5, by every kind of reward that was measured
        whose mean is linear in the context (docs/experiments.md); where the mean is not, there
        are more: add features.
    revisit
        Revisiting arms that have not been played lately, which no test can see: an arm
        unplayed for n steps is scored as one that is new with the probability that it has changed
        since. By default ``"auto"``: by the rate of changes detected so far, so that nothing
        differs until a first change is detected. A number in (0, 1): the probability that an arm
        changes in a step, where it is known. ``"off"``: not at all. Only for the score test.
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

    Revisiting, where an arm changes in one step of a thousand:

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
            n_features=n_features,
            alpha=alpha,
            scoring=scoring,
            ridge=ridge,
            seed=seed,
            ties=ties,
        )
        d = self._p
        self._open_report(d)
        self._open_test(window, threshold, false_alarm, first_window, revisit)
        flat = np.zeros(udu.packed_size(d) + d + 2)
        pre = flat if self._scored else udu.prior(d, self._ridge, more=d + 1)
        self._open_windows(d, d + 2 if self._scored else d + 1, {"_pre": pre})

    @property
    def _kernels(self) -> Kernels:
        return disjoint.SCORE_TEST if self._scored else disjoint.MEAN_RESIDUAL

    def _state(self) -> Any:
        model, windows = self._model(), self._windows()
        if self._scored:
            test, revisit = self._score_state(self._pre), self._revisit_state()
            return disjoint.ScoreTestState(model, windows, test, revisit)
        return disjoint.MeanResidualState(model, windows, self._paper_state(self._pre))

    def _forms(self, d: int, slots: I64) -> tuple[F64, F64]:
        T, P = super()._forms(d, slots)
        q = self._chances(slots)
        if q.any():
            T *= (1 - q)[:, None]
            P *= (1 - q)[:, None]
            i = np.arange(d)
            P[:, i * d - i * (i - 1) // 2] += (q / self._ridge)[:, None]  # the squares of x
        return T, P
