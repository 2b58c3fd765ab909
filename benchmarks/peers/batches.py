"""Work C: how many scores per second each peer gives when it may score many contexts at once.

``python -m benchmarks.peers.batches --peers whim,mabwiser,river`` prints a table.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import progress
from benchmarks.peers import works
from benchmarks.peers.bars import OWN
from benchmarks.peers.driver import TASKS, Gone, Process, opened, turns
from benchmarks.peers.environments import PEERS

__all__ = ["batches", "text", "write"]

_PREPARE = 300.0  # seconds to learn, and to find how many contexts fit


def write(n_contexts: int = 10_000, n_arms: int = 1000, d: int = 32) -> Path:
    """Work C: contexts to score, and ten rewards of each arm to learn from before."""
    path = TASKS / "C.npz"
    if not path.exists():
        TASKS.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(2)
        theta = rng.normal(size=(n_arms, d)) / np.sqrt(d)
        contexts = rng.normal(size=(10 * n_arms, d))
        arms = rng.permutation(np.repeat(np.arange(n_arms), 10))
        rewards = (contexts * theta[arms]).sum(axis=1) + 0.1 * rng.normal(size=len(arms))
        X = rng.normal(size=(n_contexts, d))
        np.savez(path, X=X, n_arms=n_arms, contexts=contexts, arms=arms, rewards=rewards)
    return path


def batches(peers: list[str], rounds: int = 7, seconds: float = 2.0) -> dict[str, dict[str, Any]]:
    """Work C by all peers in turns; a peer too slow for it in ``seconds`` scores fewer contexts."""
    found: dict[str, dict[str, Any]] = {}
    open_ones: dict[str, Process] = {}
    times: dict[str, list[float]] = {}
    try:
        for name in peers:
            process, found[name] = _prepared(name, seconds)
            if process is not None:
                open_ones[name], times[name] = process, []
            progress(f"C {name}: {found[name]}")
        for r in range(rounds + 1):
            for name in turns(list(open_ones), r):
                answer = _ask(open_ones[name], "score_again", 20 * seconds + 20)
                if "failed" in answer:
                    found[name] |= answer
                    open_ones.pop(name).kill()
                elif r:  # the first round is thrown away
                    times[name].append(answer["seconds"])
        for name in open_ones:
            found[name] |= _figures(found[name], times[name])
    finally:
        for process in open_ones.values():
            process.kill()
    return found


def _prepared(name: str, seconds: float) -> tuple[Process | None, dict[str, Any]]:
    """A worker with its scorer made, or what to say instead of a figure."""
    process, answer = opened(name, works.write("K=10", TASKS))
    if process is None:
        return None, answer
    answer = _ask(process, "batch", _PREPARE, path=str(write()), seconds=seconds)
    if "contexts" in answer:
        return process, answer
    process.kill()
    return None, answer


def _ask(process: Process, do: str, within: float, **values: Any) -> dict[str, Any]:
    try:
        return process.ask(do, within=within, late=f"more than {within:.0f} s", **values)
    except Gone as gone:
        return {"failed": str(gone)}


def _figures(made: dict[str, Any], seconds: list[float]) -> dict[str, Any]:
    """Seconds per score by round, and their median as scores per second."""
    each = np.array(seconds) / (made["contexts"] * made["n_arms"])
    low, median, high = np.quantile(each, [0.25, 0.5, 0.75]).tolist()
    return {
        "median": median,
        "low": low,
        "high": high,
        "rounds": each.tolist(),
        "scores_per_second": 1 / median,
    }


def text(found: dict[str, dict[str, Any]]) -> str:
    """The fastest first; those without a figure below, with the reason."""
    lines = [f"{'peer':<22}{'million scores/s':>17}{'quartiles':>21}{'contexts':>10}  note"]
    for name, row in sorted(found.items(), key=lambda item: item[1].get("median", np.inf)):
        if "median" not in row:
            lines.append(f"{name:<22}{'-':>17}{'':>31}  {row.get('unable') or row.get('failed')}")
            continue
        speed = f"{row['scores_per_second'] / 1e6:.4g}"
        spread = f"{1e-6 / row['high']:.4g}..{1e-6 / row['low']:.4g}"
        lines.append(f"{name:<22}{speed:>17}{spread:>21}{row['contexts']:>10,}  {row['note']}")
    return "\n".join(lines)


def main() -> None:
    """The demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default=",".join([*OWN, *PEERS]))
    print(text(batches(parser.parse_args().peers.split(","))))


if __name__ == "__main__":
    main()
