"""``python -m tests.bad_callers KIND PORT SECONDS``: one attack on a service.

In a process of its own, and without Whim, so that it begins at once and takes no time from others.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
import sys
import threading
import time
from collections.abc import Callable


def _post(port: int, path: str, body: Callable[[], bytes], until: float) -> None:
    while time.monotonic() < until:
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        with contextlib.suppress(OSError, http.client.HTTPException):
            while time.monotonic() < until:
                link.request("POST", path, body())
                link.getresponse().read()
        link.close()


def quadratic(port: int, until: float) -> None:
    """Batches whose decisions have thousands of candidates, the last one twice."""
    ids = [f"a{i:04}" for i in range(9_998)]
    body = json.dumps({"decisions": [{"candidates": [*ids, ids[-1]]}] * 18}).encode()
    _spread(2, lambda: _post(port, "/v1/spaces/news/decisions/batch", lambda: body, until))


def arms(port: int, until: float) -> None:
    """New arms with every decision, in a space of 256 features."""
    numbers = itertools.count()

    def body() -> bytes:
        ids = [f"n{next(numbers)}" for _ in range(200)]
        return json.dumps({"candidates": ids, "context": [0.1] * 256}).encode()

    _spread(2, lambda: _post(port, "/v1/spaces/wide/decisions", body, until))


def slow(port: int, until: float) -> None:
    """Hundreds of bodies that come byte by byte and never end."""
    head = (
        b"POST /v1/spaces/news/rewards HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000\r\n\r\n"
    )
    _hold(port, until, 300, head, b"{")


def headers(port: int, until: float) -> None:
    """Headers without an end."""
    _hold(port, until, 8, b"GET / HTTP/1.1\r\n", b"x-a: " + b"b" * 60_000 + b"\r\n", pause=0.0)


def idle(port: int, until: float) -> None:
    """Hundreds of connections that ask for nothing."""
    _hold(port, until, 400, b"", b"")


def _hold(
    port: int, until: float, n: int, first: bytes, then: bytes, *, pause: float = 0.5
) -> None:
    """Keep so many connections open, each with something sent now and then."""
    links: list[socket.socket] = []
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            while len(links) < n:
                links.append(socket.create_connection(("127.0.0.1", port), 5))
                links[-1].sendall(first)
                links[-1].setblocking(False)
        alive = []
        for one in links:
            try:
                with contextlib.suppress(BlockingIOError):
                    one.send(then)
                with contextlib.suppress(BlockingIOError):
                    if not one.recv(4096):
                        raise ConnectionError
                alive.append(one)
            except OSError:
                one.close()
        links = alive
        time.sleep(max(pause, 0.001))


def _spread(n: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


ATTACKS = {"quadratic": quadratic, "slow": slow, "headers": headers, "idle": idle, "arms": arms}


if __name__ == "__main__":
    kind, port, seconds = sys.argv[1:]
    ATTACKS[kind](int(port), time.monotonic() + float(seconds))
