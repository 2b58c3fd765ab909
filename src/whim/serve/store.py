"""``Store``: the log in SQLite. One thread writes, many rows a commit; a reply waits for its row.

A row is committed (write-ahead log, synchronous=FULL) before anybody is told. When a commit
fails the store has failed for good: it takes nothing more and says why, and a restart goes on from
what was committed.
"""

from __future__ import annotations

import contextlib
import json
import math
import queue
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whim.errors import WhimError
from whim.serve.fold import DECISION, Change, Row
from whim.types import ChangeEvent

__all__ = ["Store", "StoreError"]

FORMAT = 1
_MOST = 1000  # rows a commit: more gain nothing and make the first of them wait
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
Told = Callable[[list[Any], Exception | None], None]


class StoreError(WhimError):
    """The log cannot be written or read; nothing more is accepted."""


def checksum(row: Row) -> int:
    """Of all that a row says, so that a damaged page is never taken for the truth."""
    head = f"{row.seq} {row.at} {row.space} {row.kind} {row.key}".encode()
    return zlib.crc32(row.body, zlib.crc32(head))


class Store:
    """The log, and the changes found while folding it.

    Parameters
    ----------
    path
        The database; made if it is not there.
    told
        Called from the writer's thread, once a commit, with the tokens of what is safe now.
    """

    def __init__(self, path: Path, told: Told | None = None) -> None:
        self.path = path
        self._told = told
        self.failed: StoreError | None = None
        try:
            self._connection = self._connect()
            self._connection.executescript(_SCHEMA)
            self._check_format()
            last = self._connection.execute("SELECT max(seq), max(at) FROM log").fetchone()
        except sqlite3.Error as error:
            raise StoreError(f"{path.name} must be a readable log: {error}.") from None
        self.last_seq, self.last_at = int(last[0] or 0), int(last[1] or 0)
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._reader = self._connect()
        self._writer = threading.Thread(target=self._write, name="whim-log", daemon=True)
        self._writer.start()

    def _connect(self) -> sqlite3.Connection:
        made = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000"):
            made.execute(f"PRAGMA {pragma}")
        return made

    def _check_format(self) -> None:
        found = self._connection.execute("SELECT value FROM meta WHERE name='format'").fetchone()
        if found is None:
            self._connection.execute("INSERT INTO meta VALUES ('format', ?)", (str(FORMAT),))
        elif int(found[0]) > FORMAT:
            raise StoreError(
                f"{self.path.name} must be of format {FORMAT} or older, got {found[0]}: "
                "a newer whim wrote it."
            )

    # -- writing ----------------------------------------------------------------------------

    def append(
        self, rows: list[Row], changes: list[tuple[int, int, Change]], token: Any = None
    ) -> None:
        """Queue rows and the changes that they revealed; ``token`` is told once they are safe.

        A change comes with its space and version.
        """
        self._queue.put((rows, changes, token))

    def flush(self) -> None:
        """Wait until all that was queued before is safe; raises if it is not."""
        done = threading.Event()
        self._queue.put(([], [], done))
        done.wait()
        if self.failed is not None:
            raise self.failed

    def _write(self) -> None:
        while True:
            batch = [self._queue.get()]
            if batch[0] is None:
                return
            size = len(batch[0][0])
            while size < _MOST:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._commit(batch)
                    return
                batch.append(more)
                size += len(more[0])
            self._commit(batch)

    def _commit(self, batch: list[Any]) -> None:
        if self.failed is None:
            try:
                self._insert(batch)
            except Exception as error:  # of whatever kind: the thread must live to say so
                self.failed = StoreError(f"the log cannot be written: {error}.")
        tokens = []
        for _, _, token in batch:
            if isinstance(token, threading.Event):
                token.set()
            elif token is not None:
                tokens.append(token)
        if tokens and self._told is not None:
            with contextlib.suppress(Exception):  # nobody is listening any more
                self._told(tokens, self.failed)

    def _insert(self, batch: list[Any]) -> None:
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        try:
            self._connection.executemany(
                "INSERT INTO log VALUES (?,?,?,?,?,?,?)",
                [(*row, checksum(row)) for rows, _, _ in batch for row in rows],
            )
            found = [
                (c.seq, c.at, space, version, _change_bytes(c.event))
                for _, changes, _ in batch
                for space, version, c in changes
            ]
            if found:
                self._connection.executemany("INSERT INTO change VALUES (?,?,?,?,?)", found)
            run("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                run("ROLLBACK")
            raise

    # -- reading ----------------------------------------------------------------------------

    def rows(
        self, after: int = 0, until: int | None = None, space: int | None = None
    ) -> Iterator[Row]:
        """Committed rows in order, each held against its checksum; a connection of its own."""
        reader = self._connect()
        try:
            where, values = "seq > ?", [after]
            if until is not None:
                where, values = where + " AND seq <= ?", [*values, until]
            if space is not None:
                where, values = where + " AND space = ?", [*values, space]
            expected = after
            for *columns, crc in reader.execute(
                f"SELECT * FROM log WHERE {where} ORDER BY seq", values
            ):
                row = Row(*columns)
                if checksum(row) != crc:
                    raise StoreError(
                        f"row {row.seq} of {self.path.name} must match its checksum: it was "
                        "altered."
                    )
                if space is None and row.seq != expected + 1:
                    raise StoreError(
                        f"{self.path.name} must hold every row, got {row.seq} after {expected}."
                    )
                expected = row.seq
                yield row
        except sqlite3.Error as error:
            raise StoreError(f"{self.path.name} must be a readable log: {error}.") from None
        finally:
            reader.close()

    def configs(self) -> list[Row]:
        """Rows that make, change and retire spaces, all of them."""
        try:
            found = self._reader.execute(
                "SELECT * FROM log WHERE kind <= 2 ORDER BY seq"
            ).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self.path.name} must be a readable log: {error}.") from None
        return [Row(*columns[:-1]) for columns in found]

    def decision(self, space: int, key: str) -> Row | None:
        """A committed decision by its id."""
        try:
            found = self._reader.execute(
                f"SELECT * FROM log WHERE space = ? AND key = ? AND kind = {DECISION}", (space, key)
            ).fetchone()
        except UnicodeEncodeError:  # what cannot be written is not there
            return None
        except sqlite3.Error as error:
            self.failed = StoreError(f"the log cannot be read: {error}.")
            raise self.failed from None
        return None if found is None else Row(*found[:-1])

    def changes(
        self, space: int, version: int, since: int = 0, most: int = 1000
    ) -> list[tuple[int, int, dict[str, Any]]]:
        """Changes of a space's version after row ``since``: row, time, and the event's fields."""
        found = self._reader.execute(
            "SELECT seq, at, body FROM change WHERE space=? AND version=? AND seq>? "
            "ORDER BY seq LIMIT ?",
            (space, version, since, most),
        ).fetchall()
        return [(seq, at, json.loads(body)) for seq, at, body in found]

    def close(self) -> None:
        """Write what is queued, then stop."""
        self._queue.put(None)
        self._writer.join()
        self._reader.close()
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()


def _change_bytes(event: ChangeEvent) -> bytes:
    fields = {k: _finite(v) for k, v in asdict(event).items()}
    return json.dumps(fields, allow_nan=False, default=str).encode()


def _finite(value: Any) -> Any:
    """JSON has no infinity: null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
