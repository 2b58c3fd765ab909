"""``Store``: the log in SQLite. One thread writes, many rows a commit; a reply waits for its row.

A row is committed (write-ahead log, synchronous=FULL) before anybody is told. When a commit
fails the store has failed for good: it takes nothing more and says why, and a restart goes on from
what was committed. ``LogReader`` reads what is committed, from any process.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import queue
import sqlite3
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whim.errors import WhimError
from whim.serve.fold import DECISION, Change, Raw, Row
from whim.types import ChangeEvent

__all__ = ["LogReader", "Store", "StoreError"]

FORMAT = 4
_MOST = 1000  # rows a commit: more gain nothing and make the first of them wait
_HEAVY = 1 << 22  # bytes a commit, for the same reason
_BLOCK = 2048  # rows read at a time
_PAGE = 8192  # bytes: three decisions with twenty candidates, where 4096 would hold one
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
News = Callable[[list[tuple[int, int, Change]]], None]
_head = struct.Struct("<qqqq").pack
_crc = zlib.crc32
_UNREADABLE = sqlite3.Error, UnicodeDecodeError  # which may be the message about what is damaged
_EFFECT = os.access in os.supports_effective_ids


class StoreError(WhimError):
    """The log cannot be written or read; nothing more is accepted."""


def checksum(seq: int, at: int, space: int, kind: int, key: str | None, body: bytes) -> int:
    """Of all that a row says, so that a damaged page is never taken for the truth."""
    head = _head(seq, at, space, kind)
    return _crc(body, _crc(head if key is None else head + key.encode()))


@functools.cache
def _insert_into(table: str, columns: int, rows: int) -> str:
    """One statement for many rows: it takes the interpreter's lock once, not once a row.

    Rows of NULLs at the end are left out, so that a few sizes do for any number.
    """
    one = f"({','.join('?' * columns)})"
    return (
        f"INSERT INTO {table} SELECT * FROM (VALUES {','.join([one] * rows)}) "
        "WHERE column1 IS NOT NULL"
    )


def _told(found: Any) -> list[tuple[int, int, dict[str, Any]]]:
    return [(seq, at, json.loads(body)) for seq, at, body in found]


class LogReader:
    """What is committed, held against its checksums; needs no lock and no service.

    Parameters
    ----------
    path
        The database of a log. It is never written to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._connection = _connect(path, "rw")
        except _UNREADABLE as error:
            raise self._unreadable(error) from None
        try:
            self._connection.execute("PRAGMA query_only=ON")
            _check_format(self._connection, path)
        except _UNREADABLE as error:
            self._connection.close()
            raise self._unreadable(error) from None
        except StoreError:
            self._connection.close()
            raise

    def _unreadable(self, error: object) -> StoreError:
        return StoreError(f"{self.path.name} must be a readable log: {error}.")

    def _all(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            with self._lock:
                return self._connection.execute(sql, values).fetchall()
        except _UNREADABLE as error:
            raise self._unreadable(error) from None

    def _held(self, rows: list[Raw]) -> list[Raw]:
        """The rows, which match their checksums."""
        for seq, at, space, kind, key, body, crc in rows:
            try:
                head = _head(seq, at, space, kind)
                found = _crc(body, _crc(head if key is None else head + key.encode()))
            except (TypeError, AttributeError, struct.error):  # not even of the right kind
                found = None
            if found != crc:
                raise StoreError(
                    f"row {seq} of {self.path.name} must match its checksum: it was altered."
                )
        return rows

    def last(self) -> tuple[int, int]:
        """Number and time of the last row."""
        found = self._all("SELECT * FROM log ORDER BY seq DESC LIMIT 1")
        return self._held(found)[0][:2] if found else (0, 0)

    def trimmed(self) -> int:
        """The row up to which others may have gone, see ``retention``; 0: none has."""
        found = self._all("SELECT value FROM meta WHERE name = 'trimmed'")
        return int(found[0][0]) if found else 0

    def blocks(
        self, after: int = 0, until: int | None = None, space: int | None = None
    ) -> Iterator[list[Raw]]:
        """Rows after one and up to another, in order, many at a time.

        Each block is a look of its own, so that a long reading does not keep the log from being
        tidied.
        """
        where, values = "seq > ?", [after]
        if until is not None:
            where, values = where + " AND seq <= ?", [after, until]
        if space is not None:
            where, values = where + " AND space = ?", [*values, space]
        sql = f"SELECT * FROM log WHERE {where} ORDER BY seq LIMIT {_BLOCK}"
        while block := self._held(self._all(sql, tuple(values))):
            if space is None and block[-1][0] - values[0] != len(block):
                self._must_be_whole(block, values[0] + 1)
            yield block
            values[0] = block[-1][0]

    def _must_be_whole(self, block: list[Raw], expected: int) -> None:
        trimmed = self.trimmed()
        for row in block:
            if row[0] > max(expected, trimmed + 1):
                raise StoreError(
                    f"{self.path.name} must hold every row, got {row[0]} after {expected - 1}."
                )
            expected = row[0] + 1

    def rows(
        self, after: int = 0, until: int | None = None, space: int | None = None
    ) -> Iterator[Row]:
        """The same, one by one."""
        for block in self.blocks(after, until, space):
            for row in block:
                yield Row(*row[:6])

    def configs(self) -> list[Row]:
        """Rows that make, change and retire spaces, all of them."""
        found = self._held(self._all("SELECT * FROM log WHERE kind <= 2 ORDER BY seq"))
        return [Row(*row[:6]) for row in found]

    def decision(self, space: int, key: str) -> Row | None:
        """A decision by its id."""
        try:
            found = self._all(
                f"SELECT * FROM log WHERE space = ? AND key = ? AND kind = {DECISION}", (space, key)
            )
        except UnicodeEncodeError:  # what cannot be written is not there
            return None
        return Row(*self._held(found)[0][:6]) if found else None

    def keys(self, after: tuple[int, str], most: int) -> list[tuple[int, str]]:
        """Spaces and ids of decisions, in their order, after one of them."""
        return self._all(
            "SELECT space, key FROM log INDEXED BY log_decision WHERE kind = 3 "
            "AND (space, key) > (?, ?) ORDER BY space, key LIMIT ?",
            (*after, most),
        )

    def changes(
        self, space: int, version: int, since: int = 0, most: int = 1000
    ) -> list[tuple[int, int, dict[str, Any]]]:
        """Changes of a space's version after row ``since``: row, time, and the event's fields."""
        return _told(
            self._all(
                "SELECT seq, at, body FROM change WHERE space=? AND version=? AND seq>? "
                "ORDER BY seq, rowid LIMIT ?",
                (space, version, since, most),
            )
        )

    def recent(
        self, space: int, version: int, before: int | None = None, most: int = 20
    ) -> list[tuple[int, int, dict[str, Any]]]:
        """The last changes of a space's version, newest first; before row ``before`` if given."""
        return _told(
            self._all(
                "SELECT seq, at, body FROM change WHERE space=? AND version=? AND seq<? "
                "ORDER BY seq DESC, rowid DESC LIMIT ?",
                (space, version, 2**63 - 1 if before is None else before, most),
            )
        )

    def count_changes(self, space: int, version: int, since: int, most: int = 1000) -> int:
        """Changes of a space's version from time ``since`` on; counted up to ``most``."""
        ((found,),) = self._all(
            "SELECT count(*) FROM (SELECT at FROM change WHERE space=? AND version=? "
            "ORDER BY seq DESC LIMIT ?) WHERE at >= ?",
            (space, version, most, since),
        )
        return int(found)

    def close(self) -> None:
        """Done with it."""
        self._connection.close()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    made = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None,
        check_same_thread=False,
    )  # fmt: skip
    made.execute("PRAGMA busy_timeout=10000")
    return made


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    found = connection.execute("SELECT value FROM meta WHERE name='format'").fetchone()
    if found is None or found[0] != str(FORMAT):
        came = "none" if found is None else found[0]
        raise StoreError(
            f"{path.name} must be a log of format {FORMAT}, got {came}: another whim wrote it."
        )


class Store(LogReader):
    """The log, and the changes found while folding it.

    Parameters
    ----------
    path
        The database; made if it is not there.
    told
        Called from the writer's thread, once a commit, with the tokens of what is safe now.
    news
        Called from the writer's thread after a commit with the changes that it held.
    """

    def __init__(self, path: Path, told: Told | None = None, news: News | None = None) -> None:
        self._told, self._news = told, news
        self.failed: StoreError | None = None
        with contextlib.ExitStack() as opened:
            try:
                if path.exists() and not os.access(path, os.R_OK | os.W_OK, effective_ids=_EFFECT):
                    raise sqlite3.OperationalError("permission denied")
                self._writing = opened.enter_context(contextlib.closing(_connect(path, "rwc")))
                self._prepare()
                super().__init__(path)
                opened.push(contextlib.closing(self._connection))
                self.last_seq, self.last_at = self.last()
            except _UNREADABLE as error:
                raise StoreError(
                    f"{path.name} must be a readable log that can be written to: {error}."
                ) from None
            opened.pop_all()  # they stay open
        self.committed = self.last_seq
        # How to do something soon, on the thread that appends. With it rows are handed over
        # together, once a turn of an event loop, so that the writer is not woken for each.
        self.later: Callable[[Callable[[], None]], Any] | None = None
        self._gathered: list[Any] = []
        self._waiting = False
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="whim-log", daemon=True)
        self._writer.start()

    def _prepare(self) -> None:
        run = self._writing.execute
        for pragma in (f"page_size={_PAGE}", "journal_mode=WAL", "synchronous=FULL"):
            run(f"PRAGMA {pragma}")
        self._writing.executescript(_SCHEMA)
        run(
            "INSERT INTO meta SELECT 'format', ? WHERE NOT EXISTS (SELECT 1 FROM log) "
            "ON CONFLICT DO UPDATE SET value = excluded.value",
            (str(FORMAT),),
        )
        for word in ("BEGIN IMMEDIATE", "ROLLBACK"):  # shows whether it can be written to
            run(word)

    # -- writing ----------------------------------------------------------------------------

    def append(
        self,
        rows: list[Row],
        changes: list[tuple[int, int, Change]],
        token: Any = None,
        *,
        quiet: bool = False,
    ) -> None:
        """Queue rows and the changes that they revealed; ``token`` is told once they are safe.

        A change comes with its space and version; those of ``quiet`` are no news.
        """
        self._gathered.append((rows, changes, token, quiet))
        if self.later is None:
            self.hand_over()
        elif not self._waiting:
            self._waiting = True
            self.later(self._turned)

    def _turned(self) -> None:
        self._waiting = False
        self.hand_over()

    def hand_over(self) -> None:
        """Let the writer have what was gathered."""
        batch, self._gathered = self._gathered, []
        if batch:
            self._queue.put(batch)

    def flush(self) -> None:
        """Wait until all that was queued before is safe; raises if it is not."""
        done = threading.Event()
        self._gathered.append(((), (), done, True))
        self.hand_over()
        done.wait()
        if self.failed is not None:
            raise self.failed

    def _write(self) -> None:
        while True:
            batch = self._queue.get()
            if batch is None:
                return
            n = size = 0
            while True:
                for rows, _, _, _ in batch[n:]:
                    size += sum(len(row[5]) for row in rows)
                n = len(batch)
                if n >= _MOST or size >= _HEAVY:
                    break
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._commit(batch)
                    return
                batch += more
            self._commit(batch)

    def _commit(self, batch: list[Any]) -> None:
        if self.failed is None:
            try:
                self._insert(batch)
            except Exception as error:  # of whatever kind: the thread must live to say so
                self.failed = StoreError(f"the log cannot be written: {error}.")
        tokens = []
        for _, _, token, _ in batch:
            if isinstance(token, threading.Event):
                token.set()
            elif token is not None:
                tokens.append(token)
        if tokens and self._told is not None:
            with contextlib.suppress(Exception):  # nobody is listening any more
                self._told(tokens, self.failed)
        news = [c for _, changes, _, quiet in batch if not quiet for c in changes]
        if news and self._news is not None and self.failed is None:
            with contextlib.suppress(Exception):
                self._news(news)

    def _insert(self, batch: list[Any]) -> None:
        rows: list[Any] = []
        for some, _, _, _ in batch:
            for row in some:
                rows += row
                rows.append(checksum(*row))
        changes: list[Any] = []
        for _, some, _, _ in batch:
            for space, version, c in some:
                changes += (c.seq, c.at, space, version, _change_bytes(c.event))
        work = [*_statements("log", 7, rows), *_statements("change", 5, changes)]
        if len(work) > 1:  # one alone is a transaction of its own
            work = [("BEGIN IMMEDIATE", ()), *work, ("COMMIT", ())]
        try:
            for sql, values in work:
                self._writing.execute(sql, values)
        except BaseException:
            if self._writing.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._writing.execute("ROLLBACK")
            raise
        if rows:
            self.committed = rows[-7]

    def decision(self, space: int, key: str) -> Row | None:
        """A committed decision by its id; a log that cannot be read any more has failed."""
        try:
            return super().decision(space, key)
        except StoreError as error:
            self.failed = error
            raise

    def close(self) -> None:
        """Write what is queued, then stop."""
        self.hand_over()
        self._queue.put(None)
        self._writer.join()
        super().close()
        with contextlib.suppress(sqlite3.Error):
            self._writing.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._writing.close()


def _statements(table: str, columns: int, values: list[Any]) -> Iterator[tuple[str, Any]]:
    """Inserts of so many rows at most as one commit holds, of sizes that are powers of two."""
    step = columns * 1024
    for at in range(0, len(values), step):
        some = values[at : at + step]
        rows = len(some) // columns
        size = 1 << (rows - 1).bit_length()
        yield _insert_into(table, columns, size), some + [None] * (columns * (size - rows))


def _change_bytes(event: ChangeEvent) -> bytes:
    fields = {k: _finite(v) for k, v in asdict(event).items()}
    return json.dumps(fields, allow_nan=False, default=str).encode()


def _finite(value: Any) -> Any:
    """JSON has no infinity: null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
