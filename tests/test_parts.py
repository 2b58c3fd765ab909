"""Several files into one log, part by part: the log of the concatenated file, bit for bit."""

from __future__ import annotations

import functools
import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import whim.logs
from tests.part_tables import ITEMS, MODES, cut, same_log, visits
from tests.test_convert_tables import VISITS
from tests.test_convert_yahoo import EXAMPLE, line
from whim.errors import InvalidInputError, LogFileError
from whim.evaluate import spread
from whim.logs import Log, numbering, parts
from whim.logs.readers import format_of
from whim.logs.remote import expand

fsspec = pytest.importorskip("fsspec")

CUTS = {"one": [], "two": [200], "empty ones": [0, 130, 0, 57, 0], "many": [13] * 12}
PLAIN = MODES["all"] | {"raw": True}


def asked(mode: str, folder: Path) -> dict[str, Any]:
    """The options of a mode, with its file of items."""
    options = dict(MODES[mode])
    if options.get("items"):
        ITEMS.write_csv(folder / "items.csv")
        options |= {"items": folder / "items.csv", "item_id": "id", "item_features": ["f1"]}
    return options


def whole(folder: Path, frame: pl.DataFrame, kind: str = "parquet", **options: Any) -> Log:
    """One conversion of the concatenated parts."""
    (file,) = cut(frame, [], folder / "whole", kind)
    return whim.logs.convert(file, folder / "whole.whim", **options)


@pytest.mark.parametrize("mode", list(MODES))
def test_parts_give_the_log_of_the_whole(tmp_path: Path, mode: str) -> None:
    frame, options = visits(250), asked(mode, tmp_path)
    expected = whole(tmp_path, frame, **options)
    assert expected.meta["dropped"]
    for name, sizes in CUTS.items():
        files = cut(frame, sizes, tmp_path / name)
        told: list[int] = []
        made = whim.logs.convert(
            f"{tmp_path / name}/*.parquet", tmp_path / "a.whim", progress=told.append,
            overwrite=True, **options,
        )  # fmt: skip
        same_log(made, expected)
        assert sum(told) == sum(file.stat().st_size for file in files)
        assert not (tmp_path / "a.whim.parts").exists()
        assert made.meta["source"]["files"] == [file.name for file in files]


@pytest.mark.parametrize("mode", ["all", "seen, items", "candidates", "label, all columns"])
def test_csv_in_parts(tmp_path: Path, mode: str) -> None:
    frame, options = visits(300, seed=1), asked(mode, tmp_path)
    files = cut(frame, [100, 0, 50], tmp_path / "parts", "csv")
    one = whim.logs.convert(files, tmp_path / "a.whim", **options)
    same_log(one, whole(tmp_path, frame, "csv", **options))
    folder = whim.logs.convert(tmp_path / "parts", tmp_path / "b.whim", **options)
    same_log(one, folder)
    (tmp_path / "parts" / "part-000b.csv").touch()  # no bytes at all
    (tmp_path / "parts" / "_SUCCESS").touch()
    again = whim.logs.convert(tmp_path / "parts", tmp_path / "c.whim", **options)
    assert again.meta["warnings"].pop("empty file") == 1
    assert again.n_events == one.n_events
    np.testing.assert_array_equal(again.pool_items, one.pool_items)


def test_processes_give_the_same_bits(tmp_path: Path) -> None:
    frame, options = visits(400), asked("seen, items", tmp_path)
    files = cut(frame, [37] * 8, tmp_path / "parts")
    one = whim.logs.convert(files, tmp_path / "a.whim", **options)
    told: list[int] = []
    two = whim.logs.convert(
        files, tmp_path / "b.whim", spread=functools.partial(spread, jobs=2),
        progress=told.append, **options,
    )  # fmt: skip
    same_log(one, two)
    same_log(one, whole(tmp_path, frame, **options))
    assert sum(told) == sum(file.stat().st_size for file in files)
    assert len(told) > 8


@pytest.mark.parametrize("mode", ["seen", "candidates", "candidates, items"])
def test_what_is_forgotten_does_not_depend_on_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(numbering, "_REMEMBERED_POOLS", 5)
    monkeypatch.setattr(numbering, "_REMEMBERED_ITEMS", 4)
    frame, options = visits(300), asked(mode, tmp_path)
    expected = whole(tmp_path, frame, **options)
    assert mode == "seen" or expected.n_pools > len(set(frame["pool"]))  # some have two numbers
    for i, sizes in enumerate(CUTS.values()):
        files = cut(frame, sizes, tmp_path / f"parts-{i}")
        same_log(whim.logs.convert(files, tmp_path / f"{i}.whim", **options), expected)
    with monkeypatch.context() as patch:
        patch.setattr(importlib.import_module("whim.logs.tables"), "BATCH", 11)
        same_log(whole(tmp_path, frame, overwrite=True, **options), expected)


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_addresses(tmp_path: Path, protocol: str) -> None:
    frame = visits(200)
    files = cut(frame, [60, 60], tmp_path / "day=1")
    root = f"file://{tmp_path}" if protocol == "file" else f"memory://{tmp_path.name}"
    if protocol == "memory":
        store = fsspec.filesystem("memory")
        for file in files:
            store.pipe_file(f"/{tmp_path.name}/day=1/{file.name}", file.read_bytes())
    told: list[int] = []
    address = f"{root}/day=*/*.parquet"
    assert format_of([address]) == "parquet"
    made = whim.logs.convert(address, tmp_path / "a.whim", progress=told.append, **PLAIN)
    same_log(made, whole(tmp_path, frame, **PLAIN))
    assert sum(told) == sum(file.stat().st_size for file in files)
    one = whim.logs.convert(f"{root}/day=1/part-001.parquet", tmp_path / "b.whim", **PLAIN)
    same_log(one, whim.logs.convert(files[1], tmp_path / "c.whim", **PLAIN))
    folder = whim.logs.convert(f"{root}/day=1", tmp_path / "d.whim", format="parquet", **PLAIN)
    same_log(folder, made)


def test_items_at_an_address(tmp_path: Path) -> None:
    frame, options = visits(200), asked("all, items", tmp_path)
    files = cut(frame, [60], tmp_path / "parts")
    expected = whole(tmp_path, frame, **options)
    store = fsspec.filesystem("memory")
    store.pipe_file("/shop/items.csv", options["items"].read_bytes())
    options["items"] = "memory://shop/items.csv"
    same_log(whim.logs.convert(files, tmp_path / "a.whim", **options), expected)


def test_yahoo_and_dsjson_at_an_address(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    for name, text in (("day1", EXAMPLE * 3), ("day2", b""), ("day3", line(click=b"5") + b"\n")):
        (tmp_path / name).write_bytes(text)
        store.pipe_file(f"/yahoo/{name}", text)
    days = [tmp_path / name for name in ("day1", "day2", "day3")]
    local = whim.logs.convert(days, tmp_path / "a.whim", format="r6a")
    far = whim.logs.convert("memory://yahoo/day*", tmp_path / "b.whim", format="r6a")
    same_log(far, local)
    with pytest.raises(LogFileError, match="day1: format not recognised"):
        whim.logs.convert("memory://yahoo/day*", tmp_path / "c.whim")
    text = '{"_label_cost": -1, "_label_probability": 0.8, "_label_Action": 1, "a": [1],\
 "c": {"u": 1, "_multi": [{"_tag": "x"}]}, "p": [0.8]}'
    store.pipe_file("/ds/day.json", text.encode())
    assert whim.logs.convert("memory://ds/day.json", tmp_path / "d.whim").arms == ["x"]


# -- resuming ----------------------------------------------------------------------------------


class Calls(list[str]):
    """The names of the files that were converted."""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    seen, real = Calls(), parts.convert_part

    def noted(task: dict[str, Any], *more: Any) -> str:
        seen.append(Path(task["file"][0]).name)
        return real(task, *more)

    monkeypatch.setattr(parts, "convert_part", noted)
    return seen


def test_an_interrupted_conversion_goes_on(tmp_path: Path, calls: Calls) -> None:
    frame = visits(300)
    files = cut(frame, [50] * 5, tmp_path / "parts")

    def stop(bytes_done: int) -> None:
        if len(calls) == 4:
            raise KeyboardInterrupt

    target = tmp_path / "a.whim"
    with pytest.raises(KeyboardInterrupt):
        whim.logs.convert(files, target, progress=stop, **PLAIN)
    assert not target.exists()
    assert len(list((tmp_path / "a.whim.parts").glob("*.whim"))) == 3
    assert not list((tmp_path / "a.whim.parts").glob(".*.copy"))
    calls.clear()
    other = dict(PLAIN, context=["u1"])  # other options: nothing of it is taken up
    with pytest.raises(KeyboardInterrupt):
        whim.logs.convert(files, target, progress=stop, **other)
    assert len(calls) == 4
    calls.clear()
    changed = visits(50, seed=9)
    changed.write_parquet(files[1])
    told: list[int] = []
    made = whim.logs.convert(files, target, progress=told.append, **PLAIN)
    assert calls == [files[i].name for i in (1, 3, 4, 5)]
    assert sum(told) == sum(file.stat().st_size for file in files)
    now = pl.concat([frame[:50], changed, frame[100:]])
    same_log(made, whole(tmp_path, now, **PLAIN))
    assert not (tmp_path / "a.whim.parts").exists()


def test_a_killed_conversion_goes_on(tmp_path: Path, calls: Calls) -> None:
    frame = visits(200)
    files = cut(frame, [40] * 4, tmp_path / "parts")
    code = f"""
import os, signal, whim.logs
done = []
def kill(n):
    done.append(n)
    if len(done) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
whim.logs.convert("parts", "a.whim", progress=kill, **{PLAIN!r})
"""
    killed = subprocess.run([sys.executable, "-c", code], check=False, cwd=tmp_path)
    assert killed.returncode == -signal.SIGKILL
    left = len(files) - len(list((tmp_path / "a.whim.parts").glob("*.whim")))
    assert 0 < left < len(files)
    damaged = next((tmp_path / "a.whim.parts").glob("*.whim")) / "reward.bin"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    made = whim.logs.convert(files, tmp_path / "a.whim", **PLAIN)
    assert len(calls) == left + 1
    same_log(made, whole(tmp_path, frame, **PLAIN))


def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = cut(visits(100), [50], tmp_path / "parts")
    listed = expand(files)
    visits(60, seed=3).write_parquet(files[1])
    options = PLAIN | {"format": "parquet"}
    with pytest.raises(LogFileError, match=r"part-001\.parquet changed while it was read"):
        parts.convert_parts(
            listed, tmp_path / "a.whim", reader=("tables", "convert"), options=options
        )
    assert len(list((tmp_path / "a.whim.parts").glob("*.whim"))) == 1  # the other one
    made = whim.logs.convert(files, tmp_path / "a.whim", **PLAIN)
    assert made.meta["read"] == 110


def test_one_conversion_at_a_time(tmp_path: Path) -> None:
    files = cut(visits(100), [50], tmp_path / "parts")
    with (
        parts._alone(tmp_path / "a.whim.parts"),
        pytest.raises(LogFileError, match=r"a\.whim\.parts is in use by another conversion"),
    ):
        whim.logs.convert(files, tmp_path / "a.whim", **PLAIN)
    assert whim.logs.convert(files, tmp_path / "a.whim", **PLAIN).meta["read"] == 100


# -- what cannot be converted ------------------------------------------------------------------


def test_errors_name_the_file_and_leave_nothing(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    store.pipe_file("/bad/1.csv", VISITS.encode())
    store.pipe_file("/bad/2.csv", VISITS.replace("u2", "v2").encode())
    target = tmp_path / "a.whim"
    options: dict[str, Any] = dict(PLAIN)

    def said(source: Any, **more: Any) -> str:
        with pytest.raises((LogFileError, InvalidInputError)) as error:
            whim.logs.convert(source, target, **options | more)
        return str(error.value)

    assert said("memory://bad/2.csv") == (
        "memory:///bad/2.csv has no column 'u2' for context; it has when, shown, click, u1, v2, p, "
        "pool."
    )
    assert said("memory://bad/*.csv", context=["u*"]) == (
        "memory:///bad/2.csv must have the columns of the first part, u1, u2, got u1."
    )
    assert "memory://nothing/*.csv" in said("memory://nothing/*.csv")
    assert said("memory://bad/*.parquet") == "memory://bad/*.parquet matches no file."
    assert said(str(tmp_path / "*.csv")) == f"{tmp_path}/*.csv matches no file."
    assert "there is no such file" in said("memory://bad/3.csv", format="csv")
    assert "fsspec knows, got nowhere://x" in said("nowhere://x/y.csv", format="csv")
    assert "row 2" in said("memory://bad/1.csv", strict=True, arms=["a"])
    with pytest.raises(InvalidInputError, match="path must be a folder of this machine, got s3://"):
        whim.logs.convert("memory://bad/1.csv", "s3://bucket/log", **options)
    with pytest.raises(LogFileError, match=r"no event could be read from .*1\.csv.*shown arm not"):
        whim.logs.convert("memory://bad/1.csv", target, **options | {"arms": ["z"]})
    store.pipe_file("/bad/4.parquet", b"PAR1 and nothing else")
    assert "memory:///bad/4.parquet cannot be read" in said("memory://bad/4.parquet")
    assert not target.exists()


def test_the_target_is_checked_before_the_work(tmp_path: Path, calls: Calls) -> None:
    files = cut(visits(100), [50], tmp_path / "parts")
    made = whim.logs.convert(files, tmp_path / "a.whim", **PLAIN)
    calls.clear()
    with pytest.raises(LogFileError, match="there already"):
        whim.logs.convert(files, tmp_path / "a.whim", **PLAIN)
    assert not calls
    same_log(whim.logs.convert(files, tmp_path / "a.whim", overwrite=True, **PLAIN), made)
    with pytest.raises(LogFileError, match="cannot be written"):
        whim.logs.convert(files, tmp_path / "none" / "a.whim", **PLAIN)


# -- memory ------------------------------------------------------------------------------------

PEAK = """
import sys, whim.logs, whim.logs.tables
whim.logs.tables.BATCH = 5_000  # what is under way at a time is soon small beside the file
for n in sys.argv[1:]:
    whim.logs.convert(f"file://{n}.par*", n, arm="shown", reward="click", context=["u*"])
    status = open("/proc/self/status").readlines()
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    rng, sizes = np.random.default_rng(0), (200_000, 600_000)
    for n in sizes:
        frame = pl.DataFrame(
            {"shown": rng.integers(0, 9, size=n), "click": rng.integers(0, 2, size=n)}
            | {f"u{i}": rng.random(n) for i in range(20)}
        )
        frame.write_parquet(tmp_path / f"{n}.parquet", row_group_size=5_000, compression="lz4")
    words = [sys.executable, "-c", PEAK, *(str(tmp_path / str(n)) for n in sizes)]
    few = os.environ | {"POLARS_MAX_THREADS": "2"}  # each has rows in memory
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=few)
    small, large = (int(peak) * 1024 for peak in done.stdout.split())
    more = (sizes[1] - sizes[0]) * 22 * 8  # bytes of the rows that the second has more
    assert large - small < more / 2, (small, large, more)
