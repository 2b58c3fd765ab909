"""ParetoBandit: the disjoint LinUCB behind its router of language models, without the router."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pareto_bandit.policy import DisjointLinUCBPolicy

from benchmarks.peers.task import Task, Unable

_FORGET = 0.997  # its router's default

NOTES = {
    "A": "DisjointLinUCBPolicy",
    "B": "DisjointLinUCBPolicy, candidates",
    "C": "DisjointLinUCBPolicy, one select_arm per context: choices only",
    "D": "DisjointLinUCBPolicy",
    "E": "no shared coefficients",
    "F": f"DisjointLinUCBPolicy, forgetting_factor {_FORGET}, wider bounds for stale arms",
}


class _Linear:
    def __init__(self, n_arms: int, d: int, alpha: float, forget: float = 1.0) -> None:
        self.names = [str(i) for i in range(n_arms)]
        self.policy = DisjointLinUCBPolicy(
            self.names, dim=d, alpha=alpha, forgetting_factor=forget, seed=0
        )

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        names = None if arms is None else [self.names[i] for i in arms]
        chosen = self.policy.select_arm(x, names)[0]
        self.policy.mark_selected(chosen)
        return int(chosen)

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.policy.update(self.names[arm], x, reward, advance_time=False)


def learner(task: Task) -> _Linear:
    """Forgetting for the work that changes."""
    if task.name == "E":
        raise Unable(NOTES["E"])
    return _Linear(task.n_arms, task.d, task.alpha, _FORGET if task.name == "F" else 1.0)


def batch(
    X: np.ndarray, n_arms: int, history: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Callable[[], list[str]]:
    """There is no batch."""
    made = _Linear(n_arms, X.shape[1], 1.0)
    for x, arm, reward in zip(*history, strict=True):
        made.update(int(arm), x, float(reward))
    return lambda: [made.policy.select_arm(x)[0] for x in X]


def start() -> None:
    """A first decision."""
    _Linear(20, 6, 1.0).select(np.ones(6), None)
