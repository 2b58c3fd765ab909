"""``trim_shared``: rows past their time leave the shared log, as they have left a replica's copy.

The replica that leads has trimmed its own copy. What stands there for the removed rows is brought
to the database in parts that mean nothing until one small transaction says that they are there;
only then rows are deleted, some at a time. A replica that begins, or comes back from far behind,
starts from it.
"""

from __future__ import annotations

import hashlib

import psycopg

from whim.serve.log.base import read_base
from whim.serve.log.configs import config_histories
from whim.serve.log.reader import LogReader, StoreError, UnavailableError
from whim.serve.log.rows import Kind
from whim.serve.postgres.connection import TRANSIENT, Connection, connect, describe

_SECONDS = 60.0  # that one statement may take
_PART = 1 << 20
_AT_ONCE = 2000  # rows that are deleted in one statement
_HEAD = "SELECT seq, trimmed FROM whim.head WHERE shard = %s"
_DELETE = (
    "DELETE FROM whim.log WHERE shard = %s AND seq > %s AND seq <= %s "
    f"AND kind > {Kind.BUILT:d} AND NOT seq = ANY (%s)"
)


def trim_shared(address: str, copy: LogReader, shard: int = 0) -> int:
    """Remove from a shard what its copy stands for without; how many rows that were."""
    trimmed = copy.trimmed()
    try:
        with connect(address, limit=_SECONDS, name="whim trim") as connection:
            row = connection.execute(_HEAD, (shard,)).fetchone()
            if row is None or not trimmed or trimmed >= row[0]:
                return 0
            if row[1] < trimmed and not _switch(connection, shard, copy, trimmed):
                return 0
            return _sweep(connection, shard, copy, trimmed)
    except TRANSIENT as error:
        raise UnavailableError(f"the database does not answer: {describe(error)}.") from None
    except psycopg.Error as error:
        raise StoreError(f"the shared log cannot be trimmed: {describe(error)}.") from None


def _switch(connection: Connection, shard: int, copy: LogReader, trimmed: int) -> bool:
    """Bring the bases, and from then on let them stand for the rows; False: others were first."""
    bases, spaces = [], list(config_histories(copy))
    for number in spaces:
        base = copy.base(number)
        if base is None:
            continue
        seq, version, data = base
        bases.append((number, seq, version, len(data), hashlib.sha256(data).digest()))
        for part, low in enumerate(range(0, len(data), _PART)):
            connection.execute(
                "INSERT INTO whim.base_part VALUES (%s, %s, %s, %s) ON CONFLICT (space, seq, part) "
                "DO UPDATE SET body = excluded.body",
                (number, seq, part, data[low : low + _PART]),
            )
    with connection.transaction():
        row = connection.execute(f"{_HEAD} FOR UPDATE".encode(), (shard,)).fetchone()
        if row is None or row[1] >= trimmed:
            return False
        connection.execute("DELETE FROM whim.base WHERE space = ANY (%s)", (spaces,))
        for base_row in bases:
            connection.execute("INSERT INTO whim.base VALUES (%s, %s, %s, %s, %s)", base_row)
        connection.execute("UPDATE whim.head SET trimmed = %s WHERE shard = %s", (trimmed, shard))
    return True


def _sweep(connection: Connection, shard: int, copy: LogReader, trimmed: int) -> int:
    """Delete the rows that bases stand for, and bases that others stand for."""
    kept: list[int] = []
    spaces = list(config_histories(copy))
    for number in spaces:
        base = read_base(copy, number)
        kept += sorted(base.kept) if base is not None else []
    row = connection.execute(
        "SELECT min(seq) FROM whim.log WHERE shard = %s AND kind > 2 AND NOT seq = ANY (%s)",
        (shard, kept),
    ).fetchone()
    first, count = row[0] if row is not None and row[0] is not None else trimmed + 1, 0
    for low in range(first - 1, trimmed, _AT_ONCE):
        high = min(low + _AT_ONCE, trimmed)
        count += connection.execute(_DELETE.encode(), (shard, low, high, kept)).rowcount
    connection.execute(  # of this shard: another one may be bringing its own
        "DELETE FROM whim.base_part AS p WHERE p.space = ANY (%s) AND NOT EXISTS "
        "(SELECT 1 FROM whim.base AS b WHERE b.space = p.space AND b.seq = p.seq)",
        (spaces,),
    )
    return count
