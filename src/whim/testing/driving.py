"""How rules drive a policy: arms, contexts, plays, and calls that must be refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from whim.policies import Policy
from whim.types import F64, ArmId

Factory = Callable[[], Policy]

ARMS: list[ArmId] = ["a", "b", 3, ("d", 4), "e"]


def features(n: int, m: int, seed: int = 0) -> F64 | None:
    """Item features of n arms; None for a policy without them."""
    return np.random.default_rng([7, seed]).normal(size=(n, m)) / math.sqrt(m) if m else None


def cross_rows(policy: Policy, rows: int, rng: np.random.Generator) -> F64 | None:
    """Rows of cross features, for a policy that cannot make its own."""
    k = policy.n_cross_features
    return rng.normal(size=(rows, k)) / math.sqrt(k) if k and not policy.n_item_features else None


def made(factory: Factory, arms: list[ArmId] = ARMS) -> Policy:
    """A fresh policy with these arms."""
    policy = factory()
    policy.add_arms(arms, features=features(len(arms), policy.n_item_features))
    return policy


def width(policy: Policy) -> int:
    """Length of a context; any, for a policy that does not look at it."""
    return policy.n_features or 2


def contexts(policy: Policy, n: int, seed: int) -> F64:
    """So many contexts, one per row."""
    d = width(policy)
    return np.random.default_rng([11, seed]).normal(size=(n, d)) / math.sqrt(d)


def play(policy: Policy, steps: int, seed: int = 0, scale: float = 1.0) -> list[Any]:
    """Decide and learn, with candidates that differ from step to step; what happened."""
    rng = np.random.default_rng([13, seed])
    trace: list[Any] = []
    for t, x in enumerate(contexts(policy, steps, seed) * scale):
        arms = policy.arms
        size = int(rng.integers(1, len(arms) + 1))
        candidates = [arms[i] for i in rng.permutation(len(arms))[:size]]
        Z = cross_rows(policy, size, rng)
        decision = policy.select(x, candidates, cross=Z)
        place = candidates.index(decision.arm)
        # rewards that depend on the arm and jump, so that detectors have work to do
        level = math.sin(arms.index(decision.arm) + t // 60)
        reward = level + 0.1 * float(rng.normal())
        event = policy.update(decision.arm, x, reward, cross=None if Z is None else Z[place])
        trace.append((decision, event))
    return trace


def refused(policy: Policy, call: Callable[[], object], error: type[Exception], what: str) -> None:
    """Hold a call to raising this error with a message, and to leaving every bit as it was."""
    before = policy.to_bytes()
    message = None
    try:
        call()
    except error as found:
        message = str(found)
    assert message is not None, f"{what} must raise {error.__name__}"
    assert message, f"the error for {what} must say something"
    assert policy.to_bytes() == before, f"{what} must leave the state untouched"


def plain(policy: Policy) -> bool:
    """Whether a policy needs no cross features from the caller."""
    return not policy.n_cross_features or bool(policy.n_item_features)
