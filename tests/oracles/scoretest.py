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
Plays = tuple[Matrix, Vector]


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


class Noise:
    """The noise of a play, as the plays in the buffer show it: the window and those before.

    ``cumulants(means, s)`` has the cumulant function of each play of these means, at its s, and
    its first two derivatives.
    """

    known: float
    step = 0.0
    lighter = 0.0

    def cumulants(self, means: Vector, s: Vector) -> tuple[Vector, Vector, Vector]:
        raise NotImplementedError


class TwoValues(Noise):
    """The upper value comes at a rate between the mean and the linear model's, cut at the ends."""

    def __init__(self, r: Vector, means: Vector, whole: float) -> None:
        """``whole`` is the variance of the residuals of one θ for all plays."""
        self.low, self.gap = float(r.min()), float(np.ptp(r))
        self.rate = float(np.mean(r == r.max()))
        self.reach = self.gap
        spread = self.rate * (1 - self.rate)
        self.known = min(1.0, 2 * spread / max(1 - 4 * spread, 1e-9))
        self.least = LEAST * min(max(whole / (self.gap**2 * spread), 1 / (len(r) + 1)), 1.0)
        self.step = STEP * (1 - 4 * spread)
        self.lighter = LIGHTER * (4 * spread) ** 2
        told = max(self.gap**2 * spread - whole, 0.0)
        varied = float(np.mean((means - self.low - self.gap * self.rate) ** 2))
        self.trust = told / varied if told < varied else 1.0

    def cumulants(self, means: Vector, s: Vector) -> tuple[Vector, Vector, Vector]:
        at = self.rate + self.trust * ((means - self.low) / self.gap - self.rate)
        p = np.clip(at, self.least * self.rate, 1 - self.least * (1 - self.rate))
        log = np.logaddexp(np.log(1 - p), np.log(p) + s * self.gap)
        up = np.exp(np.log(p) + s * self.gap - log)
        return log - s * self.gap * at, self.gap * (up - at), self.gap**2 * up * (1 - up)


class AnyValues(Noise):
    """Residuals near 0 as a normal part, those far out as they are, and one more."""

    def __init__(self, noise: float, before: Matrix, window: Matrix) -> None:
        """Each play is a pair: what the window moved it by, and its residual."""
        a, e = before.T
        moved = float(a @ e / (a @ a)) if a @ a > 0 else 0.0
        own, residuals = window.T
        e = np.concatenate((e - a * moved, residuals - own)) / np.sqrt(noise)
        a = np.concatenate((a, own))
        far = np.flatnonzero(np.abs(e) > 2)[:64]
        near = np.delete(e, far)
        second = float(np.mean(e**2))
        kurtosis = float(np.mean(e**4)) / second**2 if second > 0 else 0.0
        self.known = min(1.0, 2 / max(kurtosis - 1, 1e-9)) if second > 0 else 1.0
        scale = np.sqrt(max(1.0, float(a**2 @ e**2) / (float(a @ a) * second))) if second else 1.0
        self.scale = float(scale * np.sqrt(noise))
        each = 1 / (len(e) + 1)
        last = each * np.exp(-UNSEEN * self.known)
        outlier = residuals[np.argmax(np.abs(own * residuals))] / np.sqrt(noise)
        self.mean, self.variance = (near.mean(), near.var()) if len(near) else (0.0, 0.0)
        self.at = np.append(e[far], outlier)
        self.weights = np.append(np.full(len(far), each), last)
        self.share = (len(near) + 1) * each - last
        self.centre = self.share * self.mean + self.weights @ self.at
        self.reach = max(1.0, float(np.abs(self.at).max())) * self.scale

    def cumulants(self, means: Vector, s: Vector) -> tuple[Vector, Vector, Vector]:
        s = s[:, None] * self.scale
        middle = self.mean + s * self.variance
        logs = np.hstack((s * (self.mean + middle) / 2 + np.log(self.share),
                          s * self.at + np.log(self.weights)))  # fmt: skip
        log = np.logaddexp.reduce(logs, axis=1)
        tilted = np.exp(logs - log[:, None])
        places = np.hstack((middle, np.broadcast_to(self.at, (len(s), len(self.at)))))
        first = (tilted * places).sum(1)
        second = (tilted * (places - first[:, None]) ** 2).sum(1) + tilted[:, 0] * self.variance
        return (
            log - s[:, 0] * self.centre, self.scale * (first - self.centre),
            self.scale**2 * second,
        )  # fmt: skip


class Stretch(NamedTuple):
    """Plays, what the window moves each by, and their means by the θ of all plays."""

    X: Matrix
    r: Vector
    moved: Vector
    means: Vector

    @property
    def pairs(self) -> Matrix:
        """What each is moved by, and its residual."""
        return np.column_stack((self.moved, self.r - self.means))


def first_features(X: Matrix, r: Vector) -> Vector:
    """Least squares by features that are no combination of those before them."""
    chosen: list[int] = []
    for j in range(X.shape[1]):
        rest = least_squares(X[:, chosen], X[:, j]).loss if chosen else float(X[:, j] @ X[:, j])
        if rest > 1e-9 * float(X[:, j] @ X[:, j]):
            chosen.append(j)
    theta = np.zeros(X.shape[1])
    theta[chosen] = least_squares(X[:, chosen], r).theta
    return theta


def stretches(theta: Vector, before: Plays, window: Plays) -> tuple[Stretch, Stretch]:
    """The plays before and those of the window, ``theta`` being that of all plays."""
    X, r = window
    beta = first_features(X, r - X @ theta)
    older, newer = (Stretch(X, r, X @ beta, X @ theta) for X, r in (before, window))
    return older, newer


def surprise(
    before: Stretch, window: Stretch, gain: float, noise: float, freedom: tuple[int, int, float]
) -> float:
    """The χ² value of a gain; the rank of the window, k and ν are its ``freedom``."""
    rank, k, free = freedom
    if np.ptp(np.concatenate((before.r, window.r))) == 0:  # no noise is seen
        return tempered(gain / noise, k, free)
    shown = noise_shown(before, window, noise, (free * noise + gain) / (free + k))
    ratio, value = gain / noise, saddlepoint(window, shown, gain, noise, rank)
    value = min(value, ratio + shown.lighter * max(value - ratio, 0.0))
    return tempered(value, k, free * shown.known)


def noise_shown(before: Stretch, window: Stretch, noise: float, whole: float) -> Noise:
    """Two values, if there are no more."""
    r = np.concatenate((before.r, window.r))
    if len(set(r.tolist())) == 2:
        return TwoValues(r, np.concatenate((before.means, window.means)), whole)
    return AnyValues(noise, before.pairs, window.pairs)


def saddlepoint(window: Stretch, shown: Noise, gain: float, noise: float, rank: int) -> float:
    """What any noise has in place of gain / noise."""
    a, means = window.moved, window.means
    spread = float(a**2 @ shown.cumulants(means, 0 * a)[2])
    if not spread > 0:
        return 0.0
    more = max(1.0, float(a @ a) * noise / spread)
    rest = max(gain - float(a @ a), 0.0) / gain
    normal = rest * gain * noise

    def slope(t: float) -> float:
        return float(more * a @ shown.cumulants(means, t * a)[1] + normal * t)

    if slope(0.0) >= gain:  # less than what is expected of the least rates
        return 0.0
    most = 200 / (float(np.abs(a).max()) * shown.reach)
    t = most if slope(most) < gain else bisect(lambda t: slope(t) - gain, 0.0, most, maxiter=1000)
    log, _, variance = shown.cumulants(means, t * a)
    w = 2 * (t * gain - float(more * log.sum() + normal * t * t / 2))
    if w <= 0:
        return 0.0
    wider = np.maximum(variance / shown.cumulants(means, 0 * a)[2], 1.0)
    before = np.linalg.svd(window.X, compute_uv=False)[:rank]
    weights = np.sqrt(rest + (1 - rest) * wider)
    after = np.linalg.svd(window.X * weights[:, None], compute_uv=False)[:rank]
    inner = min(0.0, np.log(t * t * (more * spread + normal) / w))
    return max(0.0, float(w + inner + WIDER * 2 * np.log(after / before).sum() + shown.step))


def tempered(ratio: float, k: int, free: float) -> float:
    """A χ² value for a ratio whose noise was estimated."""
    return (free + k / 2 - 1) * float(np.log1p(ratio / free))


def price(bound: float, rank: int) -> float:
    """What ``rank`` directions cost; ``bound`` is that of the shortest length."""
    return min(PRICE * rank, bound)


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
        value = tempered(gain / noise, k, free)
        if value < self.bound(n, 1) + k - 1:
            return value, k, noise
        oldest = max(len(r) - self.lengths[-1], 0)
        older, newer = stretches(whole.theta, (X[oldest:-n], r[oldest:-n]), (X[-n:], r[-n:]))
        return surprise(older, newer, gain, noise, (window.rank, k, free)), k, noise

    def kept(self, a: Hashable, noise: float) -> int:
        """Plays since the most likely beginning of the new regime."""
        X, r = self.X[a], self.r[a]
        whole = least_squares(X, r).loss
        best, kept = -np.inf, 1
        for n in range(1, min(self.lengths[-1], len(r) - 1) + 1):
            window = least_squares(X[-n:], r[-n:])
            before = least_squares(X[:-n], r[:-n])
            cost = price(self.bound(8, window.rank), window.rank) if window.rank else 0.0
            value = whole - before.loss - window.loss - noise * cost
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
STEP, WIDER, LEAST, UNSEEN, LIGHTER = 1.0, 0.8, 0.3, 12.0, 0.5
