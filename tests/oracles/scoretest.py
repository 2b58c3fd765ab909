"""PSLinUCB-Disjoint with the score test, written with least squares of whole stretches."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import bisect  # type: ignore[import-untyped]
from scipy.stats import chi2  # type: ignore[import-untyped]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Found(NamedTuple):
    """A change: the statistic, its bound and degrees of freedom, and the plays kept."""

    statistic: float
    bound: float
    freedom: int
    kept: int


class Fit(NamedTuple):
    """Least squares of one stretch of plays."""

    theta: Vector
    loss: float
    rank: int


def least_squares(X: Matrix, r: Vector) -> Fit:
    """The least-norm fit."""
    theta, _, rank, _ = np.linalg.lstsq(X, r, rcond=1e-5)
    return Fit(theta, float(np.sum((r - X @ theta) ** 2)), int(rank))


def saddlepoint(X: Matrix, a: Vector, gain: float, noise: float, rate: float, rank: int) -> float:
    """What clicks have in place of gain / noise; ``a`` is what the window moved its plays by."""
    spread = rate * (1 - rate)
    rest = max(gain - float(a @ a), 0.0) / gain

    def tilted(t: float) -> Vector:
        return np.asarray(1 / (1 + (1 / rate - 1) * np.exp(-t * a)))

    def slope(t: float) -> float:
        return float(noise / spread * a @ (tilted(t) - rate) + rest * gain * noise * t)

    most = 40 / float(np.abs(a).max())
    t = most if slope(most) < gain else bisect(lambda t: slope(t) - gain, 0.0, most, maxiter=1000)
    clicks = np.log1p(rate * np.expm1(t * a)) - t * a * rate
    w = 2 * (t * gain - float(noise / spread * clicks.sum() + rest * gain * noise * t * t / 2))
    if w <= 0:
        return 0.0
    wider = np.maximum(tilted(t) * (1 - tilted(t)) / spread, 1.0)
    before = np.linalg.svd(X, compute_uv=False)[:rank]
    weights = np.sqrt(rest + (1 - rest) * wider)
    after = np.linalg.svd(X * weights[:, None], compute_uv=False)[:rank]
    inner = min(0.0, np.log(t * t * gain * noise / w))
    return float(w + inner + WIDER * 2 * np.log(after / before).sum())


def clicked(X: Matrix, a: Vector, gain: float, noise: float, rate: float, rank: int) -> float:
    """The ratio that is compared: in steps, and a lighter tail than the normal counts in part."""
    spread, ratio = rate * (1 - rate), gain / noise
    value = max(0.0, saddlepoint(X, a, gain, noise, rate, rank) + STEP * (1 - 4 * spread))
    return value if value < ratio else ratio + 8 * spread**2 * (value - ratio)


def known(rate: float) -> float:
    """The share of the residuals that tell of the noise: rare clicks are few."""
    spread = rate * (1 - rate)
    return min(1.0, 2 * spread / max(1 - 4 * spread, 1e-9))


class ScoreTestOracle:
    """One test after each play of an arm, from all its plays since the restart."""

    def __init__(
        self, *, d: int, alpha: float, false_alarm: float, window: int, ridge: float = 1.0
    ) -> None:
        self.d, self.alpha, self.ridge = d, alpha, ridge
        self.lengths = [n for n in (8 * 2**i for i in range(20)) if n <= window]
        self.false_alarm = false_alarm
        self.X: dict[Hashable, Matrix] = {}
        self.r: dict[Hashable, Vector] = {}

    def add(self, a: Hashable) -> None:
        """Create an arm."""
        self.X[a], self.r[a] = np.zeros((0, self.d)), np.zeros(0)

    def matrix(self, a: Hashable) -> Matrix:
        """λI + Σ x xᵀ since the restart."""
        return np.asarray(self.ridge * np.eye(self.d) + self.X[a].T @ self.X[a])

    def theta(self, a: Hashable) -> Vector:
        """Ridge estimate since the restart."""
        return np.asarray(np.linalg.solve(self.matrix(a), self.X[a].T @ self.r[a]))

    def score(self, x: Vector, a: Hashable) -> float:
        """Upper confidence bound of one arm."""
        return float(
            x @ self.theta(a) + self.alpha * np.sqrt(x @ np.linalg.solve(self.matrix(a), x))
        )

    def bound(self, n: int, k: int) -> float:
        """Each length has an equal share of the false alarms, and a test in n/4 plays."""
        level = self.false_alarm * (n / 4) / len(self.lengths)
        return float(chi2.isf(min(0.25, level), k))

    def examine(self, a: Hashable, n: int) -> tuple[float, int, float]:
        """χ² value and degrees of freedom of the newest n plays, and the noise."""
        X, r = self.X[a], self.r[a]
        whole, before, window = (
            least_squares(X, r), least_squares(X[:-n], r[:-n]), least_squares(X[-n:], r[-n:]),
        )  # fmt: skip
        k = window.rank + before.rank - whole.rank
        free = len(r) - whole.rank - k
        gain = whole.loss - before.loss - window.loss
        if k < 1 or free < max(8, 2 * k) or gain <= 0:
            return 0.0, 0, 0.0
        noise = max(before.loss + window.loss, 1e-12 * float(r @ r)) / free
        ratio = gain / noise
        if set(r.tolist()) <= {0.0, 1.0}:
            if r.mean() in (0.0, 1.0):
                return 0.0, 0, 0.0
            if (free + k / 2 - 1) * np.log1p(ratio / free) < self.bound(n, 1):
                return 0.0, 0, 0.0
            moved = X[-n:] @ (window.theta - whole.theta)
            ratio = clicked(X[-n:], moved, gain, noise, float(r.mean()), window.rank)
            free *= known(float(r.mean()))
        return (free + k / 2 - 1) * float(np.log1p(ratio / free)), k, noise

    def kept(self, a: Hashable, noise: float) -> int:
        """Plays since the most likely beginning of the new regime."""
        X, r = self.X[a], self.r[a]
        whole = least_squares(X, r).loss
        best, kept = -np.inf, 1
        for n in range(1, min(self.lengths[-1], len(r) - 1) + 1):
            window = least_squares(X[-n:], r[-n:])
            before = least_squares(X[:-n], r[:-n])
            value = whole - before.loss - window.loss - PRICE * noise * window.rank
            if value > best + 1e-6 * noise:
                best, kept = value, n
        return kept

    def update(self, a: Hashable, x: Vector, r: float) -> Found | None:
        """Learn one observation, then test the lengths whose turn it is."""
        self.X[a], self.r[a] = np.vstack((self.X[a], x)), np.append(self.r[a], r)
        plays = len(self.r[a])
        best: tuple[float, Found, float] | None = None
        for n in self.lengths:
            if n >= plays or plays % (n // 4):
                continue
            value, k, noise = self.examine(a, n)
            if k and value >= self.bound(n, k):
                over = value / self.bound(n, k)
                if best is None or over > best[0]:
                    best = over, Found(value, self.bound(n, k), k, 0), noise
        if best is None:
            return None
        _, found, noise = best
        kept = self.kept(a, noise)
        self.X[a], self.r[a] = self.X[a][-kept:], self.r[a][-kept:]
        return found._replace(kept=kept)


# fitted, as in docs/math.md
PRICE = 6.0
STEP, WIDER = 1.0, 0.8
