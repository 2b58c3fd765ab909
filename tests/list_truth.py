"""Logs of lists whose answer is known: worlds, made logs, and how often intervals hold the truth.

The quick test runs these with few logs, ``tests/slow/list_estimates.py`` with many.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import whim
from whim.evaluate import estimate_lists
from whim.logs import ListWriter, Log

__all__ = ["RIGHT", "Held", "World", "coverage", "made_list_log"]

F64 = npt.NDArray[np.float64]
KINDS, N, K = 4, 5, 3  # kinds of users, who come equally often; items; positions
# the estimates that are right for each kind of feedback
RIGHT = {
    "semi": ("slots", "rips", "cdr", "pi", "ips"),
    "cascade": ("rips", "cdr", "ips"),
    "whole": ("pi", "ips"),
}


class World:
    """Users who click; each kind has a list that is to be judged, and one that is shown mostly."""

    def __init__(self, feedback: str, logging: str, seed: int = 0, explore: float = 0.6) -> None:
        rng = np.random.default_rng(seed)
        self.feedback, self.logging, self.explore = feedback, logging, explore
        self.rates = rng.uniform(0.1, 0.7, size=(KINDS, N))
        self.positions = np.array([1.0, 0.8, 0.6])
        self.chosen = np.array([rng.permutation(N)[:K] for _ in range(KINDS)])
        self.wanted = np.array([rng.permutation(N)[:K] for _ in range(KINDS)])
        self.wanted[0] = self.chosen[0]

    @property
    def truth(self) -> float:
        """What the judged lists earn."""
        values = []
        for kind in range(KINDS):
            c = self.rates[kind, self.chosen[kind]]
            if self.feedback == "cascade":
                values.append(1 - float(np.prod(1 - c)))
            else:
                values.append(float((self.positions * c).sum()))
        return float(np.mean(values))

    def rewards(self, kinds: Any, shown: Any, rng: np.random.Generator) -> F64:
        clicks = rng.random(shown.shape) < self.rates[kinds[:, None], shown]
        if self.feedback == "cascade":
            return (clicks & (clicks.cumsum(1) == 1)).astype(np.float64)
        return (clicks & (rng.random(shown.shape) < self.positions)).astype(np.float64)


def made_list_log(path: Path, world: World, n: int, rng: np.random.Generator) -> Log:
    """A log of ``n`` lists of the world."""
    kinds = rng.integers(KINDS, size=n)
    shown = np.array([rng.permutation(N)[:K] for _ in range(n)])
    mixed = world.logging == "mixed"
    extra: dict[str, Any] = {}
    if mixed:
        own = rng.random(n) >= world.explore
        shown[own] = world.wanted[kinds[own]]
        same = shown == world.wanted[kinds]
        left = np.cumprod(1.0 / (N - np.arange(K)))
        prefixes = world.explore * left + (1 - world.explore) * np.logical_and.accumulate(same, 1)
        extra = {
            "list_probability": (world.explore / N + (1 - world.explore) * same).reshape(-1),
            "list_prefix_probability": prefixes.reshape(-1),
            "list_wanted": world.wanted[kinds].reshape(-1), "explore": np.full(n, world.explore),
        }  # fmt: skip
    rewards = world.rewards(kinds, shown, rng)
    items = np.full(rewards.shape, math.nan) if world.feedback == "whole" else rewards
    with ListWriter(
        path, n_features=KINDS, logging="propensity" if mixed else "uniform", propensities=mixed,
        wanted=mixed, overwrite=True,
    ) as writer:  # fmt: skip
        writer.block(
            time=np.arange(n), context=np.eye(KINDS)[kinds], pool=np.zeros(n, np.int64),
            reward=rewards.sum(1), list_offsets=np.arange(n + 1) * K,
            list_place=shown.reshape(-1), list_reward=items.reshape(-1),
            pool_offsets=np.array([0, N]), pool_items=np.arange(N), item_arm=list(range(N)),
            **extra,
        )  # fmt: skip
    return whim.logs.open(path)


class Held(NamedTuple):
    """Of each estimate, where not refused: share of intervals that hold the truth, mean."""

    truth: float
    share: dict[str, float]
    mean: dict[str, float]
    error: dict[str, float]
    refused: int


def coverage(folder: Path, feedback: str, logging: str, *, logs: int, lists: int) -> Held:
    """Judge the same lists on many logs of one world."""
    world = World(feedback, logging)
    rng = np.random.default_rng([7, logs])
    found: dict[str, list[tuple[float, bool]]] = {name: [] for name in RIGHT[feedback]}
    refused = 0
    for _ in range(logs):
        log = made_list_log(folder / "log.whim", world, lists, rng)
        chosen = world.chosen[log.context.argmax(1)].tolist()
        estimates = estimate_lists(log, chosen)
        for name, some in found.items():
            value, low, high = estimates[name].interval
            if estimates[name].support.problem is not None:
                refused += 1  # by chance: the mean weight is far from 1
                continue
            some.append((value, low <= world.truth <= high))
    values = {name: np.array([value for value, _ in some]) for name, some in found.items()}
    return Held(
        world.truth,
        {name: float(np.mean([held for _, held in some])) for name, some in found.items()},
        {name: float(each.mean()) for name, each in values.items()},
        {name: float(each.std(ddof=1) / math.sqrt(logs)) for name, each in values.items()},
        refused,
    )


WORLDS = list(itertools.product(RIGHT, ("uniform", "mixed")))
