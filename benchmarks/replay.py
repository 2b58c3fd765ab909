"""How fast a log is replayed, and the paper's synthetic experiment run, in compiled loops."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import whim
from benchmarks.measure import Row, compare, emit, interleave, progress
from benchmarks.twins import DisjointTwin, TunedDisjointTwin

__all__ = ["experiment", "log", "main"]

D, ALPHA, WINDOW, THRESHOLD = 6, 0.2, 1000, 0.1
EVENTS, PART = 1_000_000, 20_000
RUNS, HORIZON = 100, 20_000


def _columns(folder: Path, n_arms: int) -> whim.logs.Log:
    """R6A-like events straight into columns: 20 candidates of ``n_arms`` articles."""
    made = whim.worlds.NewsWorld(n_arms=n_arms).columns(events=EVENTS, seed=0)
    path = folder / f"{n_arms}.whim"
    with whim.logs.Writer(path, n_features=D, logging="uniform") as w:
        w.block(
            time=made.time, context=made.contexts, pool=made.pool_of, logged=made.logged,
            reward=made.clicks, pool_offsets=made.offsets, pool_items=made.members,
            item_arm=made.ids.tolist(),
        )  # fmt: skip
    return whim.logs.open(path)


def _replayed(log: whim.logs.Log) -> float:
    """Seconds per event: all of ``replay``, opening the log included."""
    policy = whim.PSLinUCBDisjoint(n_features=D, alpha=ALPHA, window=WINDOW, threshold=THRESHOLD)
    start = time.perf_counter()
    whim.replay(log.path, {"ps": policy})
    return (time.perf_counter() - start) / log.n_events


class _ByHand:
    """The literal loop with a twin over the first events; lists are made beforehand."""

    def __init__(self, log: whim.logs.Log, make: Callable[[int, int, float], DisjointTwin]) -> None:
        pools = [
            log.item_arm[log.pool_items[low:high]].astype(np.int64)
            for low, high in zip(log.pool_offsets[:-1], log.pool_offsets[1:], strict=True)
        ]
        self.events = list(
            zip(
                np.array(log.context[:PART]),
                [pools[p] for p in log.pool[:PART].tolist()],
                log.logged[:PART].tolist(),
                log.reward[:PART].tolist(),
                strict=True,
            )
        )
        self.make = partial(make, log.n_arms, D, ALPHA)
        self.matched = 0

    def __call__(self) -> float:
        twin = self.make()
        matched = 0
        start = time.perf_counter()
        for x, pool, place, reward in self.events:
            if twin.select_from(x, pool) == place:
                twin.update(int(pool[place]), x, reward)
                matched += 1
        seconds = time.perf_counter() - start
        self.matched = matched
        return seconds / len(self.events)


def log(rounds: int = 9) -> list[Row]:
    """Row g: an event of a replayed log, against the same loop over select and update."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for n_arms in (60, 271):
            progress(f"replay: {EVENTS} events, 20 candidates of {n_arms} arms")
            made = _columns(Path(folder), n_arms)
            plain, tuned = _ByHand(made, DisjointTwin), _ByHand(made, TunedDisjointTwin)
            sides = {"ours": partial(_replayed, made), "plain": plain, "tuned": tuned}
            found = interleave(sides, rounds)
            _same_matches(made, plain, tuned)
            what = f"g. replay, {n_arms} arms"
            note = (
                f"PSLinUCBDisjoint, a whole replay of {EVENTS} events per event, K=20, d={D}; "
                f"NumPy without windows on the first {PART} events, per event"
            )
            rows += [
                compare(what, found["ours"], found["plain"], wanted=">=40", note=note),
                compare(f"{what}, tuned NumPy", found["ours"], found["tuned"], wanted=""),
            ]
    return rows


def _same_matches(log: whim.logs.Log, *sides: _ByHand) -> None:
    """The twins must have kept the events that ``replay`` of LinUCB keeps."""
    policy = whim.LinUCBDisjoint(n_features=D, alpha=ALPHA)
    [run] = whim.replay(log, {"lin": policy}, first=PART / EVENTS).runs["lin"]
    for side in sides:
        if side.matched != run.matched:
            raise AssertionError(f"whim kept {run.matched} events, NumPy {side.matched}.")


def experiment(rounds: int = 3, jobs: int = 2) -> list[Row]:
    """Row h: the paper's synthetic comparison, two policies and 100 runs, whole."""
    world = whim.worlds.PiecewiseLinear(users="fixed")
    policies = {
        "LinUCB": whim.LinUCBDisjoint(n_features=5, alpha=1.0),
        "PSLinUCB": whim.PSLinUCBDisjoint(n_features=5, alpha=1.0, window=100, threshold=0.35),
    }

    def once() -> float:
        start = time.perf_counter()
        whim.simulate(world, policies, horizon=HORIZON, runs=RUNS, seed=0, jobs=jobs)
        return time.perf_counter() - start

    progress(f"replay: {RUNS} runs of {HORIZON} steps, twice, on {jobs} processes")
    found = interleave({"once": once}, rounds)["once"]
    low, median, high = np.quantile(found, [0.25, 0.5, 0.75]).tolist()
    return [
        Row(
            what="h. the paper's synthetic runs",
            ours=median, theirs=None, unit="s", ratio=median, low=low, high=high,
            best=float(found.min()), wanted="<=60",
            note=f"seconds, not a ratio: simulate, {len(policies)} policies, {RUNS} runs of "
            f"{HORIZON} steps, K=10, d=5, jobs={jobs}, worlds made anew, compiled code cached",
        )
    ]  # fmt: skip


def main() -> None:
    """``python -m benchmarks.replay [log|experiment]``."""
    words = set(sys.argv[1:])
    rows = []
    if "experiment" not in words:
        rows += log()
    if "log" not in words:
        rows += experiment()
    emit(rows)


if __name__ == "__main__":
    main()
