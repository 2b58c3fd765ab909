"""contextualbandits: LinUCB with rank-one updates, one row of each array per step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from contextualbandits.online import LinUCB

from benchmarks.peers.task import Task, Unable

NOTES = {
    "A": "LinUCB, method sm (rank one), float32, all arms",
    "B": "LinUCB, method sm, float32; no candidates: all 60 arms scored, the best of the 20 taken",
    "C": "LinUCB, scores of all arms in one call, float32",
    "D": "LinUCB, method sm (rank one), float32, all arms",
}


def _policy(n_arms: int, alpha: float) -> LinUCB:
    # float32 is its default and its fastest
    return LinUCB(
        n_arms, alpha=alpha, lambda_=1.0, fit_intercept=False, method="sm", random_state=1
    )


class _LinUCB:
    def __init__(self, task: Task) -> None:
        self.policy = _policy(task.n_arms, task.alpha)

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        if arms is None:
            return int(self.policy.predict(x[None, :])[0])
        scores = self.policy.decision_function(x[None, :])[0]
        return arms[int(scores[arms].argmax())]

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.policy.partial_fit(x[None, :], np.array([arm]), np.array([reward]))


def learner(task: Task) -> _LinUCB:
    """LinUCB for every work with coefficients of the arms alone."""
    if task.name == "E":
        raise Unable("no shared coefficients")
    if task.name == "F":
        raise Unable("no policy that forgets")
    return _LinUCB(task)


def batch(
    X: np.ndarray, n_arms: int, history: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Callable[[], np.ndarray]:
    """All contexts in one call."""
    contexts, arms, rewards = history
    made = _policy(n_arms, 1.0).fit(contexts, arms, rewards)
    return lambda: made.decision_function(X)


def start() -> None:
    """First decision, for the time to start."""
    _policy(20, 1.0).predict(np.ones((1, 6)))
