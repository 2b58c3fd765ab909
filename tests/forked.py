"""``Forked``: the command line in a process of its own that has imported everything already.

It is forked from a server in which that was done once, so that a test which starts a service ten
times waits for ten starts and not for ten imports. ``tests/test_cli_serve.py`` runs the command
itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TextIO

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.preloaded"])


class Forked:
    """``whim`` with these arguments, as far as ``subprocess.Popen`` is used by the tests."""

    def __init__(self, *arguments: str) -> None:
        reading, writing = _context.Pipe(duplex=False)
        self._process = _context.Process(
            target=_run, args=(arguments, dict(os.environ), str(Path.cwd()), writing)
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
    arguments: tuple[str, ...], environment: dict[str, str], folder: str, said: Connection
) -> None:
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
