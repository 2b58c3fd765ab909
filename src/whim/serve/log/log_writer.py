"""The log's writer, a process of its own: a commit takes no time from the process that decides.

``Store`` starts it with a socket as its standard input and sends it rows, many at a time, in frames
of MessagePack: a length, then the message. It commits them and says so, or why not. It knows
nothing of Whim, so that it starts at once, and when the service is gone it goes as well.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sqlite3
import struct
import sys
import threading
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec

if sys.platform != "win32":
    import fcntl

FORMAT = 6  # a decision may show a list
OLDEST = 4  # format that is migrated on start, see ``migrate``
LENGTH = struct.Struct("<I")
HEAD = struct.Struct("<qqqq")  # of a row, for its checksum
CLOSE = b"\x92\x90\x90"  # no rows and no changes: put all in order, and end
_PAGE = 8192  # bytes: several decisions with twenty candidates, where 4096 would hold three
_CHECKPOINT = 8 << 20  # bytes of commits after which pages are moved, about
_LEAST = 4 * _PAGE  # bytes that a commit writes however small it is
_MUCH = 64 << 20  # bytes that are not moved between two commits
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS log (
  seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, space INTEGER NOT NULL, kind INTEGER NOT NULL,
  key TEXT, body BLOB NOT NULL, crc INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS log_config ON log (seq) WHERE kind <= 2;
CREATE UNIQUE INDEX IF NOT EXISTS log_decision ON log (space, key) WHERE kind = 3;
CREATE TABLE IF NOT EXISTS change (
  seq INTEGER NOT NULL, at INTEGER NOT NULL, space INTEGER NOT NULL, version INTEGER NOT NULL,
  body BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS change_space ON change (space, version, seq);
"""
_Row = tuple[int, int, int, int, str | None, bytes]
_Change = tuple[int, int, int, int, bytes]
_BATCH = msgspec.msgpack.Decoder(tuple[list[_Row], list[_Change]])


def checksum(seq: int, at: int, space: int, kind: int, key: str | None, body: bytes) -> int:
    """Of all that a row says, so that a damaged page is never taken for the truth."""
    head = HEAD.pack(seq, at, space, kind)
    return zlib.crc32(body, zlib.crc32(head if key is None else head + key.encode()))


def _open(path: str) -> sqlite3.Connection:
    """The database, made if it is not there, as one that can be written to."""
    log = sqlite3.connect(path, uri=True, isolation_level=None)
    for pragma in (
        f"page_size={_PAGE}", "journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000",
        "wal_autocheckpoint=0",  # ``Checkpoints`` does it after the answer
    ):  # fmt: skip
        log.execute(f"PRAGMA {pragma}")
    log.executescript(_SCHEMA)
    log.execute(
        "INSERT INTO meta SELECT 'format', ? WHERE NOT EXISTS (SELECT 1 FROM log) "
        "ON CONFLICT DO UPDATE SET value = excluded.value",
        (str(FORMAT),),
    )
    for word in ("BEGIN IMMEDIATE", "ROLLBACK"):  # shows whether it can be written to
        log.execute(word)
    return log


def _write(log: sqlite3.Connection, rows: Iterable[_Row], changes: Iterable[_Change]) -> None:
    log.execute("BEGIN IMMEDIATE")
    try:
        log.executemany(
            "INSERT INTO log VALUES (?,?,?,?,?,?,?)", [(*row, checksum(*row)) for row in rows]
        )
        if changes:
            log.executemany("INSERT INTO change VALUES (?,?,?,?,?)", changes)
        log.execute("COMMIT")
    except BaseException:
        if log.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                log.execute("ROLLBACK")
        raise


class Checkpoints:
    """Pages go from the write-ahead log to the database once their commit has been answered.

    A reader that takes minutes, a backup or the check of the log, holds them back. What has grown
    meanwhile may take seconds to move, so a thread does that while commits go on; the few pages
    that are left are moved between two commits, and then the write-ahead log begins anew.
    """

    def __init__(self, log: sqlite3.Connection, path: str) -> None:
        self._log, self._path = log, path
        self._since = 0  # bytes committed since the last attempt
        self.held_back = 0  # bytes that it could not move
        self.thread = threading.Thread()  # that moves much, or has done so

    def committed(self, size: int) -> None:
        """So many bytes were committed."""
        self._since += size
        if self._since < _CHECKPOINT or self.thread.is_alive():
            return
        self._since = 0
        if self.held_back < _MUCH:
            self._move(self._log)
        else:
            self.thread = threading.Thread(target=self._move_beside, daemon=True)
            self.thread.start()

    def _move_beside(self) -> None:
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(self._path, uri=True)) as log,
        ):
            self._move(log)

    def _move(self, log: sqlite3.Connection) -> None:
        with contextlib.suppress(sqlite3.Error):  # a full disk: the next commit will say so
            _, pages, moved = log.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self.held_back = (pages - moved) * _PAGE


def _reply(link: socket.socket, reason: str) -> None:
    """That it went well, with no reason, or why it did not."""
    text = reason.encode("utf-8", "replace")
    link.sendall(LENGTH.pack(len(text)) + text)


def _frame(stream: Any) -> bytes | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None


def work(path: str, link: socket.socket) -> None:
    """Commit what comes until nobody is there any more."""
    try:
        log = _open(path)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return _reply(link, str(error) or type(error).__name__)
    _reply(link, "")
    checkpoints = Checkpoints(log, path)
    with link.makefile("rb", buffering=1 << 18) as stream:
        while (frame := _frame(stream)) is not None:
            reason = ""
            try:
                if frame == CLOSE:
                    if checkpoints.thread.is_alive():
                        checkpoints.thread.join()
                    log.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                    log.close()
                else:
                    _write(log, *_BATCH.decode(frame))
            except Exception as error:  # of whatever kind: it must live to say so
                reason = str(error) or type(error).__name__
            _reply(link, reason)
            if frame != CLOSE:
                checkpoints.committed(len(frame) + _LEAST)


def lock_out_others(path: str) -> Any:
    """Wait until the writer of a service that has just died has ended."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if sys.platform != "win32":
        fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


if __name__ == "__main__":
    for _name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the service ends it
        if hasattr(signal, _name):
            signal.signal(getattr(signal, _name), signal.SIG_IGN)
    gc.disable()  # it makes no cycles
    os.umask(0o077)  # the log is for its owner alone
    with socket.socket(fileno=0) as _link, contextlib.suppress(BrokenPipeError, ConnectionError):
        try:
            _lock = lock_out_others(sys.argv[2])
        except OSError as _error:
            _reply(_link, str(_error))
        else:
            work(sys.argv[1], _link)
    os._exit(0)  # at once: what is not committed was not promised
