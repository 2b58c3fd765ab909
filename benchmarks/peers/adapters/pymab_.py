"""pymab: policies held in Rust, one context row for every arm of a fixed set."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pymab import sequential_replay
from pymab.policies import CUSUMUCBPolicy, LinUCBPolicy

from benchmarks.peers.task import Task, Unable

NOTES = {
    "A": "LinUCBPolicy, l2 = 1, the same row for every arm",
    "B": "no candidates: LinUCBPolicy of all 60 with rows of zeros for those off the page",
    "C": "LinUCBPolicy, one select_action per context: choices only",
    "D": "as A",
    "E": "no shared coefficients",
    "F": "CUSUMUCBPolicy, which takes no contexts: its contextual policies do not forget",
    "replay": "sequential_replay of LinUCBPolicy, rows of zeros for those off the page",
}


class _Linear:
    """The rows are written into one array; a policy reads only the chosen arm's on update."""

    def __init__(self, n_arms: int, d: int, alpha: float) -> None:
        self.policy = LinUCBPolicy(n_arms=n_arms, n_features=d, alpha=alpha)
        self.rows = np.zeros((n_arms, d))
        self.rng = np.random.default_rng(0)

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        if arms is None:
            self.rows[:] = x
            return self.policy.select_action(context=self.rows, rng=self.rng)
        # a row of zeros has the bound zero, and a candidate's bound is above it here
        self.rows[:] = 0.0
        self.rows[arms] = x
        chosen = self.policy.select_action(context=self.rows, rng=self.rng)
        return chosen if chosen in arms else arms[0]

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.policy.update(action=arm, reward=reward, context=self.rows)


class _Cusum:
    def __init__(self, n_arms: int) -> None:
        self.policy = CUSUMUCBPolicy(n_arms=n_arms)
        self.rng = np.random.default_rng(0)

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        return self.policy.select_action(rng=self.rng)

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.policy.update(action=arm, reward=reward)


def learner(task: Task) -> _Linear | _Cusum:
    """The policy nearest to the work."""
    if task.name == "E":
        raise Unable(NOTES["E"])
    if task.name == "F":
        return _Cusum(task.n_arms)
    return _Linear(task.n_arms, task.d, task.alpha)


def batch(
    X: np.ndarray, n_arms: int, history: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Callable[[], list[int]]:
    """There is no batch."""
    made = _Linear(n_arms, X.shape[1], 1.0)
    for x, arm, reward in zip(*history, strict=True):
        made.rows[int(arm)] = x
        made.update(int(arm), x, float(reward))
    return lambda: [made.select(x, None) for x in X]


def start() -> None:
    """A first decision."""
    _Linear(20, 6, 1.0).select(np.ones(6), None)


def replay(path: Path, events: int) -> tuple[float, int, int]:
    """Its own replay; making the (events, 60, 6) contexts that it asks for is in the time."""
    with np.load(path) as log:
        X, pools = log["contexts"][:events], log["pools"][:events]
        place, reward = log["place"][:events], log["reward"][:events]
        n_arms, alpha = int(log["n_arms"]), float(log["alpha"])
    n, d = X.shape
    start = time.perf_counter()
    rows = np.zeros((n, n_arms, d))
    rows[np.arange(n)[:, None], pools] = X[:, None, :]
    done = sequential_replay(
        LinUCBPolicy(n_arms=n_arms, n_features=d, alpha=alpha),
        logged_actions=pools[np.arange(n), place],
        logged_rewards=reward,
        logging_scheme="uniform",
        contexts=rows,
    )
    return time.perf_counter() - start, n, len(done.accepted_event_indices)
