"""What ``whim convert`` makes of a CSV by itself, against features made by hand and raw columns.

    python -m benchmarks.features [RUNS]

Each run makes a CSV of 5,000 visits with categories, gaps, an hour and a skewed price (seed: the
run's number), converts it, learns from that log, and then serves 10,000 new visitors with the
default policy, which goes on learning. The truth is known: what counts is the expected reward of
what was shown. The old recipe is ``--raw`` with the columns of numbers; where a new visitor has a
gap, the mean stands for it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tests.made_visits import COLUMNS, OFFERS, Visits, visits, write_csv

import whim
import whim.logs
from whim.evaluate.intervals import mean_interval
from whim.types import F64

LOGGED, SERVED = 5_000, 10_000
NUMBERS = ("age", "hour", "price")


def numbers(seen: Visits) -> F64:
    """The columns of numbers as they are, gaps filled by the mean."""
    columns = np.array([[np.nan if v is None else v for v in seen.columns[c]] for c in NUMBERS])
    means = np.nanmean(columns, axis=1)[:, None]
    filled: F64 = np.where(np.isnan(columns), means, columns).T.copy()
    return filled


def earned(X: F64, shown: Any, clicks: F64, fresh: F64, seen: Visits, seed: int) -> float:
    """Mean expected reward over new visitors of the default policy, which has learnt the log."""
    policy = whim.PSLinUCBDisjoint(n_features=X.shape[1], alpha=0.3)
    policy.add_arms(OFFERS)
    policy.update_many(shown, X, clicks)
    draws = np.random.default_rng([seed, 22]).random(len(fresh))
    total = 0.0
    for x, chances, draw in zip(fresh, seen.chances, draws.tolist(), strict=True):
        arm = policy.select(x).arm
        chance = float(chances[OFFERS.index(str(arm))])
        policy.update(arm, x, float(draw < chance))
        total += chance
    return total / len(fresh)


def run(seed: int, *, logged: int = LOGGED, served: int = SERVED) -> dict[str, float]:
    """One run: what each kind of features earned."""
    seen, new = visits(logged, seed), visits(served, seed + 10_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shown, clicks = write_csv(folder / "visits.csv", seen, seed)
        how: dict[str, Any] = {"arm": "shown", "reward": "click", "logging": "uniform"}
        log = whim.logs.convert(
            folder / "visits.csv", folder / "visits.whim", context=COLUMNS.split(","), **how
        )
        raw = whim.logs.convert(
            folder / "visits.csv", folder / "raw.whim", context=NUMBERS, raw=True, **how
        )
        features = log.features
        assert features is not None
        assert len(log) == logged
        rest = new, seed
        kept = [i for i, age in enumerate(seen.columns["age"]) if age is not None]  # as raw has it
        return {
            "by hand": earned(seen.by_hand(), shown, clicks, new.by_hand(), *rest),
            "whim convert": earned(
                np.array(log.context), shown, clicks, features.many(new.columns), *rest
            ),
            "old recipe": earned(
                np.array(raw.context), [shown[i] for i in kept], clicks[kept], numbers(new), *rest
            ),
            "best": float(new.chances.max(axis=1).mean()),
            "at random": float(new.chances.mean()),
        }


def main(runs: int = 20) -> None:
    """Print what each kind earned, and against features by hand."""
    results = [run(seed) for seed in range(runs)]
    print(f"{runs} runs of {LOGGED:,} logged and {SERVED:,} served visits, seeds 0 to {runs - 1}")
    for name in results[0]:
        rewards = np.array([one[name] for one in results])
        against = rewards / np.array([one["by hand"] for one in results]) - 1
        middle, low, high = (100 * value for value in mean_interval(against))
        print(
            f"{name:<13} {rewards.mean():.4f}   {middle:+6.2f} % [{low:+.2f}, {high:+.2f}] "
            "against features by hand"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
