"""Logs on disk: what goes in comes out; broken ones are refused; writing is all or nothing."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whim.logs
from whim.errors import InvalidInputError, LogFileError
from whim.logs import Log, Writer, numbering, sources

TINY: dict[str, Any] = {"time": 5, "x": [1.0, 2.0], "arms": ["a", 7], "shown": 7, "reward": 1.0}


def tiny(path: Path, n: int = 3, **options: Any) -> Log:
    with Writer(path, n_features=2, **options) as w:
        for _ in range(n):
            w.event(**TINY)
    return whim.logs.open(path)


def random_events(seed: int, n: int, m: int = 2) -> list[dict[str, Any]]:
    """Arms whose features change now and then; pools of changing size and order."""
    rng = np.random.default_rng(seed)
    features = {arm: rng.normal(size=m) for arm in range(8)}
    events = []
    for i in range(n):
        arms = rng.permutation(8)[: rng.integers(1, 6)].tolist()
        if rng.random() < 0.2:
            features[arms[0]] = rng.normal(size=m).round(0)
        events.append(
            {
                "time": i // 3,
                "x": rng.normal(size=3),
                "arms": [arm if arm % 2 else f"é{arm}" for arm in arms],
                "features": np.array([features[arm] for arm in arms]),
                "reward": float(rng.integers(0, 2)),
                "propensity": float(rng.uniform(0.1, 1)),
            }
        )
        events[-1]["shown"] = events[-1]["arms"][int(rng.integers(len(arms)))]
    return events


def as_block(events: list[dict[str, Any]]) -> dict[str, Any]:
    """One pool and fresh items for each event: the writer has to find what is equal."""
    sizes = [len(e["arms"]) for e in events]
    return {
        "time": np.array([e["time"] for e in events]),
        "context": np.array([e["x"] for e in events]),
        "pool": np.arange(len(events)),
        "logged": np.array([e["arms"].index(e["shown"]) for e in events]),
        "reward": np.array([e["reward"] for e in events]),
        "propensity": np.array([e["propensity"] for e in events]),
        "pool_offsets": np.concatenate([[0], np.cumsum(sizes)]),
        "pool_items": np.arange(sum(sizes)),
        "item_arm": [arm for e in events for arm in e["arms"]],
        "item_features": np.concatenate([e["features"] for e in events]),
    }


def bytes_of(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 60), cut=st.integers(0, 60))
def test_events_and_blocks_come_back_and_are_the_same_log(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, cut: int
) -> None:
    events = random_events(seed, n)
    folder = tmp_path_factory.mktemp("log")
    options: dict[str, Any] = {"n_features": 3, "n_item_features": 2, "propensities": True}
    with Writer(folder / "a.whim", **options) as w:
        for e in events:
            w.event(**e)
    with Writer(folder / "b.whim", **options) as w:
        for part in (events[:cut], events[cut:]):
            if part:
                w.block(**as_block(part))
    assert bytes_of(folder / "a.whim") == bytes_of(folder / "b.whim")
    log = whim.logs.open(folder / "a.whim")
    assert len(log) == n
    for i, e in enumerate(events):
        found = log.event(i)
        assert (found.time, found.shown, found.reward) == (e["time"], e["shown"], e["reward"])
        assert found.arms == e["arms"]
        assert found.propensity == e["propensity"]
        np.testing.assert_array_equal(found.x, e["x"])
        np.testing.assert_array_equal(found.features, e["features"])


def test_numbers_are_given_by_first_appearance(tmp_path: Path) -> None:
    events = random_events(3, 200)
    with Writer(tmp_path / "a.whim", n_features=3, n_item_features=2, propensities=True) as w:
        w.block(**as_block(events))
    log = whim.logs.open(tmp_path / "a.whim")
    seen: dict[tuple[Any, bytes], int] = {}
    for i, e in enumerate(events):
        for arm, y in zip(e["arms"], e["features"], strict=True):
            seen.setdefault((arm, y.tobytes()), i)
    found = [
        (log.arms[a], y.tobytes()) for a, y in zip(log.item_arm, log.item_features, strict=True)
    ]
    assert found == list(seen)
    assert log.item_first.tolist() == list(seen.values())
    assert log.n_items > log.n_arms == 8
    bounds = pairwise(log.pool_offsets.tolist())
    pools = {log.pool_items[low:high].tobytes() for low, high in bounds}
    assert len(pools) == log.n_pools  # none twice


def test_memory_of_pools_and_items_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbering, "_REMEMBERED_POOLS", 5)
    monkeypatch.setattr(numbering, "_REMEMBERED_ITEMS", 6)
    events = random_events(4, 150)
    with Writer(tmp_path / "a.whim", n_features=3, n_item_features=2, propensities=True) as w:
        for e in events:
            w.event(**e)
            assert len(w._numbers._pools) <= 5
            assert len(w._numbers._items) <= 6
    log = whim.logs.open(tmp_path / "a.whim")
    for i, e in enumerate(events):
        assert log.event(i).arms == e["arms"]
        np.testing.assert_array_equal(log.event(i).features, e["features"])


def test_meta_and_plain_facts(tmp_path: Path) -> None:
    with Writer(
        tmp_path / "a.whim", n_features=2, logging="uniform", source={"reader": "mine"},
        context_dtype="uint8", context_names=["one", "two"],
    ) as w:  # fmt: skip
        w.event(**TINY)
        w.event(**TINY | {"time": 4})
        w.drop("odd", 3)
        w.drop("odd")
        w.warn("strange", 0)
    log = whim.logs.open(tmp_path / "a.whim")
    assert log.context.dtype == np.uint8
    assert log.logging == "uniform"
    assert log.propensity is None
    assert log.meta["dropped"] == {"odd": 4}
    assert log.meta["warnings"] == {"time earlier than the event before": 1}
    assert log.meta["read"] == 6
    assert log.meta["source"] == {"reader": "mine"}
    assert log.meta["context_names"] == ["one", "two"]
    assert log.item_features.shape == (2, 0)
    assert not log.reward.flags.writeable
    assert "n_events=2" in repr(log)
    again = pickle.loads(pickle.dumps(log))
    assert again.event(1).arms == ["a", 7]


def test_a_log_without_events(tmp_path: Path) -> None:
    log = tiny(tmp_path / "a.whim", 0)
    assert (log.n_events, log.n_arms, log.context.shape) == (0, 0, (0, 2))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"x": [1.0]}, "x must"),
        ({"x": [1.0, np.nan]}, "finite"),
        ({"x": ["a", "b"]}, "x must"),
        ({"x": [[1.0], [2.0, 3.0]]}, "x must"),
        ({"arms": []}, "arms"),
        ({"arms": ["a", "a", 7]}, "different"),
        ({"arms": [True, 7]}, "bool"),
        ({"arms": [(1,), 7]}, "number or text"),
        ({"shown": "c"}, "shown"),
        ({"reward": float("inf")}, "reward"),
        ({"time": 1.5}, "time"),
        ({"time": 2**63}, "time"),
        ({"propensity": 0.5}, "propensity"),
    ],
)
def test_bad_events_are_refused_and_leave_the_writer_usable(
    tmp_path: Path, change: dict[str, Any], word: str
) -> None:
    with Writer(tmp_path / "a.whim", n_features=2) as w:
        with pytest.raises(InvalidInputError, match=word):
            w.event(**TINY | change)
        w.event(**TINY)
    assert whim.logs.open(tmp_path / "a.whim").arms == ["a", 7]


@pytest.mark.parametrize("propensity", [None, 0.0, 1.5, float("nan")])
def test_bad_propensities(tmp_path: Path, propensity: Any) -> None:
    path = tmp_path / "a.whim"
    with (
        pytest.raises(InvalidInputError, match="propensity"),
        Writer(path, n_features=2, propensities=True) as w,
    ):
        w.event(**TINY, propensity=propensity)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"logged": np.array([0, 9])}, "place"),
        ({"pool": np.array([0, 2])}, "pool"),
        ({"pool_items": np.array([0, 1, 5])}, "pool_items"),
        ({"pool_offsets": np.array([0, 2, 2])}, "pool_offsets"),
        ({"reward": np.array([0.0])}, "entries"),
        ({"reward": np.array([0.0, np.nan])}, "finite"),
        ({"item_features": np.zeros((2, 1))}, "item_features"),
        ({"propensity": np.ones(2)}, "propensity"),
        ({"item_arm": ["a", None]}, "arm id"),
    ],
)
def test_bad_blocks_are_refused(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    block = {
        "time": np.zeros(2, np.int64), "context": np.ones((2, 2)), "pool": np.array([0, 1]),
        "logged": np.array([1, 0]), "reward": np.zeros(2), "pool_offsets": np.array([0, 2, 3]),
        "pool_items": np.array([0, 1, 1]), "item_arm": ["a", "b"],
    }  # fmt: skip
    with Writer(tmp_path / "a.whim", n_features=2) as w:
        with pytest.raises(InvalidInputError, match=word):
            w.block(**block | change)
        w.block(**block)
    assert whim.logs.open(tmp_path / "a.whim").n_events == 2


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"n_features": 0}, "n_features"),
        ({"logging": "guess"}, "logging"),
        ({"logging": "propensity"}, "propensities"),
        ({"context_dtype": "int8"}, "context_dtype"),
        ({"context_names": ["one"]}, "context_names"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        Writer(tmp_path / "a.whim", **{"n_features": 2} | options)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(path: Path, **options: Any) -> None:
        with Writer(path, n_features=2, **options) as w:
            w.event(**TINY)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "a.whim")
    assert list(tmp_path.iterdir()) == []
    tiny(tmp_path / "a.whim")
    before = bytes_of(tmp_path / "a.whim")
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "a.whim", overwrite=True)
    assert bytes_of(tmp_path / "a.whim") == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.whim"]


def test_overwriting(tmp_path: Path) -> None:
    path = tmp_path / "a.whim"
    tiny(path, 3)
    with pytest.raises(LogFileError, match="already"):
        tiny(path, 5)
    assert tiny(path, 5, overwrite=True).n_events == 5
    assert [p.name for p in tmp_path.iterdir()] == ["a.whim"]
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("all of it")
    with pytest.raises(LogFileError, match="no log"):
        tiny(tmp_path / "precious", overwrite=True)
    with pytest.raises(LogFileError, match="cannot be written"):
        tiny(tmp_path / "nowhere" / "a.whim")


def _edit_meta(path: Path, **changes: Any) -> None:
    meta = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps(meta | changes))


def _edit_column(path: Path, name: str, dtype: str, value: int) -> None:
    values = np.fromfile(path / f"{name}.bin", dtype)
    values[-1] = value
    values.tofile(path / f"{name}.bin")


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda p: (p / "meta.json").unlink(), "no meta.json"),
        (lambda p: (p / "meta.json").write_bytes(b"\xff\x00"), "meta.json"),
        (lambda p: (p / "meta.json").write_text("[1]"), "describe"),
        (lambda p: _edit_meta(p, format=2), "format"),
        (lambda p: _edit_meta(p, n_events=-1), "n_events"),
        (lambda p: _edit_meta(p, n_events=4), "bytes"),
        (lambda p: _edit_meta(p, n_events=True), "n_events"),
        (lambda p: _edit_meta(p, context_dtype="object"), "context_dtype"),
        (lambda p: _edit_meta(p, logging="guess"), "logging"),
        (lambda p: _edit_meta(p, propensities=None), "propensities"),
        (lambda p: _edit_meta(p, propensities=True), "propensity.bin"),
        (lambda p: (p / "arms.json").write_text('["a"]'), "2 ids"),
        (lambda p: (p / "arms.json").write_text('["a", [1]]'), "ids"),
        (lambda p: (p / "reward.bin").write_bytes(b"123"), "reward.bin"),
        (lambda p: (p / "time.bin").unlink(), "time.bin"),
        (lambda p: _edit_column(p, "pool", "<i4", 1), "pool "),
        (lambda p: _edit_column(p, "pool", "<i4", -1), "pool "),
        (lambda p: _edit_column(p, "logged", "<i4", 2), "logged"),
        (lambda p: _edit_column(p, "logged", "<i4", -1), "logged"),
        (lambda p: _edit_column(p, "pool_items", "<i4", 2), "pool_items"),
        (lambda p: _edit_column(p, "pool_offsets", "<i8", 1), "pool_offsets"),
        (lambda p: _edit_column(p, "item_arm", "<i4", 2), "item_arm"),
        (lambda p: _edit_column(p, "item_first", "<i8", 3), "item_first"),
    ],
)
def test_damaged_logs_are_refused(tmp_path: Path, damage: Any, word: str) -> None:
    path = tmp_path / "a.whim"
    tiny(path)
    damage(path)
    with pytest.raises(LogFileError, match=word):
        whim.logs.open(path)


def test_what_is_no_log(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing", Path(__file__)):
        with pytest.raises(LogFileError, match="no log"):
            whim.logs.open(path)


def test_a_gzip_file_through_a_pipe_that_delivers_byte_by_byte(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    packed = gzip.compress(b"arm,reward\n1,0\n")

    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            for i in range(len(packed)):
                file.write(packed[i : i + 1])
                time.sleep(0.001)

    # daemon: should opening fail below, pytest must not wait for a writer that waits for a reader
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    with sources.opened(pipe) as file:
        space, got = memoryview(bytearray(64)), b""
        while n := file.into(space):
            got += bytes(space[:n])
    writer.join()
    assert got == b"arm,reward\n1,0\n"
