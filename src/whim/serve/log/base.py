"""The base of a space: what stands for rows that retention has removed, and the rows that remain.

``jobs.trim`` writes bases; ``state.recovery`` computes state from one and the remaining rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from whim.serve.log.committed import CommittedLog
from whim.serve.log.rows import ArmFeatures, Raw

SCHEMA = """
CREATE TABLE IF NOT EXISTS base (
  space INTEGER PRIMARY KEY, seq INTEGER NOT NULL, version INTEGER NOT NULL, size INTEGER NOT NULL,
  seal BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS base_page (
  space INTEGER NOT NULL, seq INTEGER NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (space, seq, number)
) STRICT, WITHOUT ROWID;
"""


class BaseBody(msgspec.Struct, array_like=True):
    """A base as it is stored: the bytes of a state, and what a rebuild needs beside it.

    ``arms`` are those with features as they came last, and ``kept`` the rows that are still there:
    decisions that waited for a reward. ``since`` is the time of the first row that it has learnt
    from, if there were earlier ones (microseconds), else 0.
    """

    at: int
    head: bytes
    policy: bytes
    arms: list[ArmFeatures]
    kept: list[int]
    since: int


class Base(NamedTuple):
    """The base of a space up to row ``seq``."""

    seq: int
    version: int
    body: BaseBody
    kept: frozenset[int]


def read_base(reader: CommittedLog, number: int) -> Base | None:
    """The base of a space, if rows of it were removed."""
    stored = reader.base(number)
    if stored is None:
        return None
    seq, version, data = stored
    body = msgspec.msgpack.decode(data, type=BaseBody)
    return Base(seq, version, body, frozenset(body.kept))


def remains(seq: int, trimmed: int, base: Base | None) -> bool:
    """Whether a row counts: after those that were trimmed, or a decision that waited then."""
    return seq > trimmed or (base is not None and seq in base.kept)


def rows_of(
    reader: CommittedLog, number: int, after: int = 0, until: int | None = None
) -> Iterator[list[Raw]]:
    """The rows of a space that count, in order, many at a time."""
    trimmed = reader.trimmed()
    base = read_base(reader, number) if after < trimmed else None
    for block in reader.blocks(after, until, number):
        if block[0][0] <= trimmed:
            block = [row for row in block if remains(row[0], trimmed, base)]
        if block:
            yield block
