"""How much memory a large catalogue takes when only some of it was ever played."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import whim
from benchmarks.measure import Row, emit, progress

__all__ = ["main", "resident"]

ARMS, PLAYED, WINDOW, D = 10_000, 500, 1000, 32
PLAYS = (
    2200  # of each played arm: a first full window seeds its model, the second is full at the end
)
MEGABYTE = 1e6


def _status() -> dict[str, float]:
    lines = Path("/proc/self/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return {name: int(found[name].split()[0]) * 1024 / MEGABYTE for name in ("VmRSS", "VmHWM")}


def resident() -> list[Row]:
    """Row e: resident memory of this process, which must be a fresh one, and its peak."""
    before = _status()["VmRSS"]
    policy = whim.PSLinUCBDisjoint(n_features=D, alpha=0.2, window=WINDOW, threshold=1.0)
    policy.add_arms(range(ARMS))
    rng = np.random.default_rng(0)
    played = rng.choice(ARMS, PLAYED, replace=False)
    progress(f"memory: {PLAYED} of {ARMS} arms, {PLAYS} plays each")
    for _ in range(PLAYS // 40):
        arms = rng.permutation(np.repeat(played, 40))
        X = rng.normal(size=(len(arms), D)) / np.sqrt(D)
        policy.update_many(arms.tolist(), X, X[:, 0] + 0.1 * rng.normal(size=len(arms)))
    records = PLAYED * WINDOW * (D + 1) * 8 / MEGABYTE
    models = ARMS * 2 * (D * (D + 1) // 2 + D) * 8 / MEGABYTE
    after = _status()
    note = (
        f"PSLinUCBDisjoint, {ARMS} arms, {PLAYED} played {PLAYS} times, window {WINDOW}, d={D}: "
        f"{before:.0f} MB before, {models:.0f} MB of models, {records:.0f} MB of full windows; "
        f"arms × window up front would be {ARMS * WINDOW * (D + 1) * 8 / MEGABYTE:.0f} MB"
    )
    return [
        _row("e. resident memory", after["VmRSS"], note),
        _row("e. its peak (VmHWM)", after["VmHWM"], "while the pool of windows was copied to grow"),
    ]


def _row(what: str, megabytes: float, note: str) -> Row:
    return Row(
        what=what,
        ours=megabytes,
        theirs=None,
        unit="MB",
        ratio=megabytes,
        low=megabytes,
        high=megabytes,
        best=megabytes,
        wanted="<=600",
        note=note,
    )


def main() -> None:
    """``python -m benchmarks.memory``, Linux only."""
    if not sys.platform.startswith("linux"):
        progress("memory: skipped, /proc/self/status is Linux's")
        emit([])
        return
    emit(resident())


if __name__ == "__main__":
    main()
