"""Rewards and contexts that never change, of every kind (``beyond/rewards``).

Money, counts, dwell times, rare outliers, noise and click rates that depend on the context; and
streams of contexts and labels in random order, so that whatever changed in them no longer does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from whim.types import F64

FEATURES = 5
LINEAR, BENT, STREAM = "linear", "not linear", "stream"

Plays = tuple[F64, F64]
Maker = Callable[[np.random.Generator, int], Plays]


class Case(NamedTuple):
    """A row of the tables: how the mean reward depends on the context, and a stream's file."""

    name: str
    mean: str
    path: Path | None = None

    def draw(self, rng: np.random.Generator, plays: int) -> Plays:
        """Contexts and rewards of one arm."""
        if self.path is not None:
            return _shuffled(self.path, rng, plays)
        return (_stand_in if self.mean == STREAM else MAKERS[self.name][1])(rng, plays)


# -- rewards ------------------------------------------------------------------------------------


def _contexts(rng: np.random.Generator, plays: int) -> F64:
    X = rng.normal(size=(plays, FEATURES))
    X[:, 0] = 1.0
    return X


def _plain(noise: Callable[[np.random.Generator, int], F64]) -> Maker:
    """Noise of one distribution, whatever the context."""

    def make(rng: np.random.Generator, plays: int) -> Plays:
        X = _contexts(rng, plays)
        return X, X @ _theta(rng) + 0.2 * noise(rng, plays)

    return make


def _alone(rewards: Callable[[np.random.Generator, int], F64]) -> Maker:
    """Rewards of one distribution, whatever the context."""
    return lambda rng, plays: (_contexts(rng, plays), rewards(rng, plays))


def _clicks(rate: float, low: float, high: float) -> Callable[[np.random.Generator, int], F64]:
    """The upper one of two values comes at one rate."""
    return lambda rng, n: np.where(rng.random(n) < rate, high, low)


def _theta(rng: np.random.Generator) -> F64:
    theta = rng.normal(size=FEATURES)
    return np.asarray(theta / np.linalg.norm(theta))


def _outliers(rng: np.random.Generator, plays: int) -> F64:
    return rng.normal(size=plays) * np.where(rng.random(plays) < 0.01, 20.0, 1.0)


def _uneven(rng: np.random.Generator, plays: int) -> Plays:
    """The noise grows with one feature."""
    X = _contexts(rng, plays)
    return X, X @ _theta(rng) + 0.2 * np.abs(X[:, 1]) * rng.normal(size=plays)


def _two_rates(high: float, low: float) -> Maker:
    """Clicks whose rate depends on a feature that is 1 or -1."""

    def make(rng: np.random.Generator, plays: int) -> Plays:
        X = _contexts(rng, plays)
        X[:, 1] = np.where(rng.random(plays) < 0.5, 1.0, -1.0)
        rate = np.where(X[:, 1] > 0, high, low)
        return X, (rng.random(plays) < rate).astype(np.float64)

    return make


def _logistic(offset: float) -> Maker:
    def make(rng: np.random.Generator, plays: int) -> Plays:
        X = _contexts(rng, plays)
        rate = 1 / (1 + np.exp(-offset - 2 * X @ _theta(rng)))
        return X, (rng.random(plays) < rate).astype(np.float64)

    return make


def _hours(clicks: bool) -> Maker:
    """The hour as a plain number, while the mean follows the sun."""

    def make(rng: np.random.Generator, plays: int) -> Plays:
        hour = np.arange(plays) / 40 % 24
        X = np.c_[np.ones(plays), hour / 24]
        mean = 0.3 + 0.2 * np.sin(2 * np.pi * hour / 24)
        noisy = (rng.random(plays) < mean).astype(np.float64)
        return X, noisy if clicks else mean + 0.2 * rng.normal(size=plays)

    return make


def _quadratic(rng: np.random.Generator, plays: int) -> Plays:
    X = _contexts(rng, plays)
    return X, X @ _theta(rng) + 0.3 * X[:, 1] ** 2 + 0.2 * rng.normal(size=plays)


MAKERS: dict[str, tuple[str, Maker]] = {
    "normal": (LINEAR, _plain(lambda rng, n: rng.normal(size=n))),
    "clicks at 0.1": (LINEAR, _alone(_clicks(0.1, 0.0, 1.0))),
    "clicks at 0.03, worth 0.5": (LINEAR, _alone(_clicks(0.03, 0.0, 0.5))),
    "-1 or +1, at 0.05": (LINEAR, _alone(_clicks(0.05, -1.0, 1.0))),
    "clicks, rates .7 / .3": (LINEAR, _two_rates(0.7, 0.3)),
    "clicks, rates .6 / .1": (LINEAR, _two_rates(0.6, 0.1)),
    "clicks, rates .8 / .2": (LINEAR, _two_rates(0.8, 0.2)),
    "clicks, rates .95 / .05": (LINEAR, _two_rates(0.95, 0.05)),
    "Poisson counts, 0.5": (LINEAR, _alone(lambda rng, n: rng.poisson(0.5, n).astype(np.float64))),
    "exponential dwell": (LINEAR, _alone(lambda rng, n: rng.exponential(30.0, n))),
    "dwell, 90 % zeros": (
        LINEAR, _alone(lambda rng, n: rng.exponential(30.0, n) * (rng.random(n) < 0.1)),
    ),
    "revenue, 3 % buy": (
        LINEAR, _alone(lambda rng, n: rng.lognormal(3.0, 1.0, n) * (rng.random(n) < 0.03)),
    ),
    "Student's t3 noise": (LINEAR, _plain(lambda rng, n: rng.standard_t(3, n))),
    "1 % outliers, 20 times": (LINEAR, _plain(_outliers)),
    "noise that grows with a feature": (LINEAR, _uneven),
    "logistic clicks, rare": (BENT, _logistic(-4.0)),
    "logistic clicks, balanced": (BENT, _logistic(0.0)),
    "hour as a number, clicks": (BENT, _hours(True)),
    "hour as a number, normal": (BENT, _hours(False)),
    "quadratic mean": (BENT, _quadratic),
}  # fmt: skip
QUICK = ("normal", "clicks at 0.03, worth 0.5", "revenue, 3 % buy", "Student's t3 noise")


# -- streams in random order --------------------------------------------------------------------


def _stand_in(rng: np.random.Generator, plays: int) -> Plays:
    """Contexts around four centres, two for each of two classes; the reward of one class."""
    centres = 2 * np.random.default_rng(7).normal(size=(4, FEATURES))
    which = rng.integers(4, size=plays)
    X = centres[which] + rng.normal(size=(plays, FEATURES))
    X[:, 0] = 1.0
    return X, (which % 2).astype(np.float64)


def _shuffled(path: Path, rng: np.random.Generator, plays: int) -> Plays:
    """A stream's contexts and one arm's rewards, in random order, again and again."""
    with np.load(path) as stored:
        X = stored["X"].astype(np.float64)
        arm = int(rng.integers(stored["R"].shape[1] if "R" in stored else stored["y"].max() + 1))
        r = stored["R"][:, arm] if "R" in stored else stored["y"] == arm
    times = -(-plays // len(X))
    order = np.concatenate([rng.permutation(len(X)) for _ in range(times)])[:plays]
    return X[order], np.asarray(r[order], np.float64)


def _streams(folder: Path | None) -> list[Path]:
    """The ``.npz`` files with contexts X and labels y or rewards R."""
    if folder is None:
        return []
    return sorted([*folder.glob("*.npz"), *folder.glob("drift/*.npz")])


def cases(folder: Path | None, *, quick: bool) -> list[Case]:
    """All of them, or some if quick; streams of the folder, or a generated one."""
    made = [Case(name, mean) for name, (mean, _) in MAKERS.items() if name in QUICK or not quick]
    streams = [Case(path.stem, STREAM, path) for path in _streams(folder)]
    return [*made, *(streams or [Case("four clouds (generated)", STREAM)])]
