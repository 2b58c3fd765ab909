"""``fetch``: the log in PostgreSQL as one in SQLite, with all that a directory's own log has."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from whim.serve.log.base import SCHEMA, read_base, rows_of
from whim.serve.log.committed import CommittedLog, StoreError
from whim.serve.log.configs import ConfigHistory, config_histories
from whim.serve.log.rows import ConfigRow, Row
from whim.serve.log.store import Packed, Store, pack_changes
from whim.serve.postgres.reader import Reader
from whim.serve.state.recovery import begin

_PAGE = 1 << 17  # bytes of a base in one row
_CHANGES = "SELECT seq, at, space, version, body FROM whim.change ORDER BY space, version, seq, i"


def fetch(reader: Reader, path: Path, progress: Callable[[int], None] = lambda seq: None) -> int:
    """Make a log at ``path``, where there must be none; the number of its last row.

    Rows, their numbers, times and keys are the same, and so is what retention left. Changes that
    the database does not hold follow from the rows.
    """
    trimmed, last = reader.trimmed(), 0
    with contextlib.closing(Store(path)) as store:
        for block in reader.blocks():
            store.append([Row(*row[:6]) for row in block], [])
            store.flush()
            last = block[-1][0]
            progress(last)
        histories = config_histories(reader)
        for number, history in histories.items():
            if changes := _changes(reader, number, history, last):
                store.append([], [], changes)
                store.flush()
    if trimmed:
        _put_bases(path, reader, trimmed, histories)
    if reader.trimmed() != trimmed:
        raise StoreError("rows of the log must stay while they are copied, got fewer.")
    return last


def _put_bases(path: Path, reader: CommittedLog, trimmed: int, spaces: Iterable[int]) -> None:
    with contextlib.closing(sqlite3.connect(path)) as log, log:
        log.executescript(SCHEMA)
        log.execute("INSERT INTO meta VALUES ('trimmed', ?)", (str(trimmed),))
        for number in spaces:
            base = reader.base(number)
            if base is None:
                continue
            seq, version, data = base
            seal = hashlib.sha256(data).digest()
            log.execute("INSERT INTO base VALUES (?,?,?,?,?)",
                        (number, seq, version, len(data), seal))  # fmt: skip
            for page, low in enumerate(range(0, len(data), _PAGE)):
                log.execute("INSERT INTO base_page VALUES (?,?,?,?)",
                            (number, seq, page, data[low : low + _PAGE]))  # fmt: skip


def _changes(reader: Reader, number: int, history: ConfigHistory, last: int) -> list[Packed]:
    """Changes of a space: those that are stored, and of each version those that are not."""
    stored: dict[tuple[int, int, int], Packed] = {}
    for packed in reader.query(_CHANGES.replace("ORDER", "WHERE space = %s ORDER"), (number,)):
        _number(stored, [packed])
    ends = [seq - 1 for seq, _ in history.in_force[1:]] + [last]
    for (_, config_row), end in zip(history.in_force, ends, strict=True):
        if config_row.config is not None:
            found: dict[tuple[int, int, int], Packed] = {}
            _number(found, _found(reader, number, config_row, end))
            stored = found | stored  # what was told to callers counts
    return [stored[key] for key in sorted(stored)]


def _found(reader: CommittedLog, number: int, config_row: ConfigRow, end: int) -> list[Packed]:
    """The changes that a version finds in the rows up to the end of its service."""
    assert config_row.config is not None
    base = read_base(reader, number)
    if base is not None and base.seq > end:
        return []  # the rows are gone
    state = begin(base, config_row.config, config_row.version)
    changes: list[Any] = []
    for block in rows_of(reader, number, state.seq, end):
        changes += state.apply_many(block)
    return pack_changes(number, config_row.version, changes)


def _number(into: dict[tuple[int, int, int], Packed], changes: Iterable[Packed]) -> None:
    """Add changes by version, row, and place among those of the same row."""
    for seq, at, space, version, body in changes:
        i = 0
        while (version, seq, i) in into:
            i += 1
        into[version, seq, i] = (seq, at, space, version, bytes(body))
