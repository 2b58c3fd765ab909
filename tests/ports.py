"""Ports for servers of the tests, which nobody else takes between being chosen and being used.

A port that the system gives for a moment may be given again meanwhile, as the near end of any
connection that somebody opens, and a server that is killed and started again on its port is then
refused it. So they are taken from below those that the system gives, and each worker of the tests
has its own.
"""

from __future__ import annotations

import itertools
import os
import socket

_FIRST, _EACH, _WORKERS = 11_000, 2_500, 8  # up to 31,000: Linux gives from 32,768 on, others above
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
# two runs on one machine begin at different places
_candidates = itertools.count(os.getpid() * 37 % _EACH)


def free_ports(count: int = 1) -> int:
    """The first of so many ports in a row that nobody uses now."""
    while True:
        start = next(_candidates) % (_EACH - count)
        for _ in range(count - 1):
            next(_candidates)
        first = _FIRST + _worker * _EACH + start
        if all(_free(port) for port in range(first, first + count)):
            return first


def _free(port: int) -> bool:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
