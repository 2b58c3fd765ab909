"""``Snapshots``: states on disk in pages, of which only those that changed are written.

A snapshot is one transaction in a database of its own: it is there whole or not at all, and
writing it never makes the log wait. A policy's arrays lie row by row, so arms that did not change
lie in pages that did not. What a page holds is sealed; a damaged snapshot is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import struct
import zlib
from pathlib import Path

from whim.serve.log.reader import StoreError
from whim.serve.state.space_state import SpaceState

PAGE = 1 << 14
_HEAD = struct.Struct("<8sIQ")  # of a saved policy: docs/state.md
_SCHEMA = """
CREATE TABLE IF NOT EXISTS snapshot (
  space INTEGER PRIMARY KEY, seq INTEGER NOT NULL, head BLOB NOT NULL, lengths TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS page (
  space INTEGER NOT NULL, part TEXT NOT NULL, number INTEGER NOT NULL, crc INTEGER NOT NULL,
  data BLOB NOT NULL, PRIMARY KEY (space, part, number)
) STRICT, WITHOUT ROWID;
"""


def split(data: bytes) -> dict[str, memoryview]:
    """A saved policy in parts: its head, each array, its seal."""
    _, _, length = _HEAD.unpack_from(data)
    start = _HEAD.size + length
    entries = json.loads(data[_HEAD.size : start])["arrays"]
    view = memoryview(data)
    offsets = [e["offset"] for e in entries] + [len(data) - 32 - start]
    parts = {"head": view[:start], "seal": view[-32:]}
    for entry, low, high in zip(entries, offsets[:-1], offsets[1:], strict=True):
        parts[f"array {entry['name']}"] = view[start + low : start + high]
    return parts


class Snapshots:
    """The last snapshot of each space.

    A database that cannot be read is set aside and begun anew: the log has it all.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._crcs: dict[int, dict[tuple[str, int], int]] = {}
        try:
            self._open()
        except sqlite3.Error:
            self._set_aside()

    def _open(self) -> None:
        self._connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA busy_timeout=10000")
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")  # a lost one costs time, not truth
        self._connection.executescript(_SCHEMA)

    def _set_aside(self) -> None:
        try:
            if hasattr(self, "_connection"):
                self._connection.close()
            for ending in ("", "-wal", "-shm"):
                old = self.path.with_name(self.path.name + ending)
                if old.exists():
                    old.replace(old.with_name(old.name + ".damaged"))
            self._open()
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{self.path.name} must be writable: {error}.") from None

    def write(self, space: int, state: SpaceState) -> int:
        """Write what changed since the last one; how many pages that was."""
        head, policy = state.to_bytes()
        head = hashlib.sha256(head + policy[-32:]).digest() + head
        parts = split(policy)
        before = self._crcs.get(space)
        if before is None:
            rows = self._connection.execute(
                "SELECT part, number, crc FROM page WHERE space=?", (space,)
            )
            before = {(part, number): crc for part, number, crc in rows}
        now: dict[tuple[str, int], int] = {}
        fresh = []
        for part, data in parts.items():
            for number, at in enumerate(range(0, max(len(data), 1), PAGE)):
                page = data[at : at + PAGE]
                crc = now[part, number] = zlib.crc32(page)
                if before.get((part, number)) != crc:
                    fresh.append((space, part, number, crc, bytes(page)))
        gone = [(space, *key) for key in before.keys() - now.keys()]
        lengths = json.dumps({part: len(data) for part, data in parts.items()})
        run = self._connection
        run.execute("BEGIN IMMEDIATE")
        try:
            run.executemany("DELETE FROM page WHERE space=? AND part=? AND number=?", gone)
            run.executemany("INSERT OR REPLACE INTO page VALUES (?,?,?,?,?)", fresh)
            row = space, state.seq, head, lengths
            run.execute("INSERT OR REPLACE INTO snapshot VALUES (?,?,?,?)", row)
            run.execute("COMMIT")
        except BaseException:
            run.execute("ROLLBACK")
            self._crcs.pop(space, None)
            raise
        self._crcs[space] = now
        return len(fresh)

    def read(self, space: int) -> SpaceState | None:
        """The last snapshot; None if there is none that is whole."""
        return _read(self._connection, space)

    def forget(self, space: int) -> None:
        """Drop a space's snapshot, as after a change of its parameters."""
        self._crcs.pop(space, None)
        for table in ("page", "snapshot"):
            self._connection.execute(f"DELETE FROM {table} WHERE space=?", (space,))

    def keep(self, spaces: set[int]) -> None:
        """Drop the snapshots of all but these; for the first to open the file, which may mend it.

        Damage that no reading met would make every later write fail.
        """
        try:
            (found,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                self._set_aside()
            rows = self._connection.execute("SELECT DISTINCT space FROM page").fetchall()
            for (space,) in rows:
                if space not in spaces:
                    self.forget(space)
        except sqlite3.Error:
            self._set_aside()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def peek(path: Path, space: int) -> SpaceState | None:
    """The last snapshot of a space, read as it is and at one moment; nothing is written."""
    where = f"{path.absolute().as_uri()}?mode=rw"
    try:
        with contextlib.closing(sqlite3.connect(where, uri=True)) as connection:
            for sql in ("PRAGMA busy_timeout=10000", "PRAGMA query_only=ON", "BEGIN"):
                connection.execute(sql)
            return _read(connection, space)
    except sqlite3.Error:
        return None


def _read(connection: sqlite3.Connection, space: int) -> SpaceState | None:
    try:
        row = connection.execute(
            "SELECT head, lengths FROM snapshot WHERE space=?", (space,)
        ).fetchone()
        if row is None:
            return None
        mark, head, lengths = row[0][:32], row[0][32:], json.loads(row[1])
        pages: dict[str, list[bytes]] = {}
        for part, data in connection.execute(
            "SELECT part, data FROM page WHERE space=? ORDER BY part, number", (space,)
        ):
            pages.setdefault(part, []).append(data)
        # in the order in which they were split, the seal last
        whole = {part: b"".join(pages[part]) for part in lengths}
        seal = whole.pop("seal")
        if hashlib.sha256(head + seal).digest() != mark:
            return None
        return SpaceState.from_bytes(head, b"".join([*whole.values(), seal]))
    except Exception:  # cut short, altered, of another format: the log is the truth
        return None
