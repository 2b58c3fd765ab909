"""``run``: the service as a process, from listening to the last reply."""

from __future__ import annotations

import asyncio
import gc
import math
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import uvicorn

from whim.serve.app import make
from whim.serve.http.connections import Connections
from whim.serve.http.guard import refuse_open
from whim.serve.http.keys import Keys
from whim.serve.http.service import Service
from whim.serve.logging import set_up
from whim.serve.settings import ConfigError, Settings

_STOPS = (signal.SIGINT, signal.SIGTERM)


class _Server(uvicorn.Server):
    """Ends streams first, so that a shutdown waits only for work."""

    service: Service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.end_streams()
        await super().shutdown(sockets)


async def _serve(
    settings: Settings, listening: socket.socket, ready: Callable[[str], None] | None
) -> int:
    service = Service(settings)
    service.metrics.connections = connections = Connections(settings)
    config = uvicorn.Config(
        make(service), log_config=None, access_log=settings.access_log, server_header=False,
        http=cast("Any", connections.protocol), ws="none",
        timeout_graceful_shutdown=max(1, round(settings.shutdown_seconds)), lifespan="on",
        backlog=2048, timeout_keep_alive=math.ceil(settings.idle_seconds),
    )  # fmt: skip
    server = _Server(config)
    server.service = service

    async def watch() -> None:
        await service.opened.wait()
        if service.problem is not None:
            server.should_exit = True
            return
        # what is there now stays: the collector need not look at it again and again
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)
        if ready is not None:
            ready(_address(settings, listening))

    watching = [asyncio.ensure_future(watch()), asyncio.ensure_future(connections.watch())]
    await server.serve(sockets=[listening])
    for task in watching:
        task.cancel()
    return 1 if service.problem is not None else 0


def _address(settings: Settings, listening: socket.socket) -> str:
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{name}:{listening.getsockname()[1]}"


def _listen(settings: Settings) -> socket.socket:
    """The socket, so that an address in use is said before anything is touched."""
    try:
        addresses = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"host must be an address of this machine, got {settings.host!r}: "
                          f"{error}.") from None  # fmt: skip
    family, kind, proto, _, address = addresses[0]
    listening = socket.socket(family, kind, proto)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"port must be free, got {settings.port} on {settings.host}: {error.strerror}."
        ) from None
    listening.listen(2048)
    listening.setblocking(False)
    return listening


def run(settings: Settings, *, ready: Callable[[str], None] | None = None) -> int:
    """Serve until a signal ends it; the exit code. ``ready`` gets the address, once it listens."""
    data = Path(settings.data)
    refuse_open(settings, Keys(data / "keys.json"))
    set_up(settings)
    listening = _listen(settings)
    # uvicorn raises the signal that stopped it again when all is done; it has done its work
    before = {sign: signal.signal(sign, lambda *_: None) for sign in _STOPS}
    try:
        with asyncio.Runner(loop_factory=_loop()) as runner:
            return runner.run(_serve(settings, listening, ready))
    finally:
        listening.close()
        for sign, handler in before.items():
            signal.signal(sign, handler)


def _loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on every system
        return None
    return uvloop.new_event_loop
