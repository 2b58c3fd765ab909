"""``PSLinUCBHybrid``: Algorithm 2 of the paper, in rank-one form."""

from __future__ import annotations

import numpy as np

from whim import checks
from whim.detectors import MeanResidual
from whim.kernels import disjoint, factors, hybrid
from whim.kernels.jit import Direct
from whim.policies.base import Loop
from whim.policies.hybrid import HybridPolicy
from whim.policies.windowed import RowWindows
from whim.types import F64, I64, ChangeEvent

__all__ = ["PSLinUCBHybrid"]

_OBSERVE = Direct(hybrid.observe)


class PSLinUCBHybrid(RowWindows, HybridPolicy):
    """Hybrid LinUCB that restarts an arm whose interest changed and keeps what all arms share.

    Parameters
    ----------
    n_features, n_item_features
        Lengths d of a context and m of an arm's features; z = kron(y, x) has k = d·m.
    n_cross_features
        Instead of ``n_item_features``: the length k of rows that the caller passes as ``cross``.
    alpha
        α >= 0: how many widths of optimism.
    window
        ω >= 2: plays of an arm in its window.
    threshold
        δ > 0: mean residual, in units of the reward, that counts as a change.
    ridge
        λ > 0; the paper's 1.
    first_window
        As for ``PSLinUCBDisjoint``.
    g_pre
        ``"exact"``: the shared model before the windows counts each observation once.
        ``"literal"``: the letter of Algorithm 2, which after a detection has seen the other
        arms' windows, and counts them again as they slide out (docs/math.md).
    seed, ties
        See ``Policy``.

    Examples
    --------
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

    def __init__(
        self,
        *,
        n_features: int,
        n_item_features: int | None = None,
        n_cross_features: int | None = None,
        alpha: float = 1.0,
        window: int = 100,
        threshold: float,
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
        self._test = MeanResidual(window, threshold)
        words = ("seed", "literal")
        self._seed_first = checks.choice("first_window", first_window, words) == "seed"
        self._exact = checks.choice("g_pre", g_pre, ("exact", "literal")) == "exact"
        d, k = self._width, self._k
        self._pre: F64
        self._open_pool(d + k + 1, window)
        self._rows(
            {
                "_pre": factors.prior(d, self._ridge, more=d * k + d + k + 1),
                "_table_rows": np.zeros(disjoint.TABLE, np.int64),
            }
        )

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        kind, rows = self._given(None if cross is None else cross[None])
        test = self._test
        status: int = _OBSERVE.call(
            kind, x, slot, self._features, rows, reward, test.window, test.threshold,
            self._seed_first, self._exact, self._ridge, self._cum, self._pre, self._shared_rows,
            self._k, self._pool, self._links, self._table_rows, self._work,
        )  # fmt: skip
        return status

    def _loop(self) -> Loop:
        return Loop(
            "ps_hybrid",
            (
                *self._hybrid_state(), self._test.window, self._test.threshold, self._seed_first,
                self._exact, self._ridge, self._pre, self._pool, self._links, self._table_rows,
                self._work,
            ),
        )  # fmt: skip

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        kind, rows = self._given(cross)
        test = self._test
        return hybrid.observe_many(
            start, kind, X, slots, self._features, rows, rewards, test.window, test.threshold,
            self._seed_first, self._exact, self._ridge, self._cum, self._pre, self._shared_rows,
            self._k, self._pool, self._links, self._table_rows, self._work,
        )  # fmt: skip

    def _forget(self, slots: list[int], gone: bool) -> None:
        for slot in slots:
            hybrid.freeze(
                slot, self._width, self._k, self._pre, self._shared_rows, self._pool, self._links,
                self._table_rows, self._work,
            )  # fmt: skip
        super()._forget(slots, gone)

    def _event(self, slot: int) -> ChangeEvent:
        d = self._width
        return ChangeEvent(
            arm=self._table.id_of[slot],
            step=self._step,
            plays=self._plays[slot],
            statistic=float(self._work[6, 0]),
            threshold=self._test.threshold,
            theta_before=tuple(self._work[4, :d].tolist()),
            theta_after=tuple(self._work[5, :d].tolist()),
            window=self._test.window,
        )
