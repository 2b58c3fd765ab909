"""What tests of the log in PostgreSQL share: rows to append, and all of the rows that are there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from whim.serve.log.rows import Kind
from whim.serve.postgres.append import Appender, Entry
from whim.serve.postgres.tail import Tail


def entry(key: str | None = None, body: bytes = b"body", space: int = 1) -> Entry:
    return Entry(space, Kind.DECISION, key, body)


@contextlib.contextmanager
def appender(dsn: str, **more: Any) -> Iterator[Appender]:
    made = Appender(dsn, **more)
    try:
        yield made
    finally:
        made.disconnect()


def everything(dsn: str, shard: int = 0) -> list[Any]:
    """All rows of a shard, by a tail that begins at the beginning: verified and without gaps."""
    tail, rows = Tail(dsn, shard), []
    try:
        while some := tail.read(100):
            rows += some
    finally:
        tail.disconnect()
    return rows


def until(done: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.005)
