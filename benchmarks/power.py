"""Two checkouts of Whim beside each other: regret of PSLinUCB as it comes, in the paper's worlds.

``python -m benchmarks.power ../older-checkout``, which ``git worktree add`` makes. Both run in this
environment, each in a process of its own, over the same runs; LinUCB's regret, which must be the
same, tells whether they are. Ratios have their 95 % intervals over paired runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

BAR = 1.05
D, M, HORIZON = 5, 5, 20_000
_SIZES: dict[str, Any] = {"n_arms": 10, "n_features": D, "noise": 0.2}


def _worlds() -> dict[str, dict[str, Any]]:
    """Settings of ``PiecewiseLinear`` by title."""
    worlds = {
        f"{law}, {'one user' if users == 'fixed' else 'random users'}, {times}": {
            **_SIZES, "period": 2000, "law": law, "users": users, "asynchronous": times == "own",
        }
        for law, users, times in product(
            ("sphere", "ball", "nonnegative"), ("random", "fixed"), ("own", "together")
        )
    }  # fmt: skip
    clicks = {"n_arms": 10, "n_features": D, "rewards": "bernoulli", "rate": 0.25, "law": "sphere"}
    return worlds | {
        "nothing changes": {**_SIZES, "period": None, "law": "sphere"},
        "sphere, hybrid payoffs": {**_SIZES, "period": 2000, "law": "sphere", "n_item_features": M},
        "sphere, clicks at 0.25": {**clicks, "period": 4000},
    }


def _answer(runs: int, seed: int, only: str) -> None:
    """Of the worlds: each run's regret of the score test and of LinUCB, a line of JSON."""
    import whim
    from whim.worlds import PiecewiseLinear

    for title, settings in _worlds().items():
        if only not in title:
            continue
        sizes: dict[str, Any] = {"n_features": D, "alpha": 0.2 if "clicks" in title else 1.0}
        ours: Any = whim.PSLinUCBDisjoint
        if "hybrid" in title:
            ours = whim.PSLinUCBHybrid
            sizes |= {"n_item_features": M, "alpha": 1.5}
        policies = {
            "ours": ours(**sizes),
            "LinUCB": whim.LinUCBDisjoint(n_features=D, alpha=sizes["alpha"]),
        }
        result = whim.simulate(
            PiecewiseLinear(**settings), policies, horizon=HORIZON, runs=runs, seed=seed, jobs=1,
            points=1,
        )  # fmt: skip
        regret = {label: rows[:, -1].tolist() for label, rows in result.regret.items()}
        alarms = sum(seen.false_alarms for seen in result.detections["ours"])
        print(json.dumps({"world": title, **regret, "false": alarms}), flush=True)


def _lines(checkout: Path, given: argparse.Namespace) -> list[dict[str, Any]]:
    from benchmarks.measure import environment

    script = str(Path(__file__).resolve())
    told = subprocess.check_output(
        [sys.executable, "-P", script, "--answer", str(given.runs), str(given.seed), given.only],
        env=environment(1) | {"PYTHONPATH": str(checkout / "src")},
        cwd=checkout,
        text=True,
    )
    return [json.loads(line) for line in told.splitlines()]


def main() -> int:
    """``python -m benchmarks.power CHECKOUT``; the exit code is 1 if a ratio is above the bar."""
    from whim.evaluate.intervals import mean_interval, ratio_interval

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="worlds with this in their title", default="")
    given = parser.parse_args()
    if not (given.checkout / "src" / "whim").is_dir():
        parser.error(f"checkout must be a folder with src/whim, got {given.checkout}")
    here = _lines(Path(__file__).resolve().parents[1], given)
    there = _lines(given.checkout.resolve(), given)
    missed = False
    print(f"| world | here | there | ratio, {given.runs} runs | false alarms here / there |")
    print("|---|---|---|---|---|")
    for new, old in zip(here, there, strict=True):
        if not np.allclose(new["LinUCB"], old["LinUCB"], rtol=1e-6):
            raise SystemExit(f"{new['world']}: the checkouts' runs differ")
        ours, theirs = np.array(new["ours"]), np.array(old["ours"])
        ratio = ratio_interval(ours, theirs)
        missed |= ratio.value > BAR
        cells = [
            *(
                f"{i.value:,.0f} [{i.low:,.0f}, {i.high:,.0f}]"
                for i in map(mean_interval, (ours, theirs))
            ),
            f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]",
            f"{new['false']} / {old['false']}",
        ]
        print(f"| {new['world']} | {' | '.join(cells)} |", flush=True)
    return int(missed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--answer"]:
        _answer(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        sys.exit(main())
