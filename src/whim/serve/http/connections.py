"""``Connections``: how many there may be, and how long each may take for what.

uvicorn bounds neither the bytes and the time of headers nor the number of connections. What is
too slow or too long is closed, with a reason where one can be sent; when there are too many, the
one that has asked for nothing for longest goes, so that idle ones shut nobody out.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from whim.serve.http.problems import Failure, Problem
from whim.serve.settings import Settings

if sys.platform != "win32":
    import resource

_EVERY = 0.5  # seconds between looks at all connections
_MOMENT = 0.5  # seconds in which a connection is not idle yet, if another one is
_PIPELINED = 32  # requests that may be sent before the answer to the first
_OTHER_FILES = 64  # that the service itself needs: its log, its workers, a scrape
_FEWEST = 16  # connections, however few files the system lets us have
_TRANSFER = 2  # a chunked body has at most so many bytes for each of its own


class Connections:
    """The limits of a server's connections; ``protocol`` is how uvicorn makes one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.most = min(settings.max_connections, max(_FEWEST, _files() - _OTHER_FILES))
        self.message_bytes = settings.max_header_bytes + _TRANSFER * settings.max_body
        self.open: set[LimitedProtocol] = set()
        self.refused = 0
        self.timed_out = 0

    def protocol(self, *args: Any, **more: Any) -> LimitedProtocol:
        """A connection that is bound by these limits."""
        made = LimitedProtocol(*args, **more)
        made.limits = self
        return made

    async def watch(self) -> None:
        """Close those that take too long, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_EVERY)
            now = loop.time()
            for one in list(self.open):
                one.check_time(now)

    def make_room(self) -> bool:
        """Whether there is room for a new connection; the one idle for longest goes if need be."""
        if len(self.open) < self.most:
            return True
        idle = [one for one in self.open if one.is_idle]
        if not idle:
            self.refused += 1
            return False
        recent = asyncio.get_running_loop().time() - _MOMENT
        # one that has just come may be about to ask
        min(idle, key=lambda one: (one.since > recent, one.worth, one.since)).drop()
        return True


class LimitedProtocol(HttpToolsProtocol):
    """A connection whose every phase has an end: headers, body, answer, and what is between."""

    limits: Connections
    running: RequestResponseCycle | None = None  # of the request that is or was answered last
    since = 0.0  # when the phase began
    _headers = True  # whether a request's headers are awaited or being read
    _bytes = 0  # of the request so far; 0: nothing has come
    _stuck = 0.0  # since when what is sent is not taken; 0.0: it is

    # -- phases -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, if there is room."""
        super().connection_made(transport)
        self.since = self.loop.time()
        if self.limits.make_room():
            self.limits.open.add(self)
            return
        most = self.limits.most
        self._refuse(503, "connections", f"at most {most} connections at a time, please.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it; uvicorn tells the request that came last, which may wait behind another."""
        self.limits.open.discard(self)
        super().connection_lost(exc)
        if self.running is not None and not self.running.response_complete:
            self.running.disconnected = True
            self.running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        """Parse what came, unless a request has more bytes than it may."""
        if self.transport.is_closing():
            return
        if not self._bytes:
            self.since = self.loop.time()
        self._bytes += len(data)
        super().data_received(data)
        if self._headers:
            if self._bytes > self.limits.settings.max_header_bytes:
                self._refuse_headers()
        elif self._bytes > self.limits.message_bytes:
            self.drop()

    def on_headers_complete(self) -> None:
        """Begin to serve, and to wait for the body."""
        if self.transport.is_closing():
            return
        most = self.limits.settings.max_header_bytes
        # more bytes than that may be those of a body that came along
        if self._bytes > most and _size(self.url, self.headers) > most:
            self._refuse_headers()
            return
        if len(self.pipeline) >= _PIPELINED:
            self.drop()
            return
        self._headers, self.since = False, self.loop.time()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, unless the request was refused."""
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The next bytes are those of another request."""
        if not self.transport.is_closing():
            super().on_message_complete()
        self._headers, self._bytes = True, 0

    def on_response_complete(self) -> None:
        """Begin to be idle, or to serve the request that came meanwhile."""
        self.since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Note since when what is sent is not taken."""
        self._stuck = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It is taken again."""
        self._stuck = 0.0
        super().resume_writing()

    # -- ends ---------------------------------------------------------------------------------

    @property
    def is_serving(self) -> bool:
        """Whether a request is being answered."""
        return self.running is not None and not self.running.response_complete

    @property
    def is_idle(self) -> bool:
        """Whether no request that has come whole is lost by closing it."""
        return self.running is None or self.running.response_complete or self.running.more_body

    @property
    def worth(self) -> int:
        """Which of the idle ones to keep: one that never asked is more likely to be a flood's.

        An answer that is not taken yet may still be, so such a connection goes last.
        """
        return (self.running is not None) + (self.transport.get_write_buffer_size() > 0)

    def check_time(self, now: float) -> None:
        """Close it if its phase takes too long."""
        settings, took = self.limits.settings, now - self.since
        if self.transport.is_closing():
            if took > settings.idle_seconds:  # an answer that nobody takes
                self.transport.abort()
        elif self._stuck and now - self._stuck > settings.idle_seconds:
            self._end()
        elif self.is_serving:
            if self.cycle.more_body and took > settings.body_seconds:
                self._late(f"the body must be sent within {settings.body_seconds:g} seconds.")
        elif self._bytes or self.cycle is None:
            if took > settings.header_seconds:
                self._late(f"the headers must be sent within {settings.header_seconds:g} seconds.")
        elif took > settings.idle_seconds:
            self._end()

    def _late(self, message: str) -> None:
        self.limits.timed_out += 1
        self._refuse(408, "timeout", message)

    def _end(self) -> None:
        self.limits.timed_out += 1
        self.drop()

    def drop(self) -> None:
        """Close it at once."""
        self.limits.open.discard(self)
        self.transport.abort()

    def _refuse_headers(self) -> None:
        most = self.limits.settings.max_header_bytes
        self._refuse(431, "headers", f"the headers must be at most {most} bytes.")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Say why, in the one shape of errors, and close; nothing is said amid another answer."""
        if self.transport.is_closing():
            return
        amid = self.is_serving and (self.running is not self.cycle or self.cycle.response_started)
        if not amid:
            body = msgspec.json.encode(Failure(Problem(code, message)))
            self.transport.write(
                STATUS_LINE[status] + b"content-type: application/json\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%b" % (len(body), body)
            )
        for cycle in (self.running, self.cycle):
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()
        self.since = self.loop.time()
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, in the one shape of errors."""
        self._refuse(400, "not_http", "the request must be HTTP: it cannot be read.")


def _size(url: bytes, headers: list[tuple[bytes, bytes]]) -> int:
    """Bytes of a request's headers, about as they were sent."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in headers)


def _files() -> int:
    """How many files may be open at once; as many as the system lets us have."""
    if sys.platform == "win32":
        return 1 << 20
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):  # not everywhere is that allowed
            pass
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft
