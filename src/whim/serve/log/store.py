"""``Store``: the log in SQLite, written by one process; a reply waits until its row is safe.

A row is committed (write-ahead log, synchronous=FULL) before the reply; the ``log_writer``
does it, many rows per commit, while decisions go on. When a commit fails the store has failed for
good: it takes nothing more and says why, and a restart goes on from what was committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from whim.serve.log import log_writer
from whim.serve.log.log_writer import CLOSE, LENGTH
from whim.serve.log.reader import UNREADABLE, LogReader, StoreError
from whim.serve.log.rows import Change, Row
from whim.serve.log.timing import Durations

if sys.platform != "win32":
    import fcntl

_MOST_ROWS = 1000  # per commit: more gain nothing and make the first of them wait
_MOST_BYTES = 1 << 22  # per commit, for the same reason
_START_SECONDS = 60  # for the writer to start: another one may have to end first
_STUCK_SECONDS = 600  # after which a writer that says nothing has failed
Packed = tuple[int, int, int, int, bytes]
_encode = msgspec.msgpack.Encoder().encode
_EFFECTIVE = os.access in os.supports_effective_ids


class Commit(NamedTuple):
    """What one commit made safe, or, with ``error``, what was not committed.

    ``tokens`` are those of the requests whose rows it held, ``changes`` the changes of interest,
    each with its space's number.
    """

    tokens: list[Any]
    changes: list[tuple[int, Change]]
    error: Exception | None


OnCommit = Callable[[Commit], None]
_Batch = tuple[list[Row], list[Packed], list[tuple[int, Change]], list[Any]]


class Store(LogReader):
    """The log, and the changes of interest that its rows revealed.

    Writing is for one thread, reading for any. ``on_commit`` is called on an event loop once there
    is one (``attach``); without, by ``append`` and ``flush``. The database is made if need be.
    """

    def __init__(self, path: Path, on_commit: OnCommit | None = None) -> None:
        self._on_commit = on_commit
        self.failed: StoreError | None = None
        with contextlib.ExitStack() as opened:
            try:
                if path.exists() and not os.access(
                    path, os.R_OK | os.W_OK, effective_ids=_EFFECTIVE
                ):
                    raise sqlite3.OperationalError("permission denied")
                self._link, self._writer = _start_writer(path)
                opened.callback(self._end)
                super().__init__(path)
                opened.push(contextlib.closing(self._connection))
                self.last_seq, self.last_at = self.last()
            except (*UNREADABLE, OSError) as error:
                raise StoreError(
                    f"{path.name} must be a readable log that can be written to: {error}."
                ) from None
            opened.pop_all()  # they stay open
        self.committed = self.last_seq
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queued: list[_Batch] = []
        self._in_flight: list[_Batch] = []  # what the writer is committing
        self._scheduled = False
        self.commits, self._sent_at = Durations(), 0.0

    @property
    def waiting(self) -> int:
        """Rows that are not committed yet."""
        return sum(len(rows) for rows, *_ in [*self._queued, *self._in_flight])

    @property
    def writer(self) -> int:
        """The id of the process that writes."""
        return self._writer.pid

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit on an event loop: rows of one turn are sent together, and replies are awaited."""
        self._loop = loop
        loop.add_reader(self._link.fileno(), self._readable)

    def _readable(self) -> None:
        self.receive()
        if self.failed is not None and not self._in_flight and self._loop is not None:
            self._loop.remove_reader(self._link.fileno())  # it says nothing any more

    def detach(self) -> None:
        """Commit what is queued and leave the event loop; raises if it is not safe."""
        if self._loop is not None:
            self._loop.remove_reader(self._link.fileno())
            self._loop = None
        self.flush()

    def append(
        self,
        rows: list[Row],
        tokens: list[Any],
        packed: list[Packed] | None = None,
        changes: list[tuple[int, Change]] | None = None,
    ) -> None:
        """Queue rows; ``tokens`` come back by ``on_commit`` once they are safe.

        ``packed`` are changes to be stored with them, and ``changes`` those of them that are new
        and come back by ``on_commit`` too.
        """
        self._queued.append((rows, packed or [], changes or [], tokens))
        if self._loop is None:
            self.receive()
            self.send()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._send_scheduled)

    def _send_scheduled(self) -> None:
        self._scheduled = False
        self.send()

    def send(self) -> None:
        """Send what is queued to the writer, unless it is still at work."""
        while self._queued and not self._in_flight:
            rows: list[Row] = []
            packed: list[Packed] = []
            n = size = 0
            for some, more, _, _ in self._queued:
                rows += some
                packed += more
                size += sum([len(row[5]) for row in some])
                n += 1
                if size >= _MOST_BYTES or len(rows) >= _MOST_ROWS:
                    break
            self._in_flight, self._queued = self._queued[:n], self._queued[n:]
            if self.failed is not None or not (rows or packed):  # there is nothing to wait for
                self._finish()
                continue
            try:
                self._sent_at = time.perf_counter()
                body = _encode((rows, packed))
                self._link.sendall(LENGTH.pack(len(body)) + body)
            except Exception as error:  # of any kind: those who wait must get an answer
                self._fail(error)
                self._finish()

    def receive(self) -> None:
        """Take the writer's reply, if there is one."""
        first = b""
        with contextlib.suppress(OSError):  # what is wrong shows again
            try:
                first = os.read(self._link.fileno(), LENGTH.size)
            except BlockingIOError:
                return
        self._take(first)

    def _take(self, first: bytes = b"") -> None:
        """Take the reply to what was sent last, whose ``first`` bytes may be here; waits for it."""
        try:
            reason = _reply(self._link, first)
        except OSError as error:
            reason = str(error)
        if reason:
            self._fail(reason)
        self.commits.add(time.perf_counter() - self._sent_at)
        self._finish()
        self.send()

    def _fail(self, reason: object) -> None:
        if self.failed is None:
            self.failed = StoreError(f"the log cannot be written: {reason}.")

    def _finish(self) -> None:
        """Report what was in flight."""
        batches, self._in_flight = self._in_flight, []
        tokens: list[Any] = []
        changes: list[tuple[int, Change]] = []
        for rows, _, some, waiting in batches:
            tokens += waiting
            changes += some
            if rows and self.failed is None:
                self.committed = rows[-1].seq
        if self._on_commit is not None and (tokens or changes):
            with contextlib.suppress(Exception):  # nobody is listening any more
                self._on_commit(Commit(tokens, changes if self.failed is None else [], self.failed))

    def flush(self) -> None:
        """Wait until all that was queued before is safe; raises if it is not."""
        self.send()
        while self._in_flight:
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
            _reply(self._link)
        self._link.close()
        self._writer.wait()


def _start_writer(path: Path) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A writer that is ready, and the link to it."""
    ours, theirs = socket.socketpair()
    with theirs:
        where = f"{path.absolute().as_uri()}?mode=rwc", str(path.with_name("scribe.lock"))
        process = subprocess.Popen(
            [sys.executable, "-P", log_writer.__file__, *where],  # as a file: it needs no Whim
            stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    ours.settimeout(_START_SECONDS)
    try:
        reason = _reply(ours)
    except OSError as error:
        reason = str(error)
    if reason:
        ours.close()
        process.kill()
        process.wait()
        raise sqlite3.OperationalError(reason)
    # a time-out, however long: then Python itself waits, also where an event loop that watches it
    # has told the system that nobody does
    ours.settimeout(_STUCK_SECONDS)
    return ours, process


def _reply(link: socket.socket, first: bytes = b"") -> str:
    """The writer's reply, whose ``first`` bytes were read already: empty if all went well."""
    head = first + _receive_exactly(link, LENGTH.size - len(first))
    return _receive_exactly(link, LENGTH.unpack(head)[0]).decode()


def _receive_exactly(link: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = link.recv(length - len(data))
        if not more:
            raise ConnectionResetError("its writer has ended")
        data += more
    return data


def pack_changes(space: int, version: int, changes: list[Change]) -> list[Packed]:
    """Changes of a space as they are stored; many of them take a while."""
    packed = []
    for change in changes:
        fields = {name: _finite(value) for name, value in asdict(change.event).items()}
        body = json.dumps(fields, allow_nan=False, default=str).encode()
        packed.append((change.seq, change.at, space, version, body))
    return packed


def _finite(value: Any) -> Any:
    """JSON has no infinity: null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class DataLock:
    """One service per data directory; the system releases it when the process ends."""

    def __init__(self, data: Path) -> None:
        try:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(data / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(
                f"data must be a directory that can be written to, got {data.name}: "
                f"{error.strerror or error}."
            ) from None
        try:
            if sys.platform != "win32":  # which has no such locks
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise StoreError(
                f"data must be a directory of no other running service, got {data.name}, which "
                "is in use."
            ) from None

    def release(self) -> None:
        """Let another service have it."""
        os.close(self._file)
