"""``PSLinUCBHybrid``: Algorithm 2 of the paper, in rank-one form, and its score test."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.kernels.linalg import udu
from whim.kernels.loops import Kernels
from whim.kernels.models import ps_hybrid
from whim.policies.base.detecting import Detecting
from whim.policies.base.hybrid import HybridPolicy
from whim.policies.base.policy import Policy
from whim.types import F64, I64, ArmId


class PSLinUCBHybrid(Detecting, HybridPolicy):
    """Hybrid LinUCB that restarts an arm whose interest changed and keeps what all arms share.

    Without ``threshold`` the test is the score test (``whim.detectors.ScoreTest``), which is set
    by its rate of false alarms; with it the paper's, Algorithm 2.

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
            n_features=n_features,
            n_item_features=n_item_features,
            n_cross_features=n_cross_features,
            alpha=alpha,
            ridge=ridge,
            seed=seed,
            ties=ties,
        )
        self._exact = checks.choice("g_pre", g_pre, ("exact", "literal")) == "exact"
        d, k = self._width, self._k
        self._open_report(d)
        self._open_test(window, threshold, false_alarm, first_window, revisit)
        p = d if self._m else d + k  # z = kron(y, x) says nothing of an arm that x does not
        self._reward_at = p if self._scored else d + k
        sums = 0 if self._scored else d + k + 1
        rows = {"_pre": udu.prior(d, self._ridge, more=d * k + sums)}
        if self._scored:
            rows["_flat"] = np.zeros(udu.packed_size(p) + p + 2)
        self._open_windows(p, d + k + 2 if self._scored else d + k + 1, rows)

    @property
    def _kernels(self) -> Kernels:  # type: ignore[override]
        return ps_hybrid.SCORE_TEST if self._scored else ps_hybrid.MEAN_RESIDUAL

    def _decides_at_once(self) -> bool:
        return not self._random_ties if self._scored else super()._decides_at_once()

    def _state(self) -> Any:
        model, windows, at = self._model(), self._windows(), self._reward_at
        if self._scored:
            test, revisit = self._score_state(self._flat), self._revisit_state()
            return ps_hybrid.ScoreTestState(model, windows, test, self._pre, at, False, revisit)
        return ps_hybrid.MeanResidualState(
            model, windows, self._paper_state(self._pre), self._pre, at, self._exact
        )

    def _models(self) -> list[F64]:
        return [self._cum, self._pre]

    def _score_many(self, X: F64, slots: I64) -> F64:
        if self._chances(slots).any():
            return Policy._score_many(self, X, slots)
        return super()._score_many(X, slots)

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
            ps_hybrid.settle(self._state(), slot)

    def _forget(self, slots: list[int], gone: bool) -> None:
        for slot in () if self._scored else slots:
            ps_hybrid.freeze(self._state(), slot)
        super()._forget(slots, gone)
