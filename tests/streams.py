"""Seeded streams of plays that tests share: changes, repeated contexts, changing candidates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Play", "stream"]


@dataclass(frozen=True, slots=True)
class Play:
    """One step: the context, the candidates, and the reward of every arm."""

    x: npt.NDArray[np.float64]
    candidates: list[int]
    rewards: npt.NDArray[np.float64]


def stream(
    *,
    steps: int,
    arms: int,
    d: int,
    seed: int,
    period: int = 60,
    noise: float = 0.1,
    repeated: bool = False,
    scale: float = 1.0,
) -> Iterator[Play]:
    """Linear rewards whose coefficients change arm by arm, ``period`` steps apart on average.

    Candidate sets differ from step to step, in random order. ``repeated`` draws contexts from
    three vectors only.
    """
    rng = np.random.default_rng([seed, steps, arms, d])
    theta = rng.normal(size=(arms, d))
    few = rng.normal(size=(3, d)) / np.sqrt(d)
    for _ in range(steps):
        if rng.random() < arms / period:
            theta[rng.integers(arms)] = rng.normal(size=d)
        x = few[rng.integers(3)] if repeated else rng.normal(size=d) / np.sqrt(d)
        size = int(rng.integers(1, arms + 1))
        candidates = rng.permutation(arms)[:size].tolist()
        rewards = theta @ x + noise * rng.normal(size=arms)
        yield Play(x * scale, candidates, rewards)
