"""One policy in many threads: reads are right, writes are right under a lock of the caller's."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import whim
from tests.factories import FACTORIES
from whim.types import F64

THREADS, CALLS, ARMS = 4, 400, 12
# one of each way to score: kernels of every kind, with and without draws, groups, cross features
NAMES = [
    "random", "ucb1", "lints", "lints-item", "linucb-disjoint", "linucb-hybrid", "dlinucb",
    "pslinucb-disjoint-revisit", "pslinucb-groups", "oracle-restart",
]  # fmt: skip


class Slow(whim.Policy):
    """A policy of a user's own, in plain Python: threads take turns in the middle of its score."""

    name = "slow"

    def __init__(self, *, seed: int = 0, ties: str = "first") -> None:
        super().__init__(n_features=2, seed=seed, ties=ties)

    def _score(self, x: F64, slots: Any, cross: Any, noise: Any) -> int:
        for i, slot in enumerate(slots.tolist()):
            self._out[i] = x[0] * slot + x[1], slot, x[0]
        return int(np.argmax(self._out[: len(slots), 0]))

    def _observe(self, slot: int, x: Any, cross: Any, reward: float) -> int:
        return 0


@pytest.fixture(autouse=True)
def many_turns() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def learnt(policy: whim.Policy, steps: int = 150) -> whim.Policy:
    """With arms that differ."""
    rng = np.random.default_rng(3)
    m = policy.n_item_features
    policy.add_arms(range(ARMS), rng.normal(size=(ARMS, m)) if m else None)
    X = rng.normal(size=(steps, policy.n_features or 1))
    arms = rng.integers(ARMS, size=steps)
    policy.update_many(arms, X if policy.n_features else None, 0.1 * arms + X[:, 0])
    return policy


def together(work: Callable[[int], Any]) -> list[Any]:
    """The results of ``work(thread)``, in threads that begin at the same moment."""
    ready = threading.Barrier(THREADS)

    def begin(thread: int) -> Any:
        ready.wait()
        return work(thread)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


@pytest.mark.parametrize("name", [*NAMES, "slow"])
def test_reads_from_many_threads_are_those_of_one(name: str) -> None:
    policy = learnt(Slow() if name == "slow" else FACTORIES[name]())
    alone = learnt(Slow() if name == "slow" else FACTORIES[name]())
    rng = np.random.default_rng(1)
    contexts = rng.normal(size=(THREADS, policy.n_features or 1))
    arms = [rng.permutation(ARMS)[: 5 + thread].tolist() for thread in range(THREADS)]

    def read(policy: whim.Policy, thread: int) -> tuple[Any, ...]:
        x = contexts[thread]
        ranking = policy.rank(x, arms[thread])
        chosen = ranking[0] if policy.randomised else policy.select(x, arms[thread])
        many = policy.scores_many(contexts[thread : thread + 1], arms[thread])
        return ranking, chosen, policy.scores(x, arms[thread]).tolist(), many.tolist()

    wanted = [read(alone, thread) for thread in range(THREADS)]

    def work(thread: int) -> int:
        return sum(read(policy, thread) != wanted[thread] for _ in range(CALLS))

    assert together(work) == [0] * THREADS


def test_each_draw_is_handed_out_once() -> None:
    made = [FACTORIES["random"](), FACTORIES["random"]()]
    for policy in made:
        policy.add_arms(range(ARMS))
    drawn = together(lambda _: [made[0].select() for _ in range(CALLS)])
    serial = [made[1].select() for _ in range(THREADS * CALLS)]
    assert sorted(d for part in drawn for d in part) == sorted(serial)
    assert made[0].to_bytes() == made[1].to_bytes()


@pytest.mark.parametrize("name", ["linucb-disjoint", "dlinucb", "linucb-hybrid"])
def test_ranked_lists_and_coefficients_from_many_threads(name: str) -> None:
    policy: Any = learnt(FACTORIES[name]())
    X = np.random.default_rng(2).normal(size=(THREADS, policy.n_features))
    lists = [[[thread, thread + 1, 11]] for thread in range(THREADS)]

    def read(thread: int) -> Any:
        ranked = policy.ranked(X[thread], lists[thread][0])
        many = policy.ranked_many(X[thread : thread + 1], lists[thread])
        return ranked, many, policy.coefficients(thread).tolist()

    wanted = [read(thread) for thread in range(THREADS)]

    def work(thread: int) -> int:
        return sum(read(thread) != wanted[thread] for _ in range(CALLS))

    assert together(work) == [0] * THREADS


def test_writes_under_a_lock_are_a_loop_in_their_order() -> None:
    policy, lock = learnt(FACTORIES["pslinucb-disjoint-revisit"]()), threading.Lock()
    rng = np.random.default_rng(4)
    X, rewards = rng.normal(size=(THREADS, CALLS, 3)), rng.normal(size=(THREADS, CALLS))
    order: list[tuple[int, int, int]] = []

    def visit(thread: int) -> None:
        for i, x in enumerate(X[thread]):
            with lock:
                arm = policy.select(x).arm
            with lock:
                policy.update(arm, x, rewards[thread, i])
                order.append((arm, thread, i))

    together(visit)
    serial = learnt(FACTORIES["pslinucb-disjoint-revisit"]())
    for arm, thread, i in order:
        serial.update(arm, X[thread, i], rewards[thread, i])
    assert policy.step == 150 + THREADS * CALLS
    assert policy.to_bytes() == serial.to_bytes()


def test_copies_have_locks_of_their_own() -> None:
    policy = learnt(FACTORIES["lints"]())
    other = copy.deepcopy(policy)
    with policy._lock:
        scores = together(lambda _: other.scores(np.ones(3)).tolist())
    assert scores == [policy.scores(np.ones(3)).tolist()] * THREADS
