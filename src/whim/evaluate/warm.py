"""``warm_policy``: compile what a policy's calls need, so that none of them waits for it later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from whim.evaluate.spread import spread
from whim.kernels.loops import EACH, EventBatch
from whim.policies import Policy, from_bytes
from whim.policies.base import CompiledPolicy
from whim.policies.run_events import run_events

CALLS = ("live", "lists", "batch", "loop")


def warm_policy(policy: Policy, calls: Collection[str] = CALLS) -> None:
    """Let a copy of the policy take every kind of call, which compiles it or loads it.

    Parameters
    ----------
    policy
        It stays as it is.
    calls
        ``"live"``: ``select``, ``rank``, ``update``, features that change, arms that retire.
        ``"lists"``: ``select_list`` and ``update_list``. ``"batch"``: ``scores_many`` and
        ``update_many``. ``"loop"``: the compiled loop of ``simulate`` and ``replay``.

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
    if "live" in calls:
        for _ in range(2):  # the second call is the one that later calls are like
            decision = copy.select(X[0], arms, cross=Z)
            copy.update(decision.arm, X[0], 1.0, cross=None if Z is None else Z[0])
        copy.rank(X[0], arms, cross=Z)
        if copy.randomised:
            copy.probabilities(X[0], arms, cross=Z)
        inner = getattr(copy, "policy", copy)
        if isinstance(inner, CompiledPolicy):
            inner._warm_finish(_slot(copy, decision.arm))
        if Z is None and inner is copy:
            copy.preview(X[0], arms)
            if not copy.randomised:
                copy.ranked_many(X, [arms, arms])
    if "lists" in calls:
        copy.select_list(X[0], arms, 1, cross=Z)  # binds
        shown = copy.select_list(X[0], arms, 1, cross=Z).arms
        copy.update_list(shown, X[0], [1.0], cross=None if Z is None else Z[:1])
    if "batch" in calls:
        copy.update_many(arms, X, rewards[0], cross=Z)
        if Z is None:
            copy.scores_many(X)
    if "loop" in calls and Z is None:
        slots = np.array([_slot(copy, arm) for arm in arms])
        zeros, ends = np.zeros(2, np.int64), np.array([0, 2])
        run_events(copy, EventBatch(EACH, X, zeros, ends, slots, np.full(2, -1), rewards))
    if "live" in calls:  # last, since the loop is for features that stay as they are
        if m:
            copy.set_features(arms[:1], np.zeros((1, m)))
        copy.retire_arms(arms[1:])


def _slot(policy: Any, arm: Any) -> int:
    inner = getattr(policy, "policy", policy)  # that of OracleRestart
    return int(inner._table.slot_of[arm])


def warm(
    policies: Iterable[Policy],
    *,
    calls: Collection[str] = CALLS,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> None:
    """``warm_policy`` for each, on several cores.

    Left to themselves, the workers of a comparison would all begin by compiling the same loops.
    """
    warm_all([(policy, calls) for policy in policies], jobs=jobs, progress=progress)


def warm_all(
    works: Iterable[tuple[Policy, Collection[str]]],
    *,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> None:
    """``warm`` with calls of its own for each policy.

    What kernels have in common is compiled once per process: policies of one model share a worker.
    """
    models: dict[str, list[tuple[bytes, tuple[str, ...]]]] = {}
    for policy, calls in works:
        models.setdefault(_model(policy), []).append((policy.to_bytes(), tuple(calls)))
    groups = sorted(models.values(), key=len, reverse=True)
    n = sum(map(len, groups))

    def advance(done: int) -> None:
        if progress is not None:
            progress(n * done // len(groups))

    spread(_warm_group, groups, jobs=jobs, progress=advance)


def _model(policy: Any) -> str:
    """The file that its decisions are in; hybrids have two that share most."""
    kernels = getattr(getattr(policy, "policy", policy), "_kernels", None)
    return "" if kernels is None else str(kernels._score.__module__).replace("ps_", "")


def _warm_group(group: list[tuple[bytes, tuple[str, ...]]]) -> None:
    """``warm_policy`` for policies' bytes, as a worker does it."""
    for data, calls in group:
        warm_policy(from_bytes(data), calls)
