"""A decision among 100,000 arms, d = 32, against reading the models once from memory.

``python -m benchmarks.peers.decision [--quick]``. A decision must look at every arm's model, and
the models do not fit into any cache; so reading as many bytes is the least that it can take. An
update comes between two decisions, untimed; a decision must not live on what the last one left.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

import whim
from benchmarks.measure import Row, compare, interleave, progress, table
from benchmarks.stream import reader

__all__ = ["ARMS", "D", "run"]

ARMS, D = 100_000, 32
NUMBERS = ARMS * (D * (D + 1) // 2 + D)  # factors and coefficients
BYTES = {"float64": 8, "float32": 4}


def _policy(scoring: str) -> whim.Policy:
    """All arms known, each played about once."""
    policy = whim.LinUCBDisjoint(n_features=D, scoring=scoring)
    policy.add_arms(range(ARMS))
    rng = np.random.default_rng(0)
    for _ in range(10):
        X = rng.normal(size=(ARMS // 10, D)) / np.sqrt(D)
        arms = rng.integers(ARMS, size=len(X))
        policy.update_many(arms.tolist(), X, X[:, 0] + 0.1 * rng.normal(size=len(X)))
    return policy


def _deciding(policy: whim.Policy) -> Callable[[], float]:
    rng = np.random.default_rng(1)

    def once() -> float:
        x = rng.normal(size=D) / np.sqrt(D)
        start = time.thread_time()
        arm = policy.select(x).arm
        seconds = time.thread_time() - start
        policy.update(arm, x, float(x[0]))
        return seconds

    return once


def _reading(numbers: np.ndarray) -> tuple[str, Callable[[], float]]:
    by, read = reader(numbers)

    def once() -> float:
        start = time.thread_time()
        read()
        return time.thread_time() - start

    return by, once


def run(rounds: int = 31) -> list[Row]:
    """A row for each precision: ours and theirs in ms, and how many times longer ours takes."""
    numbers = np.ones(NUMBERS)  # read as float64 on both sides: only bytes count
    sides, notes = {}, {}
    for scoring, width in BYTES.items():
        progress(f"decision: {ARMS} arms, d={D}, {scoring}")
        by, sides[f"{scoring} read"] = _reading(numbers[: NUMBERS * width // 8])
        sides[scoring] = _deciding(_policy(scoring))
        notes[scoring] = f"{NUMBERS * width / 1e6:.0f} MB of models; summed once by {by}"
    found = interleave(sides, rounds)
    rows = []
    for scoring in BYTES:
        ours, theirs = found[scoring], found[f"{scoring} read"]
        rows.append(
            compare(
                f"a decision, {ARMS} arms, {scoring}", ours, theirs, unit="ms", slowness=True,
                wanted="<=1.5",
                note=f"{notes[scoring]}; {rounds} rounds in turns",
            )
        )  # fmt: skip
    light = compare(
        f"a decision, {ARMS} arms, float32 over float64", found["float32"], found["float64"],
        wanted="", unit="ms", slowness=True,
    )  # fmt: skip
    return [*rows, light]


def main() -> None:
    """The demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    print(table(run(5 if parser.parse_args().quick else 31)))


if __name__ == "__main__":
    main()
