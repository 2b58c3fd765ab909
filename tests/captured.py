"""The service's logs as a test reads them."""

import contextlib
import logging

from whim.serve.logging import set_up
from whim.serve.settings import load

TOUCHED = ("", "whim", "uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "httpcore")


@contextlib.contextmanager
def captured(capsys):
    """A function that sets logs up and returns one that reads stderr's lines since."""
    loggers = [logging.getLogger(name or None) for name in TOUCHED]
    before = [(found, found.level, found.propagate, found.handlers[:]) for found in loggers]

    def begin(**given):
        set_up(load(None, **given))
        capsys.readouterr()
        return lambda: capsys.readouterr().err.splitlines()

    try:
        yield begin
    finally:
        for found, level, propagate, handlers in before:
            found.setLevel(level)
            found.propagate, found.handlers[:] = propagate, handlers
