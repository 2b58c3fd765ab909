"""``ForcedGLR``: LinUCB that explores by force, tests what it saw then, and restarts as a whole.

The scheme of GLR-klUCB (Besson, Kaufmann, Maillard & Seznec 2022) and of DAL (Gerogiannis et al.),
around LinUCB: a black box that knows nothing of contexts in its tests. A rival of
``beyond/detection``, run by live calls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from whim import checks
from whim.kernels.linalg import udu
from whim.kernels.status import CHANGED
from whim.policies import LinUCBDisjoint, Policy
from whim.types import F64, I64, ChangeEvent
from whim.worlds import Episode

_WARMUP = 5  # forced plays whose residuals are not tested: the model is still finding itself
_LEAST = 4  # values on either side of a split, where the variance is not known


def glr_normal(values: F64) -> float:
    """Log likelihood ratio of one change of the mean at the best split; unknown variance.

    >>> round(glr_normal(np.array([0.0, 1.0] * 4 + [9.0, 10.0] * 4)), 2)
    35.25
    """
    n = len(values)
    if n < 2 * _LEAST:
        return 0.0
    centred = values - values.mean()
    whole = float(centred @ centred)
    left = np.arange(_LEAST, n - _LEAST + 1)
    sums = np.cumsum(centred)[left - 1]
    explained = float((sums**2 * n / (left * (n - left))).max())
    if explained <= 0.0:
        return 0.0
    return 0.5 * n * math.log(whole / max(whole - explained, 1e-12 * whole))


def glr_clicks(values: F64) -> float:
    """Log likelihood ratio of one change of the rate of 0/1 rewards at the best split.

    >>> round(glr_clicks(np.array([0.0] * 10 + [1.0] * 10)), 2)
    13.86
    """
    n = len(values)
    if n < 2:
        return 0.0
    left = np.arange(1, n)
    hits = np.cumsum(values)
    rate = hits[-1] / n
    ratio = left * _kl(hits[:-1] / left, rate)
    ratio += (n - left) * _kl((hits[-1] - hits[:-1]) / (n - left), rate)
    return float(ratio.max())


def _kl(p: F64, q: float) -> F64:
    tiny = 1e-12
    p, q = np.clip(p, tiny, 1 - tiny), min(max(q, tiny), 1 - tiny)
    divergence: F64 = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    return divergence


class ForcedGLR(LinUCBDisjoint):
    """LinUCB with bursts of forced plays, a GLR test of them per arm, and a restart of all arms.

    With K candidates the first K of every ⌈K / explore⌉ steps since the last restart are forced,
    one for each candidate in turn. Models learn from all plays, tests see the forced ones alone:
    their rewards are a sample that no policy has selected. An arm's test reports a change when its
    ratio after n forced plays reaches ln(3 n^(3/2) / δ).

    Parameters
    ----------
    n_features, alpha
        LinUCB's.
    explore
        0 < share < 1 of forced plays.
    delta
        0 < δ < 1: the level of each arm's test.
    watch
        ``"reward"``, as the papers do, or ``"square"``: the squared residual of the arm's model,
        which also shows changes that leave the mean over all contexts as it was.
    clicks
        Whether rewards are 0 or 1: they are tested as such.
    """

    name = "forced-glr"
    restarts_all = True

    def __init__(
        self,
        *,
        n_features: int,
        alpha: float = 1.0,
        explore: float = 0.1,
        delta: float = 0.01,
        watch: str = "reward",
        clicks: bool = False,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(n_features=n_features, alpha=alpha, seed=seed, ties=ties)
        self._explore = checks.number("explore", explore, above=0, below=1)
        self._delta = checks.number("delta", delta, above=0, below=1)
        self._squares = checks.choice("watch", watch, ("reward", "square")) == "square"
        self._ratio = glr_clicks if clicks and not self._squares else glr_normal
        self._start, self._forced = 0, -1
        self._seen: dict[int, list[float]] = {}
        self._told = (0.0, 0.0)

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        place = super()._score(x, slots, cross, noise)
        n = len(slots)
        turn = (self._step - self._start) % math.ceil(n / self._explore)
        if turn < n:
            place = turn
            self._out[place, 0] = np.inf  # a forced play ranks first
        self._forced = int(slots[place]) if turn < n else -1
        return place

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        residual = reward
        if self._squares:
            at = udu.packed_size(self._p)
            residual = (reward - float(x @ self._cum[slot, at : at + self._p])) ** 2
        status = super()._observe(slot, x, cross, reward)
        if slot != self._forced or status:
            return status
        values = self._seen.setdefault(slot, [])
        values.append(residual)
        tested = np.array(values[_WARMUP if self._squares else 0 :])
        n = max(len(tested), 1)
        self._told = (self._ratio(tested), math.log(3 * n**1.5 / self._delta))
        if self._told[0] < self._told[1]:
            return status
        self._forget(list(self._table.slot_of.values()), gone=False)
        self._start = self._step + 1
        return CHANGED

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        for slot in slots:
            self._seen.pop(slot, None)

    def _event(self, slot: int) -> ChangeEvent:
        nothing = (0.0,) * self._p
        statistic, threshold = self._told
        return self._changed(
            slot, statistic=statistic, threshold=threshold, theta_before=nothing,
            theta_after=nothing,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ForcedGLRMaker:
    """Makes the policy where a run takes place: it is none of the library's, so it is not saved."""

    params: Mapping[str, Any]

    def __call__(self, episode: Episode) -> Policy:
        """The policy for one episode."""
        return ForcedGLR(**self.params)
