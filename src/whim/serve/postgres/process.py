"""The link's other end, a process of its own: talking to the database takes no time from deciding.

``Link`` starts it with a socket as its standard input and sends it rows to append. It says what
became of them, and sends the rows of the log as they come, in frames of MessagePack: a length,
then the message. When the service is gone it goes as well.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from typing import Any

import msgspec

from whim.serve.log.log_writer import LENGTH
from whim.serve.log.rows import Raw
from whim.serve.postgres.append import Appender, Done, Entry, Writer
from whim.serve.postgres.connection import RewoundError
from whim.serve.postgres.tail import Follower, Last, Tail

BEAT_SECONDS = 0.25
_encode = msgspec.msgpack.Encoder().encode


class Start(msgspec.Struct, array_like=True):
    """The first frame: what to connect to, and the last row that is known."""

    dsn: str
    shard: int
    last: tuple[int, int, int]
    limit: float


class Put(msgspec.Struct, array_like=True):
    """Rows to append together."""

    token: int
    entries: list[tuple[int, int, str | None, bytes]]


class DoneFrame(msgspec.Struct, array_like=True, tag="done"):
    """What became of rows: token, time, numbers, and the places of those that are not new.

    Numbers are those of the first and the last one if they follow each other.
    """

    done: list[tuple[int, int, list[int], list[int], bool]]


class RowsFrame(msgspec.Struct, array_like=True, tag="rows"):
    """Rows of the log, verified."""

    rows: list[Raw]


class StatusFrame(msgspec.Struct, array_like=True, tag="status"):
    """How things are: sent several times a second.

    ``away``: for how long a batch has not been answered; ``stale``: how long ago the end of the
    log was reached, -1 if it never was.
    """

    away: float
    stale: float


class EndFrame(msgspec.Struct, array_like=True, tag="end"):
    """Nothing more can be read or written."""

    reason: str
    rewound: bool


Frame = DoneFrame | RowsFrame | StatusFrame | EndFrame
_START, _PUT = msgspec.msgpack.Decoder(Start), msgspec.msgpack.Decoder(Put)


class _Worker:
    def __init__(self, link: socket.socket, start: Start) -> None:
        self._link, self._sending = link, threading.Lock()
        self._writer = Writer(Appender(start.dsn, start.shard, limit=start.limit), self._on_done)
        tail = Tail(start.dsn, start.shard, Last(*start.last), limit=start.limit)
        self._follower = Follower(tail, lambda rows: self._send(RowsFrame(rows)), self._end)
        self._status = threading.Thread(target=self._beat, daemon=True)
        self._status.start()

    def _send(self, frame: Frame) -> None:
        body = _encode(frame)
        with self._sending:
            self._link.sendall(LENGTH.pack(len(body)) + body)

    def _on_done(self, done: list[Done]) -> None:
        said = []
        for token, appended, error in done:
            if appended is None:
                self._end(error or RuntimeError("unknown"))
                return
            at, seqs, old = appended
            whole = isinstance(seqs, range) and len(seqs) > 0
            numbers = [seqs[0], seqs[-1]] if whole else list(seqs)
            said.append((token, at, numbers, sorted(old), whole))
        self._follower.wake()
        self._send(DoneFrame(said))

    def _end(self, error: Exception) -> None:
        self._send(EndFrame(str(error), isinstance(error, RewoundError)))

    def _beat(self) -> None:
        pause = threading.Event()
        while not pause.wait(BEAT_SECONDS):
            stale = self._follower.tail.staleness
            self._send(StatusFrame(self._writer.away, -1.0 if stale == float("inf") else stale))

    def run(self, stream: Any) -> None:
        """Until nobody is there any more."""
        while (body := _frame(stream)) is not None:
            put = _PUT.decode(body)
            self._writer.put([Entry(*entry) for entry in put.entries], put.token)


def _frame(stream: Any) -> bytes | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    body: bytes = stream.read(length)
    return body if len(body) == length else None


def main() -> None:
    """Serve the link on standard input."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the service ends it
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    sys.setswitchinterval(0.0005)  # its threads do little between two waits
    with socket.socket(fileno=0) as link, link.makefile("rb", buffering=1 << 18) as stream:
        first = _frame(stream)
        if first is not None:
            _Worker(link, _START.decode(first)).run(stream)
        os._exit(0)  # at once: what was not acknowledged was not promised


if __name__ == "__main__":
    main()
