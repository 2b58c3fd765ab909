"""``running``: a service in the test's own process and event loop, with a client of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Callable

import httpx

from whim.serve.app import make
from whim.serve.http.service import Service
from whim.serve.settings import Settings


@contextlib.asynccontextmanager
async def running(
    settings: Settings, clock: Callable[[], int] = time.time_ns, base_url: str = "http://localhost"
) -> AsyncIterator[tuple[Service, httpx.AsyncClient]]:
    """It has started, and is closed however the test ends."""
    service = Service(settings, clock=clock)
    transport = httpx.ASGITransport(make(service))
    await service.start()
    await service.opened.wait()
    assert service.problem is None
    try:
        async with httpx.AsyncClient(transport=transport, base_url=base_url) as client:
            yield service, client
    finally:
        await service.close()
