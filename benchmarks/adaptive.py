"""What AdaptiveLinUCB costs beside PSLinUCBDisjoint, both with their defaults.

``python -m benchmarks.adaptive``: live calls and compiled loops in the paper's world, for numbers
and for clicks, in turns; then memory per arm. ``--only live`` or ``--only "loop, clicks"`` picks
rows by how they begin. Seconds are the thread's own, so that other processes count little.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import whim
from benchmarks.measure import Row, compare, emit, environment, interleave, progress
from whim.evaluate.simulate import follow
from whim.kernels.models.adaptive.state import arm_rows
from whim.worlds import Episode

__all__ = ["main", "memory", "times"]

SIZES = ((5, 10), (10, 10), (20, 20))  # features and arms; the first is the paper's world
REWARDS = {"numbers": "gaussian", "clicks": "bernoulli"}
BAR = "<=2.5"
STEPS, FIRST = 2000, 4000  # live steps of a round, and those before the first
CATALOGUE = 20_000  # arms whose memory is measured

Maker = Callable[[int], whim.Policy]
SIDES: dict[str, Maker] = {
    "adaptive": lambda d: whim.AdaptiveLinUCB(n_features=d),
    "score test": lambda d: whim.PSLinUCBDisjoint(n_features=d),
}


def _episode(kind: str, d: int, arms: int, steps: int) -> Episode:
    world = whim.worlds.PiecewiseLinear(
        n_arms=arms, n_features=d, rewards=REWARDS[kind], rate=0.3 if kind == "clicks" else 0.05
    )
    return world.episode(horizon=steps, seed=0)


def _live(make: Maker, episode: Episode) -> Callable[[], float]:
    """Seconds per select + update, going on where the last round stopped, then from the start."""
    policy = make(episode.contexts.shape[1])
    policy.add_arms(range(episode.rewards.shape[1]))
    contexts, reward = list(episode.contexts), episode.rewards.item
    at = 0

    def steps(n: int) -> float:
        nonlocal at
        select, update = policy.select, policy.update
        at = 0 if at + n > len(contexts) else at
        start = time.thread_time()
        for t in range(at, at + n):
            arm: Any = select(contexts[t]).arm
            update(arm, contexts[t], reward(t, arm))
        at += n
        return (time.thread_time() - start) / n

    steps(FIRST)
    return lambda: steps(STEPS)


def _loop(make: Maker, episode: Episode) -> Callable[[], float]:
    """Seconds per step of a new policy in the loop that ``simulate`` runs."""

    def once() -> float:
        policy = make(episode.contexts.shape[1])
        start = time.thread_time()
        follow(policy, episode)
        return (time.thread_time() - start) / len(episode.contexts)

    return once


def times(rounds: int, only: str) -> list[Row]:
    """How many times the score test's time the mixture takes."""
    rows = []
    for way, run, steps in (("live", _live, 20_000), ("loop", _loop, 10_000)):
        for kind in REWARDS:
            for d, arms in SIZES:
                what = f"{way}, {kind}, d={d}, {arms} arms"
                if not what.startswith(only):
                    continue
                progress(f"adaptive: {what}")
                episode = _episode(kind, d, arms, steps)
                found = interleave({s: run(make, episode) for s, make in SIDES.items()}, rounds)
                rows.append(
                    compare(
                        what, found["adaptive"], found["score test"], slowness=True,
                        wanted=BAR if (d, arms) == SIZES[0] else "",
                    )
                )  # fmt: skip
    return rows


def _resident() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024.0 for line in lines if line.startswith("VmRSS"))


def _grown(d: int, arms: int) -> whim.Policy:
    """A policy whose arms have all been played once."""
    rng = np.random.default_rng(0)
    policy = whim.AdaptiveLinUCB(n_features=d)
    policy.add_arms(range(arms))
    policy.update_many(np.arange(arms), rng.normal(size=(arms, d)), rng.normal(size=arms))
    return policy


def memory(d: int) -> Row:
    """Bytes per arm: by how much they make a fresh process grow, against those of their arrays."""
    stated = sum(row.nbytes for row in arm_rows(d + 1, 6).values())
    command = [sys.executable, "-m", "benchmarks.adaptive", "--resident", str(d)]
    done = subprocess.run(
        command, env=environment(1), stdout=subprocess.PIPE, text=True, check=True
    )
    found = float(done.stdout)
    ratio = found / stated
    return Row(
        f"memory per arm, d={d}", found, stated, "bytes", ratio, ratio, ratio, ratio, "",
        note=f"resident, {CATALOGUE} arms with their ids; theirs: what the arrays of an arm take",
    )  # fmt: skip


def main() -> None:
    """``python -m benchmarks.adaptive``; memory on Linux only."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--only", help="rows that begin so, e.g. 'live' or 'memory'", default="")
    parser.add_argument("--rows", action="store_true", help="as JSON")
    parser.add_argument("--resident", type=int, metavar="D", help="bytes per arm, measured here")
    given = parser.parse_args()
    if given.resident:
        _grown(given.resident, 100)  # compiled
        before = _resident()
        policy = _grown(given.resident, CATALOGUE)
        print((_resident() - before) / len(policy.arms))
        return
    rows = times(given.rounds, given.only)
    if sys.platform.startswith("linux") and "memory".startswith(given.only):
        rows += [memory(d) for d, _ in SIZES]
    emit(rows)


if __name__ == "__main__":
    main()
