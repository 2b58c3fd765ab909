"""``Tail``: the rows of a shard as they come, in their order; ``Follower``, in a thread.

Rows are numbered in the order of their commits, so who sees one sees all before it, and asking
for what comes after the last one misses nothing. Each answer begins with the last row that was
read: if it is another one now, or gone, a failover has lost rows, and whatever was computed of
them must be discarded.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg

from whim.serve.log.reader import StoreError
from whim.serve.log.rows import Raw
from whim.serve.postgres.checksums import verified
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

MOST_ROWS = 3000  # per query
SHORTEST_PAUSE, LONGEST_PAUSE = 0.002, 0.02  # seconds between two looks
_PART = 4  # of the time since a row came is the pause
_AWAY_PAUSE = 0.25  # seconds between two attempts to connect, at most
# the body of the last row is not needed again
_READ = (
    "SELECT seq, at, space, kind, key, CASE WHEN seq > %(last)s THEN body END, crc FROM whim.log "
    "WHERE shard = %(shard)s AND seq >= %(last)s ORDER BY seq LIMIT %(most)s"
)
_HEAD = "SELECT seq, at, trimmed FROM whim.head WHERE shard = %s"


class Last(NamedTuple):
    """The last row that was read: what it is known by."""

    seq: int
    at: int
    crc: int


NOTHING = Last(0, 0, 0)


class Tail:
    """Reads one shard from after a row on; for one thread."""

    def __init__(
        self, dsn: str, shard: int = 0, last: Last = NOTHING, *, limit: float = LIMIT
    ) -> None:
        self._dsn, self._shard, self._limit = dsn, shard, limit
        self._connection: Connection | None = None
        self.last = last
        self.caught_up: float | None = None  # when the end was reached last, by time.monotonic

    def read(self, most: int = MOST_ROWS) -> list[Raw]:
        """The rows after the last one, verified; none if there are none yet.

        UnavailableError: the database did not answer, and the next call tries again.
        RewoundError: it is another log; this tail is of no more use.
        """
        asked = time.monotonic()
        last = self.last.seq
        rows = self._ask(_READ, {"last": last, "shard": self._shard, "most": most + (last > 0)})
        if last:
            if not rows or (rows[0][0], rows[0][1], rows[0][6]) != self.last:
                raise self._rewound()
            del rows[0]
        if len(rows) < most:
            self.caught_up = asked
        if not rows:
            return []
        raw = verified(rows)
        if raw[-1][0] - last != len(raw):
            self._must_be_whole(raw)
        self.last = Last(raw[-1][0], raw[-1][1], raw[-1][6])
        return raw

    def head(self) -> tuple[int, int, int]:
        """Number and time of the shard's last row, and the last row that retention may remove."""
        rows = self._ask(_HEAD, (self._shard,))
        if not rows:
            raise StoreError(f"shard must be one of the database's, got {self._shard}.")
        seq, at, trimmed = rows[0]
        return seq, at, trimmed

    @property
    def staleness(self) -> float:
        """Seconds since the end of the log was reached last; infinite if it never was."""
        return float("inf") if self.caught_up is None else time.monotonic() - self.caught_up

    def _ask(self, sql: str, values: dict[str, int] | tuple[int, ...]) -> list[Any]:
        try:
            if self._connection is None:
                self._connection = connect(self._dsn, limit=self._limit, name="whim tail")
                settle(self._connection)
            with self._connection.cursor(binary=True) as cursor:
                return cursor.execute(sql.encode(), values).fetchall()
        except TRANSIENT as error:
            self.disconnect()
            raise UnavailableError(f"the database does not answer: {describe(error)}.") from None
        except psycopg.DatabaseError as error:
            self.disconnect()
            raise StoreError(f"the log must be readable: {describe(error)}.") from None

    def _must_be_whole(self, rows: list[Raw]) -> None:
        expected, trimmed = self.last.seq + 1, self.head()[2]
        for row in rows:
            if row[0] > max(expected, trimmed + 1):
                raise StoreError(f"the log must hold every row, got {row[0]} after {expected - 1}.")
            expected = row[0] + 1

    def _rewound(self) -> RewoundError:
        return RewoundError(
            f"row {self.last.seq} of the log must be the one that was read, and is not: a "
            "failover has lost rows, or it was removed."
        )

    def disconnect(self) -> None:
        """Drop the connection; the next read makes a new one."""
        made, self._connection = self._connection, None
        if made is not None:
            with contextlib.suppress(psycopg.Error):
                made.close()


class Follower:
    """A ``Tail`` in a thread of its own; ``on_rows`` is called there with the rows as they come.

    It reads on when ``on_rows`` returns. ``on_error`` gets what ends it, such as a RewoundError.
    """

    def __init__(
        self,
        tail: Tail,
        on_rows: Callable[[list[Raw]], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self.tail = tail
        self._on_rows, self._on_error = on_rows, on_error
        self._woken = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="whim tail", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look now: something was appended."""
        self._woken.set()

    def _run(self) -> None:
        came = time.monotonic()
        away = SHORTEST_PAUSE
        while not self._closing:
            self._woken.clear()
            try:
                rows = self.tail.read()
                away = SHORTEST_PAUSE
                if rows:
                    self._on_rows(rows)
                    came = time.monotonic()
                    if len(rows) == MOST_ROWS:
                        continue
                # the busier the log, the sooner the next look
                pause = (time.monotonic() - came) / _PART
                pause = min(max(pause, SHORTEST_PAUSE), LONGEST_PAUSE)
            except UnavailableError:
                pause = away = min(2 * away, _AWAY_PAUSE)
            except Exception as error:  # of any kind: nobody would see it in a thread
                self._on_error(error)
                break
            self._woken.wait(pause)
        self.tail.disconnect()

    def close(self) -> None:
        """End, once ``on_rows`` has returned."""
        self._closing = True
        self._woken.set()
        self._thread.join()
