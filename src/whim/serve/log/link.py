"""The link to the log's writer: its process and the socket to it, from start to end."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

from whim.serve.log import log_writer
from whim.serve.log.log_writer import CLOSE, LENGTH

_START_SECONDS = 60  # for the writer to start: another one may have to end first
_END_SECONDS = 5.0  # for its process to end, once it has closed the log or was killed


def start_writer(
    path: Path, commit_seconds: float
) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A writer that is ready, and the link to it."""
    ours, theirs = socket.socketpair()
    with theirs:
        where = f"{path.absolute().as_uri()}?mode=rwc", str(path.with_name("scribe.lock"))
        process = subprocess.Popen(
            [sys.executable, "-P", log_writer.__file__, *where],  # as a file: it needs no Whim
            stdin=theirs.fileno(), stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    ours.settimeout(_START_SECONDS)
    try:
        reason = read_reply(ours)
    except OSError as error:
        reason = str(error)
    if reason:
        ours.close()
        process.kill()
        process.wait()
        raise sqlite3.OperationalError(reason)
    # a time-out, however long: then Python itself waits, also where an event loop that watches it
    # has told the system that nobody does
    ours.settimeout(commit_seconds)
    return ours, process


def read_reply(link: socket.socket, first: bytes = b"") -> str:
    """The writer's reply, whose ``first`` bytes were read already: empty if all went well."""
    head = first + _receive_exactly(link, LENGTH.size - len(first))
    return _receive_exactly(link, LENGTH.unpack(head)[0]).decode()


def _receive_exactly(link: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = link.recv(length - len(data))
        if not more:
            raise ConnectionResetError("its writer has ended")
        data += more
    return data


def end_writer(link: socket.socket, writer: subprocess.Popen[bytes]) -> None:
    """Have the log closed, and the process ended; one that does not end by itself is killed."""
    with contextlib.suppress(OSError):
        link.sendall(LENGTH.pack(len(CLOSE)) + CLOSE)
        read_reply(link)
    link.close()
    for _ in range(2):
        try:
            writer.wait(_END_SECONDS)
            return
        except subprocess.TimeoutExpired:  # what is safe stays safe
            writer.kill()
