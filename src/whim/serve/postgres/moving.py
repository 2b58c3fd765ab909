"""``Claim``: a database to which a log is moved, or from which; nobody else uses it meanwhile.

Two rows of ``whim.meta`` keep services from starting: ``arriving`` while a log is on its way here
and is not known to be whole, and ``moved`` once it has gone elsewhere. A log that has gone is also
closed to writers: its head is put aside, so that ``whim.append`` finds no shard.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import psycopg
from psycopg import conninfo

from whim.errors import InvalidInputError
from whim.serve.log.log_writer import checksum
from whim.serve.log.reader import LogReader, StoreError
from whim.serve.log.rows import Row
from whim.serve.postgres import schema, transfer
from whim.serve.postgres.connection import TRANSIENT, Connection, connect, describe
from whim.serve.postgres.lease import NOBODY, SECONDS

_LIMIT = 86_400.0  # seconds: a copy of all rows is one statement
_TABLES = (
    "log", "writer", "lease", "place", "change", "snapshot", "snapshot_part", "base", "base_part",
    "document", "hook", "hook_cursor",
)  # fmt: skip
_SERVING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
    "application_name IN ('whim queries', 'whim append', 'whim tail', 'whim lease')"
)
_LEASE = "SELECT holder, term, beat FROM whim.lease WHERE name = 'leader'"
_META = (
    "INSERT INTO whim.meta VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)


def shown(address: str) -> str:
    """An address of PostgreSQL without what may be secret."""
    try:
        parts = conninfo.conninfo_to_dict(address)
    except psycopg.Error as error:
        raise InvalidInputError(
            f"store must be an address of PostgreSQL: {describe(error)}."
        ) from None
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{parts.get('host', '')}{port}/{parts.get('dbname', '')}"


class Claim:
    """A connection that holds a lock on Whim's tables, on which no service may start."""

    def __init__(self, connection: Connection, store: str) -> None:
        self.connection, self.store = connection, store

    @property
    def log_id(self) -> str:
        """What tells the log from others."""
        return schema.log_id(self.connection)

    @property
    def state(self) -> schema.Away | None:
        """Whether the log is on its way to here, or has gone elsewhere."""
        return schema.away(self.connection)

    def last(self) -> tuple[int, int, int] | None:
        """Number, time and SQLite's checksum of the last row that is here; None: there is none."""
        row = self._one(
            "SELECT seq, at, space, kind, key, body FROM whim.log WHERE shard = 0 "
            "ORDER BY seq DESC LIMIT 1"
        )
        if row is None:
            return None
        seq, at, space, kind, key, body = row
        name = None if key is None else bytes(key).decode()
        return seq, at, checksum(seq, at, space, kind, name, bytes(body))

    def must_be_one_shard(self) -> None:
        """Raise if there are rows in other shards, whose numbers a directory cannot keep."""
        row = self._one("SELECT shard FROM whim.head WHERE shard > 0 AND seq > 0 LIMIT 1")
        if row is not None:
            raise StoreError(
                f"store must have its rows in one shard to be moved to a directory, which has one "
                f"sequence of numbers, got some in shard {row[0]}: leave it in PostgreSQL, or take "
                "its spaces out one by one with `whim export`."
            )

    def must_be_alone(self) -> None:
        """Raise if the log is in several databases: each is of no use without the others."""
        row = self._one("SELECT 1 FROM whim.meta WHERE name IN ('home', 'stores')")
        if row is not None:
            raise StoreError(
                f"store must have the whole log to be moved, got {self.store}, which has shards of "
                "a log in several databases: it stays there."
            )

    @property
    def any_keys(self) -> bool:
        """Whether there are API keys."""
        return self._one("SELECT 1 FROM whim.document WHERE name = 'keys'") is not None

    def _one(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        return self.connection.execute(sql.encode(), values).fetchone()

    # -- a log comes --------------------------------------------------------------------------

    @contextlib.contextmanager
    def filling(self, away: schema.Away) -> Iterator[None]:
        """Empty the tables and fill them, as one transaction; services still may not start."""
        with self.connection.transaction():
            self._empty()
            self.connection.execute("DELETE FROM whim.meta WHERE name IN ('moved', 'arriving')")
            self._say("arriving", away)
            yield

    def _empty(self) -> None:
        names = ", ".join(f"whim.{name}" for name in _TABLES)
        try:
            with self.connection.transaction():
                self.connection.execute(f"TRUNCATE {names}".encode())
        except psycopg.errors.InsufficientPrivilege:  # it may not, and need not
            for name in _TABLES:
                self.connection.execute(f"DELETE FROM whim.{name}".encode())
        (shards,) = self._one("SELECT greatest(1, count(*)) FROM whim.head")
        self.connection.execute("DELETE FROM whim.head")
        schema.add_shards(self.connection, shards)

    def put_log(self, rows: Iterable[Row], reader: LogReader, spaces: Iterable[int]) -> None:
        """The rows of a log, and what stands for those that retention has removed."""
        transfer.copy_rows(self.connection, 0, rows, reader.trimmed())
        for number in spaces:
            base = reader.base(number)
            if base is not None:
                transfer.copy_base(self.connection, number, *base)

    def put(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Rows of one of the other tables."""
        if all_rows := list(rows):
            places = ", ".join(["%s"] * len(all_rows[0]))
            sql = f"INSERT INTO whim.{table} VALUES ({places})"
            with self.connection.cursor() as cursor:
                cursor.executemany(sql.encode(), all_rows)

    def arrived(self) -> None:
        """Services may start from now on."""
        self.connection.execute("DELETE FROM whim.meta WHERE name = 'arriving'")

    # -- a log goes ---------------------------------------------------------------------------

    def gone(self, away: schema.Away, last: int) -> None:
        """Close the log, which must still end with row ``last``: it goes on elsewhere."""
        with self.connection.transaction():
            sql = "SELECT seq FROM whim.head WHERE shard = 0 FOR UPDATE"
            head = self._one(sql)
            if head is None or head[0] != last:
                raise StoreError(
                    f"the log must end with row {last} as when it was copied, got "
                    f"{None if head is None else head[0]}: a service runs on it."
                )
            self.connection.execute("UPDATE whim.head SET shard = -1 - shard")
            self._say("moved", away)

    def _say(self, name: str, away: schema.Away) -> None:
        self.connection.execute(_META, (name, msgspec.json.encode(away).decode()))


@contextlib.contextmanager
def claimed(address: str, *, make: bool) -> Iterator[Claim]:
    """A database of which no service makes use, and on which none may start until the end.

    With ``make`` its tables are made if there are none. The lock ends with the connection, so
    also with this process.
    """
    store = shown(address)
    try:
        with connect(address, limit=_LIMIT, name="whim move") as connection:
            if make:
                schema.create(connection)
            elif schema.stored_format(connection) != schema.FORMAT:
                raise InvalidInputError(
                    f"store must hold a log of format {schema.FORMAT}, got none at {store}."
                )
            if not schema.claim(connection):
                raise StoreError(f"{store} must not be in use, and another `whim move` uses it.")
            _must_be_idle(connection, store)
            yield Claim(connection, store)
    except TRANSIENT as error:
        raise StoreError(f"{store} must answer, and does not: {describe(error)}.") from None
    except psycopg.Error as error:
        raise StoreError(f"{store} cannot be used: {describe(error)}.") from None


def _must_be_idle(connection: Connection, store: str) -> None:
    """Raise if a service runs: one whose connections are seen here, or one that leads."""
    row = connection.execute(_SERVING).fetchone()
    busy = row is not None and bool(row[0])
    lease = connection.execute(_LEASE).fetchone()
    if not busy and lease is not None and lease[0] != NOBODY:
        until = time.monotonic() + 2 * SECONDS  # a holder that lives renews it in this time
        while not busy and time.monotonic() < until:
            time.sleep(0.1)
            busy = connection.execute(_LEASE).fetchone() != lease
    if busy:
        raise StoreError(f"no service must run over {store} while its log is moved, got one.")
