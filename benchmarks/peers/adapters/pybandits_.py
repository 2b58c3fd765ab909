"""pybandits: Thompson sampling with Bayesian regressions that are refitted at every update.

Made for updates of many rewards at once: each one compiles and runs 1,000 variational steps.
"""

from __future__ import annotations

import os
import warnings

os.environ.setdefault("TQDM_DISABLE", "1")  # a bar for every update costs time

import numpy as np
from pybandits.cmab import CmabBernoulli, CmabGaussian

from benchmarks.peers.task import Task, Unable

warnings.filterwarnings("ignore")

NOTES = {
    "A": "CmabGaussian, one linear regression per arm, Thompson sampling, default fit",
    "B": "CmabBernoulli, forbidden_actions: the arms off the page",
    "D": "as A",
    "E": "its shared backbone is a network: no coefficients on item features x context",
    "F": "CmabBernoulli, delta = 0.1, epsilon = 0.05, memory of 10,000; reward 1 if above 0",
}
_MEMORY = 10_000
_compiled: set[str] = set()


class _Bandit:
    def __init__(self, task: Task) -> None:
        self.names = [str(i) for i in range(task.n_arms)]
        self.every = set(self.names)
        common = {"action_ids": self.every, "n_features": task.d, "random_seed": 0}
        self.coin = task.name in ("B", "F")
        self.past: tuple[list[str], list[int], list[np.ndarray]] | None = None
        if task.name == "F":
            self.mab = CmabBernoulli.cold_start(delta=0.1, epsilon=0.05, **common)
            self.past = ([], [], [])
        elif self.coin:
            self.mab = CmabBernoulli.cold_start(**common)
        else:
            self.mab = CmabGaussian.cold_start(reward_loc=0.0, reward_scale=1.0, **common)

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        off = None if arms is None else self.every - {self.names[i] for i in arms}
        return int(self.mab.predict(context=x[None], forbidden_actions=off)[0][0])

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        given = int(reward > 0) if self.coin else reward
        more = {} if self.past is None else self._memory()
        self.mab.update(actions=[self.names[arm]], rewards=[given], context=x[None], **more)
        if self.past is not None:
            for kept, value in zip(self.past, (self.names[arm], given, x), strict=True):
                kept.append(value)

    def _memory(self) -> dict[str, object]:
        """The caller keeps what was chosen and got; the library detects the changes in it."""
        longest = min(_MEMORY, self.mab.actions_manager.maximum_memory_length)
        for kept in self.past:
            del kept[: max(0, len(kept) - longest)]
        actions, rewards, contexts = self.past
        return {
            "actions_memory": list(actions),
            "rewards_memory": list(rewards),
            "context_memory": np.array(contexts) if contexts else None,
        }


def learner(task: Task) -> _Bandit:
    """Gaussian for rewards, Bernoulli for clicks and where changes are to be detected."""
    if task.name == "E":
        raise Unable(NOTES["E"])
    if task.name not in _compiled:
        # the first fit in a process compiles for half a minute; the steps after it do not
        _compiled.add(task.name)
        once = _Bandit(task)
        once.update(0, task.X[0], float(task.R[0, 0]))
    return _Bandit(task)


def start() -> None:
    """A first decision."""
    names = {str(i) for i in range(20)}
    mab = CmabGaussian.cold_start(
        action_ids=names, n_features=6, reward_loc=0.0, reward_scale=1.0, random_seed=0
    )
    mab.predict(context=np.ones((1, 6)))
