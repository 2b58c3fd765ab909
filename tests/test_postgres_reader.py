"""Reads of the log in PostgreSQL: the same calls and the same answers as of the one in SQLite."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import MISSING, Server, binaries
from tests.shared_log import appender, entry, everything
from whim.serve.log.log_writer import checksum
from whim.serve.log.reader import LogReader, StoreError
from whim.serve.log.rows import Kind, Row
from whim.serve.log.store import Store
from whim.serve.postgres import schema
from whim.serve.postgres.connection import UnavailableError, connect
from whim.serve.postgres.reader import Reader
from whim.serve.postgres.transfer import copy_rows

pytestmark = pytest.mark.skipif(binaries() is None, reason=MISSING)

KINDS = (Kind.CONFIG, Kind.BUILT, Kind.DECISION, Kind.REWARD, Kind.EXPIRY)
BASE = b"what was learnt" * 30_000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server.start() as made:
        yield made


def _rows() -> list[Row]:
    rows = []
    for seq in range(1, 5001):
        kind = KINDS[seq] if seq < 2 else KINDS[2 + seq % 3]
        key = f"id {seq} ü\x00" if kind == Kind.DECISION else None
        rows.append(Row(seq, 1000 + seq // 7, 1 + seq % 2, kind, key, b"%d" % seq * (seq % 50)))
    return rows


def _changes() -> list[tuple[int, int, int, int, bytes]]:
    return [(seq, 1000 + seq, 1, 3, b'{"arm": %d, "i": %d}' % (seq, i))
            for seq in range(10, 400, 10) for i in range(2)]  # fmt: skip


@pytest.fixture(scope="module")
def sqlite_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogReader]:
    path = tmp_path_factory.mktemp("log") / "log.db"
    store = Store(path)
    store.append(_rows(), [None], _changes())
    store.flush()
    store.close()
    _trim(path)
    reader = LogReader(path)
    yield reader
    reader.close()


def _trim(path: Path) -> None:
    """Some rows are gone, as retention leaves a log."""
    with sqlite3.connect(path) as log:
        log.execute("DELETE FROM log WHERE seq IN (3, 5, 6)")
        log.execute("INSERT INTO meta VALUES ('trimmed', '6')")
    log.close()


@pytest.fixture(scope="module")
def reader(server: Server, sqlite_log: LogReader) -> Iterator[Reader]:
    with connect(server.dsn) as connection:
        schema.create(connection)
        copied = copy_rows(connection, 0, sqlite_log.rows(), sqlite_log.trimmed())
        assert copied == 4997
        with connection.cursor() as cursor:
            changes = [(space, version, seq, i % 2, at, body)
                       for i, (seq, at, space, version, body) in enumerate(_changes())]  # fmt: skip
            cursor.executemany("INSERT INTO whim.change VALUES (%s,%s,%s,%s,%s,%s)", changes)
    made = Reader(server.dsn)
    yield made
    made.close()


def test_rows_are_the_same(reader: Reader, sqlite_log: LogReader) -> None:
    assert reader.last() == sqlite_log.last() == (5000, 1714)
    assert reader.trimmed() == sqlite_log.trimmed() == 6
    for wanted in ((), (100,), (4990,), (0, 3000), (7, 9), (0, None, 2), (3000, 4000, 1), (9000,)):
        assert list(reader.rows(*wanted)) == list(sqlite_log.rows(*wanted)), wanted
    assert [len(block) for block in reader.blocks()] == [
        len(block) for block in sqlite_log.blocks()
    ]
    assert reader.configs() == sqlite_log.configs()


def test_rows_that_come_back_have_the_checksums_that_they_had(
    reader: Reader, sqlite_log: LogReader
) -> None:
    there = [row for block in sqlite_log.blocks() for row in block]
    back = [(*row, checksum(*row)) for row in reader.rows()]
    assert back == there


def test_a_base_must_match_its_seal(server: Server, reader: Reader) -> None:
    assert reader.base(1) is None
    seal = hashlib.sha256(BASE).digest()
    part = "INSERT INTO whim.base_part VALUES (1, 6, %s, %s)"
    for i, low in enumerate(range(0, len(BASE), 1 << 17)):
        server.execute(part, (i, BASE[low : low + (1 << 17)]))
    server.execute("INSERT INTO whim.base VALUES (1, 6, 2, %s, %s)", (len(BASE), seal))
    assert reader.base(1) == (6, 2, BASE)
    server.execute("UPDATE whim.base_part SET body = 'x' WHERE part = 1")
    with pytest.raises(StoreError, match=r"the base of space 1 .* must match its seal"):
        reader.base(1)


def test_only_an_empty_shard_takes_rows(server: Server, reader: Reader) -> None:
    with connect(server.dsn) as connection:
        for shard, came in ((0, "got 5000 rows"), (9, "got none")):
            with pytest.raises(StoreError, match=came):
                copy_rows(connection, shard, _rows())
    assert reader.last()[0] == 5000


def test_a_copied_log_goes_on_where_it_ended(server: Server) -> None:
    name = server.database()
    dsn = server.address(name)
    with connect(dsn) as connection:
        schema.create(connection)
        assert copy_rows(connection, 0, []) == 0
        assert copy_rows(connection, 0, _rows()[:10]) == 10
    with appender(dsn) as one:
        assert list(one.append([entry("new"), entry("id 3 ü\x00", space=2)]).seqs) == [11, 3]
    assert [row[0] for row in everything(dsn)] == list(range(1, 12))


def test_a_lost_connection_is_made_again(server: Server, reader: Reader) -> None:
    reader.last()
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                   "WHERE application_name = 'whim read'")  # fmt: skip
    assert reader.last()[0] == 5000
    server.stop()
    with pytest.raises(UnavailableError):
        reader.last()
    server.resume()
    assert reader.last()[0] == 5000


def test_rows_that_are_gone_or_altered_are_noticed(server: Server, reader: Reader) -> None:
    server.execute("UPDATE whim.log SET body = 'x' WHERE seq = 4000")
    server.execute("DELETE FROM whim.log WHERE seq = 3000")
    with pytest.raises(StoreError, match="must hold every row, got 3001 after 2999"):
        list(reader.rows(2048, 3500))
    with pytest.raises(StoreError, match="row 4000 of the log must match its checksum"):
        list(reader.rows(3000))
