"""``Appender``: batches of rows into the shared log, each exactly once; ``Writer``, in a thread.

A batch has a number. Whatever happens to its answer, the same batch is sent again with the same
number until the database says what became of it, and only then comes the next one.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg.errors import Diagnostic

from whim.serve.log.reader import StoreError
from whim.serve.log.timing import Durations
from whim.serve.postgres import arrays
from whim.serve.postgres.checksums import content_crc
from whim.serve.postgres.connection import (
    LIMIT,
    TRANSIENT,
    Connection,
    RewoundError,
    UnavailableError,
    connect,
    describe,
)
from whim.serve.postgres.settled import settle

MOST_ROWS = 1000  # per batch: more gain nothing and make the first of them wait
MOST_BYTES = 1 << 22  # per batch, for the same reason
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25  # seconds between two attempts
_REWOUND, _NO_SHARD = "WH001", "WH002"
_APPEND = "SELECT * FROM whim.append(%b::integer, %b::uuid, %b::bigint, %b, %b, %b, %b, %b)"


class Entry(NamedTuple):
    """A row to be appended: what its writer knows of it."""

    space: int
    kind: int
    key: str | None
    body: bytes


class Appended(NamedTuple):
    """What became of a batch: its time, and for each of its rows the number.

    ``old`` are the places of rows that are not new: theirs is the number of the row that has their
    key, and nothing of them was stored.
    """

    at: int
    seqs: Sequence[int]
    old: frozenset[int] = frozenset()


class Appender:
    """Appends to one shard, one batch at a time; for one thread."""

    def __init__(self, dsn: str, shard: int = 0, *, limit: float = LIMIT) -> None:
        self._dsn, self._shard, self._limit = dsn, shard, limit
        self._connection: Connection | None = None
        self.id = uuid.uuid4()
        self.batch = 0  # the number of the last one that was answered
        self.attempts = 0  # that failed, and were or will be repeated
        self._unreplicated = False

    def append(
        self, entries: Sequence[Entry], given_up: Callable[[], bool] = lambda: False
    ) -> Appended:
        """Append a batch, and repeat it until it is known to be there.

        When ``given_up`` says so between two attempts, UnavailableError: what became of it is not
        known, and the next call must be with the same entries.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                return self.attempt(entries)
            except TRANSIENT as error:
                self.attempts += 1
                self.disconnect()
                if given_up():
                    raise UnavailableError(
                        f"the database does not answer: {describe(error)}."
                    ) from None
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def attempt(self, entries: Sequence[Entry]) -> Appended:
        """Send the batch once; an error of psycopg's ``TRANSIENT`` ones leaves open what became."""
        if self._connection is None:
            self._connection = connect(self._dsn, limit=self._limit, name="whim append")
            settle(self._connection)
            arrays.register(self._connection)
            self._connection.add_notice_handler(self._notice)
        self._unreplicated = False
        try:
            with self._connection.cursor(binary=True) as cursor:
                cursor.execute(_APPEND, self._values(entries))
                row = cursor.fetchone()
        except psycopg.DatabaseError as error:
            raise self._translated(error) from None
        if self._unreplicated:  # asked again, it is answered once the standby has it
            raise psycopg.OperationalError("the wait for the standby was cancelled")
        assert row is not None
        self.batch += 1
        return _appended(entries, *row)

    def _values(self, entries: Sequence[Entry]) -> tuple[Any, ...]:
        return (
            self._shard, self.id, self.batch + 1,
            arrays.int4s([entry.space for entry in entries]),
            arrays.int2s([entry.kind for entry in entries]),
            arrays.byteas([None if e.key is None else e.key.encode() for e in entries]),
            arrays.byteas([entry.body for entry in entries]),
            arrays.int8s([content_crc(*entry) for entry in entries]),
        )  # fmt: skip

    def _translated(self, error: psycopg.DatabaseError) -> Exception:
        if error.sqlstate == _REWOUND:
            return RewoundError(
                f"the log must hold the {self.batch} batches that were acknowledged, and does "
                "not: a failover has lost some."
            )
        if error.sqlstate == _NO_SHARD:
            return StoreError(f"shard must be one of the database's, got {self._shard}.")
        if isinstance(error, TRANSIENT):
            return error
        return StoreError(f"the log cannot be written: {describe(error)}.")

    def _notice(self, said: Diagnostic) -> None:
        # by the name of the function, since the words depend on the server's language
        if said.source_function == "SyncRepWaitForLSN":
            self._unreplicated = True

    def disconnect(self) -> None:
        """Drop the connection; the next attempt makes a new one."""
        made, self._connection = self._connection, None
        if made is not None:
            with contextlib.suppress(psycopg.Error):
                made.close()


def _appended(
    entries: Sequence[Entry],
    first: int,
    at: int,
    old_place: list[int] | None,
    old_seq: list[int] | None,
) -> Appended:
    """The answer; rows that are new have numbers one after the other."""
    if not old_place:
        return Appended(at, range(first, first + len(entries)))
    known = {place - 1: seq for place, seq in zip(old_place, old_seq or (), strict=True)}
    seqs: list[int] = []
    mine: dict[tuple[int, int, str | None], int] = {}  # a key that is twice in the batch itself
    for place, (space, kind, key, _) in enumerate(entries):
        if place in known:
            seqs.append(known[place] or mine[space, kind, key])
        else:
            seqs.append(first)
            mine[space, kind, key] = first
            first += 1
    return Appended(at, seqs, frozenset(known))


class Done(NamedTuple):
    """What became of the rows that were put together with a token; or why nothing ever will."""

    token: Any
    appended: Appended | None
    error: Exception | None = None


class Writer:
    """An ``Appender`` in a thread of its own: what is put while a batch is under way is the next.

    ``on_done`` is called in that thread. A database that is away is waited for: see ``away``. An
    error that will not pass is kept in ``failed``, and all that is put afterwards gets it.
    """

    def __init__(self, appender: Appender, on_done: Callable[[list[Done]], None]) -> None:
        self._appender, self._on_done = appender, on_done
        self._changed = threading.Condition()
        self._queued: list[tuple[Sequence[Entry], Any]] = []
        self._under_way = 0.0  # since when; 0: nothing is
        self._closing = False
        self._until: float | None = None  # when those who close do not wait any longer
        self.failed: Exception | None = None
        self.durations = Durations()
        self._thread = threading.Thread(target=self._run, name="whim append", daemon=True)
        self._thread.start()

    def put(self, entries: Sequence[Entry], token: Any) -> None:
        """Append rows together; ``token`` comes back with what became of them."""
        with self._changed:
            if self._closing:
                raise StoreError("the log is closed.")
            self._queued.append((entries, token))
            self._changed.notify()

    @property
    def away(self) -> float:
        """For how many seconds the batch under way has not been answered."""
        since = self._under_way
        return time.monotonic() - since if since else 0.0

    @property
    def waiting(self) -> int:
        """Rows that wait for the batch under way."""
        with self._changed:
            return sum(len(entries) for entries, _ in self._queued)

    def _run(self) -> None:
        while groups := self._next():
            rows = [entry for entries, _ in groups for entry in entries]
            started = self._under_way = time.monotonic()
            try:
                if self.failed is not None:
                    raise self.failed
                appended = self._appender.append(rows, self._given_up)
            except Exception as error:  # of any kind: those who wait must get an answer
                self.failed = self.failed or error
                done = [Done(token, None, error) for _, token in groups]
            else:
                done = _split(groups, appended)
            self.durations.add(time.monotonic() - started)
            self._under_way = 0.0
            with contextlib.suppress(Exception):  # nobody is listening any more
                self._on_done(done)
        self._appender.disconnect()

    def _given_up(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until

    def _next(self) -> list[tuple[Sequence[Entry], Any]]:
        """What the next batch takes; empty at the end."""
        with self._changed:
            while not self._queued and not self._closing:
                self._changed.wait()
            n = rows = size = 0
            for entries, _ in self._queued:
                if n and rows + len(entries) > MOST_ROWS:
                    break
                n += 1
                rows += len(entries)
                size += sum([len(entry.body) for entry in entries])
                if size >= MOST_BYTES:
                    break
            taken, self._queued = self._queued[:n], self._queued[n:]
            return taken

    def close(self, seconds: float = LIMIT) -> None:
        """Append what was put, if the database answers in time, and end."""
        with self._changed:
            self._closing, self._until = True, time.monotonic() + seconds
            self._changed.notify()
        self._thread.join()


def _split(groups: list[tuple[Sequence[Entry], Any]], appended: Appended) -> list[Done]:
    """To each its own."""
    at, seqs, old = appended
    done, low = [], 0
    for entries, token in groups:
        high = low + len(entries)
        mine = frozenset(p - low for p in old if low <= p < high) if old else old
        done.append(Done(token, Appended(at, seqs[low:high], mine)))
        low = high
    return done
