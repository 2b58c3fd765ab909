"""``Cursors``: how far each webhook has come, on disk."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from whim.serve.logging import get
from whim.serve.settings import ConfigError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS hook (
  url TEXT PRIMARY KEY, since INTEGER NOT NULL, spaces TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS cursor (
  url TEXT NOT NULL, space TEXT NOT NULL, seq INTEGER NOT NULL, done INTEGER NOT NULL,
  PRIMARY KEY (url, space)
) STRICT, WITHOUT ROWID;
"""


class Cursors:
    """How far each address has come. Addresses are kept as hashes: they may hold secrets."""

    def __init__(self, path: Path) -> None:
        try:
            self._connection = self._open(path)
        except sqlite3.OperationalError as error:
            raise ConfigError(f"{path.name} must be writable: {error}.") from None
        except sqlite3.DatabaseError:
            for ending in ("", "-wal", "-shm"):
                old = path.with_name(path.name + ending)
                if old.exists():
                    old.replace(old.with_name(old.name + ".damaged"))
            get("webhooks").error(
                "cursors were damaged and are set aside: what was not delivered yet will not be"
            )
            self._connection = self._open(path)

    @staticmethod
    def _open(path: Path) -> sqlite3.Connection:
        made = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=1000"):
                made.execute(f"PRAGMA {pragma}")  # a cursor that is lost only sends again
            made.executescript(_SCHEMA)
        except BaseException:
            made.close()
            raise
        return made

    def hook(self, url: str) -> tuple[int, list[str]] | None:
        """The row after which an address began, and the spaces it asked for; None: it is new."""
        row = self._connection.execute(
            "SELECT since, spaces FROM hook WHERE url=?", (url,)
        ).fetchone()
        return None if row is None else (row[0], json.loads(row[1]))

    def meet(self, url: str, since: int, spaces: list[str]) -> None:
        """Remember an address, or what it asks for now."""
        self._connection.execute(
            "INSERT OR REPLACE INTO hook VALUES (?,?,?)", (url, since, json.dumps(spaces))
        )

    def rename(self, url: str, new: str) -> None:
        """From now on an address goes by another hash."""
        for table in ("hook", "cursor"):
            self._connection.execute(f"UPDATE {table} SET url=? WHERE url=?", (new, url))

    def read(self, url: str, space: str) -> tuple[int, int] | None:
        """How far a space is: a row, and how many of its changes were delivered."""
        row: tuple[int, int] | None = self._connection.execute(
            "SELECT seq, done FROM cursor WHERE url=? AND space=?", (url, space)
        ).fetchone()
        return row

    def write(self, url: str, space: str, seq: int, done: int) -> None:
        """Remember how far a space is."""
        self._connection.execute(
            "INSERT OR REPLACE INTO cursor VALUES (?,?,?,?)", (url, space, seq, done)
        )

    def close(self) -> None:
        """Close the database."""
        self._connection.close()
