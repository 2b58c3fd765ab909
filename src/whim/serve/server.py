"""``run``: the service as a process, from listening to the last reply."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn

from whim.files import unwritable
from whim.serve.app import make
from whim.serve.http.connections import Connections
from whim.serve.http.first_key import make_first_key
from whim.serve.http.guard import refuse_open
from whim.serve.http.keys import Keys
from whim.serve.http.service import Service
from whim.serve.http.streams import Streams
from whim.serve.logging import get as get_log
from whim.serve.logging import set_up
from whim.serve.settings import ConfigError, Settings, is_loopback

_STOPS = (signal.SIGINT, signal.SIGTERM)


class _Server(uvicorn.Server):
    """Ends streams first, so that a shutdown waits only for work, and not for ever."""

    service: Service
    signals: tuple[int, ...] = ()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.signals = *self.signals, sig
        super().handle_exit(sig, frame)

    async def _drain(self) -> None:
        """Serve on for a while, not ready any more, so that balancers send to others first.

        Only after a SIGTERM, and until a second signal: who presses Ctrl-C does not wait.
        """
        self.service.draining = True
        end = time.monotonic() + drain_seconds(self.service.settings)
        while self.signals == (signal.SIGTERM,) and time.monotonic() < end:
            await self.on_tick(0)  # the date in replies goes on
            await asyncio.sleep(0.05)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self.service.ready:
            await self._drain()
        self.service.end_streams()
        # before uvicorn's time is over, so that every caller still gets an answer
        seconds = 0.8 * (self.config.timeout_graceful_shutdown or 0)
        timer = asyncio.get_running_loop().call_later(seconds, self.service.give_up)
        await super().shutdown(sockets)
        timer.cancel()


def drain_seconds(settings: Settings) -> float:
    """As they are set; else five, or none where only this machine can connect."""
    if settings.drain_seconds is not None:
        return settings.drain_seconds
    return 0.0 if is_loopback(settings.host) else 5.0


async def _serve(
    settings: Settings, listening: socket.socket, ready: Callable[[str], None] | None
) -> int:
    service = Service(settings)
    service.metrics.connections = connections = Connections(settings)
    service.streams = Streams(connections.most // 2)  # files may allow fewer than the settings
    config = uvicorn.Config(
        make(service), log_config=None, server_header=False,
        access_log=False, proxy_headers=False,  # the application does both, as it is configured
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
    if isinstance(service.problem, ConfigError):
        raise service.problem  # said last, as that of any other setting
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
    set_up(settings)
    data = Path(settings.data)
    if why := unwritable(data):
        raise ConfigError(f"data must be a directory that can be written to, got {data}: {why}.")
    mask = os.umask(0o077)  # what is made is for its owner alone
    try:
        if settings.store is None:  # else the keys are in the database
            keys = Keys(data / "keys.json")
            if make_first_key(settings, keys, os.environ):
                get_log("whim").info("the first key was made of the secret", key_name="first")
            refuse_open(settings, keys)
        _warn_if_open(data)
        return _run(settings, ready)
    finally:
        os.umask(mask)


def _warn_if_open(data: Path) -> None:
    """Say so where others of this machine may read what an earlier version made."""
    if os.name == "posix" and data.is_dir() and data.stat().st_mode & 0o077:
        get_log("whim").warning(
            "others of this machine may read the data: chmod -R go= it", data=str(data)
        )


def _run(settings: Settings, ready: Callable[[str], None] | None) -> int:
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
