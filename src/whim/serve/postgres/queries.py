"""``Queries``: what a replica asks the database beside appending and following the log."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, NamedTuple

import psycopg

from whim.serve.log.reader import StoreError
from whim.serve.postgres import schema
from whim.serve.postgres.connection import (
    LIMIT,
    TRANSIENT,
    Connection,
    UnavailableError,
    connect,
    describe,
    unavailable,
)

_CLOCK = (
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, "
    "(SELECT count(*) FROM whim.head), "
    "coalesce((SELECT value FROM whim.meta WHERE name = 'stores'), '[]')"
)
_END = "SELECT seq FROM whim.head WHERE shard = %s"
_DECISION = "SELECT seq FROM whim.log WHERE kind = 3 AND space = %s AND key = %s"


class Place(NamedTuple):
    """The number of a space, the shard that its rows are in, and the database (``''``: this)."""

    space: int
    shard: int
    store: str


class Queries:
    """One connection, which threads take in turn; it is made when it is needed."""

    def __init__(self, dsn: str, *, limit: float = LIMIT) -> None:
        self._dsn, self._limit = dsn, limit
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._ahead = time.time_ns() - time.monotonic_ns()  # of the database's clock
        self.layout: tuple[int, str] | None = None  # shards, and other databases: see ``databases``

    def open(self) -> tuple[str, list[str]]:
        """Make or migrate the tables; the log's id, and what is risky about the server."""
        with self._lock:
            connection = self._connected()
            try:
                schema.create(connection)
                schema.refuse_away(connection)
                return schema.log_id(connection), schema.risks(connection)
            except TRANSIENT as error:
                raise self._unavailable(error) from None

    def ask(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """All rows of a query, or of a statement that gives some."""
        with self._lock:
            connection = self._connected()
            try:
                cursor = connection.execute(sql.encode(), values, binary=True)
                return cursor.fetchall() if cursor.description else []
            except TRANSIENT as error:
                raise self._unavailable(error) from None
            except psycopg.DatabaseError as error:
                raise StoreError(f"the database cannot do this: {describe(error)}.") from None

    def _connected(self) -> Connection:
        if self._connection is None:
            try:
                self._connection = connect(self._dsn, limit=self._limit, name="whim queries")
            except TRANSIENT as error:
                raise self._unavailable(error) from None
            except psycopg.Error as error:
                raise StoreError(
                    f"store must be an address of PostgreSQL: {describe(error)}."
                ) from None
        return self._connection

    def _unavailable(self, error: Exception) -> UnavailableError:
        made, self._connection = self._connection, None
        if made is not None:
            with contextlib.suppress(psycopg.Error):
                made.close()
        return unavailable(error)

    def decision(self, space: int, key: str) -> int | None:
        """The row of a decision by its id."""
        rows = self.ask(_DECISION, (space, key.encode("utf-8", "surrogatepass")))
        return rows[0][0] if rows else None

    def end(self, shard: int) -> int:
        """The number of the last row of a shard."""
        ((seq,),) = self.ask(_END, (shard,))
        return int(seq)

    def take_place(self, name: str, gone: int, made: int, shard: int, store: str) -> Place:
        """Where a name is, or from now on is: see ``whim.take_place``."""
        sql = "SELECT space, shard, store FROM whim.take_place(%s, %s::int, %s::int, %s::int, %s)"
        return Place(*self.ask(sql, (name, gone, made, shard, store))[0])

    # -- time ---------------------------------------------------------------------------------

    def set_clock(self) -> None:
        """Learn what time it is there, to half of what the question takes; and the ``layout``."""
        asked = time.monotonic_ns()
        ((there, *layout),) = self.ask(_CLOCK)
        took = time.monotonic_ns() - asked
        self._ahead = there * 1000 - (asked + took // 2)
        self.layout = layout[0], layout[1]

    def time_ns(self) -> int:
        """The database's time, by this machine's steady clock since it was last asked."""
        return time.monotonic_ns() + self._ahead

    # -- documents ----------------------------------------------------------------------------

    def document(self, name: str) -> tuple[int, bytes] | None:
        """A document and its version, which grows."""
        rows = self.ask("SELECT version, body FROM whim.document WHERE name = %s", (name,))
        return (rows[0][0], bytes(rows[0][1])) if rows else None

    def put_document(self, name: str, body: bytes, version: int) -> bool:
        """Replace a document if it is still of that version (0: there is none); whether it was."""
        if not version:
            sql = "INSERT INTO whim.document VALUES (%s, 1, %s) ON CONFLICT DO NOTHING RETURNING 1"
            return bool(self.ask(sql, (name, body)))
        sql = (
            "UPDATE whim.document SET version = version + 1, body = %s "
            "WHERE name = %s AND version = %s RETURNING 1"
        )
        return bool(self.ask(sql, (body, name, version)))

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            made, self._connection = self._connection, None
            if made is not None:
                made.close()
