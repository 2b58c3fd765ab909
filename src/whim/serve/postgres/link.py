"""``Link``: the log in PostgreSQL as a service sees it, without a thread and without waiting.

Rows are put, and what became of them comes back, and the rows of the log come as they are
committed by anybody. A process of its own (``process``) talks to the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from whim.serve.log.log_writer import LENGTH
from whim.serve.log.reader import StoreError
from whim.serve.log.rows import Raw
from whim.serve.postgres.append import Appended, Done, Entry
from whim.serve.postgres.connection import LIMIT, RewoundError
from whim.serve.postgres.process import (
    DoneFrame,
    EndFrame,
    Frame,
    Put,
    RowsFrame,
    Start,
    StatusFrame,
)
from whim.serve.postgres.tail import NOTHING, Last

_END_SECONDS = 5.0  # for its process to end
_CHUNK = 1 << 20
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


class Events(NamedTuple):
    """Who is told what, all of it on the event loop or in ``receive``.

    ``ended``: nothing more can be read or written, and what was put and is not done will never be
    known to be; a RewoundError says that the log has lost rows which were read.
    """

    done: Callable[[list[Done]], None]
    rows: Callable[[list[Raw]], None]
    ended: Callable[[StoreError], None]


class Link:
    """One shard of the log, from after the last known row on."""

    def __init__(
        self, dsn: str, events: Events, shard: int = 0, last: Last = NOTHING, limit: float = LIMIT
    ) -> None:
        self._events = events
        self._numbers = itertools.count()
        self._tokens: dict[int, tuple[Any, int]] = {}
        self._in, self._out = bytearray(), bytearray()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.away, self.stale = 0.0, float("inf")  # seconds, as it said last: see ``staleness``
        self._said = time.monotonic()
        self.waiting_bytes = 0  # of rows that were put and are not done
        self.failed: StoreError | None = None
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "whim.serve.postgres.process"],
                stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._socket.setblocking(False)
        self._send(
            Start(dsn, shard, (last.seq, last.at, last.crc), limit)
        )  # not as an argument: others see those

    @property
    def staleness(self) -> float:
        """Seconds since the end of the log was reached, at most."""
        return self.stale + (time.monotonic() - self._said)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send and receive on an event loop."""
        self._loop = loop
        loop.add_reader(self._socket.fileno(), self.receive)
        self._push()

    def put(self, entries: Sequence[Entry], token: Any) -> None:
        """Append rows together; ``token`` comes back with what became of them."""
        if self.failed is not None:
            raise self.failed
        number, size = next(self._numbers), sum([len(entry[3]) for entry in entries])
        self._tokens[number] = token, size
        self.waiting_bytes += size
        self._send(Put(number, list(entries)))

    def _send(self, message: Start | Put) -> None:
        body = _encode(message)
        self._out += LENGTH.pack(len(body))
        self._out += body
        self._push()

    def _push(self) -> None:
        """Send what there is room for; on an event loop the rest when there is."""
        try:
            while self._out:
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:  # its end shows when it is read
            self._out.clear()
        if self._loop is not None:
            descriptor = self._socket.fileno()
            if self._out:
                self._loop.add_writer(descriptor, self._push)
            else:
                self._loop.remove_writer(descriptor)

    def receive(self) -> None:
        """Take what has come, and tell."""
        if self._out and self._loop is None:
            self._push()
        try:
            data = os.read(self._socket.fileno(), _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended(StoreError("the process that talks to the database has ended."))
            return
        self._in += data
        low, size = 0, LENGTH.size
        while len(self._in) - low >= size:
            (length,) = LENGTH.unpack_from(self._in, low)
            if len(self._in) - low - size < length:
                break
            frame = bytes(memoryview(self._in)[low + size : low + size + length])
            low += size + length
            self._take(_decode(frame))
        del self._in[:low]

    def _take(self, frame: Frame) -> None:
        match frame:
            case DoneFrame():
                self._events.done([self._done(*one) for one in frame.done])
            case RowsFrame():
                self._events.rows(frame.rows)
            case StatusFrame():
                self.away = frame.away
                self.stale = float("inf") if frame.stale < 0 else frame.stale
                self._said = time.monotonic()
            case EndFrame():
                kind = RewoundError if frame.rewound else StoreError
                self._ended(kind(frame.reason))

    def _done(self, number: int, at: int, seqs: list[int], old: list[int], whole: bool) -> Done:
        token, size = self._tokens.pop(number)
        self.waiting_bytes -= size
        numbers: Sequence[int] = range(seqs[0], seqs[1] + 1) if whole else seqs
        return Done(token, Appended(at, numbers, frozenset(old)))

    def _ended(self, error: StoreError) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
        if self.failed is None:
            self.failed = error
            waiting, self._tokens, self.waiting_bytes = self._tokens, {}, 0
            if waiting:
                self._events.done([Done(token, None, error) for token, _ in waiting.values()])
            self._events.ended(error)

    def pause(self) -> None:
        """Let what comes wait: as much has come as can be dealt with."""
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())

    def resume(self) -> None:
        """Receive again."""
        if self._loop is not None and self.failed is None:
            self._loop.add_reader(self._socket.fileno(), self.receive)

    def fileno(self) -> int:
        """Of its socket, for those who wait without an event loop."""
        return self._socket.fileno()

    def close(self) -> None:
        """End it; what is not done yet is not waited for."""
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._loop = None
        self._socket.close()
        for _ in range(2):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)
                return
            self._process.kill()
