"""``LogReader``: what is committed, verified against its checksums, from any process."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whim.serve.log.committed import CommittedLog, StoreError, UnavailableError
from whim.serve.log.log_writer import FORMAT, HEAD, OLDEST
from whim.serve.log.rows import Kind, Raw, Row

_BLOCK = 2048  # rows read at a time
__all__ = ["UNREADABLE", "LogReader", "StoreError", "UnavailableError"]

UNREADABLE = sqlite3.Error, UnicodeDecodeError  # the latter: damage inside the message itself
_head = HEAD.pack
_crc = zlib.crc32


class LogReader(CommittedLog):
    """The committed log; needs no lock and no service, and writes nothing."""

    path: Path

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            with contextlib.ExitStack() as opened:
                self._connection = opened.enter_context(contextlib.closing(_connect(path)))
                self._connection.execute("PRAGMA query_only=ON")
                self._check_format()
                opened.pop_all()  # it stays open
        except UNREADABLE as error:
            raise self._unreadable(error) from None

    def _check_format(self) -> None:
        row = self._connection.execute("SELECT value FROM meta WHERE name='format'").fetchone()
        if row is None or row[0] != str(FORMAT):
            came = "none" if row is None else row[0]
            known = came.isdecimal() and OLDEST <= int(came) < FORMAT
            hint = "start `whim serve` to migrate it" if known else "another whim wrote it"
            raise StoreError(
                f"{self.path.name} must be a log of format {FORMAT}, got {came}: {hint}."
            )

    def _unreadable(self, error: object) -> StoreError:
        return StoreError(f"{self.path.name} must be a readable log: {error}.")

    def query(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """All rows of a query."""
        try:
            with self._lock:
                return self._connection.execute(sql, values).fetchall()
        except UNREADABLE as error:
            raise self._unreadable(error) from None

    def _verified(self, rows: list[Raw]) -> list[Raw]:
        """The rows, which match their checksums."""
        for seq, at, space, kind, key, body, crc in rows:
            try:  # ``checksum``, without a call for each of millions
                head = _head(seq, at, space, kind)
                computed = _crc(body, _crc(head if key is None else head + key.encode()))
            except (TypeError, AttributeError, struct.error):  # not even of the right kind
                computed = None
            if computed != crc:
                raise StoreError(
                    f"row {seq} of {self.path.name} must match its checksum: it was altered."
                )
        return rows

    # -- rows ---------------------------------------------------------------------------------

    def last(self) -> tuple[int, int]:
        """Number and time of the last row."""
        rows = self._verified(self.query("SELECT * FROM log ORDER BY seq DESC LIMIT 1"))
        return rows[0][:2] if rows else (0, 0)

    def trimmed(self) -> int:
        """The row up to which others may have been removed by retention; 0: none has."""
        rows = self.query("SELECT value FROM meta WHERE name = 'trimmed'")
        return int(rows[0][0]) if rows else 0

    def _blocks(self, after: int, until: int | None, space: int | None) -> Iterator[list[Raw]]:
        where, values = "seq > ?", [after]
        if until is not None:
            where, values = where + " AND seq <= ?", [after, until]
        if space is not None:
            where, values = where + " AND space = ?", [*values, space]
        sql = f"SELECT * FROM log WHERE {where} ORDER BY seq LIMIT {_BLOCK}"
        while block := self._verified(self.query(sql, tuple(values))):
            if space is None and block[-1][0] - values[0] != len(block):
                self._must_be_whole(block, values[0] + 1)
            yield block
            values[0] = block[-1][0]

    def configs(self) -> list[Row]:
        """Rows that make, change and retire spaces, all of them."""
        rows = self._verified(self.query("SELECT * FROM log WHERE kind <= 2 ORDER BY seq"))
        return [Row(*row[:6]) for row in rows]

    def decision(self, space: int, key: str) -> Row | None:
        """A decision by its id."""
        sql = f"SELECT * FROM log WHERE space = ? AND key = ? AND kind = {Kind.DECISION:d}"
        try:
            rows = self._verified(self.query(sql, (space, key)))
        except UnicodeEncodeError:  # what cannot be written is not there
            return None
        return Row(*rows[0][:6]) if rows else None

    def keys(self, after: tuple[int, str], most: int) -> list[tuple[int, str]]:
        """Spaces and ids of decisions, in their order, after one of them."""
        return self.query(
            "SELECT space, key FROM log INDEXED BY log_decision WHERE kind = 3 "
            "AND (space, key) > (?, ?) ORDER BY space, key LIMIT ?",
            (*after, most),
        )

    # -- what retention left, and changes -----------------------------------------------------

    def base(self, space: int) -> tuple[int, int, bytes] | None:
        """What stands for rows that were removed: the last of them, its version, and its bytes."""
        if not self.query("SELECT 1 FROM sqlite_master WHERE type='table' AND name='base'"):
            return None
        rows = self.query(  # one query, so that pages and their seal are of one moment
            "SELECT base.seq, version, size, seal, data FROM base LEFT JOIN base_page ON "
            "base_page.space = base.space AND base_page.seq = base.seq "
            "WHERE base.space = ? ORDER BY number",
            (space,),
        )
        return self._sealed(space, rows)

    def changes(
        self, space: int, version: int, since: int = 0, most: int = 1000
    ) -> list[tuple[int, int, dict[str, Any]]]:
        """Changes of a space's version after row ``since``: row, time, and the event's fields."""
        return self._events("seq > ? ORDER BY seq, rowid LIMIT ?", (space, version, since, most))

    def recent_changes(
        self,
        space: int,
        version: int,
        before: int | None = None,
        most: int = 20,
        *,
        span: tuple[int, int] | None = None,
        arm: str | int | None = None,
    ) -> list[tuple[int, int, dict[str, Any]]]:
        """The last changes of a space's version, newest first; before row ``before`` if given.

        ``span`` is the times between which they were detected, the second not within; of an
        ``arm`` are those of all arms, too.
        """
        where, values = "seq < ?", [2**63 - 1 if before is None else before]
        if span is not None:
            where, values = where + " AND at >= ? AND at < ?", [*values, *span]
        if arm is not None:
            where += " AND ifnull(json_extract(CAST(body AS TEXT), '$.arm'), ?) = ?"
            values += [arm, arm]  # type: ignore[list-item]
        return self._events(
            f"{where} ORDER BY seq DESC, rowid DESC LIMIT ?", (space, version, *values, most)
        )

    def _events(self, where: str, values: tuple[int, ...]) -> list[tuple[int, int, dict[str, Any]]]:
        sql = f"SELECT seq, at, body FROM change WHERE space=? AND version=? AND {where}"
        return [(seq, at, json.loads(body)) for seq, at, body in self.query(sql, values)]

    def count_changes(self, space: int, version: int, since: int, most: int = 1000) -> int:
        """Changes of a space's version from time ``since`` on; counted up to ``most``."""
        ((count,),) = self.query(
            "SELECT count(*) FROM (SELECT at FROM change WHERE space=? AND version=? "
            "ORDER BY seq DESC LIMIT ?) WHERE at >= ?",
            (space, version, most, since),
        )
        return int(count)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None,
        check_same_thread=False,
    )  # fmt: skip
    connection.execute("PRAGMA busy_timeout=10000")
    return connection
