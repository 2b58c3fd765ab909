"""SMPyBandits: change detection for bandits without contexts."""

from __future__ import annotations

import contextlib
import io

import numpy as np

with contextlib.redirect_stdout(io.StringIO()):  # it advertises other packages
    from SMPyBandits.Policies import UCB, CUSUM_IndexPolicy

from benchmarks.peers.task import Task, Unable

NOTES = {
    "F": "CUSUM_IndexPolicy over UCB, which takes no contexts; rewards scaled to [0, 1]",
}
_WHY = "no contexts"


class _Cusum:
    def __init__(self, n_arms: int, horizon: int, low: float, high: float) -> None:
        np.random.seed(0)  # noqa: NPY002  (it draws from the global generator)
        self.policy = CUSUM_IndexPolicy(
            n_arms,
            horizon=horizon,
            max_nb_random_events=10,
            policy=UCB,
            lower=low,
            amplitude=high - low,
        )
        self.policy.startGame()

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        return int(self.policy.choice())

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.policy.getReward(arm, reward)


def learner(task: Task) -> _Cusum:
    """Only the work that asks for changes."""
    if task.name != "F":
        raise Unable(_WHY)
    return _Cusum(task.n_arms, len(task.X), float(task.R.min()), float(task.R.max()))


def start() -> None:
    """A first decision; it ignores the six features."""
    _Cusum(20, 1000, 0.0, 1.0).select(np.ones(6), None)
