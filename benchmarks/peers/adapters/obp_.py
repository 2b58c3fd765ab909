"""obp: LinUCB with rank-one updates, one decision per call."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from obp.policy import LinUCB

from benchmarks.peers.task import Task, Unable

NOTES = {
    "A": "LinUCB, all arms",
    "B": "LinUCB; no candidates: all 60 arms ranked, the first of the 20 taken",
    "C": "LinUCB, best arm only, one context after the other",
    "D": "LinUCB, all arms",
}


class _LinUCB:
    def __init__(self, n_arms: int, d: int, alpha: float, ranks: int = 1) -> None:
        # its epsilon is the width of the bound
        self.policy = LinUCB(dim=d, n_actions=n_arms, len_list=ranks, epsilon=alpha, random_state=0)

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        ranking = self.policy.select_action(x[None, :]).tolist()
        if arms is None:
            first: int = ranking[0]
            return first
        allowed = set(arms)
        return next(arm for arm in ranking if arm in allowed)

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.policy.update_params(arm, reward, x[None, :])


def learner(task: Task) -> _LinUCB:
    """LinUCB for every work with coefficients of the arms alone."""
    if task.name == "E":
        raise Unable("no shared coefficients")
    if task.name == "F":
        raise Unable("no policy that forgets")
    ranks = task.n_arms if len(task.pools) else 1
    return _LinUCB(task.n_arms, task.d, task.alpha, ranks)


def batch(
    X: np.ndarray, n_arms: int, history: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Callable[[], list[int]]:
    """There is no batch: one decision per context."""
    made = _LinUCB(n_arms, X.shape[1], 1.0)
    made.policy.batch_size = len(history[0])  # it copies every arm's matrix a batch
    for x, arm, reward in zip(*history, strict=True):
        made.update(int(arm), x, float(reward))
    return lambda: [made.select(x, None) for x in X]


def start() -> None:
    """First decision, for the time to start."""
    _LinUCB(20, 6, 1.0).select(np.ones(6), None)
