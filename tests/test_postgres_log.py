"""The log in a real PostgreSQL: numbers without gaps, ids once, and a tail that misses nothing."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.postgres import MISSING, Server, binaries
from tests.shared_log import appender, entry, everything, until
from whim.serve.log.log_writer import checksum
from whim.serve.log.reader import StoreError
from whim.serve.log.rows import Kind
from whim.serve.postgres import schema
from whim.serve.postgres.append import Entry
from whim.serve.postgres.checksums import content_crc, position_crc
from whim.serve.postgres.connection import connect
from whim.serve.postgres.tail import NOTHING, Follower, Last, Tail

pytestmark = pytest.mark.skipif(binaries() is None, reason=MISSING)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server.start() as made:
        yield made


@pytest.fixture
def database(server: Server) -> str:
    """The name of a database with an empty log."""
    with connect(server.dsn) as connection:  # sooner there than a database of its own
        connection.execute("DROP SCHEMA IF EXISTS whim CASCADE")
        assert schema.create(connection)
    return "postgres"


@pytest.fixture
def dsn(server: Server, database: str) -> str:
    return server.address(database)


# -- schema ---------------------------------------------------------------------------------------


def test_replicas_that_start_together_make_the_tables_once(server: Server) -> None:
    dsn = server.address(server.database())
    made: list[bool] = []

    def start() -> None:
        with connect(dsn) as connection:
            made.append(schema.create(connection, shards=3))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False, False, False, True]
    with connect(dsn) as connection:
        assert schema.stored_format(connection) == schema.FORMAT
        schema.add_shards(connection, 5)
        shards = connection.execute("SELECT shard FROM whim.head ORDER BY shard").fetchall()
        assert [shard for (shard,) in shards] == [0, 1, 2, 3, 4]
        uuid.UUID(schema.log_id(connection))


def test_the_printed_schema_is_what_is_made(server: Server) -> None:
    name = server.database()
    server.execute(schema.text(2), database=name)
    with connect(server.address(name)) as connection:
        assert not schema.create(connection)  # there is nothing left to do
    with appender(server.address(name), shard=1) as one:
        assert one.append([entry()]).seqs == range(1, 2)


def test_older_tables_are_migrated_and_newer_ones_refused(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(dsn) as connection:
        now = schema.FORMAT
        monkeypatch.setattr(schema, "FORMAT", now + 1)
        monkeypatch.setattr(schema, "STEPS", {now: "CREATE TABLE whim.more (a integer);"})
        assert schema.create(connection)
        assert connection.execute("SELECT count(*) FROM whim.more").fetchone() == (0,)
        assert schema.stored_format(connection) == now + 1
        monkeypatch.undo()
        with pytest.raises(StoreError, match=f"must be of a format up to {now}, got {now + 1}"):
            schema.create(connection)


def test_who_may_not_make_tables_is_told_what_to_do(server: Server) -> None:
    name = server.database()
    server.execute("CREATE ROLE guest LOGIN", database=name)
    dsn = server.address(name).replace("whim@", "guest@")
    with connect(dsn) as connection, pytest.raises(StoreError, match="`whim schema` prints"):
        schema.create(connection)


def test_risks_are_named(server: Server, dsn: str) -> None:
    with connect(dsn) as connection:
        found = " ".join(schema.risks(connection))
        assert "fsync is off" in found  # as these servers are
        assert "no synchronous standby" in found
        connection.execute("SET synchronous_commit = off")
        assert any("synchronous_commit is off" in risk for risk in schema.risks(connection))


# -- appending ------------------------------------------------------------------------------------


def test_rows_come_back_as_they_were_sent(dsn: str) -> None:
    sent = [
        Entry(1, Kind.DECISION, "plain", b"\x00\xff" * 5000),
        Entry(2, Kind.REWARD, None, b""),
        Entry(2**31 - 1, Kind.DECISION, "nul \x00, quote ', ü, \U0001f600", b"x"),
    ]
    before = time.time_ns() // 1000
    with appender(dsn) as one:
        appended = one.append(sent)
    assert appended.seqs == range(1, 4)
    assert not appended.old
    assert before - 1_000_000 < appended.at < time.time_ns() // 1000 + 1_000_000
    rows = everything(dsn)
    assert [Entry(*row[2:6]) for row in rows] == sent
    assert [row[:2] for row in rows] == [(seq, appended.at) for seq in (1, 2, 3)]


def test_the_checksum_is_of_all_that_a_row_says(dsn: str) -> None:
    """What the writer knows is of the SQLite log's checksum, at number and time 0."""
    with appender(dsn) as one:
        appended = one.append([entry("a")])
    ((seq, at, *rest, crc),) = everything(dsn)
    assert (seq, at) == (1, appended.at)
    assert crc == checksum(0, 0, *rest) ^ position_crc(seq, at)
    assert content_crc(*rest) == checksum(0, 0, *rest)
    for other in ((seq + 1, at), (seq, at + 1), (seq, at + 2**40), (seq + 2**40, at)):
        assert position_crc(*other) != position_crc(seq, at)


@pytest.mark.parametrize(
    "change", ["body = 'other'", "at = at + 1", "key = 'b'", "space = 2", "kind = 4", "crc = 1"]
)
def test_a_row_that_was_altered_is_refused(dsn: str, change: str) -> None:
    with appender(dsn) as one, connect(dsn) as connection:
        one.append([entry("a"), entry("c")])
        connection.execute(f"UPDATE whim.log SET {change} WHERE seq = 2".encode())
    with pytest.raises(StoreError, match="row 2 of the log must match its checksum"):
        everything(dsn)


def test_a_row_that_is_missing_is_noticed_unless_retention_removed_it(dsn: str) -> None:
    with appender(dsn) as one, connect(dsn) as connection:
        one.append([entry(str(i)) for i in range(5)])
        connection.execute("DELETE FROM whim.log WHERE seq IN (1, 3)")
        with pytest.raises(StoreError, match="must hold every row, got 2 after 0"):
            everything(dsn)
        connection.execute("UPDATE whim.head SET trimmed = 3")
        assert [row[0] for row in everything(dsn)] == [2, 4, 5]


def test_ids_that_exist_are_named_and_the_rest_is_stored(dsn: str) -> None:
    with appender(dsn) as first, appender(dsn) as second:
        first.append([entry("a", b"1"), entry("b", b"2")])
        batch = [
            entry("new", b"3"), entry("b", b"4"), entry(None, b"5"), entry("new", b"6"),
            entry("a", b"7", space=2), Entry(1, Kind.REWARD, "a", b"8"), entry("a", b"9"),
            entry("a", b"10"), entry(None, b"11"),
        ]  # fmt: skip
        appended = second.append(batch)
        assert appended.seqs == [3, 2, 4, 3, 5, 6, 1, 1, 7]
        assert appended.old == {1, 3, 6, 7}
        second.batch -= 1  # as if the answer had been lost
        assert second.append(batch) == appended
        assert second.append([entry("z")]).seqs == range(8, 9)
    rows = everything(dsn)
    assert [row[5] for row in rows] == [b"1", b"2", b"3", b"5", b"7", b"8", b"11", b"body"]


def test_a_batch_of_nothing_new_takes_no_number(dsn: str) -> None:
    with appender(dsn) as one:
        one.append([entry("a")])
        assert one.append([entry("a")]).seqs == [1]
        assert one.append([]).seqs == range(2, 2)
        assert one.append([entry("b")]).seqs == range(2, 3)
    assert len(everything(dsn)) == 2


def test_ids_are_looked_up_by_the_index_whatever_the_statistics_say(dsn: str) -> None:
    """A plan from when the log was empty would read all of it for each id that exists."""
    read = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'log'"
    with connect(dsn) as connection:
        connection.execute("ALTER TABLE whim.log SET (autovacuum_enabled = off)")
        with appender(dsn) as one:
            one.append([entry("first")])
            for _ in range(6):  # planned now, and from the sixth time on for good
                one.append([entry("first")])
            for low in range(0, 10_000, 1000):
                one.append([entry(str(i), b"-" * 100) for i in range(low, low + 1000)])
            one.append([entry(str(i)) for i in range(100)])
        # what a connection has counted is known when it has ended
        until(lambda: connection.execute(_CONNECTED).fetchone() == (0,))
        connection.execute("SELECT pg_stat_clear_snapshot()")
        ((rows,),) = connection.execute(read).fetchall()
    assert rows < 1000


_CONNECTED = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'whim append'"


def test_time_never_goes_back(dsn: str) -> None:
    hour = 3_600_000_000
    with appender(dsn) as one, connect(dsn) as connection:
        first = one.append([entry()]).at
        # the database's clock was an hour ahead, and is set right
        connection.execute("UPDATE whim.head SET at = at + %s", (hour,))
        assert one.append([entry()]).at == first + hour
        assert one.append([entry()]).at == first + hour
        connection.execute("UPDATE whim.head SET at = %s", (first,))
        assert first < one.append([entry()]).at < first + hour


def test_a_shard_that_is_not_there_is_refused(dsn: str) -> None:
    with appender(dsn, shard=7) as one, pytest.raises(StoreError, match="shard must be one of"):
        one.append([entry()])


def test_shards_number_their_rows_apart(dsn: str) -> None:
    with connect(dsn) as connection:
        schema.add_shards(connection, 2)
    with appender(dsn, shard=0) as one, appender(dsn, shard=1) as other:
        assert one.append([entry("a"), entry("b")]).seqs == range(1, 3)
        assert other.append([entry("c", space=2)]).seqs == range(1, 2)
    assert [row[4] for row in everything(dsn, 1)] == ["c"]


# -- many writers ---------------------------------------------------------------------------------


def test_eight_writers_and_rollbacks_leave_no_gap_and_a_tail_misses_nothing(dsn: str) -> None:
    stop = threading.Event()
    read: list[Any] = []
    wrong: list[Exception] = []
    sent: dict[int, list[tuple[int, bytes]]] = {}

    def write(number: int) -> None:
        chance = random.Random(number)
        mine = sent[number] = []
        with appender(dsn) as one:
            for batch in range(30):
                rows = [entry(None, b"%d %d %d" % (number, batch, i))
                        for i in range(chance.randint(1, 9))]  # fmt: skip
                mine += zip(one.append(rows).seqs, [row.body for row in rows], strict=True)

    def roll_back() -> None:
        with psycopg.connect(dsn) as connection:
            while not stop.is_set():
                connection.execute(_APPEND_ONE, (uuid.uuid4(), b"never"))
                time.sleep(0.002)
                connection.rollback()

    follower = Follower(Tail(dsn), read.extend, wrong.append)
    threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
    breaker = threading.Thread(target=roll_back)
    for thread in (*threads, breaker):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    breaker.join()
    total = sum(map(len, sent.values()))
    until(lambda: len(read) >= total or bool(wrong))
    follower.close()
    assert not wrong
    assert [row[0] for row in read] == list(range(1, total + 1))
    assert [row[1] for row in read] == sorted(row[1] for row in read)
    assert {row[0]: row[5] for row in read} == dict(pair for mine in sent.values() for pair in mine)


_APPEND_ONE = (
    "SELECT * FROM whim.append(0, %s, 1, '{1}', '{3}', array[null]::bytea[], "
    "array[%s::bytea], '{0}')"
)


def _slow_commit(connection: psycopg.Connection[Any], sql: str, values: tuple[Any, ...]) -> None:
    """A statement whose transaction stays open until somebody commits it."""
    connection.execute(sql, values)


def test_the_naive_tail_loses_rows(dsn: str) -> None:
    """Numbers of a sequence are given before commits, so a higher one can be seen first.

    This is why the log has no sequence: see the next test for the same moments with ``append``.
    """
    naive = "SELECT seq FROM plain WHERE seq > %s ORDER BY seq"
    with psycopg.connect(dsn) as slow, psycopg.connect(dsn, autocommit=True) as quick:
        quick.execute("CREATE TABLE plain (seq bigserial PRIMARY KEY, body bytea)")
        _slow_commit(slow, "INSERT INTO plain (body) VALUES (%s)", (b"slow",))
        quick.execute("INSERT INTO plain (body) VALUES (%s)", (b"quick",))
        seen = [seq for (seq,) in quick.execute(naive, (0,)).fetchall()]
        slow.commit()
        seen += [seq for (seq,) in quick.execute(naive, (seen[-1],)).fetchall()]
        stored = [seq for (seq,) in quick.execute("SELECT seq FROM plain ORDER BY seq").fetchall()]
    assert stored == [1, 2]
    assert seen == [2], "the naive tail must lose row 1, or this test shows nothing"


def test_the_tail_does_not_lose_them(dsn: str) -> None:
    tail, seen = Tail(dsn), []
    with psycopg.connect(dsn) as slow, appender(dsn) as quick:
        crc = content_crc(1, 3, None, b"slow")
        sql = _APPEND_ONE.replace("'{0}'", f"'{{{crc}}}'")
        _slow_commit(slow, sql, (uuid.uuid4(), b"slow"))
        thread = threading.Thread(target=quick.append, args=([entry(None, b"quick")],))
        thread.start()  # it waits for its number
        seen += tail.read()
        thread.join(0.2)
        assert thread.is_alive()
        assert tail.read() == []
        slow.commit()
        thread.join()
        seen += tail.read()
    tail.disconnect()
    assert [(row[0], row[5]) for row in seen] == [(1, b"slow"), (2, b"quick")]


def test_nothing_is_numbered_by_a_sequence(dsn: str) -> None:
    with connect(dsn) as connection:
        sql = "SELECT sequencename FROM pg_sequences WHERE schemaname = 'whim'"
        assert connection.execute(sql).fetchall() == []


# -- tail -----------------------------------------------------------------------------------------


def test_a_tail_goes_on_from_where_it_was(dsn: str) -> None:
    with appender(dsn) as one:
        one.append([entry(str(i)) for i in range(10)])
        tail = Tail(dsn)
        assert tail.staleness == float("inf")
        assert [row[0] for row in tail.read(4)] == [1, 2, 3, 4]
        assert tail.caught_up is None  # there is more
        other = Tail(dsn, last=tail.last)
        tail.disconnect()  # it comes back by itself
        assert [row[0] for row in tail.read()] == [row[0] for row in other.read()]
        assert tail.staleness < 5
        assert tail.read() == []
        assert tail.head()[0] == tail.last.seq == 10
        for made in (tail, other):
            made.disconnect()


def test_rows_that_are_others_now_are_noticed_at_once(dsn: str) -> None:
    with appender(dsn) as one:
        one.append([entry("a"), entry("b")])
    at, crc = everything(dsn)[0][1], everything(dsn)[0][6]
    for last in (Last(1, at, crc ^ 1), Last(1, at - 1, crc), Last(3, at, crc)):
        tail = Tail(dsn, last=last)
        with pytest.raises(StoreError, match="must be the one that was read"):
            tail.read()
        tail.disconnect()
    assert NOTHING.seq == 0
