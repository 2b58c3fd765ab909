"""MABWiser: LinUCB, one ``predict`` and one ``partial_fit`` per step, in one process."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mabwiser.mab import MAB, LearningPolicy

from benchmarks.peers.task import Task, Unable

NOTES = {
    "A": "LinUCB, all arms, partial_fit each step",
    "B": "LinUCB; no candidates: the expectations of all 60 arms, the best of the 20 taken",
    "C": "LinUCB, best arm only, one call",
    "D": "LinUCB, all arms, partial_fit each step",
}


def _policy(n_arms: int, d: int, alpha: float) -> MAB:
    made = MAB(list(range(n_arms)), LearningPolicy.LinUCB(alpha=alpha, l2_lambda=1.0), n_jobs=1)
    # it predicts only after a fit; a context of zeros with no reward teaches nothing
    made.fit([0], [0.0], np.zeros((1, d)))
    return made


class _LinUCB:
    def __init__(self, task: Task) -> None:
        self.policy = _policy(task.n_arms, task.d, task.alpha)

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        if arms is None:
            chosen: int = self.policy.predict(x[None, :])
            return chosen
        return max(arms, key=self.policy.predict_expectations(x[None, :]).__getitem__)

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.policy.partial_fit(np.array([arm]), np.array([reward]), x[None, :])


def learner(task: Task) -> _LinUCB:
    """LinUCB for every work with coefficients of the arms alone."""
    if task.name == "E":
        raise Unable("no shared coefficients")
    if task.name == "F":
        raise Unable("no contextual policy that forgets")
    return _LinUCB(task)


def batch(
    X: np.ndarray, n_arms: int, history: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Callable[[], list[int]]:
    """All contexts in one call."""
    contexts, arms, rewards = history
    made = _policy(n_arms, X.shape[1], 1.0)
    made.fit(arms, rewards, contexts)
    return lambda: made.predict(X)


def start() -> None:
    """First decision, for the time to start."""
    _policy(20, 6, 1.0).predict(np.ones((1, 6)))
