"""Let the workers take turns, one at a time, and say what a step costs in each.

``python -m benchmarks.peers.driver A --peers vowpalwabbit,river`` prints a table.
"""

from __future__ import annotations

import argparse
import atexit
import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import environment, progress
from benchmarks.peers import works
from benchmarks.peers.environments import PEERS, ROOT, Failed, install, python
from benchmarks.peers.worker import LONGEST, WARM_UP_SECONDS

__all__ = ["TASKS", "Gone", "Process", "adapter", "opened", "side_by_side", "table", "turns"]

TASKS = ROOT / ".bench" / "tasks"
LOGS = ROOT / ".bench" / "logs"
_OPEN_SECONDS = 120.0  # importing, reading a work, making a learner
_MOST = 5000  # steps a round
_FEW = 2  # rounds that are enough of a peer whose step takes seconds


class Gone(Exception):  # noqa: N818
    """A worker died or did not answer; the reason is its text."""


def has_adapter(name: str) -> bool:
    """Whether somebody wrote one; a peer without is reported."""
    return (Path(__file__).parent / "adapters" / f"{adapter(name)}.py").exists()


def adapter(name: str) -> str:
    """The module that drives it."""
    return PEERS[name].adapter if name in PEERS else f"{name.replace('-', '_')}_"


class Process:
    """A worker in its peer's environment; a name that is no peer runs in our own."""

    def __init__(self, name: str) -> None:
        self.name = name
        interpreter = str(python(name)) if name in PEERS else sys.executable
        LOGS.mkdir(parents=True, exist_ok=True)
        self._log = (LOGS / f"{name}.log").open("a")
        self._process = subprocess.Popen(
            [interpreter, "-m", "benchmarks.peers.worker", adapter(name)],
            cwd=ROOT,
            env=environment(1),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        atexit.register(self.kill)  # whatever stops us
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.ready = self._answer(_OPEN_SECONDS, "no import in time")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _answer(self, seconds: float, late: str) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            self.kill()
            raise Gone(late) from None
        if line is None:
            code = self._process.wait()
            raise Gone(f"the process ended with code {code}")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, do: str, *, within: float, late: str, **values: Any) -> dict[str, Any]:
        """Send a command and wait for its answer, at most ``within`` seconds."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **values}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise Gone(f"the process ended with code {self._process.wait()}") from None
        return self._answer(within, late)

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        atexit.unregister(self.kill)
        self._process.kill()
        self._process.wait()
        self._log.close()


def opened(name: str, path: Path) -> tuple[Process | None, dict[str, Any]]:
    """A worker with the work open, or what to say instead of a figure."""
    if not has_adapter(name):
        return None, {"failed": "no adapter"}
    if name in PEERS:
        made = install(name)
        if isinstance(made, Failed):
            return None, {"failed": f"not installed: {made.reason}"}
    process = None
    try:
        process = Process(name)
        answer = process.ready
        if "failed" not in answer:
            late = f"no learner in {_OPEN_SECONDS:.0f} s"
            answer = process.ask("open", within=_OPEN_SECONDS, late=late, task=str(path))
    except Gone as gone:
        return None, {"failed": str(gone)}
    if "ok" in answer:
        return process, {"note": answer["note"]}
    process.kill()
    return None, answer


def side_by_side(
    tasks: list[str], peers: list[str], rounds: int = 7, seconds: float = 0.3
) -> dict[str, dict[str, dict[str, Any]]]:
    """For each work, every peer's seconds per step, in rounds that the workers take in turns.

    The result is ``[work][peer]``: figures, or ``unable`` or ``failed`` with the reason. The
    first round is thrown away, as in ``measure.interleave``.
    """
    return {task: _one_work(works.write(task, TASKS), peers, rounds, seconds) for task in tasks}


def turns(names: list[str], r: int) -> list[str]:
    """The order of a round: another one first each time, forwards and backwards."""
    turn = r % max(1, len(names))
    order = names[turn:] + names[:turn]
    return order if r % 2 else order[::-1]


def _one_work(
    path: Path, peers: list[str], rounds: int, seconds: float
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    open_ones: dict[str, Process] = {}
    answers: dict[str, list[dict[str, Any]]] = {}
    try:
        for name in peers:
            process, found[name] = opened(name, path)
            if process is not None:
                open_ones[name], answers[name] = process, []
            progress(f"{path.stem} {name}: {json.dumps(found[name], ensure_ascii=False)}")
        for r in range(rounds + 1):
            for name in turns(list(open_ones), r):
                answer = _round(open_ones[name], seconds)
                if "failed" in answer:
                    found[name] |= answer
                    open_ones.pop(name).kill()
                else:
                    answers[name].append(answer)
        for name, process in open_ones.items():
            found[name] |= _figures(answers[name]) | _memory(process)
    finally:
        for process in open_ones.values():
            process.kill()
    return found


def _slow(answer: dict[str, Any]) -> bool:
    return bool(answer["seconds"] > answer["steps"])


def _round(process: Process, seconds: float) -> dict[str, Any]:
    """One turn; a worker that says nothing for too long is stuck in a step."""
    within = WARM_UP_SECONDS + 4 * seconds + 2 * LONGEST + 10
    late = f"more than {LONGEST:.0f} s per step"
    try:
        return process.ask("round", within=within, late=late, seconds=seconds, most=_MOST)
    except Gone as gone:
        return {"failed": str(gone)}


def _memory(process: Process) -> dict[str, Any]:
    try:
        return process.ask("memory", within=20, late="no answer")
    except Gone as gone:
        return {"memory": str(gone)}


def _figures(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Seconds a step over the timed rounds; regret over all of the steps that were seen."""
    each = np.array([a["seconds"] / a["steps"] for a in answers[1:]])
    low, median, high = np.quantile(each, [0.25, 0.5, 0.75]).tolist()
    steps = sum(a["steps"] for a in answers)
    total = {key: sum(a[key] for a in answers) / steps for key in ("lost", "lost_by_chance")}
    return {
        "median": median,
        "low": low,
        "high": high,
        "best": float(each.min()),
        "rounds": each.tolist(),
        "steps": steps,
        "streams": answers[-1]["streams"],
        "regret": total["lost"],
        "regret_by_chance": total["lost_by_chance"],
    }


def table(found: dict[str, dict[str, Any]]) -> str:
    """One work's peers, the fastest first; those without a figure below, with the reason."""
    lines = [f"{'peer':<20}{'µs per step':>11}{'quartiles':>21}{'regret':>9}{'chance':>8}  note"]
    for name, row in sorted(found.items(), key=lambda item: item[1].get("median", np.inf)):
        if "median" not in row:
            why = next((f"{k}: {row[k]}" for k in ("unable", "failed") if k in row), "?")
            lines.append(f"{name:<20}{'-':>11}{'':>21}{'':>9}{'':>8}  {why}")
            continue
        spread = f"{row['low'] * 1e6:,.4g}..{row['high'] * 1e6:,.4g}"
        regret = f"{row['regret']:>9.3f}{row['regret_by_chance']:>8.3f}"
        lines.append(f"{name:<20}{row['median'] * 1e6:>11,.1f}{spread:>21}{regret}  {row['note']}")
    return "\n".join(lines)


def main() -> None:
    """The demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("works", nargs="+", help="A, B, D, E, F, K=1000, d=50")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    given = parser.parse_args()
    peers = given.peers.split(",")
    for work in given.works:
        print(f"\n{work}")
        print(table(side_by_side([work], peers, given.rounds, given.seconds)[work]), flush=True)


if __name__ == "__main__":
    main()
