"""Time the peers' own replay tools over one log of uniform choices.

``python -m benchmarks.peers.replays PEER [SECONDS]`` runs in our environment, makes the log once,
starts itself in the peer's environment, and prints what it measured as JSON on the last line.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.task import Unable

__all__ = ["ADAPTERS", "log", "run"]

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 20.0
_FIRST = 200  # events, to see how many fit
_LONGEST = 600.0

# peers that are not named here have no replay
ADAPTERS = {
    "river": "replay_river",
    "contextualbandits": "replay_contextualbandits",
    "obp": "replay_obp",
    "mabwiser": "replay_mabwiser",
    "pymab": "pymab_",
    "coba": "coba_",
}


def log(folder: Path) -> Path:
    """B's visits with a uniform choice of the page, and one of all arms for tools without pages."""
    from benchmarks.peers import works  # needs whim, which a peer's environment has not

    path = folder / "replay.npz"
    if path.exists():
        return path
    task = works.make("B")
    rng = np.random.default_rng(0)
    every = np.arange(len(task.X))
    place = rng.integers(task.pools.shape[1], size=len(every))
    any_arm = rng.integers(task.n_arms, size=len(every))
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(
        path,
        contexts=task.X,
        pools=task.pools,
        place=place,
        reward=task.R[every, task.pools[every, place]],
        any_arm=any_arm,
        any_reward=task.R[every, any_arm],
        n_arms=task.n_arms,
        alpha=task.alpha,
    )
    return path


def run(peer: str, seconds: float = SECONDS) -> dict[str, Any]:
    """Measure one peer in its own environment; a failure is an answer too."""
    if peer not in ADAPTERS:
        return {"peer": peer, "unable": "no replay of a log"}
    python = ROOT / ".bench" / "envs" / peer / "bin" / "python"
    if not python.exists():
        return {"peer": peer, "failed": "not installed"}
    path = log(ROOT / ".bench" / "tasks")
    command = [str(python), "-m", "benchmarks.peers.replays", "--inside", peer, str(path)]
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        done = subprocess.run(
            [*command, str(seconds)],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, **one, "PYTHONPATH": str(ROOT)},
            timeout=_LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"peer": peer, "failed": f"more than {_LONGEST:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"peer": peer, "failed": (done.stderr.strip().splitlines() or ["no answer"])[-1]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _inside(peer: str, path: Path, seconds: float) -> dict[str, Any]:
    """In the peer's environment: a few events first, then twice as many as long as they fit."""
    adapter = importlib.import_module(f"benchmarks.peers.adapters.{ADAPTERS[peer]}")
    answer: dict[str, Any] = {"peer": peer, "note": adapter.NOTES["replay"]}
    with np.load(path) as found:
        most = len(found["contexts"])
    events, began = min(_FIRST, most), time.perf_counter()
    try:
        while True:
            spent, done, matched = adapter.replay(path, events)
            left = seconds - (time.perf_counter() - began)
            if events == most or spent > seconds / 3 or left < 2 * spent:
                break
            # the cost of an event may grow with the log: never more than eight times as many
            events = min(most, int(events * min(8.0, max(2.0, 0.8 * left / spent))))
    except Unable as error:
        return {"peer": peer, "unable": str(error)}
    return answer | {
        "seconds": spent,
        "events": done,
        "matched": matched,
        "events_a_second": done / spent,
    }


def main() -> None:
    """One peer from the command line."""
    if sys.argv[1] == "--inside":
        answer = _inside(sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]))
    else:
        answer = run(sys.argv[1], *map(float, sys.argv[2:3]))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
