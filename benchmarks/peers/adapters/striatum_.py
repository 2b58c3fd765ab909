"""striatum: the disjoint LinUCB of 2016; it keeps every context that it was shown."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from striatum.bandit import LinUCB
from striatum.storage import Action, MemoryActionStorage, MemoryHistoryStorage, MemoryModelStorage

from benchmarks.peers.task import Task, Unable

NOTES = {
    "A": "LinUCB, stored in memory",
    "B": "no candidates: LinUCB of all 60 with zeros as the contexts of those off the page",
    "C": "one get_action per context: choices only",
    "D": "LinUCB, stored in memory",
    "E": "no shared coefficients",
    "F": "no policy that forgets or detects changes",
}

# it turns 1 x 1 arrays into floats, of which NumPy 1.26 warns at every arm
warnings.filterwarnings("ignore", category=DeprecationWarning)


class _Linear:
    def __init__(self, n_arms: int, d: int, alpha: float) -> None:
        actions = MemoryActionStorage()
        actions.add([Action(i) for i in range(n_arms)])
        self.history = MemoryHistoryStorage()
        models = MemoryModelStorage()
        self.policy = LinUCB(self.history, models, actions, context_dimension=d, alpha=alpha)
        self.arms = range(n_arms)
        self.absent = np.zeros(d)

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        if arms is None:
            contexts = dict.fromkeys(self.arms, x)
        else:
            # a context of zeros has the bound zero, and a candidate's bound is above it here
            contexts = dict.fromkeys(self.arms, self.absent)
            for arm in arms:
                contexts[arm] = x
        self.asked, found = self.policy.get_action(contexts)
        chosen = found.action.id
        return chosen if arms is None or chosen in arms else arms[0]

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.policy.reward(self.asked, {arm: reward})


def learner(task: Task) -> _Linear:
    """Only its LinUCB."""
    if task.name in ("E", "F"):
        raise Unable(NOTES[task.name])
    return _Linear(task.n_arms, task.d, task.alpha)


def batch(
    X: np.ndarray, n_arms: int, history: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Callable[[], list[int]]:
    """There is no batch."""
    made = _Linear(n_arms, X.shape[1], 1.0)
    for x, arm, reward in zip(*history, strict=True):
        asked = made.history.add_history({int(arm): x}, [])
        made.policy.reward(asked, {int(arm): float(reward)})
    return lambda: [made.select(x, None) for x in X]


def start() -> None:
    """A first decision."""
    _Linear(20, 6, 1.0).select(np.ones(6), None)
