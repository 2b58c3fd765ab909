"""Backups of a service that runs: of one moment, whole, checked, and never in anybody's way."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.crashes import CONFIG, Service, Told, Worker, check_prefix
from whim.cli.app import app
from whim.errors import InvalidInputError, WhimError
from whim.serve import wire
from whim.serve.backup import BackupError, backup, restore
from whim.serve.http.keys import Keys, KeysError
from whim.serve.log.reader import LogReader, StoreError
from whim.serve.log.rows import Kind, Row
from whim.serve.log.store import Store
from whim.serve.state.engine import Engine


def decide(engine: Engine, first: int, last: int) -> None:
    for i in range(first, last):
        body = wire.DecisionBody(candidates=["a", "b"], decision_id=f"d{i}")
        engine.decide("news", body, b"")
        engine.reward("news", wire.RewardBody(decision_id=f"d{i}", value=float(i % 2)))
    engine.store.flush()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with all that there may be, and rows after the snapshot."""
    folder = tmp_path / "data"
    engine = Engine(folder)
    engine.create("news", wire.SpaceConfig(policy="ucb", context=wire.Features()))
    decide(engine, 0, 20)
    engine.snapshot("news")
    decide(engine, 20, 40)
    engine.close()
    Keys(folder / "keys.json").make("web", ["decide"])
    with contextlib.closing(sqlite3.connect(folder / "webhooks.db")) as cursors:
        cursors.execute("CREATE TABLE hook (url TEXT PRIMARY KEY, since INTEGER, spaces TEXT)")
        cursors.execute("CREATE TABLE cursor (url TEXT, space TEXT, seq INTEGER, done INTEGER)")
        cursors.execute("INSERT INTO cursor VALUES ('x', 'news', 31, 1)")
        cursors.commit()
    return folder


def digest(folder: Path) -> str:
    engine = Engine(folder)
    try:
        return engine.space("news").state.digest()
    finally:
        engine.close()


# -- there and back ---------------------------------------------------------------------------


def test_all_that_a_service_needs_comes_back(data: Path, tmp_path: Path) -> None:
    made = CliRunner().invoke(app, ["backup", str(tmp_path / "b"), "--data", str(data), "--json"])
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    assert sorted(told["files"]) == ["keys.json", "log.db", "snapshots.db", "webhooks.db"]
    assert told["rows"] == 81
    again = tmp_path / "again"
    done = CliRunner().invoke(app, ["restore", str(tmp_path / "b"), "--data", str(again)])
    assert done.exit_code == 0, done.output
    assert "81 rows" in done.stdout
    assert (again / "keys.json").read_bytes() == (data / "keys.json").read_bytes()
    with contextlib.closing(sqlite3.connect(again / "webhooks.db")) as cursors:
        assert cursors.execute("SELECT * FROM cursor").fetchall() == [("x", "news", 31, 1)]
    engine = Engine(again)
    assert engine.recovered == 40  # not all 81 rows: its snapshot came back as well
    engine.close()
    assert digest(again) == digest(data)


def test_files_are_for_their_owner_alone(data: Path, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        backup(data, tmp_path / "b")
        restore(tmp_path / "b", tmp_path / "again")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o700
    for folder in ("b", "again"):
        for path in (tmp_path / folder).iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_new_service_without_keys_or_hooks_is_backed_up(tmp_path: Path) -> None:
    Engine(tmp_path / "data").close()
    assert backup(tmp_path / "data", tmp_path / "b").rows == 0
    restore(tmp_path / "b", tmp_path / "again")
    engine = Engine(tmp_path / "again")
    assert engine.names == []
    engine.close()


def test_a_damaged_snapshot_is_left_out(data: Path, tmp_path: Path) -> None:
    (data / "snapshots.db").write_bytes(b"no database" * 500)
    assert "snapshots.db" not in backup(data, tmp_path / "b").files
    restore(tmp_path / "b", tmp_path / "again")
    assert digest(tmp_path / "again")


# -- while rows are written -------------------------------------------------------------------


@contextlib.contextmanager
def written(data: Path) -> Iterator[list[int]]:
    """Rows are committed without a pause by another process; the number of the last one."""
    store, last, stop = Store(data / "log.db"), [0], threading.Event()
    last[0] = store.last_seq

    def write() -> None:
        while not stop.is_set():
            seq = last[0] + 1
            rows = [Row(seq + i, seq + i, 1, Kind.EXPIRY, None, b"\x91\x90") for i in range(20)]
            store.append(rows, [])
            store.flush()
            last[0] += len(rows)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield last
    finally:
        stop.set()
        thread.join()
        store.close()


def test_it_ends_however_busy_the_writer_is(data: Path, tmp_path: Path) -> None:
    with written(data) as last:
        time.sleep(0.2)
        low = last[0]
        began = time.monotonic()
        for i in range(3):
            rows = backup(data, tmp_path / f"b{i}").rows
            assert rows > 81
        took = time.monotonic() - began
        high = last[0]
    assert took < 20
    assert low <= rows <= high + 20
    with (
        contextlib.closing(LogReader(tmp_path / "b2" / "log.db")) as copy,
        contextlib.closing(LogReader(data / "log.db")) as live,
    ):
        assert list(copy.rows()) == list(live.rows(0, rows))


def test_a_backup_under_load_restores_to_a_prefix_of_the_log(tmp_path: Path) -> None:
    data, told = tmp_path / "data", Told()
    data.mkdir()
    settings = data / "whim.toml"
    settings.write_text("snapshot_seconds = 0.2\ndemo = false\n")
    with Service(data, "--config", str(settings)) as service:
        service.wait()
        assert service.ask("POST", "/v1/spaces", CONFIG)[0] == 201
        crew = [Worker(str(i), service, told, []) for i in range(4)]
        for worker in crew:
            worker.start()
        time.sleep(0.7)
        acknowledged = list(told.decisions)
        subprocess.run(
            [sys.executable, "-m", "whim", "backup", str(tmp_path / "b"), "--data", str(data)],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        service.stop()
        for worker in crew:
            worker.join(30)
    restore(tmp_path / "b", tmp_path / "again")
    check_prefix(tmp_path / "again", data, acknowledged)


# -- what is wrong ----------------------------------------------------------------------------


def test_it_refuses_what_is_no_service_and_what_is_there(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="data must be a service's directory"):
        backup(tmp_path, tmp_path / "b")
    (tmp_path / "b").mkdir()
    with pytest.raises(InvalidInputError, match="to must be a directory that is not there yet"):
        backup(data, tmp_path / "b")
    with pytest.raises(InvalidInputError, match="backup must be a directory that `whim backup`"):
        restore(tmp_path / "b", tmp_path / "again")
    backup(data, tmp_path / "c")
    before = hashlib.sha256((data / "log.db").read_bytes()).digest()
    with pytest.raises(InvalidInputError, match=r"data must be a new directory.* has keys\.json"):
        restore(tmp_path / "c", data)
    assert hashlib.sha256((data / "log.db").read_bytes()).digest() == before


def test_a_running_service_is_not_restored_over(data: Path, tmp_path: Path) -> None:
    backup(data, tmp_path / "b")
    engine = Engine(tmp_path / "again")
    for name in ("log.db", "snapshots.db"):  # even one whose files were taken away
        (tmp_path / "again" / name).unlink()
    with pytest.raises(StoreError, match="in use"):
        restore(tmp_path / "b", tmp_path / "again")
    engine.close()


def test_a_damaged_log_is_noticed_when_the_backup_is_made(data: Path, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(data / "log.db")) as log:
        log.execute("UPDATE log SET at = at + 1 WHERE seq = 7")
        log.commit()
    with pytest.raises(StoreError, match=r"row 7 of log\.db must match its checksum"):
        backup(data, tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def seal_again(folder: Path) -> None:
    """As somebody would who can write a backup."""
    manifest = json.loads((folder / "backup.json").read_text())
    for name in manifest["files"]:
        text = (folder / name).read_bytes()
        manifest["files"][name] = {
            "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest(),
        }  # fmt: skip
    (folder / "backup.json").write_text(json.dumps(manifest))


def change(path: Path, sql: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(sql)
        db.commit()


WRONG: list[tuple[str, Any, str, type[WhimError]]] = [
    ("log.db", "DELETE FROM log WHERE seq = 9", "must hold every row, got 10 after 8", StoreError),
    ("log.db", "DELETE FROM log WHERE seq = 81", "must end with row 81, got 80", BackupError),
    ("log.db", "UPDATE log SET crc = 1 WHERE seq = 3", "row 3 of log.db must match", StoreError),
    ("snapshots.db", "UPDATE snapshot SET seq = 99", "must not be ahead of row 81", BackupError),
    ("webhooks.db", "UPDATE cursor SET seq = 99", "webhooks.db must not be ahead", BackupError),
    ("webhooks.db", "DROP TABLE hook", "webhooks.db must be as a service wrote it", BackupError),
    ("keys.json", b"{}", "keys.json must be as `whim keys` wrote it", KeysError),
]


@pytest.mark.parametrize(("name", "damage", "said", "kind"), WRONG)
def test_what_is_not_sound_is_not_restored(
    data: Path, tmp_path: Path, name: str, damage: Any, said: str, kind: type[WhimError]
) -> None:
    backup(data, tmp_path / "b")
    path = tmp_path / "b" / name
    if isinstance(damage, str):
        change(path, damage)
    else:
        path.write_bytes(damage)
    with pytest.raises(BackupError, match=rf"{name} must match its digest in backup\.json"):
        restore(tmp_path / "b", tmp_path / "again")
    seal_again(tmp_path / "b")
    with pytest.raises(kind, match=said):
        restore(tmp_path / "b", tmp_path / "again")
    assert [p.name for p in (tmp_path / "again").iterdir()] == ["lock"]  # and nothing hidden
    shutil.rmtree(tmp_path / "again")


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        ("", "backup.json must be as `whim backup` wrote it"),
        ('{"format": 2}', "backup.json must be as `whim backup` wrote it"),
        ('{"format":1,"whim":"1","made":"","rows":0,"files":{}}', "got 'no log.db'"),
        (
            '{"format":1,"whim":"1","made":"","rows":0,'
            '"files":{"../x":{"bytes":1,"sha256":""},"log.db":{"bytes":1,"sha256":""}}}',
            r"got '\.\./x'",
        ),
    ],
)
def test_a_manifest_names_the_files_of_a_service(
    data: Path, tmp_path: Path, manifest: str, said: str
) -> None:
    backup(data, tmp_path / "b")
    (tmp_path / "b" / "backup.json").write_text(manifest)
    with pytest.raises(BackupError, match=said):
        restore(tmp_path / "b", tmp_path / "again")


def test_a_file_that_is_missing_is_named(data: Path, tmp_path: Path) -> None:
    backup(data, tmp_path / "b")
    (tmp_path / "b" / "snapshots.db").unlink()
    with pytest.raises(BackupError, match=r"the backup must hold snapshots\.db"):
        restore(tmp_path / "b", tmp_path / "again")
