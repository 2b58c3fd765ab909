"""``Forked``: the command line in a process of its own that has imported everything already.

It is forked from a server in which that was done once, so that a test which starts a service ten
times waits for ten starts and not for ten imports. ``tests/test_cli_serve.py`` runs the command
itself.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import types
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.preloaded"])


class Forked:
    """``whim`` with these arguments, as far as ``subprocess.Popen`` is used by the tests.

    Its clock, not the steady one, is ``ahead`` seconds before that of the machine.
    """

    def __init__(self, *arguments: str, ahead: float = 0.0) -> None:
        reading, writing = _context.Pipe(duplex=False)
        self._process = _context.Process(
            target=_run, args=(arguments, dict(os.environ), str(Path.cwd()), writing, ahead)
        )
        self._process.start()
        writing.close()
        self.stderr: TextIO = os.fdopen(os.dup(reading.fileno()), encoding="utf-8")
        reading.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._process.exitcode

    def wait(self, seconds: float) -> int:
        """Its exit code, once it has ended."""
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("whim", seconds)
        return code

    def send_signal(self, number: int) -> None:
        """As ``kill`` does."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def _run(
    arguments: tuple[str, ...],
    environment: dict[str, str],
    folder: str,
    said: Connection,
    ahead: float,
) -> None:
    if ahead:
        _move_clock(ahead)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.dup2(said.fileno(), 2)
    said.close()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["whim", *arguments]
    from whim_command import main

    main()


def _move_clock(ahead: float) -> None:
    """Have this process see another time, also where a function has kept the clock as a default."""
    seconds, nanoseconds, more = time.time, time.time_ns, round(ahead * 1e9)

    def moved() -> float:
        return seconds() + ahead

    def moved_ns() -> int:
        return nanoseconds() + more

    def swapped(value: Any) -> Any:
        return moved if value is seconds else moved_ns if value is nanoseconds else value

    gc.unfreeze()
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType):
            function.__defaults__ = function.__defaults__ and tuple(
                map(swapped, function.__defaults__)
            )
            named: dict[str, Any] = function.__kwdefaults__ or {}
            for name, value in named.items():
                named[name] = swapped(value)
    gc.freeze()
    time.time, time.time_ns = moved, moved_ns
