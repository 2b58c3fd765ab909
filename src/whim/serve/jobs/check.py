"""``find_damage``: every row of a log against its checksum and number, then the database as such.

A start reads only what came after the last snapshots; this reads all, beside a running service.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable

from whim.serve.log.base import read_base
from whim.serve.log.configs import config_histories
from whim.serve.log.reader import LogReader, StoreError

_OF_ROWS = 0.9  # of the progress; the rest is for the database's pages and indexes


def find_damage(reader: LogReader, progress: Callable[[float], None]) -> str | None:
    """What is wrong with a log; None if nothing is. ``progress`` gets the share that is checked."""
    try:
        last = max(1, reader.last()[0])
        percent = 0
        for block in reader.blocks(0, last):
            share = _OF_ROWS * block[-1][0] / last
            if int(100 * share) > percent:
                percent = int(100 * share)
                progress(share)
        for number in config_histories(reader):
            _check_base(reader, number)
    except StoreError as error:
        return str(error).removesuffix(".")
    return _check_pages(reader)


def _check_base(reader: LogReader, number: int) -> None:
    """What retention left of a space: its base is sound, and decisions that waited are there."""
    while (base := read_base(reader, number)) is not None:
        missing = [
            seq for seq in sorted(base.kept) if not reader.query(
                "SELECT 1 FROM log WHERE seq=?", (seq,)
            )
        ]  # fmt: skip
        again = read_base(reader, number)
        if again is not None and again.seq != base.seq:
            continue  # retention went on meanwhile
        if missing:
            raise StoreError(
                f"{reader.path.name} must hold every decision that waited when rows before it were "
                f"removed, got none with number {missing[0]}."
            )
        return


def _check_pages(reader: LogReader) -> str | None:
    """What is wrong with the database: rows have checksums, its indexes have none."""
    where = f"{reader.path.absolute().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(where, uri=True)) as db:
        try:
            ((problem,),) = db.execute("PRAGMA integrity_check(1)").fetchall()
        except sqlite3.Error as error:
            problem = str(error)
    return None if problem == "ok" else str(problem)
