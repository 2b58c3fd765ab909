"""``backup`` and ``restore``: a data directory copied while its service runs, and checked.

Databases are copied by ``VACUUM INTO``, one read transaction each, which ends however busy the
writer is; SQLite's backup interface starts again with every commit of another process. The log is
copied last, so that neither snapshots nor webhook cursors are ever ahead of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from whim.errors import InvalidInputError
from whim.files import sync_folder, write_atomic
from whim.serve.http.keys import Keys
from whim.serve.log.configs import config_histories
from whim.serve.log.migrate import migrate
from whim.serve.log.origin import refuse_moved
from whim.serve.log.reader import LogReader, StoreError
from whim.serve.log.store import DataLock
from whim.version import __version__

LOG, SNAPSHOTS, CURSORS, KEYS = "log.db", "snapshots.db", "webhooks.db", "keys.json"
_FILES = (KEYS, CURSORS, SNAPSHOTS, LOG)  # in the order of copying
_MANIFEST = "backup.json"
_PART = 1 << 20
Progress = Callable[[float], None]


class BackupError(StoreError):
    """A backup cannot be made, or is not whole."""


class File(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a backup."""

    bytes: int
    sha256: str


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """What a backup holds: ``rows`` is the number of the log's last row."""

    format: Literal[1]
    whim: str
    made: str
    rows: int
    files: dict[str, File]


# -- making one -------------------------------------------------------------------------------


def backup(data: Path, to: Path, progress: Progress | None = None) -> Manifest:
    """Copy the data directory of a service, which may be running, to a new directory.

    The copy is checked before it gets its name: what is at ``to`` is whole. ``progress`` gets the
    share of rows that the check has seen.
    """
    if not (data / LOG).is_file():
        raise InvalidInputError(f"data must be a service's directory, got {str(data)!r}.")
    refuse_moved(data)  # what it has is old, and its copy would not say so
    if to.exists():
        raise InvalidInputError(f"to must be a directory that is not there yet, got {str(to)!r}.")
    with _private_folder(to) as folder:
        for name in _FILES:
            _copy(data / name, folder / name)
        with contextlib.closing(LogReader(folder / LOG)) as reader:
            rows = reader.last()[0]
        files = {name: _described(folder / name) for name in _FILES if (folder / name).exists()}
        made = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        manifest = Manifest(1, __version__, made, rows, files)
        write_atomic(
            folder / _MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n",
            mode=0o600,
        )  # fmt: skip
        _check_contents(folder, rows, progress)
        sync_folder(folder)
        folder.replace(to)
    sync_folder(to.parent)
    return manifest


@contextlib.contextmanager
def _private_folder(to: Path) -> Iterator[Path]:
    """A hidden folder beside ``to``, for its owner alone; removed if anything goes wrong."""
    folder = to.with_name(f".{to.name[:200]}.{secrets.token_hex(6)}")
    try:
        folder.mkdir(mode=0o700)
        yield folder
    except sqlite3.Error as error:
        raise BackupError(f"the backup cannot be made: {error}.") from None
    except OSError as error:
        raise BackupError(f"the backup cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # it is not there any more if all went well


def _copy(source: Path, target: Path) -> None:
    """A file as it is at one moment; one that is not there is left out."""
    if not source.exists():
        return
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    if source.suffix != ".db":
        target.write_bytes(source.read_bytes())  # it is only ever replaced as a whole
        return
    try:
        where = f"{source.absolute().as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(where, uri=True, isolation_level=None)) as live:
            live.execute("PRAGMA busy_timeout=10000")
            live.execute("VACUUM INTO ?", (str(target.absolute()),))
    except sqlite3.Error as error:
        target.unlink(missing_ok=True)
        if source.name != SNAPSHOTS:  # damaged ones are not used: the log has it all
            raise BackupError(f"{source.name} must be readable: {error}.") from None


def _described(path: Path) -> File:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        while part := file.read(_PART):
            digest.update(part)
            size += len(part)
    return File(size, digest.hexdigest())


# -- checking and restoring -------------------------------------------------------------------


def restore(folder: Path, data: Path, progress: Progress | None = None) -> Manifest:
    """Make a data directory from a backup, which is checked first: files, rows, numbering, keys.

    ``data`` must have no files of a service; nothing is ever replaced.
    """
    manifest = _read_manifest(folder)
    for name in _FILES:
        if (data / name).exists():
            raise InvalidInputError(f"data must be a new directory, got one that has {name}.")
    lock = DataLock(data)  # no service may start in the meantime
    try:
        with _private_folder(data / "restored") as fresh:
            for name, expected in manifest.files.items():
                _fetch(folder / name, fresh / name, expected)
            migrate(fresh / LOG)  # of an older backup; which itself is what is kept
            _check_contents(fresh, manifest.rows, progress)
            for name in _FILES:  # the log last: without it there is no service's directory
                if name in manifest.files:
                    (fresh / name).replace(data / name)
            sync_folder(data)
    finally:
        lock.release()
    return manifest


def _read_manifest(folder: Path) -> Manifest:
    try:
        data = (folder / _MANIFEST).read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"backup must be a directory that `whim backup` made, got {str(folder)!r}: "
            f"{_MANIFEST}: {error.strerror}."
        ) from None
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BackupError(f"{_MANIFEST} must be as `whim backup` wrote it: {error}.") from None
    unknown = manifest.files.keys() - set(_FILES)
    if unknown or LOG not in manifest.files:
        came = min(unknown) if unknown else "no log.db"
        raise BackupError(f"{_MANIFEST} must name the files of a service, got {came!r}.")
    return manifest


def _fetch(source: Path, target: Path, expected: File) -> None:
    """Copy a file of a backup, and compare what arrived with the manifest."""
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        shutil.copyfile(source, target)
    except FileNotFoundError:
        raise BackupError(f"the backup must hold {source.name}, got none.") from None
    if _described(target) != expected:
        raise BackupError(
            f"{source.name} must match its digest in {_MANIFEST}: it was cut short or altered."
        )


def _check_contents(folder: Path, rows: int, progress: Progress | None) -> None:
    """Raise unless the files are sound, each in itself and all of them together."""
    for name in (LOG, SNAPSHOTS, CURSORS):
        if (folder / name).exists():
            _check_database(folder / name)
    with contextlib.closing(LogReader(folder / LOG)) as reader:
        for block in reader.blocks():  # which verifies checksums and numbering
            if progress is not None:
                progress(block[-1][0] / rows)
        last = reader.last()[0]
        if last != rows:
            raise BackupError(f"{LOG} must end with row {rows}, got {last}.")
        for number in config_histories(reader):
            reader.base(number)
    ahead = (
        (SNAPSHOTS, "SELECT max(seq) FROM snapshot"),
        (CURSORS, "SELECT max(since) FROM hook"),
        (CURSORS, "SELECT max(seq) - 1 FROM cursor"),  # a new lane begins after the last row
    )
    for name, sql in ahead:
        row = _ask(folder / name, sql) if (folder / name).exists() else 0
        if row > last:
            raise BackupError(f"{name} must not be ahead of row {last} of {LOG}, got {row}.")
    if (folder / KEYS).exists():
        Keys(folder / KEYS).list()


def _check_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            ((problem,),) = connection.execute("PRAGMA integrity_check(1)").fetchall()
        except sqlite3.Error as error:
            problem = str(error)
    if problem != "ok":
        raise BackupError(f"{path.name} must be sound: {problem}.")


def _ask(path: Path, sql: str) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            return int(connection.execute(sql).fetchone()[0] or 0)
        except sqlite3.Error as error:
            raise BackupError(f"{path.name} must be as a service wrote it: {error}.") from None
