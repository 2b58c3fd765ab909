"""What one model per group saves at 100,000 arms: memory, and the time of a decision."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import whim
from benchmarks.measure import Row, compare, emit, environment, interleave, progress

__all__ = ["decisions", "main", "memory"]

ARMS, GROUPS, PLAYED, PLAYS = 100_000, 100, 2000, 20_000
MEGABYTE = 1e6


def _made(grouped: bool, d: int, played: int = PLAYED, n_arms: int = ARMS) -> whim.Policy:
    """A policy with all arms, some of which were played: ten times each, on average."""
    policy: whim.Policy
    if grouped:
        policy = groups = whim.PSLinUCBGroups(n_features=d, groups="given")
        groups.add_arms(range(n_arms), groups=[a % GROUPS for a in range(n_arms)])
    else:
        policy = whim.PSLinUCBDisjoint(n_features=d)
        policy.add_arms(range(n_arms))
    rng = np.random.default_rng(0)
    some = rng.choice(n_arms, played, replace=False)
    arms = some[rng.integers(played, size=PLAYS)]
    X = rng.normal(size=(PLAYS, d)) / np.sqrt(d)
    policy.update_many(arms.tolist(), X, _rewards(X, arms, rng))
    return policy


def _rewards(X: np.ndarray, arms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same for all arms of a group, but for the noise: nothing changes and no arm leaves."""
    theta = np.random.default_rng(2).normal(size=(GROUPS, X.shape[1]))
    means = np.einsum("nd,nd->n", X, theta[arms % GROUPS])
    return np.asarray(means + 0.1 * rng.normal(size=len(X)))


def _live(policy: whim.Policy, X: np.ndarray, pools: list[list[int]] | None) -> Callable[[], float]:
    """Seconds per decision among all arms, or among a pool."""
    contexts = list(X)

    def steps() -> float:
        start = time.perf_counter()
        if pools is None:
            for x in contexts:
                policy.select(x)
        else:
            for x, pool in zip(contexts, pools, strict=True):
                policy.select(x, pool)
        return (time.perf_counter() - start) / len(contexts)

    return steps


def _update(policy: whim.Policy, X: np.ndarray, arms: np.ndarray) -> Callable[[], float]:
    plays = zip(arms.tolist(), X, strict=True)
    rewards = _rewards(X, arms, np.random.default_rng(3)).tolist()
    contexts = list(plays)

    def steps() -> float:
        start = time.perf_counter()
        for (arm, x), r in zip(contexts, rewards, strict=True):
            policy.update(arm, x, r)
        return (time.perf_counter() - start) / len(contexts)

    return steps


def decisions(d: int, rounds: int = 15) -> list[Row]:
    """A live decision among all arms and among 1,000 of them, and a live update."""
    progress(f"groups: {ARMS} arms, d={d}, {rounds} rounds")
    rng = np.random.default_rng(1)
    one, own = _made(True, d), _made(False, d)
    few, many = rng.normal(size=(5, d)) / np.sqrt(d), rng.normal(size=(200, d)) / np.sqrt(d)
    pools = [rng.choice(ARMS, 1000, replace=False).tolist() for _ in range(200)]
    arms = rng.integers(ARMS, size=200)
    found = interleave(
        {
            "all": _live(one, few, None),
            "all own": _live(own, few, None),
            "some": _live(one, many, pools),
            "some own": _live(own, many, pools),
            "update": _update(one, many, arms),
            "update own": _update(own, many, arms),
        },
        rounds,
    )
    note = f"{ARMS} arms in {GROUPS} groups, {PLAYED} played; theirs: PSLinUCBDisjoint"
    return [
        compare(
            f"k. select, all arms, d={d}", found["all"], found["all own"], wanted="", note=note
        ),
        compare(f"k. select, 1,000 arms, d={d}", found["some"], found["some own"], wanted=""),
        compare(f"k. update, d={d}", found["update"], found["update own"], wanted=""),
    ]


def _resident() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) * 1024 / MEGABYTE for x in lines if x.startswith("VmRSS"))


def memory(d: int, played: int) -> Row:
    """What a policy adds to the resident memory of a fresh process."""
    sizes = []
    for kind in ("grouped", "own"):
        command = [sys.executable, "-m", "benchmarks.groups", "resident", kind, str(d), str(played)]
        done = subprocess.run(
            command, env=environment(1), stdout=subprocess.PIPE, text=True, check=True
        )
        sizes.append(float(done.stdout))
    ours, theirs = sizes
    ratio = theirs / ours
    return Row(
        what=f"k. memory, plays over {played} arms, d={d}", ours=ours, theirs=theirs, unit="MB",
        ratio=ratio, low=ratio, high=ratio, best=ratio, wanted="",
        note="resident, with the ids; the difference to a process without the policy",
    )  # fmt: skip


def main() -> None:
    """``python -m benchmarks.groups``; memory on Linux only."""
    if "resident" in sys.argv:
        kind, d, played = sys.argv[2:5]
        _made(kind == "grouped", int(d), 10, 100).select(np.ones(int(d)))  # compiled
        before = _resident()
        policy = _made(kind == "grouped", int(d), int(played))
        print(_resident() - before)
        assert policy.step == PLAYS
        return
    rows = decisions(6) + decisions(32)
    if sys.platform.startswith("linux"):
        rows += [memory(d, played) for d in (6, 32) for played in (PLAYED, PLAYS)]
    emit(rows)


if __name__ == "__main__":
    main()
