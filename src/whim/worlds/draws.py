"""What worlds draw: separate random streams, vectors, the joint part of hybrid rewards."""

from __future__ import annotations

import numpy as np

from whim import checks
from whim.types import F64

LAWS = ("ball", "sphere", "nonnegative")


def streams(seed: int, run: int) -> list[np.random.Generator]:
    """Streams of one run: interests, users, noise, items, pools. None touches another."""
    checks.integer("seed", seed, 0)
    checks.integer("run", run, 0)
    return [np.random.default_rng([seed, run, part]) for part in range(5)]


def vectors(rng: np.random.Generator, n: int, d: int, law: str) -> F64:
    """(n, d): uniform in the unit ball, on its sphere, or in its non-negative part."""
    v = rng.normal(size=(n, d))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    if law != "sphere":
        v *= rng.random((n, 1)) ** (1 / d)
    return np.abs(v) if law == "nonnegative" else v


def constant_between(
    rng: np.random.Generator,
    changes: list[int],
    T: int,
    d: int,
    law: str,
    states: int | None = None,
) -> F64:
    """(T, d): a vector drawn anew at each change, or the next of so many ``states`` in turn."""
    lengths = np.diff([0, *changes, T])
    drawn = vectors(rng, states or len(lengths), d, law)
    return drawn[np.repeat(np.arange(len(lengths)) % len(drawn), lengths)]


def joint_rewards(contexts: F64, features: F64, beta: F64) -> F64:
    """(T, K): kron(y_a, x)ᵀβ of each context x and arm features y_a."""
    W = beta.reshape(features.shape[1], contexts.shape[1])  # kron(y, x)ᵀβ = yᵀWx
    rewards: F64 = contexts @ W.T @ features.T
    return rewards
