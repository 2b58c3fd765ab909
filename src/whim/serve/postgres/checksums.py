"""Checksums of rows in PostgreSQL: what a writer knows of a row, and what the database adds.

The number and the time of a row are given by the database, after the writer has sent the checksum
of the rest. So that one is of the same kind as SQLite's, at number and time 0, and ``whim.append``
adds to it what follows from the two (``whim.position_crc``). Either store's checksum follows from
the row alone: a row that is moved from one to the other and back has the one that it had.
"""

from __future__ import annotations

import zlib
from typing import Any

from whim.serve.log.log_writer import HEAD, checksum
from whim.serve.log.reader import StoreError
from whim.serve.log.rows import Raw

_PRIME, _SEQ, _AT, _MASK = 4294967291, 1000003, 998244353, 0xFFFFFFFF
_head, _crc = HEAD.pack, zlib.crc32


def content_crc(space: int, kind: int, key: str | None, body: bytes) -> int:
    """The checksum of all that a writer knows of a row."""
    return checksum(0, 0, space, kind, key, body)


def position_crc(seq: int, at: int) -> int:
    """What its number and its time add to it."""
    return (seq % _PRIME * _SEQ + at % _PRIME * _AT) & _MASK


def verified(rows: list[Any]) -> list[Raw]:
    """Rows as they were read, with their keys as text, if they match their checksums."""
    raw: list[Raw] = []
    for seq, at, space, kind, key, body, crc in rows:
        head = _head(0, 0, space, kind)  # ``content_crc``, without a call for each of many
        content = _crc(body, _crc(head if key is None else head + key))
        if content ^ position_crc(seq, at) != crc:
            raise StoreError(f"row {seq} of the log must match its checksum: it was altered.")
        raw.append((seq, at, space, kind, None if key is None else key.decode(), body, crc))
    return raw
