"""A replica's own copy of the shared log: whose it is, where it ends, and when it is void."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from whim.serve.log.migrate import migrate
from whim.serve.log.origin import ORIGIN, origin_of, refuse_moved
from whim.serve.log.reader import LogReader, StoreError
from whim.serve.log.store import DataLock
from whim.serve.logging import get
from whim.serve.postgres.checksums import content_crc, position_crc
from whim.serve.postgres.connection import RewoundError
from whim.serve.postgres.databases import Shard
from whim.serve.postgres.reader import Reader
from whim.serve.postgres.tail import NOTHING, Last, Tail
from whim.serve.state.fetched import fetch

_VOID = "void"  # the file that says why a copy is of no use
_COPIED = ("log.db", "snapshots.db")


def prepare(data: Path, shard: Shard) -> Last:
    """Make sure that a directory holds a copy of a shard, or nothing; the last row that it has.

    A copy that cannot be read, or whose last row is not in the log any more, is discarded.
    """
    lock = DataLock(data)
    try:
        refuse_moved(data)
        last = _prepare(data, shard)
        return last if last.seq else _begin(data, shard)
    finally:
        lock.release()


def check_origin(data: Path, log: str) -> None:
    """Raise if a directory holds anything but a copy of this log."""
    origin, path = origin_of(data), data / "log.db"
    if origin is None and path.exists():
        raise StoreError(
            f"data must be empty or a replica's, got {data.name}, which has a log of its own: "
            "`whim move` brings it to PostgreSQL."
        )
    if origin not in (None, log):
        raise StoreError(
            f"data must be a copy of the log in store, got {data.name}, a copy of another one."
        )


def _begin(data: Path, shard: Shard) -> Last:
    """Begin a copy with what retention left of the log, if it has removed rows: else with none.

    What stands for the removed rows is no row, and does not come with those that are followed.
    """
    folder = data / "fetched"
    with contextlib.closing(Reader(shard.address, shard.number)) as reader:
        if not reader.trimmed():
            return NOTHING
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        fetch(reader, folder / "log.db")
    _discard(data)
    (folder / "log.db").replace(data / "log.db")
    shutil.rmtree(folder, ignore_errors=True)
    return _last(data / "log.db")


def _prepare(data: Path, shard: Shard) -> Last:
    check_origin(data, shard.origin)
    path = data / "log.db"
    (data / ORIGIN).write_text(shard.origin + "\n")
    if not path.exists():
        return NOTHING
    tail, void = Tail(shard.address, shard.number), data / _VOID
    try:
        if void.exists():
            raise StoreError(void.read_text().strip())
        migrate(path)
        tail.last = _last(path)
        if not tail.last.seq:
            return NOTHING
        tail.read(1)
        last = _last(path)
        if last.seq >= tail.head()[2]:
            return last
        reason = "retention has removed rows that it does not have"
    except RewoundError:
        reason = "a failover has lost rows that it has"
    except StoreError as error:
        reason = str(error)
    finally:
        tail.disconnect()
    _discard(data)
    void.unlink(missing_ok=True)
    get("whim").error("the copy of the log is discarded and made anew", reason=reason)
    return NOTHING


def mark_void(data: Path, reason: str) -> None:
    """Have the copy made anew at the next start."""
    (data / _VOID).write_text(reason + "\n")


def _last(path: Path) -> Last:
    with contextlib.closing(LogReader(path)) as reader:
        seq = reader.last()[0]
        for row in reader.rows(seq - 1, seq):
            content = content_crc(row.space, row.kind, row.key, row.body)
            return Last(row.seq, row.at, content ^ position_crc(row.seq, row.at))
    return NOTHING


def _discard(data: Path) -> None:
    for name in _COPIED:
        for ending in ("", "-wal", "-shm"):
            (data / (name + ending)).unlink(missing_ok=True)
