"""The link to PostgreSQL: a process talks to the database, and an event loop never waits for it."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.postgres import MISSING, Server, binaries
from tests.shared_log import appender, entry, everything
from whim.serve.log.reader import StoreError
from whim.serve.postgres import schema
from whim.serve.postgres.append import Done
from whim.serve.postgres.connection import RewoundError, connect
from whim.serve.postgres.link import Events, Link
from whim.serve.postgres.tail import NOTHING, Last

pytestmark = pytest.mark.skipif(binaries() is None, reason=MISSING)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server.start() as made:
        yield made


@pytest.fixture
def dsn(server: Server) -> str:
    with connect(server.dsn) as connection:
        connection.execute("DROP SCHEMA IF EXISTS whim CASCADE")
        schema.create(connection)
    return server.dsn


class Told:
    """All that a link said, and the link."""

    def __init__(self, dsn: str, last: Last = NOTHING) -> None:
        self.done: list[Done] = []
        self.rows: list[Any] = []
        self.ended: list[StoreError] = []
        events = Events(self.done.extend, self.rows.extend, self.ended.append)
        self.link = Link(dsn, events, last=last, limit=1.0)

    def until(self, true: Callable[[], bool], seconds: float = 20) -> None:
        """Receive until it is so."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"not in time: {self.done} {self.rows} {self.ended}"
            select.select([self.link], [], [], 0.05)
            self.link.receive()

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.link._process.pid)


def test_rows_go_in_and_those_of_all_come_out(dsn: str) -> None:
    with appender(dsn) as other:
        other.append([entry("known"), entry("before")])
        seq, at, *_, crc = everything(dsn)[0]
        told = Told(dsn, Last(seq, at, crc))
        told.link.put([entry("a"), entry("b", b"x" * 300_000)], "first")
        told.link.put([entry("a"), entry("c")], "second")
        told.link.put([], "nothing")
        told.until(lambda: len(told.done) == 3)
        other.append([entry("after")])
        told.until(lambda: len(told.rows) == 5)
    assert told.rows == everything(dsn)[1:]
    assert [row[4] for row in told.rows] == ["before", "a", "b", "c", "after"]
    assert [done.token for done in told.done] == ["first", "second", "nothing"]
    first, second, _ = (done.appended for done in told.done)
    assert first is not None
    assert second is not None
    assert (list(first.seqs), first.old) == ([3, 4], frozenset())
    assert (list(second.seqs), second.old) == ([3, 5], {0})
    told.until(lambda: told.link.staleness < 1)
    assert told.link.waiting_bytes == 0
    told.link.close()
    assert not told.ended


def test_an_event_loop_does_not_wait_for_it(dsn: str) -> None:
    async def run() -> Told:
        told = Told(dsn)
        told.link.attach(asyncio.get_running_loop())
        for i in range(200):  # more than its socket holds
            told.link.put([entry(f"{i}", b"x" * 20_000)], i)
            assert told.link.waiting_bytes > 0
        end = time.monotonic() + 20
        while len(told.rows) < 200 and time.monotonic() < end:
            await asyncio.sleep(0.01)
        told.link.close()
        return told

    told = asyncio.run(run())
    assert [done.token for done in told.done] == list(range(200))
    assert [row[4] for row in told.rows] == [str(i) for i in range(200)]


def test_the_address_is_no_argument_of_the_process(dsn: str) -> None:
    told = Told(dsn)
    told.until(lambda: told.link.staleness < 1)
    assert not any(dsn in word for word in told.process.cmdline())
    told.link.close()


def test_a_log_that_was_rewound_ends_it(dsn: str) -> None:
    with appender(dsn) as other:
        other.append([entry("a")])
    told = Told(dsn, Last(5, 1, 1))
    told.until(lambda: bool(told.ended))
    assert isinstance(told.ended[0], RewoundError)
    with pytest.raises(RewoundError, match="row 5 of the log"):
        told.link.put([entry("b")], None)
    told.link.close()


def test_its_process_may_die_and_the_service_is_told(dsn: str) -> None:
    told = Told(dsn)
    told.until(lambda: told.link.staleness < 1)
    os.kill(told.process.pid, signal.SIGSTOP)
    told.link.put([entry("a")], "waits")
    os.kill(told.process.pid, signal.SIGKILL)
    told.until(lambda: bool(told.ended))
    assert [(done.token, done.appended) for done in told.done] == [("waits", None)]
    assert len(told.ended) == 1
    told.link.close()


def test_it_goes_when_the_service_is_gone(dsn: str) -> None:
    told = Told(dsn)
    told.until(lambda: told.link.staleness < 1)
    process = told.process
    told.link._socket.close()  # as the end of the service does
    assert process.wait(10) is not None or not process.is_running()
    told.link._process.wait(10)


def test_a_crash_of_the_database_is_waited_for(server: Server, dsn: str) -> None:
    told = Told(dsn)
    told.link.put([entry("before")], 0)
    told.until(lambda: len(told.rows) == 1)
    server.stop("immediate")
    told.link.put([entry("during")], 1)
    told.until(lambda: told.link.away > 0.3 and told.link.staleness > 0.3)
    server.resume()
    told.until(lambda: len(told.rows) == 2 and len(told.done) == 2)
    told.link.close()
    assert [row[4] for row in everything(dsn)] == ["before", "during"]
