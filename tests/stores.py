"""``store``: the same tests over a log of the service's own, and over one in PostgreSQL."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Iterator

import pytest

from tests.postgres import Server, binaries


@functools.cache
def _server() -> Server:
    """One for all tests of a process; each takes a database of its own."""
    server = Server.start()
    atexit.register(server.close)
    return server


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """What ``whim serve`` is told about its store."""
    if request.param == "sqlite":
        yield ()
        return
    if binaries() is None:
        pytest.skip("there is no PostgreSQL for this system")
    server = _server()
    yield "--store", server.address(server.database())
