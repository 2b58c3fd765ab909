"""Policies that look at rewards only; the context argument is accepted and ignored."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class UCBOracle:
    """UCB1 of Auer et al. (2002), or the alpha / sqrt(n) bonus of Li et al. (2010)."""

    def __init__(self, *, bonus: Literal["ucb1", "li"] = "ucb1", alpha: float = 1.0) -> None:
        self.bonus = bonus
        self.alpha = alpha
        self.Z: dict[Hashable, list[float]] = {}
        self.t = 0
        self.last_statistic: float | None = None

    def add(self, a: Hashable) -> None:
        """Create an arm; a known arm is left as it is."""
        self.Z.setdefault(a, [])

    def scores(self, x: Vector | None, arms: Sequence[Hashable]) -> Vector:
        """Index of each candidate; +inf for an arm never played."""
        p = []
        for a in arms:
            n = len(self.Z[a])
            if n == 0:
                p.append(math.inf)
            elif self.bonus == "ucb1":
                width = math.sqrt(2.0 * math.log(max(self.t, 1)) / n)
                p.append(sum(self.Z[a]) / n + self.alpha * width)
            else:
                p.append(sum(self.Z[a]) / n + self.alpha / math.sqrt(n))
        return np.array(p, dtype=np.float64)

    def update(self, a: Hashable, x: Vector | None, r: float) -> bool:
        """Learn one reward; never a change."""
        self.t += 1
        self.Z[a].append(r)
        return False


class MUCBOracle:
    """M-UCB of Cao et al. (2019), with the round robin counted from 0."""

    def __init__(self, *, window: int, threshold: float, gamma: float) -> None:
        if window % 2 != 0:
            raise ValueError(f"window must be even, got {window}")
        self.window = window
        self.threshold = threshold
        self.gamma = gamma
        self.arms: list[Hashable] = []
        self.Z: dict[Hashable, list[float]] = {}
        self.t = 0
        self.tau = 0
        self.last_statistic: float | None = None

    def add(self, a: Hashable) -> None:
        """Create an arm, last in the round robin; a known arm is left as it is."""
        if a in self.Z:
            return
        self.arms.append(a)
        self.Z[a] = []

    def forced(self) -> Hashable | None:
        """The arm that the round robin demands at the coming step, if any."""
        K = len(self.arms)
        if K == 0 or self.gamma <= 0.0:
            return None
        N = max(K, math.floor(K / self.gamma))
        t = self.t + 1
        a0 = (t - self.tau - 1) % N
        return self.arms[a0] if a0 < K else None

    def ucb(self, x: Vector | None, arms: Sequence[Hashable]) -> Vector:
        """Index of each candidate, round robin or not; +inf for an arm unplayed since tau."""
        t = self.t + 1
        p = []
        for a in arms:
            n = len(self.Z[a])
            if n == 0:
                p.append(math.inf)
            else:
                width = math.sqrt(2.0 * math.log(max(t - self.tau, 1)) / n)
                p.append(sum(self.Z[a]) / n + width)
        return np.array(p, dtype=np.float64)

    def scores(self, x: Vector | None, arms: Sequence[Hashable]) -> Vector:
        """Index of each candidate; +inf for the forced arm if it is a candidate."""
        p = self.ucb(x, arms)
        forced = self.forced()
        for i, a in enumerate(arms):
            if forced is not None and a == forced:
                p[i] = np.inf
        return p

    def update(self, a: Hashable, x: Vector | None, r: float) -> bool:
        """Learn one reward, compare the halves of a full window, restart all on a change."""
        self.t += 1
        self.last_statistic = None
        self.Z[a].append(r)
        if len(self.Z[a]) < self.window:
            return False
        last = self.Z[a][-self.window :]
        half = self.window // 2
        self.last_statistic = float(abs(sum(last[half:]) - sum(last[:half])))
        if self.last_statistic > self.threshold:
            self.tau = self.t
            for other in self.arms:
                self.Z[other] = []
            return True
        return False


class DUCBOracle:
    """Discounted UCB of Garivier and Moulines (2011), summed anew from the whole history."""

    def __init__(self, *, gamma: float, xi: float, bound: float) -> None:
        self.gamma = gamma
        self.xi = xi
        self.bound = bound
        self.arms: list[Hashable] = []
        self.history: list[tuple[Hashable, float]] = []
        self.t = 0
        self.last_statistic: float | None = None

    def add(self, a: Hashable) -> None:
        """Create an arm; a known arm is left as it is."""
        if a not in self.arms:
            self.arms.append(a)

    def discounted_plays(self, a: Hashable) -> float:
        """N: discounted number of plays; the latest update weighs 1."""
        plays = enumerate(self.history, start=1)
        return float(sum(self.gamma ** (self.t - s) for s, (b, _) in plays if b == a))

    def discounted_sum(self, a: Hashable) -> float:
        """X: discounted sum of rewards."""
        plays = enumerate(self.history, start=1)
        return float(sum(r * self.gamma ** (self.t - s) for s, (b, r) in plays if b == a))

    def scores(self, x: Vector | None, arms: Sequence[Hashable]) -> Vector:
        """Index of each candidate; +inf for an arm never played."""
        total = sum(self.discounted_plays(a) for a in self.arms)
        p = []
        for a in arms:
            n = self.discounted_plays(a)
            if n == 0.0:
                p.append(math.inf)
            else:
                width = math.sqrt(self.xi * math.log(max(total, 1.0)) / n)
                p.append(self.discounted_sum(a) / n + 2.0 * self.bound * width)
        return np.array(p, dtype=np.float64)

    def update(self, a: Hashable, x: Vector | None, r: float) -> bool:
        """Learn one reward; never a change."""
        if a not in self.arms:
            raise KeyError(a)
        self.t += 1
        self.history.append((a, r))
        return False


class SWUCBOracle:
    """Sliding-window UCB of Garivier and Moulines (2011); the window spans all arms."""

    def __init__(self, *, window: int, xi: float, bound: float) -> None:
        self.window = window
        self.xi = xi
        self.bound = bound
        self.arms: list[Hashable] = []
        self.history: list[tuple[Hashable, float]] = []
        self.t = 0
        self.last_statistic: float | None = None

    def add(self, a: Hashable) -> None:
        """Create an arm; a known arm is left as it is."""
        if a not in self.arms:
            self.arms.append(a)

    def scores(self, x: Vector | None, arms: Sequence[Hashable]) -> Vector:
        """Index of each candidate; +inf for an arm without a play in the window."""
        recent = self.history[-self.window :]
        p = []
        for a in arms:
            if a not in self.arms:
                raise KeyError(a)
            rewards = [r for b, r in recent if b == a]
            N = len(rewards)
            if N == 0:
                p.append(math.inf)
            else:
                width = math.sqrt(self.xi * math.log(max(min(self.t, self.window), 1)) / N)
                p.append(sum(rewards) / N + self.bound * width)
        return np.array(p, dtype=np.float64)

    def update(self, a: Hashable, x: Vector | None, r: float) -> bool:
        """Learn one reward; never a change."""
        if a not in self.arms:
            raise KeyError(a)
        self.t += 1
        self.history.append((a, r))
        return False


class CUSUMUCBOracle:
    """CUSUM-UCB of Liu et al. (2018), without its random exploration; resets one arm at a time."""

    def __init__(self, *, warmup: int, drift: float, threshold: float) -> None:
        self.warmup = warmup
        self.drift = drift
        self.threshold = threshold
        self.Z: dict[Hashable, list[float]] = {}
        self.t = 0
        self.last_statistic: float | None = None

    def add(self, a: Hashable) -> None:
        """Create an arm; a known arm is left as it is."""
        self.Z.setdefault(a, [])

    def u0(self, a: Hashable) -> float | None:
        """Mean of the first `warmup` rewards since the reset, None until there are that many."""
        if len(self.Z[a]) < self.warmup:
            return None
        return sum(self.Z[a][: self.warmup]) / self.warmup

    def g(self, a: Hashable) -> tuple[float, float]:
        """(g_plus, g_minus), run over the rewards after the warm-up."""
        u0 = self.u0(a)
        g_plus, g_minus = 0.0, 0.0
        if u0 is None:
            return g_plus, g_minus
        for r in self.Z[a][self.warmup :]:
            g_plus = max(0.0, g_plus + r - u0 - self.drift)
            g_minus = max(0.0, g_minus + u0 - r - self.drift)
        return g_plus, g_minus

    def scores(self, x: Vector | None, arms: Sequence[Hashable]) -> Vector:
        """Index of each candidate; +inf for an arm unplayed since its reset."""
        total = sum(len(rewards) for rewards in self.Z.values())
        p = []
        for a in arms:
            n = len(self.Z[a])
            if n == 0:
                p.append(math.inf)
            else:
                width = math.sqrt(2.0 * math.log(max(total, 1)) / n)
                p.append(sum(self.Z[a]) / n + width)
        return np.array(p, dtype=np.float64)

    def update(self, a: Hashable, x: Vector | None, r: float) -> bool:
        """Learn one reward; past the warm-up run the two-sided test, reset this arm on a change."""
        self.t += 1
        self.last_statistic = None
        self.Z[a].append(r)
        if len(self.Z[a]) <= self.warmup:
            return False
        self.last_statistic = max(self.g(a))
        if self.last_statistic > self.threshold:
            self.Z[a] = []
            return True
        return False
