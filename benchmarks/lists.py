"""A list of 5 of 20 against one decision, live and in compiled loops: ratios in one run.

    python -m benchmarks.lists

The bar is 2; it ends with 1 if a median is above. Decisions and lists are timed in turn, and the
ratio is the median over rounds with its quartiles; in loops nothing is learnt after the first item,
so that only the decision differs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

import whim
from whim.evaluate.lists import follow_lists
from whim.evaluate.simulate import follow
from whim.worlds import ListWorld, ReversingLinear

ARMS, D, K, ROUNDS, CALLS, BAR = 20, 6, 5, 31, 3000, 2.0


def main() -> int:
    """Print a table; how many ratios are above the bar."""
    print(f"| policy | where | one decision | list of 5 | ratio (quartiles) | bar {BAR:g} |")
    print("|---|---|---:|---:|---:|---|")
    missed = 0
    for cls in (whim.LinUCBDisjoint, whim.PSLinUCBDisjoint):
        for where, times in (("live", _live(cls)), ("loop", _loop(cls))):
            one, many = (np.median(t) * 1e6 for t in times)
            low, ratio, high = np.quantile(times[1] / times[0], [0.25, 0.5, 0.75])
            missed += ratio > BAR
            print(
                f"| {cls.__name__} | {where} | {one:.2f} µs | {many:.2f} µs "
                f"| {ratio:.2f} ({low:.2f} to {high:.2f}) | {'missed' if ratio > BAR else 'met'} |"
            )
    return missed


def _live(cls: Callable[..., whim.Policy]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    policy = cls(n_features=D)
    policy.add_arms(range(ARMS))
    X = rng.normal(size=(CALLS, D))
    policy.update_many(rng.integers(ARMS, size=CALLS), X, rng.random(CALLS))
    contexts = list(X)

    def single() -> None:
        for x in contexts:
            policy.select(x)

    def several() -> None:
        for x in contexts:
            policy.select_list(x, None, K)

    return _in_turn(single, several, CALLS)


def _loop(cls: Callable[..., whim.Policy]) -> tuple[np.ndarray, np.ndarray]:
    inner = ReversingLinear(n_arms=ARMS, n_features=D, period=None)
    episode = ListWorld(world=inner, k=K).episode(horizon=CALLS, seed=0)

    def single() -> None:
        follow(cls(n_features=D), episode.items)

    def several() -> None:
        follow_lists(cls(n_features=D), episode, depth=1)

    return _in_turn(single, several, CALLS)


def _in_turn(
    one: Callable[[], None], other: Callable[[], None], calls: int
) -> tuple[np.ndarray, np.ndarray]:
    one()
    other()
    times = np.empty((2, ROUNDS))
    for i in range(ROUNDS):
        for j, function in enumerate((one, other)):
            began = time.perf_counter()
            function()
            times[j, i] = (time.perf_counter() - began) / calls
    return times[0], times[1]


if __name__ == "__main__":
    sys.exit(main() > 0)
