"""LinUCB and PSLinUCB with disjoint payoffs, written as the pseudo-code reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
FirstWindow = Literal["literal", "seed"]


class LinUCBDisjointOracle:
    """Li et al. (2010), Algorithm 1."""

    def __init__(self, *, d: int, alpha: float, ridge: float = 1.0) -> None:
        self.d = d
        self.alpha = alpha
        self.ridge = ridge
        self.A: dict[Hashable, Matrix] = {}
        self.b: dict[Hashable, Vector] = {}
        self.t = 0
        self.last_statistic: float | None = None

    def add(self, a: Hashable) -> None:
        """Create an arm; a known arm is left as it is."""
        if a in self.A:
            return
        self.A[a] = self.ridge * np.eye(self.d)
        self.b[a] = np.zeros(self.d)

    def theta(self, a: Hashable) -> Vector:
        """Ridge estimate of one arm."""
        return np.asarray(np.linalg.inv(self.A[a]) @ self.b[a])

    def scores(self, x: Vector, arms: Sequence[Hashable]) -> Vector:
        """UCB index of each candidate."""
        p = []
        for a in arms:
            width = np.sqrt(x @ np.linalg.inv(self.A[a]) @ x)
            p.append(x @ self.theta(a) + self.alpha * width)
        return np.array(p, dtype=np.float64)

    def update(self, a: Hashable, x: Vector, r: float) -> bool:
        """Learn one observation; never a change."""
        self.t += 1
        self.A[a] = self.A[a] + np.outer(x, x)
        self.b[a] = self.b[a] + r * x
        return False


class PSLinUCBDisjointOracle:
    """Xu et al. (2020), Algorithm 1; `first_window="seed"` is the departure for fresh arms."""

    def __init__(
        self,
        *,
        d: int,
        alpha: float,
        window: int,
        threshold: float,
        ridge: float = 1.0,
        first_window: FirstWindow = "literal",
    ) -> None:
        self.d = d
        self.alpha = alpha
        self.window = window
        self.threshold = threshold
        self.ridge = ridge
        self.first_window = first_window
        self.A_pre: dict[Hashable, Matrix] = {}
        self.A_cur: dict[Hashable, Matrix] = {}
        self.A_cum: dict[Hashable, Matrix] = {}
        self.b_pre: dict[Hashable, Vector] = {}
        self.b_cur: dict[Hashable, Vector] = {}
        self.b_cum: dict[Hashable, Vector] = {}
        self.SW: dict[Hashable, deque[tuple[Vector, float]]] = {}
        self.seeded: dict[Hashable, bool] = {}
        self.t = 0
        self.last_statistic: float | None = None

    def add(self, a: Hashable) -> None:
        """Create an arm; a known arm is left as it is."""
        if a in self.SW:
            return
        for A in (self.A_pre, self.A_cur, self.A_cum):
            A[a] = self.ridge * np.eye(self.d)
        for b in (self.b_pre, self.b_cur, self.b_cum):
            b[a] = np.zeros(self.d)
        self.SW[a] = deque()
        self.seeded[a] = False

    def theta_cum(self, a: Hashable) -> Vector:
        """Estimate since the last restart; decides which arm is played."""
        return np.asarray(np.linalg.inv(self.A_cum[a]) @ self.b_cum[a])

    def theta_pre(self, a: Hashable) -> Vector:
        """Estimate from before the window; what the window is tested against."""
        return np.asarray(np.linalg.inv(self.A_pre[a]) @ self.b_pre[a])

    def scores(self, x: Vector, arms: Sequence[Hashable]) -> Vector:
        """UCB index of each candidate, from the cum model."""
        p = []
        for a in arms:
            width = np.sqrt(x @ np.linalg.inv(self.A_cum[a]) @ x)
            p.append(x @ self.theta_cum(a) + self.alpha * width)
        return np.array(p, dtype=np.float64)

    def update(self, a: Hashable, x: Vector, r: float) -> bool:
        """Learn one observation, then test the window if it is full."""
        self.t += 1
        self.last_statistic = None
        x = np.array(x, dtype=np.float64)
        self.SW[a].append((x, r))
        self.A_cur[a] = self.A_cur[a] + np.outer(x, x)
        self.A_cum[a] = self.A_cum[a] + np.outer(x, x)
        self.b_cur[a] = self.b_cur[a] + r * x
        self.b_cum[a] = self.b_cum[a] + r * x
        if len(self.SW[a]) < self.window:
            return False
        if self.first_window == "seed" and not self.seeded[a]:
            # nothing to compare with: restart without a test and without an event
            self._restart(a)
            return False
        theta_pre = self.theta_pre(a)
        total = sum(float(x_s @ theta_pre) - r_s for x_s, r_s in self.SW[a])
        self.last_statistic = abs(total / self.window)
        if self.last_statistic >= self.threshold:
            self._restart(a)
            return True
        x_1, r_1 = self.SW[a].popleft()
        self.A_pre[a] = self.A_pre[a] + np.outer(x_1, x_1)
        self.A_cur[a] = self.A_cur[a] - np.outer(x_1, x_1)
        self.b_pre[a] = self.b_pre[a] + r_1 * x_1
        self.b_cur[a] = self.b_cur[a] - r_1 * x_1
        return False

    def _restart(self, a: Hashable) -> None:
        self.A_pre[a] = self.A_cur[a].copy()
        self.A_cum[a] = self.A_cur[a].copy()
        self.b_pre[a] = self.b_cur[a].copy()
        self.b_cum[a] = self.b_cur[a].copy()
        self.A_cur[a] = self.ridge * np.eye(self.d)
        self.b_cur[a] = np.zeros(self.d)
        self.SW[a] = deque()
        self.seeded[a] = True
