"""Measure how often the score test fires on arms that never change, against the rate asked for.

    python docs/calibration.py                      # the table of docs/math.md, some hours
    python docs/calibration.py --rates 1e-3 --alarms 20 --features 1,5   # a look, in minutes

One arm a block of 50,000 plays, so that starts count as they do in use; rewards x·θ + noise, or
clicks of one rate whatever the context. Each line: asked rate, measured over asked, and the 95 %
interval of that (the alarms are counted as a Poisson number).
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import itertools

import numpy as np

import whim
from whim.detectors.score_test import chi2_bound
from whim.types import F64

BLOCK = 50_000
NOISES = ("normal 0.05", "normal 1", "clicks 0.02", "clicks 0.1", "clicks 0.5")
CONTEXTS = ("constant", "random", "heavy")


def contexts(kind: str, d: int, rng: np.random.Generator) -> F64:
    """A block of contexts; where they vary and d > 1 the first feature is 1."""
    if kind == "constant":
        return np.tile(rng.normal(size=d), (BLOCK, 1))
    X = rng.normal(size=(BLOCK, d)) if kind == "random" else rng.standard_t(2, size=(BLOCK, d))
    if d > 1:
        X[:, 0] = 1.0
    return X


def rewards(noise: str, X: F64, rng: np.random.Generator) -> F64:
    """Rewards whose law does not change within the block."""
    kind, size = noise.split()
    if kind == "clicks":
        return (rng.random(len(X)) < float(size)).astype(np.float64)
    return X @ rng.normal(size=X.shape[1]) + float(size) * rng.normal(size=len(X))


def measure(asked: float, noise: str, kind: str, d: int, alarms: float) -> tuple[int, int]:
    """Alarms and plays, of as many plays as should give ``alarms`` of them."""
    rng = np.random.default_rng([d, NOISES.index(noise), CONTEXTS.index(kind), round(1 / asked)])
    found, blocks = 0, max(1, round(alarms / asked / BLOCK))
    for _ in range(blocks):
        policy = whim.PSLinUCBDisjoint(n_features=d, false_alarm=asked)
        policy.add_arms([0])
        X = contexts(kind, d, rng)
        found += len(policy.update_many(np.zeros(BLOCK, int), X, rewards(noise, X, rng)))
    return found, blocks * BLOCK


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rates", default="1e-3,1e-4,1e-5")
    parser.add_argument("--features", default="1,5,20")
    parser.add_argument("--alarms", type=float, default=100, help="expected, in each line")
    parsed = parser.parse_args()
    rates = [float(rate) for rate in parsed.rates.split(",")]
    sizes = [int(d) for d in parsed.features.split(",")]
    print(f"whim {whim.__version__}; measured over asked, with 95 % intervals")
    for asked, d, kind, noise in itertools.product(rates, sizes, CONTEXTS, NOISES):
        found, plays = measure(asked, noise, kind, d, parsed.alarms)
        low = chi2_bound(0.975, 2 * found) / 2 if found else 0.0
        high = chi2_bound(0.025, 2 * found + 2) / 2
        ratio, low, high = (number / plays / asked for number in (found, low, high))
        case = f"{asked:.0e} d={d:<2} {kind:8} {noise:11}"
        print(f"{case} {ratio:5.2f}  [{low:.2f}, {high:.2f}]", flush=True)


if __name__ == "__main__":
    main()
