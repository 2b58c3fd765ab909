"""``Store``: the log in SQLite, written by one process; a reply waits until its row is safe.

A row is committed (write-ahead log, synchronous=FULL) before the reply; the ``log_writer``
does it, many rows per commit, while decisions go on. When a commit fails, or does not end in time,
the store has failed for good: it takes nothing more and says why, and a restart goes on from what
was committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from whim.errors import WhimError
from whim.serve.log.link import end_writer, read_reply, start_writer
from whim.serve.log.log_writer import LENGTH
from whim.serve.log.reader import UNREADABLE, LogReader, StoreError
from whim.serve.log.rows import Change, Row
from whim.serve.log.timing import Durations

if sys.platform != "win32":
    import fcntl

_MOST_ROWS = 1000  # per commit: more gain nothing and make the first of them wait
_MOST_BYTES = 1 << 22  # per commit, for the same reason
_LOOKS = 20  # at a commit before its time is over
_ROW_BYTES = 200  # of memory that a queued row takes beside its body
Packed = tuple[int, int, int, int, bytes]
_encode = msgspec.msgpack.Encoder().encode
_EFFECTIVE = os.access in os.supports_effective_ids


class QueueFullError(WhimError):
    """More waits for its commit than may wait; it can be tried again soon."""


class CommitLimits(NamedTuple):
    """Seconds after which a commit has failed, and bytes of rows that may wait for theirs."""

    commit_seconds: float = 10.0
    queue_bytes: int = 1 << 26


class Commit(NamedTuple):
    """What one commit made safe, or, with ``error``, what was not committed.

    ``tokens`` are those of the requests whose rows it held, ``changes`` the changes of interest,
    each with its space's number.
    """

    tokens: list[Any]
    changes: list[tuple[int, Change]]
    error: Exception | None


OnCommit = Callable[[Commit], None]
_Batch = tuple[list[Row], list[Packed], list[tuple[int, Change]], list[Any], int]


class Store(LogReader):
    """The log, and the changes of interest that its rows revealed.

    Writing is for one thread, reading for any. ``on_commit`` is called on an event loop once there
    is one (``attach``); without, by ``append`` and ``flush``. The database is made if need be. A
    commit that takes longer than its limit has failed, and the writer is ended.
    """

    def __init__(
        self, path: Path, on_commit: OnCommit | None = None, limits: CommitLimits | None = None
    ) -> None:
        self._on_commit = on_commit
        self._commit_seconds, self._queue_bytes = limits or CommitLimits()
        self.failed: StoreError | None = None
        with contextlib.ExitStack() as opened:
            try:
                if path.exists() and not os.access(
                    path, os.R_OK | os.W_OK, effective_ids=_EFFECTIVE
                ):
                    raise sqlite3.OperationalError("permission denied")
                self._link, self._writer = start_writer(path, self._commit_seconds)
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
        self._queued_bytes = 0
        self._in_flight: list[_Batch] = []  # what the writer is committing
        self._unsent = memoryview(b"")  # of that, what its socket had no room for yet
        self._sent = 0  # commits that were begun
        self._scheduled = False
        self._watchdog: asyncio.TimerHandle | None = None
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
        self._watch(0, 0)

    def _readable(self) -> None:
        self.receive()
        if self.failed is not None and not self._in_flight and self._loop is not None:
            self._loop.remove_reader(self._link.fileno())  # it says nothing any more

    def _watch(self, commit: int, looks: int) -> None:
        """Look at the commit in flight, ``looks`` times so far, and give it up after too many.

        Looks are counted, not seconds: while the event loop stood still no reply could be taken.
        """
        if self._loop is None:
            return
        looks = looks + 1 if self._in_flight and commit == self._sent else 0
        if looks > _LOOKS:
            self.receive()  # it may be there, and be taken only now
            if self._in_flight and commit == self._sent:
                self.abandon(f"a commit took longer than {self._commit_seconds:g} s")
        self._watchdog = self._loop.call_later(
            self._commit_seconds / _LOOKS, self._watch, self._sent, looks
        )

    def abandon(self, reason: str) -> None:
        """Give up what is not safe yet, if there is anything: the store has failed then."""
        if not self._in_flight:
            return
        self._fail(reason)
        if self._loop is not None:
            self._loop.remove_reader(self._link.fileno())
            self._loop.remove_writer(self._link.fileno())
        self._unsent = memoryview(b"")
        self._writer.kill()  # so that it cannot go on later with what was refused
        self.commits.add(time.perf_counter() - self._sent_at)
        self._finish()
        self.send()

    def detach(self) -> None:
        """Commit what is queued and leave the event loop; raises if it is not safe."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._loop is not None:
            self._loop.remove_reader(self._link.fileno())
            self._loop.remove_writer(self._link.fileno())
            self._loop = None
        self.flush()

    @property
    def queued_bytes(self) -> int:
        """Of the rows that wait until the writer has time for them."""
        return self._queued_bytes

    @property
    def full(self) -> bool:
        """Whether so much waits that nothing more may."""
        return self._queued_bytes >= self._queue_bytes

    def must_have_room(self) -> None:
        """Refuse what would have to wait behind too much else."""
        if self.full:
            raise QueueFullError(
                f"at most {self._queue_bytes} bytes may wait to be written, got "
                f"{self._queued_bytes}; try again soon."
            )

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
        size = sum([len(row[5]) for row in rows]) + _ROW_BYTES * len(rows)
        self._queued_bytes += size
        self._queued.append((rows, packed or [], changes or [], tokens, size))
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
            for some, more, _, _, length in self._queued:
                rows += some
                packed += more
                size += length
                n += 1
                if size >= _MOST_BYTES or len(rows) >= _MOST_ROWS:
                    break
            self._in_flight, self._queued = self._queued[:n], self._queued[n:]
            self._queued_bytes -= size
            self._sent += 1
            if self.failed is not None or not (rows or packed):  # there is nothing to wait for
                self._finish()
                continue
            try:
                self._sent_at = time.perf_counter()
                body = _encode((rows, packed))
                self._unsent = memoryview(LENGTH.pack(len(body)) + body)
                self._push()
            except Exception as error:  # of any kind: those who wait must get an answer
                self._fail(error)
                self._finish()

    def _push(self) -> None:
        """Send on; on an event loop as much as there is room for, and the rest when there is."""
        if self._loop is None:
            self._link.sendall(self._unsent)
            self._unsent = memoryview(b"")
            return
        link = self._link.fileno()
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[os.write(link, self._unsent) :]
        if self._unsent:
            self._loop.add_writer(link, self._push_on)

    def _push_on(self) -> None:
        assert self._loop is not None
        self._loop.remove_writer(self._link.fileno())
        try:
            self._push()
        except OSError as error:
            self._unsent = memoryview(b"")
            self._fail(error)
            self._finish()
            self.send()

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
            if self._unsent:
                self._link.sendall(self._unsent)
            reason = read_reply(self._link, first)
        except TimeoutError:
            self.abandon(f"a commit took longer than {self._commit_seconds:g} s")
            return
        except OSError as error:
            reason = str(error)
        self._unsent = memoryview(b"")
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
        for rows, _, some, waiting, _ in batches:
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
        end_writer(self._link, self._writer)


def pack_changes(space: int, version: int, changes: list[Change]) -> list[Packed]:
    """Changes of a space as they are stored; many of them take a while."""
    packed = []
    for change in changes:
        fields = {name: _finite(value) for name, value in asdict(change.event).items()}
        del fields["features"]  # the space's configuration has their names
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
