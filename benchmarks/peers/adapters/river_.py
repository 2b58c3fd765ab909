"""river: LinUCB with one Bayesian regression per arm, and detectors that are not joined to it.

A context is a dict in river; making it from the floats is part of the user's cost. Its prior and
noise stay at their defaults: the width of the bound is no parameter there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from river import bandit, drift

from benchmarks.peers.task import Task, Unable

NOTES = {
    "A": "LinUCBDisjoint, all arms",
    "B": "LinUCBDisjoint, candidates passed to pull",
    "C": "LinUCBDisjoint, best arm only, one context after the other",
    "D": "LinUCBDisjoint, all arms",
    "F": "LinUCBDisjoint; joined by us: one ADWIN per arm on residuals, a new model on drift",
}


class _LinUCB:
    def __init__(self, n_arms: int) -> None:
        self.policy = bandit.LinUCBDisjoint(seed=0)
        self.arms = list(range(n_arms))

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        self.context = dict(enumerate(x.tolist()))
        chosen: int = self.policy.pull(arms or self.arms, context=self.context)
        return chosen

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.policy.update(arm, self.context, reward)


class _Restarting(_LinUCB):
    def __init__(self, n_arms: int) -> None:
        super().__init__(n_arms)
        self.detectors = [drift.ADWIN() for _ in self.arms]

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        models = self.policy._bayes_lin_regs  # private: river has no way to forget an arm
        detector = self.detectors[arm]
        detector.update(reward - models[arm].predict_one(self.context))
        if detector.drift_detected:
            del models[arm]
            self.detectors[arm] = drift.ADWIN()
        super().update(arm, x, reward)


def learner(task: Task) -> _LinUCB:
    """LinUCB; with detectors for the work that changes."""
    if task.name == "E":
        raise Unable("no shared coefficients")
    return _Restarting(task.n_arms) if task.name == "F" else _LinUCB(task.n_arms)


def batch(
    X: np.ndarray, n_arms: int, history: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Callable[[], list[int]]:
    """There is no batch: one pull per context."""
    made = _LinUCB(n_arms)
    for x, arm, reward in zip(*history, strict=True):
        made.policy.update(int(arm), dict(enumerate(x.tolist())), float(reward))
    return lambda: [made.select(x, None) for x in X]


def start() -> None:
    """First decision, for the time to start."""
    _LinUCB(20).select(np.ones(6), None)
