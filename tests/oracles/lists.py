"""Estimates from a log of lists, one list at a time, by the formulas of their papers.

Policies are distributions over lists: dictionaries from tuples of items to probabilities. A list's
weight at a position is that of the other policy over the logging policy's. Of the names that obp
uses, ``sips`` is the whole list's, ``iips`` the position's own, ``rips`` the prefix's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Lists = Mapping[tuple[int, ...], float]
Q = Callable[[int, tuple[int, ...]], float]

__all__ = [
    "all_lists",
    "cascade_dr",
    "iips",
    "marginal",
    "prefix",
    "pseudo_inverse",
    "rips",
    "sips",
]


def all_lists(n: int, k: int) -> list[tuple[int, ...]]:
    """Every ordered list of k of n items."""
    return list(itertools.permutations(range(n), k))


def marginal(policy: Lists, position: int, item: int) -> float:
    """Probability of the item at the position."""
    return sum(p for some, p in policy.items() if some[position] == item)


def prefix(policy: Lists, top: Sequence[int]) -> float:
    """Probability that a list begins with these items."""
    return sum(p for some, p in policy.items() if some[: len(top)] == tuple(top))


def sips(target: Lists, logging: Lists, shown: tuple[int, ...], reward: float) -> float:
    """Weight of the whole list, times its reward."""
    return target.get(shown, 0.0) / logging[shown] * reward


def iips(target: Lists, logging: Lists, shown: tuple[int, ...], rewards: Sequence[float]) -> float:
    """Σ_k π(a_k at k) / π_0(a_k at k) · r_k."""
    return sum(
        marginal(target, k, item) / marginal(logging, k, item) * rewards[k]
        for k, item in enumerate(shown)
    )


def rips(target: Lists, logging: Lists, shown: tuple[int, ...], rewards: Sequence[float]) -> float:
    """Σ_k π(a_1..a_k) / π_0(a_1..a_k) · r_k."""
    return sum(
        prefix(target, shown[: k + 1]) / prefix(logging, shown[: k + 1]) * rewards[k]
        for k in range(len(shown))
    )


def cascade_dr(
    target: Lists, logging: Lists, shown: tuple[int, ...], rewards: Sequence[float], q: Q
) -> float:
    """Σ_k w_1:k (r_k - Q_k(a_1..a_k)) + w_1:k-1 Σ_a π(a | a_1..a_k-1) Q_k(a_1..a_k-1, a).

    ``q(k, top)`` is what the model expects from position k on, of the policy that goes on from
    ``top``, the items up to and including position k.
    """
    total = 0.0
    for k in range(len(shown)):
        above = shown[:k]
        before = prefix(target, above) / prefix(logging, above)
        if before == 0:
            break
        items = {some[k] for some in target if some[:k] == above and target[some] > 0}
        for item in items:
            chance = prefix(target, (*above, item)) / prefix(target, above)
            total += before * chance * q(k, (*above, item))
        here = prefix(target, shown[: k + 1]) / prefix(logging, shown[: k + 1])
        if here:
            total += here * (rewards[k] - q(k, shown[: k + 1]))
    return total


def pseudo_inverse(
    target: Lists, logging: Lists, n: int, shown: tuple[int, ...], reward: float
) -> float:
    """q_πᵀ Γ⁺ 1_s · R, with Γ = E[1_s 1_sᵀ] over the logging policy's lists."""

    def indicator(some: tuple[int, ...]) -> np.ndarray:
        ones = np.zeros((len(some), n))
        ones[np.arange(len(some)), list(some)] = 1.0
        return ones.reshape(-1)

    gamma = sum(p * np.outer(indicator(some), indicator(some)) for some, p in logging.items())
    expected = sum(p * indicator(some) for some, p in target.items())
    return float(expected @ np.linalg.pinv(gamma, rcond=1e-10) @ indicator(shown)) * reward
