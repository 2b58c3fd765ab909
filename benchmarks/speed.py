"""How fast a decision, an update and a batch are, against NumPy in the same run."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import whim
from benchmarks.measure import Row, compare, emit, interleave, progress
from benchmarks.twins import (
    DisjointTwin,
    HybridTwin,
    TunedDisjointTwin,
    TunedHybridTwin,
    Twin,
    check_disjoint,
    check_hybrid,
)

__all__ = ["batch", "live", "main"]

F64 = npt.NDArray[np.float64]
ALPHA, WINDOW = 0.2, 1000
K, D, M = 20, 6, 6
NOISE, THRESHOLD = 0.1, 0.1  # ten standard errors of a window's mean: no change is reported


@dataclass(frozen=True, slots=True)
class World:
    """Linear rewards that do not drift."""

    rng: np.random.Generator
    theta: F64

    def plays(self, n: int) -> tuple[F64, F64]:
        """Contexts (n, d) and the reward of every arm (n, K)."""
        X = self.rng.normal(size=(n, self.theta.shape[1])) / np.sqrt(self.theta.shape[1])
        return X, X @ self.theta.T + NOISE * self.rng.normal(size=(n, len(self.theta)))


def _world(seed: int) -> World:
    rng = np.random.default_rng(seed)
    return World(rng, rng.normal(size=(K, D)))


def _fill(policy: whim.Policy, world: World) -> None:
    """Three windows of plays per arm, so that every step slides a full window."""
    n = 3 * WINDOW * K
    X, R = world.plays(n)
    arms = np.arange(n) % K
    policy.update_many(arms.tolist(), X, R[np.arange(n), arms])


def _live_policy(policy: whim.Policy, X: F64, R: F64) -> Callable[[], float]:
    contexts, rewards = list(X), R.tolist()

    def steps() -> float:
        select, update = policy.select, policy.update
        start = time.perf_counter()
        for x, r in zip(contexts, rewards, strict=True):
            arm = select(x).arm
            update(arm, x, r[arm])
        return (time.perf_counter() - start) / len(contexts)

    return steps


def _live_twin(twin: Twin, X: F64, R: F64) -> Callable[[], float]:
    contexts, rewards = list(X), R.tolist()

    def steps() -> float:
        select, update = twin.select, twin.update
        start = time.perf_counter()
        for x, r in zip(contexts, rewards, strict=True):
            arm = select(x)
            update(arm, x, r[arm])
        return (time.perf_counter() - start) / len(contexts)

    return steps


def _update_twin(twin: Twin, arms: list[int], X: F64, r: F64) -> Callable[[], float]:
    contexts, rewards = list(X), r.tolist()

    def steps() -> float:
        update = twin.update
        start = time.perf_counter()
        for arm, x, reward in zip(arms, contexts, rewards, strict=True):
            update(arm, x, reward)
        return (time.perf_counter() - start) / len(arms)

    return steps


def _update_many(policy: whim.Policy, arms: list[int], X: F64, r: F64) -> Callable[[], float]:
    def once() -> float:
        start = time.perf_counter()
        policy.update_many(arms, X, r)
        return (time.perf_counter() - start) / len(arms)

    return once


def live(rounds: int = 41, steps: int = 2000, events: int = 20_000) -> list[Row]:
    """Rows a, b, c and j: single decisions and updates, and updates in bulk."""
    world = _world(0)
    features = world.rng.normal(size=(K, M)) / np.sqrt(M)
    X, R = world.plays(5000)
    same = check_disjoint(X, R, ALPHA), check_hybrid(X, R, features, ALPHA)
    progress(f"speed: {same[0]} disjoint and {same[1]} hybrid decisions equal to the twins'")

    progress("speed: filling windows")
    disjoint = whim.PSLinUCBDisjoint(n_features=D, alpha=ALPHA, window=WINDOW, threshold=THRESHOLD)
    disjoint.add_arms(range(K))
    hybrid = whim.PSLinUCBHybrid(
        n_features=D, n_item_features=M, alpha=ALPHA, window=WINDOW, threshold=THRESHOLD
    )
    hybrid.add_arms(range(K), features=features)
    scored = whim.PSLinUCBDisjoint(n_features=D, alpha=ALPHA)
    scored.add_arms(range(K))
    scored_hybrid = whim.PSLinUCBHybrid(n_features=D, n_item_features=M, alpha=ALPHA)
    scored_hybrid.add_arms(range(K), features=features)
    for policy in (disjoint, hybrid, scored, scored_hybrid):
        _fill(policy, world)

    X, R = world.plays(steps)
    Xm, Rm = world.plays(events)
    arms: list[int] = world.rng.integers(K, size=events).tolist()
    rm = Rm[np.arange(events), arms]
    plain, tuned = DisjointTwin(K, D, ALPHA), TunedDisjointTwin(K, D, ALPHA)
    few = arms[:steps], Xm[:steps], rm[:steps]
    progress(f"speed: {rounds} rounds of live steps and updates")
    found = interleave(
        {
            "disjoint": _live_policy(disjoint, X, R),
            "disjoint plain": _live_twin(plain, X, R),
            "disjoint tuned": _live_twin(tuned, X, R),
            "update_many": _update_many(disjoint, arms, Xm, rm),
            "update plain": _update_twin(plain, *few),
            "update tuned": _update_twin(tuned, *few),
            "hybrid": _live_policy(hybrid, X, R),
            "hybrid plain": _live_twin(HybridTwin(features, D, ALPHA), X, R),
            "hybrid tuned": _live_twin(TunedHybridTwin(features, D, ALPHA), X, R),
            "scored": _live_policy(scored, X, R),
            "scored hybrid": _live_policy(scored_hybrid, X, R),
        },
        rounds,
    )
    one = f"select + update, K={K}, d={D}, window {WINDOW} and full, every arm a candidate"
    cases = [
        ("a. live step, disjoint", "disjoint", "disjoint plain", ">=5", f"PSLinUCBDisjoint, {one}"),
        ("a. the same, tuned NumPy", "disjoint", "disjoint tuned", "", ""),
        ("b. live step, hybrid", "hybrid", "hybrid plain", ">=5", f"PSLinUCBHybrid, {one}, m={M}"),
        ("b. the same, tuned NumPy", "hybrid", "hybrid tuned", "", ""),
        (
            "c. update_many, update alone",
            "update_many",
            "update plain",
            ">=25",
            f"PSLinUCBDisjoint per event, {events} events per call, ids as a list",
        ),
        ("c. the same, tuned NumPy", "update_many", "update tuned", "", ""),
        (
            "c. update_many, select + update",
            "update_many",
            "disjoint plain",
            "",
            "the twin chooses as well, as a loop over a log would have to",
        ),
    ]
    rows = [
        compare(what, found[ours], found[theirs], wanted=wanted, note=note)
        for what, ours, theirs, wanted, note in cases
    ]
    tests = [("disjoint", "scored", "disjoint"), ("hybrid", "scored hybrid", "hybrid")]
    return rows + [
        compare(
            f"j. score test, live, {payoff}",
            found[ours],
            found[paper],
            wanted="<=2",
            slowness=True,
            note=f"windows of 8 to 256 plays against the paper's test as in {row}",
        )
        for row, (payoff, ours, paper) in zip("ab", tests, strict=True)
    ]


def batch(rounds: int = 9, n: int = 10_000, n_arms: int = 1000, d: int = 32) -> list[Row]:
    """Row d: scores of many contexts, against the one matrix product that they contain."""
    rng = np.random.default_rng(1)
    policy = whim.PSLinUCBDisjoint(n_features=d, alpha=ALPHA, window=WINDOW, threshold=1.0)
    policy.add_arms(range(n_arms))
    plays = 20 * n_arms
    policy.update_many(
        (np.arange(plays) % n_arms).tolist(), rng.normal(size=(plays, d)), rng.normal(size=plays)
    )
    X = rng.normal(size=(n, d))
    p = d * (d + 1) // 2
    left, right = rng.normal(size=(n, p)), rng.normal(size=(p, n_arms))
    given = np.empty((n, n_arms))

    def scores() -> float:
        start = time.perf_counter()
        policy.scores_many(X)
        return time.perf_counter() - start

    def product() -> float:
        start = time.perf_counter()
        np.matmul(left, right)
        return time.perf_counter() - start

    def product_given() -> float:
        start = time.perf_counter()
        np.matmul(left, right, out=given)
        return time.perf_counter() - start

    check = policy.scores_many(X[:3])
    np.testing.assert_allclose(check, [policy.scores(x) for x in X[:3]], atol=1e-9)
    progress(f"speed: {rounds} rounds of {n} × {n_arms} scores, d={d}")
    sides = {"scores": scores, "product": product, "given": product_given}
    found = interleave(sides, rounds)
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "default")
    shape = f"({n} × {p}) @ ({p} × {n_arms}), float64, BLAS threads: {threads}"
    return [
        compare(
            f"d. scores_many, BLAS on {threads}",
            found["scores"],
            found["product"],
            wanted="<=1.3",
            unit="ms",
            slowness=True,
            note=f"against {shape}; both allocate their result",
        ),
        compare(
            f"d. the same, given array, {threads}",
            found["scores"],
            found["given"],
            wanted="",
            unit="ms",
            slowness=True,
            note="the product goes into an array that is there; scores_many still allocates",
        ),
    ]


def main() -> None:
    """``python -m benchmarks.speed [live|batch]``."""
    words = set(sys.argv[1:])
    rows = []
    if "batch" not in words:
        rows += live()
    if "live" not in words:
        rows += batch()
    emit(rows)


if __name__ == "__main__":
    main()
