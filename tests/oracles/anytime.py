"""Confidence sequences by their definition: rates that a mixture of others does not rule out.

Every mixture is a sum over a fine grid, and every end is sought along a fine grid of candidates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def _widest(kept: NDArray[np.bool_], grid: NDArray[np.float64]) -> tuple[float, float]:
    return float(grid[kept][0]), float(grid[kept][-1])


def click_rates(rewards: ArrayLike, alpha: float = 0.05) -> tuple[float, float]:
    """Rates p for which the rewards are not 1/alpha times likelier under the arcsine mixture."""
    r = np.asarray(rewards, bool)
    angle = (np.arange(20_000) + 0.5) / 20_000  # p = sin²(πu/2) has Jeffreys's prior

    def log_likelihood(p: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.zeros_like(p)
        with np.errstate(divide="ignore"):
            up, down = np.log(p), np.log1p(-p)
        for one in r:
            total += up if one else down
        return total

    drawn = log_likelihood(np.sin(np.pi * angle / 2) ** 2)
    top = drawn.max()
    mixture = top + np.log(np.mean(np.exp(drawn - top)))
    grid = np.linspace(0.0, 1.0, 20_001)
    return _widest(log_likelihood(grid) > mixture + np.log(alpha), grid)


def normal_means(
    rewards: ArrayLike, scale: float, alpha: float = 0.05
) -> tuple[float, float] | None:
    """Means m that the rewards do not rule out; None if they rule out none.

    Under m, rewards are normal with an unknown deviation σ; the mixture has mean m + σδ with δ
    normal of variance 1/scale. Both are averaged over σ by dσ/σ.
    """
    r = np.asarray(rewards, float)
    n = len(r)
    deltas = np.linspace(-12, 12, 241) / np.sqrt(scale)
    prior = np.exp(-0.5 * scale * deltas**2)
    prior /= prior.sum()
    log_sigma = np.log(r.std()) + np.linspace(-4, 4, 401)
    sigma = np.exp(log_sigma)

    def ruled_out(m: float) -> bool:
        def marginal(delta: NDArray[np.float64]) -> NDArray[np.float64]:
            centre = m + sigma[:, None] * delta
            squares = ((r - r.mean()) ** 2).sum() + n * (r.mean() - centre) ** 2
            density = -n * np.log(sigma)[:, None] - squares / (2 * sigma[:, None] ** 2)
            return np.exp(density - top).sum(axis=0)

        top = -n * np.log(r.std()) - n / 2
        ratio = (marginal(deltas) @ prior) / marginal(np.zeros(1))[0]
        return bool(ratio >= 1 / alpha)

    grid = r.mean() + r.std() * np.linspace(-1.5, 1.5, 121)
    kept = np.array([not ruled_out(m) for m in grid])
    return None if kept.all() else _widest(kept, grid)


def compared(
    strata: list[tuple[ArrayLike, ArrayLike]], lifts: NDArray[np.float64], strays: float,
    pseudo: float,
) -> tuple[float, NDArray[np.bool_]]:  # fmt: skip
    """The difference of two groups, and which lifts are within ``strays`` standard errors.

    Strata weigh n·m/(n + m). A group's variance is pooled with ``pseudo`` rewards that have that
    of both groups.
    """
    pairs = [(np.asarray(a, float), np.asarray(b, float)) for a, b in strata]
    pairs = [(a, b) for a, b in pairs if len(a) and len(b)]
    weights = np.array([1 / (1 / len(a) + 1 / len(b)) for a, b in pairs])
    weights /= weights.sum()
    one, two = (np.concatenate(group) for group in zip(*pairs, strict=True))
    both = (len(one) * one.var() + len(two) * two.var()) / (len(one) + len(two))
    spread = [(len(g) * g.var() + pseudo * both) / (len(g) + pseudo) for g in (one, two)]
    means = np.array([[a.mean(), b.mean()] for a, b in pairs])
    first, second = weights @ means
    kept = []
    for lift in lifts:
        ratio = 1 + lift
        variance = sum(
            w * w * (spread[0] / len(a) + ratio**2 * spread[1] / len(b))
            for w, (a, b) in zip(weights, pairs, strict=True)
        )
        kept.append(abs(first - ratio * second) <= strays * np.sqrt(variance))
    return float(first - second), np.array(kept)
