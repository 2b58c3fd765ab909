"""``Reader``: what is committed in PostgreSQL."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

import psycopg

from whim.serve.log.committed import CommittedLog, StoreError
from whim.serve.log.rows import Kind, Raw, Row
from whim.serve.postgres import schema
from whim.serve.postgres.checksums import verified
from whim.serve.postgres.connection import (
    LIMIT,
    TRANSIENT,
    Connection,
    UnavailableError,
    connect,
    describe,
    unavailable,
)

_BLOCK = 2048  # rows read at a time
_ROW = "SELECT seq, at, space, kind, key, body, crc FROM whim.log"


def open_reader(dsn: str) -> Reader:
    """A reader of a log that must be there."""
    try:
        with connect(dsn, name="whim read") as connection:
            before = schema.stored_format(connection)
            if before != schema.FORMAT:
                raise StoreError(
                    f"store must hold a log of format {schema.FORMAT}, got "
                    f"{'none' if before is None else before}."
                )
            schema.refuse_away(connection)
    except TRANSIENT as error:
        raise unavailable(error) from None
    except psycopg.Error as error:
        raise StoreError(f"store must be an address of PostgreSQL: {describe(error)}.") from None
    return Reader(dsn)


class Reader(CommittedLog):
    """The committed log of one shard, for any thread; it writes nothing.

    A connection that is lost is made again, once per call: then UnavailableError.
    """

    path = PurePath("the log in PostgreSQL")  # as messages name it

    def __init__(self, dsn: str, shard: int = 0, *, limit: float = LIMIT) -> None:
        self._dsn, self._shard, self._limit = dsn, shard, limit
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a query."""
        with self._lock:
            try:
                return self._execute(sql, values)
            except TRANSIENT:  # it may have been idle while the database was restarted
                self._disconnect()
            try:
                return self._execute(sql, values)
            except TRANSIENT as error:
                self._disconnect()
                raise UnavailableError(
                    f"the database does not answer: {describe(error)}."
                ) from None

    def _execute(self, sql: str, values: Sequence[Any]) -> list[Any]:
        try:
            if self._connection is None:
                self._connection = connect(self._dsn, limit=self._limit, name="whim read")
            with self._connection.cursor(binary=True) as cursor:
                return cursor.execute(sql.encode(), values).fetchall()
        except TRANSIENT:
            raise
        except psycopg.DatabaseError as error:
            raise StoreError(f"{self.path.name} must be readable: {describe(error)}.") from None

    # -- rows ---------------------------------------------------------------------------------

    def _head(self) -> tuple[int, int, int]:
        rows = self.query("SELECT seq, at, trimmed FROM whim.head WHERE shard = %s", (self._shard,))
        if not rows:
            raise StoreError(f"shard must be one of the database's, got {self._shard}.")
        seq, at, trimmed = rows[0]
        return seq, at, trimmed

    def last(self) -> tuple[int, int]:
        """Number and time of the last row."""
        return self._head()[:2]

    def trimmed(self) -> int:
        """The row up to which others may have been removed by retention; 0: none has."""
        return self._head()[2]

    def _blocks(self, after: int, until: int | None, space: int | None) -> Iterator[list[Raw]]:
        where, values = "shard = %s AND seq > %s", [self._shard, after]
        if until is not None:
            where, values = where + " AND seq <= %s", [*values, until]
        if space is not None:
            where, values = where + " AND space = %s", [*values, space]
        sql = f"{_ROW} WHERE {where} ORDER BY seq LIMIT {_BLOCK}"
        while block := verified(self.query(sql, values)):
            if space is None and block[-1][0] - values[1] != len(block):
                self._must_be_whole(block, values[1] + 1)
            yield block
            values[1] = block[-1][0]

    def configs(self) -> list[Row]:
        """Rows that make, change and retire spaces, all of them."""
        sql = f"{_ROW} WHERE shard = %s AND kind <= {Kind.BUILT:d} ORDER BY seq"
        return [Row(*row[:6]) for row in verified(self.query(sql, (self._shard,)))]

    # -- what retention left -----------------------------------------------------

    def base(self, space: int) -> tuple[int, int, bytes] | None:
        """What stands for rows that were removed: the last of them, its version, and its bytes."""
        rows = self.query(  # one query, so that parts and their seal are of one moment
            "SELECT base.seq, version, size, seal, body FROM whim.base LEFT JOIN whim.base_part ON "
            "base_part.space = base.space AND base_part.seq = base.seq "
            "WHERE base.space = %s ORDER BY part",
            (space,),
        )
        return self._sealed(space, rows)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        made, self._connection = self._connection, None
        if made is not None:
            with contextlib.suppress(psycopg.Error):
                made.close()
