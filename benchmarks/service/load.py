"""A load generator: connections that each send the next request when the last was answered.

Plain sockets on an event loop, and as little else as will do: it shares two cores with what it
measures.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

ARMS = 60
POOL = 20
D = 6


class Connection(asyncio.Protocol):
    """One connection; keeps times and replies of what it sent."""

    def __init__(self, requests: Iterator[bytes], until: float, done: asyncio.Future[None]) -> None:
        self._requests, self._until, self._done = requests, until, done
        self._buffer = b""
        self.seconds: list[float] = []
        self.wrong = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._send()

    def _send(self) -> None:
        self._began = time.perf_counter()
        request = next(self._requests, None) if self._began < self._until else None
        if request is None:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._buffer.index(b"content-length: ") + 16
        length = int(self._buffer[at : self._buffer.index(b"\r", at)])
        if len(self._buffer) < head + 4 + length:
            return
        self.seconds.append(time.perf_counter() - self._began)
        if not self._buffer.startswith(b"HTTP/1.1 200"):
            self.wrong += 1
        self._buffer = self._buffer[head + 4 + length :]
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_result(None)


def decisions(path: str, seed: int) -> Iterator[bytes]:
    """Requests of a front page: 20 of 60 articles, six features, an id of the caller's own.

    Most of the work is done here and now, not while it is driven.
    """
    rng = np.random.default_rng(seed)
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    ready = []
    for _ in range(512):
        x = np.round(rng.normal(size=D) / np.sqrt(D), 4).tolist()
        pool = [f"article-{i}" for i in rng.choice(ARMS, POOL, replace=False).tolist()]
        ready.append(json.dumps({"context": x, "candidates": pool})[1:].encode())

    def requests() -> Iterator[bytes]:
        for count in itertools.count():
            mark = f'{{"decision_id": "{seed:x}-{count:x}", '.encode()
            body = mark + ready[count % len(ready)]
            yield f"{head}content-length: {len(body)}\r\n\r\n".encode() + body

    return requests()


async def drive(
    port: int, path: str, connections: int, seconds: float, seed: int
) -> dict[str, Any]:
    """Drive for a while; requests per second, times, and how many failed."""
    loop = asyncio.get_running_loop()
    each = [decisions(path, seed * 1000 + i) for i in range(connections)]
    protocols, waits = [], []
    began = time.perf_counter()
    until = began + seconds
    for requests in each:
        done = loop.create_future()
        _, protocol = await loop.create_connection(
            lambda r=requests, d=done: Connection(r, until, d), "127.0.0.1", port
        )
        protocols.append(protocol)
        waits.append(done)
    await asyncio.gather(*waits)
    took = time.perf_counter() - began
    times = np.array([s for p in protocols for s in p.seconds])
    return {
        "rate": len(times) / took,
        "count": len(times),
        "p50": float(np.quantile(times, 0.5)),
        "p99": float(np.quantile(times, 0.99)),
        "worst": float(times.max()),
        "wrong": sum(p.wrong for p in protocols),
    }


def main() -> None:
    """Drive, and print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(
            drive(asked.port, asked.path, asked.connections, asked.seconds, asked.seed)
        )
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
