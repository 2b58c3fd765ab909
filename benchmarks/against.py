"""Two checkouts of Whim beside each other: live calls, loops, updates, the score test, in turns.

``python -m benchmarks.against ../older-checkout``, which ``git worktree add`` makes. Both run in
this environment, each in a process of its own, in short rounds; seconds are the thread's own and
ratios are taken round by round, so that a busy moment affects both.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import limit
from benchmarks.measure import Row, compare, emit, environment, interleave
from benchmarks.peers.adapters import whim_
from benchmarks.peers.works import make

BAR = "<=1.05"
_LIVE, _LOOPS, _UPDATES = "ABDEF", ("A", "B", "B replay", "D", "E"), "ADE"
_REWARDS = ("normal", "changes", "clicks", "revenue", "t3")
_COLD = {"LinUCBDisjoint": 3, "PSLinUCBDisjoint": 7, "PSLinUCBHybrid": 14}  # seconds at most
PARTS = [
    *(f"live {name}" for name in _LIVE),
    *(f"loop {name}" for name in _LOOPS),
    *(f"update_many {name}" for name in _UPDATES),
    *(f"score {name}" for name in _REWARDS),
    *(f"cold {name}" for name in _COLD),
]
_FIRST = """
import time, whim
policy = whim.{name}(n_features=5{more})
policy.add_arms(range(10){features})
policy.update(policy.select([0.1] * 5).arm, [0.1] * 5, 1.0)
print(time.process_time())
"""


# -- in the process of one checkout -------------------------------------------------------------


def _live(name: str) -> Callable[[], float]:
    """Seconds of some select + update, going on where the last call stopped."""
    task = make(name)
    contexts, pools = list(np.ascontiguousarray(task.X)), task.pools.tolist()
    pools = pools or [None] * len(contexts)
    steps = 400 if task.d > 50 else 4000
    at = len(contexts)
    learner: Any = None

    def measure() -> float:
        nonlocal at, learner
        if at + steps > len(contexts):
            at, learner = 0, whim_.learner(task)
        reward, select, update = task.R.item, learner.select, learner.update
        start = time.thread_time()
        for t in range(at, at + steps):
            arm = select(contexts[t], pools[t])
            update(arm, contexts[t], reward(t, arm))
        at += steps
        return (time.thread_time() - start) / steps

    return measure


def _loop(name: str) -> Callable[[], float]:
    work = limit._work(name[0], limit.MATCH if name.endswith("replay") else limit.EACH)
    chosen = np.empty(len(work.task.X), np.int64)
    return lambda: limit._walked(work, chosen)


def _update_many(name: str) -> Callable[[], float]:
    task = make(name)
    n = len(task.X)
    X = np.ascontiguousarray(task.X)
    slots = np.random.default_rng(3).integers(task.n_arms, size=n)
    r = task.R[np.arange(n), slots]

    def measure() -> float:
        policy = limit._policy(task)
        start = time.thread_time()
        policy.update_many(slots, X, r)
        return (time.thread_time() - start) / n

    return measure


def _score(name: str) -> Callable[[], float]:
    """Updates of one arm with the score test, by kind of reward; "changes" come every 200 plays."""
    import whim

    n, d, rng = 50_000, 5, np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X[:, 0] = 1.0
    theta = rng.normal(size=(n // 200, d)) if name == "changes" else rng.normal(size=(1, d))
    mean = (X * np.repeat(theta, n // len(theta), axis=0)).sum(axis=1)
    r = {
        "clicks": lambda: (rng.random(n) < 0.1).astype(np.float64),
        "revenue": lambda: rng.lognormal(3.0, 1.0, n) * (rng.random(n) < 0.03),
        "t3": lambda: mean + 0.2 * rng.standard_t(3, n),
    }.get(name, lambda: mean + 0.2 * rng.normal(size=n))()

    def measure() -> float:
        policy = whim.PSLinUCBDisjoint(n_features=d)
        policy.add_arms([0])
        start = time.thread_time()
        policy.update_many([0] * n, X, r)
        return (time.thread_time() - start) / n

    return measure


def _cold(name: str) -> Callable[[], float]:
    """Processor seconds from the start to the first reward learnt, with nothing compiled yet."""
    hybrid = name.endswith("Hybrid")
    more, features = (", n_item_features=5", ", features=[[0.1] * 5] * 10") if hybrid else ("", "")
    code = _FIRST.format(name=name, more=more, features=features)

    def measure() -> float:
        with tempfile.TemporaryDirectory() as folder:
            env = os.environ | {"WHIM_CACHE_DIR": folder}
            return float(subprocess.check_output([sys.executable, "-P", "-c", code], env=env))

    return measure


def _answer() -> None:
    """A part's name on stdin, its seconds on stdout."""
    makers = {
        "live": _live, "loop": _loop, "update_many": _update_many, "score": _score, "cold": _cold,
    }  # fmt: skip
    measures: dict[str, Callable[[], float]] = {}
    gc.disable()
    for line in sys.stdin:
        kind, _, name = line.strip().partition(" ")
        if line not in measures:
            measures[line] = makers[kind](name)
            measures[line]()  # compiled and warm
        print(json.dumps(measures[line]()), flush=True)


# -- both ---------------------------------------------------------------------------------------


class _Side:
    """A checkout's process."""

    def __init__(self, checkout: Path) -> None:
        paths = os.pathsep.join(map(str, (checkout / "src", checkout)))
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).resolve()), "--answer"],
            env=environment(1) | {"PYTHONPATH": paths},
            cwd=checkout,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self, part: str) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(part + "\n")
        self._process.stdin.flush()
        seconds: float = json.loads(self._process.stdout.readline())
        return seconds

    def close(self) -> None:
        self._process.communicate()


def rows(other: Path, rounds: int, parts: list[str]) -> list[Row]:
    """How many times the other checkout's time this one takes."""
    here, there = _Side(Path(__file__).resolve().parents[1]), _Side(other)
    made = []
    for part in parts:
        sides = {"here": lambda: here.measure(part), "there": lambda: there.measure(part)}  # noqa: B023
        kind, _, name = part.partition(" ")
        cold = kind == "cold"
        wanted = "" if kind in ("cold", "score") else BAR
        seconds = interleave(sides, min(rounds, 5) if cold else rounds)
        made.append(
            compare(
                part, seconds["here"], seconds["there"], wanted=wanted,
                unit="s" if cold else "µs", slowness=True,
                note=f"an empty cache, processor seconds, at most {_COLD[name]}" if cold else "",
            )
        )  # fmt: skip
    here.close()
    there.close()
    return made


def main() -> None:
    """``python -m benchmarks.against CHECKOUT``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--only", help="parts that begin so, e.g. 'live' or 'loop D'", default="")
    given = parser.parse_args()
    if not (given.checkout / "src" / "whim").is_dir():
        parser.error(f"checkout must be a folder with src/whim, got {given.checkout}")
    parts = [part for part in PARTS if part.startswith(given.only)]
    emit(rows(given.checkout.resolve(), given.rounds, parts))


if __name__ == "__main__":
    _answer() if sys.argv[1:] == ["--answer"] else main()
