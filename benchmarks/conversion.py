"""How fast R6A text becomes a log, against a reader in plain Python that splits and floats.

The text is made up in the published format: 20 articles per line, one of them replaced every 2000
lines. Two kinds: the articles of a pool always in the same order, and in another order on every
line. The plain reader only parses; ours also writes the log.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import whim.logs
from benchmarks.measure import Row, compare, emit, environment, interleave, progress
from whim.logs.yahoo import convert

__all__ = ["conversion", "main", "plain_reader", "write_text"]

EVENTS, ARTICLES, CHANGE = 200_000, 20, 2000
PLAIN_EVENTS = 10_000  # what the plain reader reads of them in a round


def write_text(path: Path, events: int, *, shuffled: bool, seed: int = 0) -> None:
    """Made-up events in R6A's format."""
    rng = np.random.default_rng(seed)

    def vector() -> str:
        values = rng.dirichlet(np.ones(5))
        return " ".join(f"{i}:{v:.6f}" for i, v in enumerate(values, 2)) + " 1:1.000000"

    n_articles = ARTICLES + events // CHANGE + 1
    articles = [f"|{109_000 + i} {vector()}" for i in range(n_articles)]
    users = [vector() for _ in range(5000)]
    with path.open("w") as file:
        for i in range(events):
            low = i // CHANGE
            order = rng.permutation(ARTICLES) if shuffled else np.arange(ARTICLES)
            shown = 109_000 + low + int(rng.integers(ARTICLES))
            click = int(rng.random() < 0.04)
            pool = " ".join(articles[low + j] for j in order)
            user = users[int(rng.integers(len(users)))]
            file.write(f"{1_241_160_900 + i // 10} {shown} {click} |user {user} {pool}\n")


def plain_reader(path: Path, most: int) -> Iterator[tuple[Any, ...]]:
    """Time, shown article, click, user and pool of each line: the reader one would write first."""
    with path.open() as file:
        for _, line in zip(range(most), file, strict=False):
            head, user, *rest = line.split("|")
            when, shown, click = head.split()
            pool = {}
            for text in rest:
                article, *features = text.split()
                pool[int(article)] = _vector(features)
            yield int(when), int(shown), int(click), _vector(user.split()[1:]), pool


def _vector(tokens: list[str]) -> list[float]:
    row = [0.0] * 6
    for token in tokens:
        feature, value = token.split(":")
        row[int(feature) - 1] = float(value)
    return row


def _plain(path: Path) -> float:
    start = time.perf_counter()
    for _ in plain_reader(path, PLAIN_EVENTS):
        pass
    return (time.perf_counter() - start) / PLAIN_EVENTS


def _ours(path: Path, jobs: int) -> float:
    start = time.perf_counter()
    log = convert(path, path.with_suffix(".whim"), format="r6a", jobs=jobs, overwrite=True)
    return (time.perf_counter() - start) / log.n_events


def _check(path: Path) -> None:
    """Both readers agree on the first lines, bit for bit."""
    log = whim.logs.open(path.with_suffix(".whim"))
    for i, (when, shown, click, user, pool) in enumerate(plain_reader(path, 500)):
        found = log.event(i)
        assert (found.time, found.shown, found.reward) == (when, shown, click)
        assert found.x.tolist() == user
        assert dict(zip(found.arms, found.features.tolist(), strict=True)) == pool


def conversion(rounds: int = 7) -> list[Row]:
    """Rows g: one and two threads, pools in a fixed order and in another on every line."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for shuffled in (False, True):
            path = Path(folder) / f"{'shuffled' if shuffled else 'fixed'}.txt"
            progress(f"conversion: writing {EVENTS} events")
            write_text(path, EVENTS, shuffled=shuffled)
            _ours(path, 1)
            _check(path)
            progress(f"conversion: {rounds} rounds")
            sides: dict[str, Callable[[], float]] = {
                "plain": partial(_plain, path),
                "one": partial(_ours, path, 1),
                "two": partial(_ours, path, 2),
            }
            found = interleave(sides, rounds)
            kind = "shuffled pools" if shuffled else "fixed order"
            size = path.stat().st_size / 1e6
            note = (
                f"{EVENTS} events of {ARTICLES} articles, {size:.0f} MB of text; an event's time; "
                f"peak memory of a process {_peak(path):.0f} MB, with the imports alone "
                f"{_peak(None):.0f} MB"
            )
            for jobs, side, wanted in ((1, "one", ">=6"), (2, "two", ">=10")):
                what = f"i. R6A, {kind}, jobs={jobs}"
                rows.append(compare(what, found[side], found["plain"], wanted=wanted, note=note))
                note = ""
    return rows


_PEAK = """
import sys
from pathlib import Path
from whim.logs.yahoo import convert
if len(sys.argv) > 1:
    convert(sys.argv[1], sys.argv[1] + ".peak", jobs=2)
lines = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
"""


def _peak(path: Path | None) -> float:
    arguments = [] if path is None else [str(path)]
    env = environment(int(os.environ.get("OPENBLAS_NUM_THREADS", "1")))
    command = [sys.executable, "-c", _PEAK, *arguments]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout) / 1e3


def main() -> None:
    """``python -m benchmarks.conversion``."""
    emit(conversion())


if __name__ == "__main__":
    main()
