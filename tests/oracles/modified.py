"""The modified PSLinUCB that the regret analysis is about."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class ModifiedPSLinUCBOracle:
    """Xu et al. (2020), appendix (Algorithm 3), with its round robin and its window repaired.

    Repairs: arms are counted from 0; every observation enters the window; the window holds the
    last `window` pulls of the arm; the first half is fitted with a pseudo-inverse whose relative
    cut-off is `rcond` (numpy's default keeps rounding noise when all contexts are parallel).
    """

    def __init__(
        self,
        *,
        arms: Sequence[Hashable],
        d: int,
        alpha: float,
        window: int,
        b: float,
        c: float,
        gamma: float,
        ridge: float = 1.0,
        rcond: float = 1e-10,
    ) -> None:
        if window % 2 != 0:
            raise ValueError(f"window must be even, got {window}")
        self.d = d
        self.alpha = alpha
        self.window = window
        self.b = b
        self.c = c
        self.gamma = gamma
        self.ridge = ridge
        self.rcond = rcond
        self.arms: list[Hashable] = []
        self.A_cum: dict[Hashable, Matrix] = {}
        self.b_cum: dict[Hashable, Vector] = {}
        self.SW: dict[Hashable, deque[tuple[Vector, float]]] = {}
        self.t = 0
        self.tau = 0
        self.last_statistic: float | None = None
        for a in arms:
            self.add(a)

    def add(self, a: Hashable) -> None:
        """Create an arm, last in the round robin; a known arm is left as it is."""
        if a in self.SW:
            return
        self.arms.append(a)
        self._reset(a)

    def forced(self) -> Hashable | None:
        """The arm that the round robin demands at the coming step, if any."""
        K = len(self.arms)
        if K == 0 or self.gamma <= 0.0:
            return None
        N = max(K, math.floor(K / self.gamma))
        t = self.t + 1
        a0 = (t - self.tau - 1) % N
        return self.arms[a0] if a0 < K else None

    def theta_cum(self, a: Hashable) -> Vector:
        """Ridge estimate of one arm since the last restart."""
        return np.asarray(np.linalg.inv(self.A_cum[a]) @ self.b_cum[a])

    def ucb(self, x: Vector, arms: Sequence[Hashable]) -> Vector:
        """UCB index of each candidate, round robin or not."""
        p = []
        for a in arms:
            width = np.sqrt(x @ np.linalg.inv(self.A_cum[a]) @ x)
            p.append(x @ self.theta_cum(a) + self.alpha * width)
        return np.array(p, dtype=np.float64)

    def scores(self, x: Vector, arms: Sequence[Hashable]) -> Vector:
        """UCB index of each candidate; +inf for the forced arm if it is a candidate."""
        p = self.ucb(x, arms)
        forced = self.forced()
        for i, a in enumerate(arms):
            if forced is not None and a == forced:
                p[i] = np.inf
        return p

    def update(self, a: Hashable, x: Vector, r: float) -> bool:
        """Learn one observation, compare the halves of a full window, restart all on a change."""
        self.t += 1
        self.last_statistic = None
        x = np.array(x, dtype=np.float64)
        self.SW[a].append((x, r))
        self.A_cum[a] = self.A_cum[a] + np.outer(x, x)
        self.b_cum[a] = self.b_cum[a] + r * x
        if len(self.SW[a]) < self.window:
            return False
        half = self.window // 2
        first, second = list(self.SW[a])[:half], list(self.SW[a])[half:]
        A_pre = sum((np.outer(x_s, x_s) for x_s, _ in first), np.zeros((self.d, self.d)))
        b_pre = sum((r_s * x_s for x_s, r_s in first), np.zeros(self.d))
        theta_pre = np.linalg.pinv(A_pre, rcond=self.rcond, hermitian=True) @ b_pre
        total = sum(float(x_s @ theta_pre) - r_s for x_s, r_s in second)
        self.last_statistic = abs(2.0 / self.window * total)
        if self.last_statistic >= self.b + self.c:
            for other in self.arms:
                self._reset(other)
            self.tau = self.t
            return True
        return False

    def _reset(self, a: Hashable) -> None:
        self.A_cum[a] = self.ridge * np.eye(self.d)
        self.b_cum[a] = np.zeros(self.d)
        self.SW[a] = deque(maxlen=self.window)
