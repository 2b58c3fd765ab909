"""Rows of another log into an empty shard, with the numbers and times that they have there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import psycopg

from whim.serve.log.reader import StoreError
from whim.serve.log.rows import Row
from whim.serve.postgres.checksums import content_crc, position_crc

_COPY = "COPY whim.log (shard, kind, seq, at, crc, space, key, body) FROM STDIN (FORMAT BINARY)"
_TYPES = ("int4", "int2", "int8", "int8", "int8", "int4", "bytea", "bytea")
_PART = 1 << 20  # bytes of a base in one row


def copy_rows(
    connection: psycopg.Connection[Any], shard: int, rows: Iterable[Row], trimmed: int = 0
) -> int:
    """Copy rows into a shard that has none, all or none of them; how many.

    ``trimmed`` is the row up to which retention may have removed others where they come from.
    """
    count, last = 0, None
    with connection.transaction():
        sql = "SELECT seq FROM whim.head WHERE shard = %s FOR UPDATE"
        head = connection.execute(sql, (shard,)).fetchone()
        if head is None or head[0]:
            came = "none" if head is None else f"{head[0]} rows"
            raise StoreError(f"shard {shard} must be there and be empty, got {came}.")
        with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            copy.set_types(_TYPES)
            for row in rows:
                seq, at, space, kind, key, body = row
                crc = content_crc(space, kind, key, body) ^ position_crc(seq, at)
                name = None if key is None else key.encode()
                copy.write_row((shard, kind, seq, at, crc, space, name, body))
                count, last = count + 1, row
        if last is not None:
            connection.execute(
                "UPDATE whim.head SET seq = %s, at = %s, trimmed = %s WHERE shard = %s",
                (last.seq, last.at, trimmed, shard),
            )
    return count


def copy_base(
    connection: psycopg.Connection[Any], space: int, seq: int, version: int, data: bytes
) -> None:
    """What stands for the rows of a space up to ``seq``."""
    with connection.transaction():
        seal = hashlib.sha256(data).digest()
        connection.execute(
            "INSERT INTO whim.base VALUES (%s, %s, %s, %s, %s)",
            (space, seq, version, len(data), seal),
        )
        for part, low in enumerate(range(0, len(data), _PART)):
            connection.execute(
                "INSERT INTO whim.base_part VALUES (%s, %s, %s, %s)",
                (space, seq, part, data[low : low + _PART]),
            )
