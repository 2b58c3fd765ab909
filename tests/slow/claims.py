"""``python -m tests.slow.claims [SPACES] [LOOKS]``: whether "beyond chance" on the page is so.

A/A: 1,000 spaces of all kinds without a difference, 20,000 decisions each; the page of each is
looked at 100 times. At most 5 % may ever claim a difference. A quarter of the spaces again, at
half as many looks, each at ten pages about ranges of time: the last hour, and others that are
picked anew. A/B: how many decisions until a true difference of 10 % is claimed, beside a test of a
planned size that is looked at once.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from tests.claims import Claims, claims, opened, range_claims, simulated, spaces
from whim.serve.state.engine import Engine

DECISIONS = 20_000
RUNS = 40
POWER = (
    ("common clicks", 0.4, 0.24, 0.5, 40_000),
    ("common clicks", 0.4, 0.24, 0.1, 120_000),
    ("clicks", 0.1, 0.09, 0.5, 200_000),
    ("clicks", 0.1, 0.09, 0.1, 500_000),
)  # kind, rate, variance, share that is held back, decisions at most


def no_difference(engine: Engine, count: int, looks: int, how: Claims, what: str) -> int:
    """How many spaces ever claim what is not there; all are counted by kind."""
    wrong: Counter[str] = Counter()
    for space in spaces(count, DECISIONS):
        wrong[space.kind] += any(claim for _, claim in how(engine, space, looks))
    false = sum(wrong.values())
    sys.stdout.write(
        f"A/A: {false} of {count} spaces ever claimed a difference {what} in {looks} looks "
        f"({', '.join(f'{kind} {n}' for kind, n in wrong.items())})\n"
    )
    return false


def difference(engine: Engine, kind: str, rate: float, variance: float, share: float, most: int):  # type: ignore[no-untyped-def]
    """Decisions until the page says that a policy that is 10 % better is better."""
    rng, until = np.random.default_rng(1), []
    for _ in range(RUNS):
        space = simulated(kind, most, rng, gain=0.1, holdback=share)
        said = ((n, claim) for n, claim in claims(engine, space, 100) if claim)
        n, claim = next(said, (most, 1))
        assert claim > 0, "it said worse"
        until.append(n)
    low, middle, high = np.quantile(until, [0.25, 0.5, 0.75])
    planned = (1.96 + 0.84) ** 2 * variance / (0.1 * rate) ** 2 / (share * (1 - share))
    sys.stdout.write(
        f"A/B: {kind} at {rate:g}, {share:.0%} held back, 10 % better: claimed after {middle:,.0f} "
        f"decisions (quartiles {low:,.0f} to {high:,.0f}; at {most:,} it ends); planned for one "
        f"look with power 0.8: {planned:,.0f}\n"
    )


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    looks = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        engine = opened(Path(folder))
        try:
            false = no_difference(engine, count, looks, claims, "over all of the time")
            some = max(1, count // 4)
            in_ranges = no_difference(
                engine, some, max(1, looks // 2), range_claims, "in any range of time"
            )
            for row in POWER:
                difference(engine, *row)
        finally:
            engine.close()
    sys.stdout.write(f"{time.monotonic() - began:.0f} s\n")
    if false > 0.05 * count or in_ranges > 0.05 * some:
        sys.exit("more than 5 % claimed a difference")
