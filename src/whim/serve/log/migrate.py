"""``migrate``: a log of an older format becomes one of today's on start; the old one is kept.

A new format comes with a step from the one before it, and with a stored file of it in the tests.
Formats from ``OLDEST`` on can be read for ever.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from whim.serve.log.log_writer import FORMAT, OLDEST, checksum, lock_out_others
from whim.serve.log.reader import StoreError
from whim.serve.logging import get

Step = Callable[[sqlite3.Connection], None]


def _as_it_is(log: sqlite3.Connection) -> None:
    """Rows stay as they are.

    From 4 to 5: later ones no longer say what follows from those before them. From 5 to 6: they
    may be of lists, which an earlier version would take for decisions about one arm.
    """


# by the format that each starts from, to the next one
STEPS: dict[int, Step] = {4: _as_it_is, 5: _as_it_is}


def migrate(path: Path) -> Path | None:
    """Bring a log that nobody writes to today's format; where the old one is kept, if it was older.

    The old log is copied first. All steps are then one transaction: after a crash the log is
    still the old one, or it is the new one.
    """
    before = _format(path)
    if before is None or not OLDEST <= before < FORMAT:
        return None  # of today, or none of ours, which its reader says
    lock = lock_out_others(str(path.with_name("scribe.lock")))  # as a writer does
    try:
        with contextlib.closing(_connect(path)) as log:
            kept = _keep(log, path, before)
            log.execute("BEGIN IMMEDIATE")  # without a commit it is undone
            for step in range(before, FORMAT):
                STEPS[step](log)
            log.execute("UPDATE meta SET value = ? WHERE name = 'format'", (str(FORMAT),))
            _check_rows(log)
            log.execute("COMMIT")
    except (sqlite3.Error, OSError) as error:
        raise StoreError(
            f"{path.name} of format {before} cannot be migrated to {FORMAT}: {error}."
        ) from None
    finally:
        os.close(lock)
    get("whim").info("the log was migrated", before=before, now=FORMAT, old_one=str(kept))
    return kept


def _format(path: Path) -> int | None:
    """The format of a log; None if there is none or it cannot be read."""
    if not path.is_file():
        return None
    try:
        with contextlib.closing(_connect(path)) as log:
            row = log.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
            return None if row is None else int(row[0])
    except (sqlite3.Error, UnicodeDecodeError, ValueError):
        return None


def _connect(path: Path) -> sqlite3.Connection:
    log = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None
    )  # fmt: skip
    for pragma in ("busy_timeout=10000", "synchronous=FULL"):
        log.execute(f"PRAGMA {pragma}")
    return log


def _keep(log: sqlite3.Connection, path: Path, before: int) -> Path:
    """A whole copy of the log as it is, beside it."""
    kept = path.with_name(f"{path.name}.format-{before}")
    fresh = kept.with_name(f".{kept.name}")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    log.execute("VACUUM INTO ?", (str(fresh.absolute()),))
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.replace(kept)
    return kept


def _check_rows(log: sqlite3.Connection) -> None:
    for row in log.execute("SELECT seq, at, space, kind, key, body, crc FROM log"):
        if checksum(*row[:6]) != row[6]:
            raise StoreError(
                f"row {row[0]} of the log must match its checksum after it was migrated."
            )
