"""Drive one peer inside its own environment: a JSON line in, a JSON line out.

``python -m benchmarks.peers.worker ADAPTER`` with the module's name in ``adapters``. It imports
nothing but the standard library, NumPy, the task and the adapter, so that start-up and memory
are the peer's. What a peer prints goes to stderr and cannot break a line of ours.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.task import Task, Unable

__all__ = ["LONGEST", "WARM_UP", "Worker", "memory"]

LONGEST = 20.0  # seconds that one step may take before we give up
WARM_UP = 20  # steps, or WARM_UP_SECONDS, that are not timed
WARM_UP_SECONDS = 2.0
_CHUNK = 256  # steps between two looks at the clock, for fast peers


class TooSlow(Exception):  # noqa: N818
    """A step took longer than ``LONGEST``."""


class Worker:
    """One adapter, one open task, and the place in its stream."""

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter

    def open(self, task: str) -> dict[str, Any]:
        """Read a work and make the learner; nothing is timed."""
        self.task = Task.load(Path(task))
        self.contexts = list(np.ascontiguousarray(self.task.X, dtype=np.float64))
        steps, pools = len(self.contexts), self.task.pools
        self.pools = pools.tolist() if len(pools) else [None] * steps
        self.place = self.streams = 0
        self.step_seconds = 0.0
        self.before = memory()["current_mb"]
        self.learner = self.adapter.learner(self.task)
        self.warm = False
        return {"ok": True, "note": getattr(self.adapter, "NOTES", {}).get(_work(self.task), "")}

    def round(self, seconds: float, most: int) -> dict[str, Any]:
        """Go on from where the last round stopped; a fresh learner at the stream's end."""
        gc.collect()
        gc.disable()
        try:
            if not self.warm:
                self._warm_up()
            wall = time.perf_counter() + 3 * seconds + 1
            spent, visited, chosen = 0.0, [], []
            while spent < seconds and len(chosen) < most and time.perf_counter() < wall:
                if self.place == len(self.contexts):
                    self.learner = None  # free it before the next one is made
                    self.learner = self.adapter.learner(self.task)
                    self.place, self.streams = 0, self.streams + 1
                first, stop = self.place, self._stop(seconds - spent, most - len(chosen))
                spent += self._steps(stop, chosen)
                visited.extend(range(first, stop))
        finally:
            gc.enable()
        t, arms = np.array(visited), np.array(chosen)
        return {"steps": len(arms), "seconds": spent} | self._gains(t, arms)

    def _warm_up(self) -> None:
        """Lazy imports, caches and first allocations are not the price of a step."""
        self.warm = True
        spent = 0.0
        last = min(self.place + WARM_UP, len(self.contexts))
        while self.place < last and spent < WARM_UP_SECONDS:
            spent += self._steps(self.place + 1, [])

    def _stop(self, left: float, most: int) -> int:
        """End of the next stretch between two looks at the clock: a tenth of what is left."""
        fits = int(left / 10 / self.step_seconds) if self.step_seconds else 1
        return min(self.place + max(1, min(fits, _CHUNK, most)), len(self.contexts))

    def _steps(self, stop: int, chosen: list[int]) -> float:
        """Decide and learn from here to ``stop``: the timed part."""
        select, update = self.learner.select, self.learner.update
        contexts, pools, reward = self.contexts, self.pools, self.task.R.item
        first = self.place
        start = time.perf_counter()
        for t in range(first, stop):
            x = contexts[t]
            arm = select(x, pools[t])
            update(arm, x, reward(t, arm))
            chosen.append(arm)
        spent = time.perf_counter() - start
        self.place = stop
        self.step_seconds = spent / (stop - first)
        if self.step_seconds > LONGEST:
            raise TooSlow
        return spent

    def _gains(self, t: np.ndarray, arms: np.ndarray) -> dict[str, Any]:
        """What the choices brought, and what chance would have lost at the same steps."""
        rows = self.task.expected[t]
        mine = rows[np.arange(len(t)), arms]
        if len(self.task.pools):
            rows = np.take_along_axis(rows, self.task.pools[t], axis=1)
        return {
            "reward": float(self.task.R[t, arms].sum()),
            "lost": float((rows.max(axis=1) - mine).sum()),
            "lost_by_chance": float((rows.max(axis=1) - rows.mean(axis=1)).sum()),
            "place": self.place,
            "streams": self.streams,
        }

    def memory(self) -> dict[str, Any]:
        """Resident MB: now, at its highest, and before the learner was made."""
        return memory() | {"before_mb": getattr(self, "before", None)}

    def batch(self, path: str, seconds: float) -> dict[str, Any]:
        """Make a scorer of many contexts; a slow peer's gets only as many as fit in the time."""
        make = getattr(self.adapter, "batch", None)
        if make is None:
            raise Unable("no batch scoring")
        with np.load(path) as found:
            X, n_arms = np.ascontiguousarray(found["X"]), int(found["n_arms"])
            history = (found["contexts"], found["arms"], found["rewards"])
        count, more = 0, min(20, len(X))
        while more > 1.5 * count or more == len(X) > count:
            count = more
            self.score = make(X[:count], n_arms, history)
            self.score()
            more = min(len(X), int(count * seconds / max(_timed(self.score), 1e-9)))
        note = getattr(self.adapter, "NOTES", {}).get("C", "")
        return {"contexts": count, "n_arms": n_arms, "note": note}

    def score_again(self) -> dict[str, Any]:
        """One turn of the scorer that ``batch`` made."""
        return {"seconds": _timed(self.score)}


def _timed(call: Any) -> float:
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    finally:
        gc.enable()


def _work(task: Task) -> str:
    """The points of the growth curves are done like A."""
    return "A" if "=" in task.name else task.name


def memory() -> dict[str, float]:
    """From the kernel; ``ru_maxrss`` would still hold the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {line.split(":")[0]: line.split() for line in lines}
    names = {"current_mb": "VmRSS", "peak_mb": "VmHWM"}
    return {name: round(int(found[key][1]) * 1024 / 1e6, 1) for name, key in names.items()}


def _answer(worker: Worker, command: dict[str, Any]) -> dict[str, Any]:
    """Every failure is an answer too."""
    do = command.pop("do")
    try:
        if do not in ("open", "round", "memory", "batch", "score_again"):
            raise ValueError(f"no such command: {do}")
        found: dict[str, Any] = getattr(worker, do)(**command)
        return found
    except Unable as error:
        return {"unable": str(error)}
    except TooSlow:
        return {"failed": f"more than {LONGEST:.0f} s a step"}
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"[:300]}


def _bounded() -> None:
    """A quarter of the machine's memory: a peer that wants more at some size must not take all."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main() -> None:
    """Answer commands until ``close`` or the end of stdin."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    _bounded()

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=out, flush=True)

    start = time.perf_counter()
    try:
        adapter = importlib.import_module(f"benchmarks.peers.adapters.{sys.argv[1]}")
    except Exception as error:
        say({"failed": f"{type(error).__name__}: {error}"[:300]})
        return
    worker = Worker(adapter)
    say({"ready": True, "import_seconds": time.perf_counter() - start})
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "close":
            break
        say(_answer(worker, command))
    out.flush()
    os._exit(0)  # some peers take long to tear down, or crash there


if __name__ == "__main__":
    main()
