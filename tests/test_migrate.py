"""Logs of older formats are migrated on start, and the old ones are kept."""

from __future__ import annotations

import contextlib
import json
import platform
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.stored_logs import described, stored, unpack
from whim.serve import backup as backups
from whim.serve import wire
from whim.serve.log import migrate as module
from whim.serve.log import reader
from whim.serve.log.log_writer import FORMAT, OLDEST, checksum
from whim.serve.log.migrate import STEPS, migrate
from whim.serve.log.reader import LogReader, StoreError
from whim.serve.state.engine import Engine

FORMATS = range(OLDEST, FORMAT + 1)


def query(path: Path, sql: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(path)) as log:
        return log.execute(sql).fetchall()


# -- what is stored ---------------------------------------------------------------------------


def test_every_format_has_a_stored_file_and_a_way_to_the_next() -> None:
    assert OLDEST == 4  # the format of the first version that promised it
    assert sorted(STEPS) == list(range(OLDEST, FORMAT))
    for number in FORMATS:
        assert stored(number).exists(), f"python -m tests.stored_logs tests/data, for {number}"


@pytest.mark.parametrize("number", FORMATS)
def test_a_log_of_every_format_is_opened_and_goes_on(tmp_path: Path, number: int) -> None:
    data = tmp_path / "data"
    unpack(number, data)
    assert query(data / "log.db", "SELECT value FROM meta WHERE name='format'") == [(str(number),)]
    expected = json.loads(stored(number).with_suffix("").with_suffix(".json").read_text())
    found = json.loads(json.dumps(described(data)))
    same_bits = expected.pop("made") == platform.machine()
    for one in [] if same_bits else [*found["spaces"].values(), *expected["spaces"].values()]:
        del one["digest"]
    for name, one in found["spaces"].items():  # others may be counted since
        counted = expected["spaces"][name]["counts"]
        one["counts"] = {key: one["counts"][key] for key in counted}
    assert found == expected
    kinds = {kind for (kind,) in query(data / "log.db", "SELECT DISTINCT kind FROM log")}
    assert kinds == {1, 2, 3, 4, 5, 6, 7}
    engine = Engine(data)
    body = wire.DecisionBody(candidates=["a", "b"], decision_id="new")
    engine.decide("means", body, b"")
    engine.reward("means", wire.RewardBody(decision_id="new", value=1.0))
    engine.close()
    assert (data / f"log.db.format-{number}").exists() == (number < FORMAT)


# -- the way ----------------------------------------------------------------------------------


def next_format(log: sqlite3.Connection) -> None:
    """A step as one may come: another table, and bodies that are written otherwise."""
    log.execute("CREATE TABLE later (name TEXT) STRICT")
    rows = log.execute("SELECT * FROM log WHERE kind = 5").fetchall()
    for *row, _ in rows:
        row[5] = b"\x91" + row[5][1:]
        log.execute("UPDATE log SET body=?, crc=? WHERE seq=?", (row[5], checksum(*row), row[0]))


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of today's format, seen from a version with the next one."""
    unpack(FORMAT, tmp_path / "data")
    for seen in (module, reader):
        monkeypatch.setattr(seen, "FORMAT", FORMAT + 1)
    monkeypatch.setitem(STEPS, FORMAT, next_format)
    return tmp_path / "data"


def test_an_older_log_is_migrated_on_start_and_kept(old: Path) -> None:
    rows = query(old / "log.db", "SELECT * FROM log ORDER BY seq")
    with pytest.raises(StoreError, match="start `whim serve` to migrate it"):
        LogReader(old / "log.db")
    engine = Engine(old)
    assert sorted(engine.names) == ["means", "tested"]
    engine.close()
    kept = old / f"log.db.format-{FORMAT}"
    assert query(kept, "SELECT * FROM log ORDER BY seq") == rows
    assert query(kept, "SELECT value FROM meta WHERE name='format'") == [(str(FORMAT),)]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert query(old / "log.db", "SELECT value FROM meta WHERE name='format'") == [
        (str(FORMAT + 1),)
    ]
    assert query(old / "log.db", "SELECT count(*) FROM log") == [(len(rows),)]
    assert query(old / "log.db", "SELECT * FROM later") == []
    before = kept.stat().st_mtime_ns
    assert migrate(old / "log.db") is None  # once is enough
    Engine(old).close()
    assert kept.stat().st_mtime_ns == before


@pytest.mark.parametrize("wrong", ["DROP TABLE none", "UPDATE log SET at = 1 WHERE seq > 100"])
def test_a_step_that_fails_leaves_the_log_as_it_was(
    old: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    before = query(old / "log.db", "SELECT * FROM log ORDER BY seq")

    def fail(log: sqlite3.Connection) -> None:
        next_format(log)
        log.execute(wrong)

    with monkeypatch.context() as patch:
        patch.setitem(STEPS, FORMAT, fail)
        with pytest.raises(StoreError, match=r"no such table|must match its checksum"):
            Engine(old)
    assert query(old / "log.db", "SELECT * FROM log ORDER BY seq") == before
    assert query(old / "log.db", "SELECT name FROM sqlite_master WHERE name='later'") == []
    engine = Engine(old)  # and the next start may do better
    assert len(engine.names) == 2
    engine.close()


def test_a_full_disk_leaves_the_log_as_it_was(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "fsync", full)
        with pytest.raises(StoreError, match=r"cannot be migrated to \d+: .*No space left"):
            Engine(old)
    assert query(old / "log.db", "SELECT value FROM meta WHERE name='format'") == [(str(FORMAT),)]


@pytest.mark.parametrize("number", [OLDEST - 1, FORMAT + 7])
def test_other_formats_are_refused_and_left_alone(tmp_path: Path, number: int) -> None:
    unpack(FORMAT, tmp_path / "data")
    with contextlib.closing(sqlite3.connect(tmp_path / "data" / "log.db")) as log:
        log.execute("UPDATE meta SET value = ? WHERE name = 'format'", (str(number),))
        log.commit()
    with pytest.raises(StoreError, match=f"format {FORMAT}, got {number}: another whim"):
        Engine(tmp_path / "data")
    assert not list((tmp_path / "data").glob("*.format-*"))


def test_a_backup_of_an_older_format_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpack(FORMAT, tmp_path / "data")
    backups.backup(tmp_path / "data", tmp_path / "b")
    for seen in (module, reader):
        monkeypatch.setattr(seen, "FORMAT", FORMAT + 1)
    monkeypatch.setitem(STEPS, FORMAT, next_format)
    backups.restore(tmp_path / "b", tmp_path / "again")
    with contextlib.closing(LogReader(tmp_path / "again" / "log.db")) as log:
        assert log.last()[0] > 100
    assert sorted(p.name for p in (tmp_path / "again").iterdir()) == ["lock", "log.db"]
