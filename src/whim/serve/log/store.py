"""``Store``: the log in SQLite. One process writes, many rows a commit; a reply waits for its row.

A row is committed (write-ahead log, synchronous=FULL) before anybody is told; the ``scribe`` does
it, while decisions go on. When a commit fails the store has failed for good: it takes nothing more
and says why, and a restart goes on from what was committed. ``LogReader`` reads what is committed,
from any process.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from whim.errors import WhimError
from whim.serve.log import log_writer as scribe
from whim.serve.log.log_writer import CLOSE, FORMAT, HEAD, LENGTH
from whim.serve.state.space_state import DECISION, Change, Raw, Row
from whim.types import ChangeEvent

__all__ = ["LogReader", "Packed", "Store", "StoreError", "packed"]

_MOST = 1000  # rows a commit: more gain nothing and make the first of them wait
_HEAVY = 1 << 22  # bytes a commit, for the same reason
_BLOCK = 2048  # rows read at a time
_PATIENCE = 60  # seconds for the writer to start: another one may have to end first
_STUCK = 600  # seconds after which a writer that says nothing has failed
Told = Callable[[list[Any], Exception | None], None]
News = Callable[[list[tuple[int, int, Change]]], None]
Packed = tuple[int, int, int, int, bytes]
_packed = msgspec.msgpack.Encoder().encode
_head = HEAD.pack
_crc = zlib.crc32
_UNREADABLE = sqlite3.Error, UnicodeDecodeError  # which may be the message about what is damaged
_EFFECT = os.access in os.supports_effective_ids


class StoreError(WhimError):
    """The log cannot be written or read; nothing more is accepted."""


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
            try:  # ``checksum``, without a call for each of millions
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

    To write is for one thread, to read for any. ``told`` and ``news`` are called by ``ready``,
    which an event loop calls when ``fileno`` can be read; without one, by ``append`` and
    ``flush``.

    Parameters
    ----------
    path
        The database; made if it is not there.
    told
        Called once a commit, with the tokens of what is safe now.
    news
        Called after a commit with the changes that it held.
    """

    def __init__(self, path: Path, told: Told | None = None, news: News | None = None) -> None:
        self._told, self._news = told, news
        self.failed: StoreError | None = None
        with contextlib.ExitStack() as opened:
            try:
                if path.exists() and not os.access(path, os.R_OK | os.W_OK, effective_ids=_EFFECT):
                    raise sqlite3.OperationalError("permission denied")
                self._link, self._scribe = _begun(path)
                opened.callback(self._end)
                super().__init__(path)
                opened.push(contextlib.closing(self._connection))
                self.last_seq, self.last_at = self.last()
            except (*_UNREADABLE, OSError) as error:
                raise StoreError(
                    f"{path.name} must be a readable log that can be written to: {error}."
                ) from None
            opened.pop_all()  # they stay open
        self.committed = self.last_seq
        # How to do something soon. With it rows are handed over together, once a turn of an event
        # loop, and not one by one.
        self.later: Callable[[Callable[[], None]], Any] | None = None
        self._gathered: list[Any] = []  # rows, changes, tokens, and changes that are no news
        self._underway: list[Any] = []  # what the scribe is committing
        self._waiting = False

    # -- writing ----------------------------------------------------------------------------

    @property
    def scribe(self) -> int:
        """The process that writes."""
        return self._scribe.pid

    @property
    def busy(self) -> bool:
        """Whether something is being committed."""
        return bool(self._underway)

    def fileno(self) -> int:
        """Can be read when something was committed."""
        return self._link.fileno()

    def append(
        self,
        rows: list[Row],
        changes: list[tuple[int, int, Change]],
        tokens: list[Any],
        old: list[Packed] | None = None,
    ) -> None:
        """Queue rows and the changes that they revealed; ``tokens`` are told once they are safe.

        A change comes with its space and version. Those of ``old`` are no news.
        """
        self._gathered.append((rows, changes, tokens, old or []))
        if self.later is None:
            self.ready()
            self.hand_over()
        elif not self._waiting:
            self._waiting = True
            self.later(self._turned)

    def _turned(self) -> None:
        self._waiting = False
        self.hand_over()

    def hand_over(self) -> None:
        """Let the scribe have what was gathered, unless it is still at work."""
        while self._gathered and not self._underway:
            rows: list[Row] = []
            found = []
            n = size = 0
            for some, changes, _, old in self._gathered:
                rows += some
                size += sum([len(row[5]) for row in some])
                found += old
                for space, version, change in changes:
                    found += packed(space, version, [change])
                n += 1
                if size >= _HEAVY or len(rows) >= _MOST:
                    break
            self._underway, self._gathered = self._gathered[:n], self._gathered[n:]
            if self.failed is not None or not (rows or found):  # there is nothing to wait for
                self._done(rows)
                continue
            try:
                body = _packed((rows, found))
                self._link.sendall(LENGTH.pack(len(body)) + body)
            except Exception as error:  # of whatever kind: those who wait must be told
                self._fail(error)
                self._done([])

    def ready(self) -> None:
        """Take what the scribe has said, if anything."""
        begun = b""
        with contextlib.suppress(OSError):  # what is wrong shows again
            try:
                begun = os.read(self._link.fileno(), LENGTH.size)
            except BlockingIOError:
                return
        self._take(begun)

    def _take(self, begun: bytes = b"") -> None:
        """What became of that which was handed over last; waits for it."""
        try:
            reason = _said(self._link, begun)
        except OSError as error:
            reason = str(error)
        if reason:
            self._fail(reason)
        self._done([row for some, _, _, _ in self._underway for row in some])
        self.hand_over()

    def _fail(self, reason: object) -> None:
        if self.failed is None:
            self.failed = StoreError(f"the log cannot be written: {reason}.")

    def _done(self, rows: list[Row]) -> None:
        batch, self._underway = self._underway, []
        if rows and self.failed is None:
            self.committed = rows[-1].seq
        tokens = [token for _, _, some, _ in batch for token in some]
        if tokens and self._told is not None:
            with contextlib.suppress(Exception):  # nobody is listening any more
                self._told(tokens, self.failed)
        news = [c for _, changes, _, _ in batch for c in changes]
        if news and self._news is not None and self.failed is None:
            with contextlib.suppress(Exception):
                self._news(news)

    def flush(self) -> None:
        """Wait until all that was queued before is safe; raises if it is not."""
        self.hand_over()
        while self._underway:
            self._take()
        if self.failed is not None:
            raise self.failed

    def decision(self, space: int, key: str) -> Row | None:
        """A committed decision by its id; a log that cannot be read any more has failed."""
        try:
            return super().decision(space, key)
        except StoreError as error:
            self.failed = error
            raise

    def close(self) -> None:
        """Write what is queued, then stop."""
        with contextlib.suppress(StoreError):
            self.flush()
        super().close()
        self._end()

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._link.sendall(LENGTH.pack(len(CLOSE)) + CLOSE)
            _said(self._link)
        self._link.close()
        self._scribe.wait()


def _begun(path: Path) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A scribe that is ready, and the link to it."""
    ours, theirs = socket.socketpair()
    with theirs:
        where = f"{path.absolute().as_uri()}?mode=rwc", str(path.with_name("scribe.lock"))
        process = subprocess.Popen(
            [sys.executable, "-P", scribe.__file__, *where],  # as a file: it needs no Whim
            stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    ours.settimeout(_PATIENCE)
    try:
        reason = _said(ours)
    except OSError as error:
        reason = str(error)
    if reason:
        ours.close()
        process.kill()
        process.wait()
        raise sqlite3.OperationalError(reason)
    # a time-out, however long: then Python itself waits, also where an event loop that watches it
    # has told the system that nobody does
    ours.settimeout(_STUCK)
    return ours, process


def _said(link: socket.socket, begun: bytes = b"") -> str:
    """What the scribe says, which may have ``begun``: nothing if all went well."""
    head = begun + _exactly(link, LENGTH.size - len(begun))
    return _exactly(link, LENGTH.unpack(head)[0]).decode()


def _exactly(link: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        more = link.recv(length - len(found))
        if not more:
            raise ConnectionResetError("its writer has ended")
        found += more
    return found


def packed(space: int, version: int, changes: list[Change]) -> list[Packed]:
    """Changes of a space as they are written; of many it takes its time."""
    return [(c.seq, c.at, space, version, _change_bytes(c.event)) for c in changes]


def _change_bytes(event: ChangeEvent) -> bytes:
    fields = {k: _finite(v) for k, v in asdict(event).items()}
    return json.dumps(fields, allow_nan=False, default=str).encode()


def _finite(value: Any) -> Any:
    """JSON has no infinity: null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
