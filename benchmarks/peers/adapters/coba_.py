"""coba: one LinUCB over features of context and action, so disjoint arms need one-hot actions."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from coba.evaluators import RejectionCB
from coba.learners import LinUCBLearner

from benchmarks.peers.task import Task, Unable

NOTES = {
    "A": "LinUCBLearner, one-hot actions, features ['ax']: one model of K x d",
    "B": "as A, the candidates' one-hot actions",
    "D": "as A: one inverse of 2,000 x 2,000",
    "E": "LinUCBLearner, actions of one-hot and item features, features ['ax']: both parts",
    "F": "no learner that forgets or detects changes",
    "replay": "RejectionCB (cinit = 1/20, cpct = 0) of LinUCBLearner with one-hot actions",
}


class _Linear:
    def __init__(self, actions: np.ndarray, alpha: float) -> None:
        self.actions = [tuple(row) for row in actions.tolist()]
        self.place = {action: arm for arm, action in enumerate(self.actions)}
        self.model = LinUCBLearner(alpha=alpha, features=["ax"])
        self.context: list[float] = []

    def select(self, x: np.ndarray, arms: list[int] | None) -> int:
        self.context = x.tolist()
        offered = self.actions if arms is None else [self.actions[a] for a in arms]
        action, self.chance = self.model.predict(self.context, offered)
        return self.place[action]

    def update(self, arm: int, x: np.ndarray, reward: float) -> None:
        self.model.learn(self.context, self.actions[arm], reward, self.chance)


def learner(task: Task) -> _Linear:
    """One-hot actions; with item features beside them for the hybrid work."""
    if task.name == "F":
        raise Unable(NOTES["F"])
    size = task.n_arms * task.d
    if size > 5000:
        raise Unable(f"one inverse of {size:,} x {size:,}")
    actions = np.eye(task.n_arms)
    if task.m:
        actions = np.concatenate([actions, task.features], axis=1)
    return _Linear(actions, task.alpha)


def start() -> None:
    """A first decision."""
    _Linear(np.eye(20), 1.0).select(np.ones(6), None)


class _Log:
    """The log as the evaluator reads it: one mapping per event."""

    params: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, events: list[dict[str, object]]) -> None:
        self.events = events

    def read(self) -> list[dict[str, object]]:
        return self.events


def replay(path: Path, events: int) -> tuple[float, int, int]:
    """Rejection sampling with the multiplier that a uniform log needs; mappings made before."""
    with np.load(path) as log:
        X, pools = log["contexts"][:events], log["pools"][:events]
        place, reward = log["place"][:events], log["reward"][:events]
        n_arms, alpha = int(log["n_arms"]), float(log["alpha"])
    names = [tuple(row) for row in np.eye(n_arms).tolist()]
    rows = [
        {
            "context": x,
            "actions": [names[a] for a in pool],
            "action": names[pool[at]],
            "reward": r,
            "probability": 1 / len(pool),
        }
        for x, pool, at, r in zip(
            X.tolist(), pools.tolist(), place.tolist(), reward.tolist(), strict=True
        )
    ]
    evaluator = RejectionCB(cpct=0, cinit=1 / pools.shape[1], seed=0)
    start = time.perf_counter()
    matched = sum(1 for _ in evaluator.evaluate(_Log(rows), LinUCBLearner(alpha, ["ax"])))
    return time.perf_counter() - start, len(rows), matched
