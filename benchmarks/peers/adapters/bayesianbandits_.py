"""bayesianbandits: Bayesian regressions; a bound is a quantile of 1,000 posterior draws.

One shared regression over blocks of arm by context is the same model as one regression per arm.
It is several times faster while the blocks are few, and slower when they are many.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, sqrt

import numpy as np
from bayesianbandits import (
    Arm,
    ArmFeaturizer,
    ContextualAgent,
    LipschitzContextualAgent,
    NormalRegressor,
    StabilizedForgetting,
    ThompsonSampling,
    UpperConfidenceBound,
)

from benchmarks.peers.task import Task

_SHARED_UP_TO = 10_000  # arms x features^2: above, a regression per arm is faster (measured)
_KEEP = 0.997  # of the precision, a step

NOTES = {
    "A": "LipschitzContextualAgent, blocks of arm x context, UCB of 1,000 draws; "
    "ContextualAgent where that is faster",
    "B": "ContextualAgent, its UCB policy called with the candidates' arms",
    "C": "ContextualAgent with Thompson sampling (one draw), all contexts in one pull: "
    "choices only, float64",
    "D": "ContextualAgent, one regression per arm, UCB of 1,000 draws",
    "E": "LipschitzContextualAgent, blocks of arm x context and item x context",
    "F": f"as A, StabilizedForgetting({_KEEP}) at every update",
}


def _bound(alpha: float) -> UpperConfidenceBound:
    """The quantile that lies alpha deviations above the mean."""
    return UpperConfidenceBound(alpha=(1 + erf(alpha / sqrt(2))) / 2)


class _Blocks(ArmFeaturizer[int]):
    """A row of zeros but for the arm's block, then item features x context if there are any."""

    def __init__(self, n_arms: int, d: int, features: np.ndarray) -> None:
        self.shape = (n_arms, d)
        self.features = features if features.size else None

    def transform(self, X: np.ndarray, *, action_tokens: list[int]) -> np.ndarray:
        x, (n_arms, d) = X[0], self.shape
        n = len(action_tokens)
        own = np.zeros((n, n_arms, d))
        own[np.arange(n), action_tokens] = x
        own = own.reshape(n, n_arms * d)
        if self.features is None:
            return own
        shared = self.features[action_tokens][:, :, None] * x
        return np.concatenate([own, shared.reshape(n, -1)], axis=1)


class _Shared:
    def __init__(self, task: Task) -> None:
        rule = StabilizedForgetting(_KEEP) if task.name == "F" else None
        self.agent = LipschitzContextualAgent(
            [Arm(i, learner=None) for i in range(task.n_arms)],
            _bound(task.alpha),
            _Blocks(task.n_arms, task.d, task.features),
            NormalRegressor(alpha=1.0, beta=1.0, forgetting=rule),
            random_seed=0,
        )

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        return self.agent.pull(x[None])[0]

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.agent.update(x[None], np.array([reward]))


class _Disjoint:
    def __init__(self, n_arms: int, alpha: float) -> None:
        arms = [Arm(i, learner=NormalRegressor(alpha=1.0, beta=1.0)) for i in range(n_arms)]
        self.agent = ContextualAgent(arms, _bound(alpha), random_seed=0)

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        if arms is None:
            return self.agent.pull(x[None])[0]
        every, agent = self.agent.arms, self.agent
        agent.arm_to_update = agent.policy([every[i] for i in arms], x[None], agent.rng)[0]
        return agent.arm_to_update.action_token

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.agent.update(x[None], np.array([reward]))


def learner(task: Task) -> _Shared | _Disjoint:
    """Shared blocks where they pay, or where the payoff is shared."""
    if task.m or (task.n_arms * task.d**2 <= _SHARED_UP_TO and not task.pools.size):
        return _Shared(task)
    return _Disjoint(task.n_arms, task.alpha)


def batch(
    X: np.ndarray, n_arms: int, history: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Callable[[], list[int]]:
    """One draw per score: the 1,000 of a bound would not fit in memory."""
    arms = [Arm(i, learner=NormalRegressor(alpha=1.0, beta=1.0)) for i in range(n_arms)]
    agent = ContextualAgent(arms, ThompsonSampling(), random_seed=0)
    contexts, chosen, rewards = history
    for arm in np.unique(chosen).tolist():
        mine = chosen == arm
        agent.select_for_update(arm).update(contexts[mine], rewards[mine])
    return lambda: agent.pull(X)


def start() -> None:
    """A first decision."""
    _Disjoint(20, 1.0).select(np.ones(6), None)
