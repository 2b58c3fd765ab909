"""Tables in parts, for the tests of ``whim convert`` over several files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from whim.logs import Log

__all__ = ["ITEMS", "MODES", "cut", "digest_free", "same_log", "visits"]

ITEMS = pl.DataFrame({"id": ["a", "c", "d", "e", "f", "h"], "f1": [1.0, 2, 3, 4, 5, 6]})
_PLAIN: dict[str, Any] = {"arm": "shown", "reward": "click", "context": ["u1", "u2"]}
_LABEL: dict[str, Any] = {"label": "shown"}
# what a conversion is asked for; items are put in by the test
MODES: dict[str, dict[str, Any]] = {
    "all": _PLAIN,
    "seen": _PLAIN | {"arms": "seen"},
    "given": _PLAIN | {"raw": True, "arms": ["c", "b", "a", "z"]},
    "candidates": _PLAIN | {"raw": True, "candidates": "pool", "time": "when", "propensity": "p"},
    "all, items": _PLAIN | {"items": True, "logging": "uniform"},
    "seen, items": _PLAIN | {"items": True, "arms": "seen", "time": "when"},
    "candidates, items": _PLAIN | {"items": True, "candidates": "pool"},
    "patterns": _PLAIN | {"context": ["u*"], "arms": "seen"},
    "raw patterns": _PLAIN | {"context": ["u*"], "arms": "seen", "raw": True},
    "label": _LABEL | {"context": ["u*"], "constant": True, "raw": True},
    "categories": _PLAIN | {"context": ["u*", "pool", "when"], "cyclic": {"when": 24}},
    "label, all columns": _LABEL | {"time": "when"},
}


def visits(n: int, *, seed: int = 0) -> pl.DataFrame:
    """Rows whose arms come one by one, some of them bad, with times that go back now and then."""
    rng = np.random.default_rng([seed, n])
    late = np.sort(rng.integers(0, max(n, 1), size=8))
    shown: list[str | None] = [
        "hgfedcba"[rng.integers(1 + np.searchsorted(late[1:], i, "right"))] for i in range(n)
    ]
    pools = ["|".join({s, *rng.choice(list("abcdefgh"), 2)} - {None}) for s in shown]
    pools = ["|".join(sorted(set(pool.split("|")))) for pool in pools]
    u1: list[float | None] = rng.normal(size=n).tolist()
    for i in np.flatnonzero(rng.random(n) < 0.05):
        shown[i] = None
    for i in np.flatnonzero(rng.random(n) < 0.05):
        u1[i] = None
    chance = rng.random(n)
    return pl.DataFrame(
        {
            "when": np.arange(n) + rng.integers(0, 3, size=n),
            "shown": pl.Series(shown, dtype=pl.String),
            "click": rng.integers(0, 2, size=n),
            "u1": pl.Series(u1, dtype=pl.Float64),
            "u2": rng.random(n),
            "p": np.where(chance < 0.05, 0.0, chance),
            "pool": pl.Series(pools, dtype=pl.String),
        }
    )


def cut(
    frame: pl.DataFrame, sizes: Sequence[int], folder: Path, kind: str = "parquet"
) -> list[Path]:
    """The frame as files of so many rows each; the last has the rest."""
    folder.mkdir(parents=True, exist_ok=True)
    files, start = [], 0
    for i, size in enumerate([*sizes, len(frame)]):
        files.append(folder / f"part-{i:03}.{kind}")
        part = frame[start : start + size]
        part.write_parquet(files[-1]) if kind == "parquet" else part.write_csv(files[-1])
        start += size
    return files


def digest_free(log: Log) -> tuple[dict[str, bytes], dict[str, Any]]:
    """All bytes of a log, and its description, but for the names of the files that it is from."""
    files = {file.name: file.read_bytes() for file in sorted(log.path.iterdir())}
    del files["digest.json"]
    meta = json.loads(files.pop("meta.json"))
    del meta["source"]["files"]
    return files, meta


def same_log(one: Log, other: Log) -> None:
    """Fail unless two logs are the same, bit for bit, but for the names of their sources."""
    (bytes_one, meta_one), (bytes_other, meta_other) = digest_free(one), digest_free(other)
    assert json.dumps(meta_one) == json.dumps(meta_other)  # the order, too
    assert bytes_one.keys() == bytes_other.keys()
    for name in bytes_one:
        assert bytes_one[name] == bytes_other[name], name
