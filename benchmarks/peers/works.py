"""Make the works A to F and the points of the growth curves, and write them for the workers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import whim
from benchmarks.peers.task import Task

__all__ = ["GROWTH_ARMS", "GROWTH_FEATURES", "make"]

GROWTH_ARMS = (10, 100, 1000, 10_000, 100_000)  # at d = 5
GROWTH_FEATURES = (5, 20, 50, 100, 200)  # at K = 10
_NONE = np.zeros((0, 0))


def _linear(name: str, steps: int, n_arms: int, d: int, m: int = 0, seed: int = 0) -> Task:
    """Linear rewards that do not change: contexts and coefficients of length about 1."""
    rng = np.random.default_rng([seed, n_arms, d, m])
    X = rng.normal(size=(steps, d)) / np.sqrt(d)
    theta = rng.normal(size=(n_arms, d))
    features = rng.normal(size=(n_arms, m)) / np.sqrt(m) if m else _NONE
    if m:
        theta = 0.5 * theta + features @ rng.normal(size=(m, d))
    expected = X @ theta.T
    R = expected + 0.1 * rng.normal(size=expected.shape)
    return Task(name, X, R, expected, _NONE, features, 1.0)


def _paper(name: str, steps: int) -> Task:
    """The paper's synthetic world: ten arms that change at their own times, d = 5."""
    made = whim.worlds.PiecewiseLinear().episode(horizon=steps, seed=0)
    return Task(name, made.contexts, made.rewards, made.expected, _NONE, _NONE, 1.0)


def _front_page(steps: int) -> Task:
    """Yahoo-like: 20 of 60 arms per decision, six features, clicks."""
    rng = np.random.default_rng(1)
    n_arms, d = 60, 6
    X = np.concatenate([rng.dirichlet(np.ones(d - 1), steps), np.ones((steps, 1))], axis=1)
    theta = rng.uniform(0, 0.1, size=(n_arms, d))
    expected = np.clip(X @ theta.T, 0, 1)
    R = (rng.random(expected.shape) < expected).astype(np.float64)
    # one article of the page is replaced every 200 visits
    page = list(range(20))
    pools = np.empty((steps, 20), np.int64)
    for t in range(steps):
        if t % 200 == 199:
            place, outside = rng.integers(20), sorted(set(range(n_arms)) - set(page))
            page[place] = outside[rng.integers(len(outside))]
        pools[t] = page
    return Task("B", X, R, expected, pools, _NONE, 0.2)


def make(name: str) -> Task:
    """The work of that name: A, B, D, E, F, ``K=...`` or ``d=...``."""
    if name in ("A", "F"):
        return _paper(name, 20_000)
    if name == "B":
        return _front_page(100_000)
    if name == "D":
        return _linear(name, 5000, 20, 100)
    if name == "E":
        return _linear(name, 20_000, 20, 6, m=6)
    axis, _, size = name.partition("=")
    if axis == "K":
        return _linear(name, max(50, min(5000, 20_000_000 // int(size))), int(size), 5)
    if axis == "d":
        return _linear(name, 5000, 10, int(size))
    raise ValueError(f"name must be a work, got {name!r}")


def write(name: str, folder: Path) -> Path:
    """Make a work once and keep it in ``folder``."""
    path = folder / f"{name}.npz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        make(name).save(path)
    return path
