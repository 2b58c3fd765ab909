"""How fast one thread reads memory: the sum of 448 MB of float64, once per round.

``python -m benchmarks.stream``. In C (tuned.c), or by numba where there is no compiler.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import numba
import numpy as np

from benchmarks.limit import library
from benchmarks.measure import Row, emit

__all__ = ["main", "reader", "rows"]

NUMBERS = 56_000_000  # 448 MB, far more than any cache; a multiple of 32


@numba.njit(fastmath={"reassoc", "nsz"})  # leave to sum in several vectors
def _total(values):
    total = 0.0
    for i in range(len(values)):
        total += values[i]
    return total


def reader(values: np.ndarray) -> tuple[str, Callable[[], float]]:
    """Who sums, and the sum as a call; ``values`` must outlive it."""
    made = library()
    if made is None:
        return "numba", lambda: _total(values)
    n, at = ctypes.c_int64(len(values)), ctypes.c_void_p(values.ctypes.data)
    return "C", lambda: made.total(n, at)


def rows(rounds: int = 15) -> list[Row]:
    """One line in GB/s: median and quartiles, ``best`` the fastest round."""
    values = np.ones(NUMBERS)
    by, read = reader(values)
    read()
    speeds = []
    for _ in range(rounds):
        start = time.thread_time()
        total = read()
        speeds.append(values.nbytes / (time.thread_time() - start) / 1e9)
        if total != NUMBERS:
            raise AssertionError(f"the sum of {NUMBERS} ones was {total}.")
    low, median, high = np.quantile(speeds, [0.25, 0.5, 0.75]).tolist()
    return [
        Row(
            what="read bandwidth", ours=median, theirs=None, unit="GB/s", ratio=median, low=low,
            high=high, best=max(speeds), wanted="",
            note=f"GB/s, not a ratio: {values.nbytes / 1e6:.0f} MB of float64 summed by {by}, "
            f"one thread, {rounds} rounds; the fastest column is the best round",
        )
    ]  # fmt: skip


def main() -> None:
    """``python -m benchmarks.stream``."""
    emit(rows())


if __name__ == "__main__":
    main()
