"""Whim itself, through its public calls, by the same worker as the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import whim
from benchmarks.peers.task import Task

NOTES = {
    "A": "LinUCBDisjoint",
    "B": "LinUCBDisjoint, candidates as a list of ids",
    "C": "LinUCBDisjoint.scores_many: every score, float64",
    "D": "LinUCBDisjoint",
    "E": "LinUCBHybrid",
    "F": "PSLinUCBDisjoint with its defaults: score test, revisits",
}


class _Learner:
    def __init__(self, task: Task) -> None:
        if task.m:
            self.policy: whim.Policy = whim.LinUCBHybrid(
                n_features=task.d, n_item_features=task.m, alpha=task.alpha
            )
            self.policy.add_arms(range(task.n_arms), features=task.features)
        else:
            made = whim.PSLinUCBDisjoint if task.name == "F" else whim.LinUCBDisjoint
            self.policy = made(n_features=task.d, alpha=task.alpha)
            self.policy.add_arms(range(task.n_arms))
        decide = self.policy.select
        self.select = lambda x, arms: decide(x, arms).arm
        self.update = self.policy.update


def learner(task: Task) -> _Learner:
    """LinUCB of the work's payoff."""
    return _Learner(task)


def batch(
    X: np.ndarray,
    n_arms: int,
    history: tuple[np.ndarray, np.ndarray, np.ndarray],
    scoring: str = "float64",
) -> Callable[[], np.ndarray]:
    """Every score of every context."""
    policy = whim.LinUCBDisjoint(n_features=X.shape[1], scoring=scoring)
    policy.add_arms(range(n_arms))
    contexts, arms, rewards = history
    policy.update_many(arms, contexts, rewards)
    return lambda: policy.scores_many(X)


def start() -> None:
    """First decision, for the time to start."""
    policy = whim.LinUCBDisjoint(n_features=6)
    policy.add_arms(range(20))
    policy.select(np.ones(6))
