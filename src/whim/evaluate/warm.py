"""``warm_policy``: compile what a policy's calls need, so that none of them waits for it later."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from whim.evaluate.spread import spread
from whim.policies import Policy, from_bytes
from whim.policies.walk import EACH, Stretch, walk

__all__ = ["warm", "warm_policy"]


def warm_policy(policy: Policy, *, live: bool = True, loop: bool = True) -> None:
    """Let a copy of the policy take every kind of call, which compiles it or loads it.

    Parameters
    ----------
    policy
        It stays as it is.
    live
        ``select``, ``rank``, ``update``, ``scores_many`` and ``update_many``.
    loop
        The compiled loop of ``simulate`` and ``replay``.

    Examples
    --------
    >>> import whim
    >>> warm_policy(whim.Random())
    """
    copy: Any = from_bytes(policy.to_bytes())
    d, m = copy.n_features or 1, copy.n_item_features
    k = 0 if m else copy.n_cross_features or 0
    arms = [("warm", 0), ("warm", 1)]
    grouped = {"groups": [0, 1]} if copy.params.get("groups") == "given" else {}
    copy.add_arms(arms, features=np.ones((2, m)) if m else None, **grouped)
    X, rewards, Z = np.ones((2, d)), np.zeros((2, 2)), np.ones((2, k)) if k else None
    if live:
        for _ in range(2):  # the second call is the one that later calls are like
            decision = copy.select(X[0], arms, cross=Z)
            copy.update(decision.arm, X[0], 1.0, cross=None if Z is None else Z[0])
        copy.rank(X[0], arms, cross=Z)
        copy.update_many(arms, X, rewards[0], cross=Z)
        if Z is None:
            copy.scores_many(X)
    if loop and Z is None:
        slots = np.array([_slot(copy, arm) for arm in arms])
        walk(
            copy,
            Stretch(EACH, X, np.zeros(2, np.int64), np.array([0, 2]), slots, np.full(2, -1),
                    rewards),
        )  # fmt: skip


def _slot(policy: Any, arm: Any) -> int:
    inner = getattr(policy, "policy", policy)  # that of OracleRestart
    return int(inner._table.slot_of[arm])


def warm(
    policies: Iterable[Policy],
    *,
    live: bool = False,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> None:
    """``warm_policy`` for each, on several cores; by default only the loops.

    Left to themselves, the workers of a comparison would all begin by compiling the same loops.
    """
    made = [policy.to_bytes() for policy in policies]
    spread(partial(_warm_bytes, live), made, jobs=jobs, progress=progress)


def _warm_bytes(live: bool, data: bytes) -> None:
    warm_policy(from_bytes(data), live=live)
