"""Replay evaluation, literally: visits in a list (Li et al. 2010 and 2011), and whole logs.

``replay_log`` goes through ``select`` and ``update`` one event at a time, adds arms on sight, and
keeps every event's numbers until the end: the estimates are then their textbook formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import whim
from whim.policies import from_bytes
from whim.types import ArmId

__all__ = ["Literal", "Logged", "ReplayRun", "Ridge", "replay", "replay_log"]

Z = 1.959963984540054


class Logged(NamedTuple):
    """One visit: the context, the pool, the arm that was shown and its reward."""

    x: npt.NDArray[np.float64]
    pool: list[int]
    shown: int
    reward: float


class ReplayRun(NamedTuple):
    """The retained visits: how many, and the sum of their rewards."""

    kept: int
    total: float

    @property
    def rate(self) -> float:
        return self.total / self.kept


def replay(policy: whim.Policy, log: Iterable[Logged]) -> ReplayRun:
    """Keep a visit only if the policy chooses what was shown; let it learn from no other."""
    kept, total = 0, 0.0
    for visit in log:
        if policy.select(visit.x, visit.pool).arm == visit.shown:
            policy.update(visit.shown, visit.x, visit.reward)
            kept += 1
            total += visit.reward
    return ReplayRun(kept, total)


class Ridge:
    """One arm's reward model: θ = (I + Σ x xᵀ)⁻¹ Σ r x, solved anew each time."""

    def __init__(self, d: int) -> None:
        self.A, self.b = np.eye(d), np.zeros(d)

    def predict(self, x: npt.NDArray[np.float64]) -> float:
        return float(x @ np.linalg.solve(self.A, self.b))

    def learn(self, x: npt.NDArray[np.float64], reward: float) -> None:
        self.A += np.outer(x, x)
        self.b += reward * x


@dataclass
class Literal:
    """One replay: the policy at its end, and what each sampled event came to."""

    policy: whim.Policy
    at: list[int] = field(default_factory=list)
    counted: list[bool] = field(default_factory=list)
    earned: list[float] = field(default_factory=list)
    changes: list[tuple[int, ArmId, int, float]] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)  # 1{chosen = shown} / p
    rewards: list[float] = field(default_factory=list)
    terms: list[float] = field(default_factory=list)  # doubly robust

    def estimates(self) -> dict[str, tuple[float, float, float]]:
        """IPS, SNIPS and, where there are terms, DR, with normal intervals."""
        w, r = np.array(self.weights), np.array(self.rewards)
        value = (w * r).sum() / w.sum()
        error = math.sqrt((w**2 * (r - value) ** 2).sum()) / w.sum()
        means = {"ips": w * r} | ({"dr": np.array(self.terms)} if self.terms else {})
        found = {"snips": (value, error)}
        for name, each in means.items():
            found[name] = each.mean(), each.std() / math.sqrt(len(each))
        return {name: (v, v - Z * e, v + Z * e) for name, (v, e) in found.items()}


def replay_log(
    policy: whim.Policy,
    log: whim.logs.Log,
    scheme: str,
    *,
    sample: float = 1.0,
    first: float = 1.0,
    floor: float = 0.0,
    seed: int = 0,
    run: int = 0,
) -> Literal:
    """Every event in order: a coin, the arms, the choice; learn if it counts, else forget it."""
    coins, chances = (
        np.random.default_rng([seed, run, 102]),
        np.random.default_rng([seed, run, 103]),
    )
    found = Literal(policy)
    models = {arm: Ridge(log.n_features) for arm in log.arms}
    for i in range(round(log.n_events * first)):
        if sample < 1 and coins.random() >= sample:
            continue
        event = log.event(i)
        x = np.array(event.x, np.float64)
        if policy.n_item_features:
            policy.add_arms(event.arms, event.features)
            policy.set_features(event.arms, event.features)
        else:
            policy.add_arms(event.arms)
        before = policy.to_bytes()
        chosen = policy.select(x, event.arms).arm
        hit = chosen == event.shown
        p = 1 / len(event.arms)
        counts = hit or scheme == "full"
        if scheme == "propensity":
            assert event.propensity is not None
            p = event.propensity
            accepted = chances.random() < floor / p
            counts = hit and accepted
        if counts:
            change = policy.update(chosen, x, event.reward if hit else 0.0)
            if change is not None:
                found.changes.append((i, change.arm, change.step, change.statistic))
        else:
            policy = found.policy = from_bytes(before)
        found.at.append(i)
        found.counted.append(counts)
        found.earned.append(event.reward if counts and hit else 0.0)
        found.weights.append(hit / p)
        found.rewards.append(event.reward)
        if scheme == "propensity":
            term = models[chosen].predict(x)
            if hit:
                term += (event.reward - term) / p
            found.terms.append(term)
            models[event.shown].learn(x, event.reward)
    return found
