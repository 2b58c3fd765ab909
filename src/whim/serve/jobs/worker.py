"""``Worker``: a child process that replays the log, for snapshots, rebuilds and what-ifs.

It has its own interpreter, so no decision ever waits for it. It reads the committed log and speaks
with the service in frames of MessagePack: a length, then the message. If it dies, the service
goes on and starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import field

from whim.errors import WhimError
from whim.serve.log.rows import ConfigRow

_LENGTH = struct.Struct("<I")
_HEAD = struct.Struct("<Q")
_PART = 1 << 24  # bytes of a frame at most; a large state comes in several


class WorkerError(WhimError):
    """The worker could not do it."""


class WorkerDiedError(WorkerError):
    """It ended before its work was done; another one may do it."""


class Task(msgspec.Struct):
    """What to do: ``snapshot``, ``rebuild``, ``whatif``, ``coefficients``, ``trim``, and so on.

    Some are of a space, by its number, or of a configuration; coefficients are of an ``arm``, at
    times of a ``span``. ``before`` is the time, in microseconds, up to which rows may go;
    ``given_up`` has versions of spaces that cannot be built, so that nobody waits for them.
    """

    do: str
    number: int = 0
    config_row: ConfigRow = field(default_factory=lambda: ConfigRow("", 0, None))
    before: int = 0
    given_up: dict[int, int] = {}
    arm: str | int = ""
    span: tuple[int, int] = (0, 0)


class Message(msgspec.Struct, omit_defaults=True):
    """How far it is, a part of the result, the end, or why not."""

    progress: float | None = None
    part: bytes | None = None
    done: Any = None
    failed: str | None = None


def split_state(head: bytes, policy: bytes) -> list[bytes]:
    """The two byte strings of a state as the parts of a result."""
    return [_HEAD.pack(len(head)), head, policy]


def join_state(parts: list[bytes]) -> tuple[bytes, bytes]:
    """The two byte strings of a state, from the parts in which they came."""
    whole = b"".join(parts)
    end = _HEAD.size + _HEAD.unpack_from(whole)[0]
    return whole[_HEAD.size : end], whole[end:]


# -- the service's side -----------------------------------------------------------------------


class Worker:
    """A worker for a data directory; one task at a time."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def run(
        self, task: Task, progress: Callable[[float], None] | None = None
    ) -> tuple[Any, list[bytes]]:
        """Have a task done; its result, and the large parts of it."""
        async with self._lock:
            try:
                return await self._run(task, progress)
            except (OSError, RuntimeError, asyncio.IncompleteReadError) as error:
                # a pipe that is closed already is a RuntimeError to some event loops
                await self.close()
                raise WorkerDiedError(
                    f"the worker ended before its work was done: {error}."
                ) from None
            except asyncio.CancelledError:
                await self.close()
                raise

    async def _run(
        self, task: Task, progress: Callable[[float], None] | None
    ) -> tuple[Any, list[bytes]]:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "whim.serve.jobs.worker", str(self._data),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the service, which ends it
            )  # fmt: skip
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        body = msgspec.msgpack.encode(task)
        process.stdin.write(_LENGTH.pack(len(body)) + body)
        await process.stdin.drain()
        parts: list[bytes] = []
        while True:
            (length,) = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))
            frame = await process.stdout.readexactly(length)
            message = msgspec.msgpack.decode(frame, type=Message)
            if message.progress is not None:
                if progress is not None:
                    progress(message.progress)
            elif message.part is not None:
                parts.append(message.part)
            elif message.failed is not None:
                raise WorkerError(message.failed)
            else:
                return message.done, parts

    async def close(self) -> None:
        """End it: at once, since it holds nothing that the log does not."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            ended = asyncio.ensure_future(process.wait())
            try:
                await asyncio.shield(ended)
            except asyncio.CancelledError:
                await ended  # a moment: nobody else would wait for it
                raise


# -- the child's side -------------------------------------------------------------------------


def _send(out: BinaryIO, message: Message) -> None:
    body = msgspec.msgpack.encode(message)
    out.write(_LENGTH.pack(len(body)) + body)
    out.flush()


def work(data: Path, stream: BinaryIO, out: BinaryIO) -> None:
    """Do tasks until there are none; a closed pipe means that the service is gone."""
    from whim.serve.jobs.tasks import Tasks

    tasks = Tasks(data)
    while True:
        head = stream.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return
        task = msgspec.msgpack.decode(stream.read(_LENGTH.unpack(head)[0]), type=Task)
        try:
            done, parts = tasks.do(task, lambda share: _send(out, Message(progress=share)))
            for part in parts:
                for at in range(0, len(part), _PART):
                    _send(out, Message(part=part[at : at + _PART]))
            _send(out, Message(done=done))
        except Exception as error:  # the service says it to whom it may concern
            _send(out, Message(failed=str(error) or type(error).__name__))


if __name__ == "__main__":
    os.nice(10)  # the process that serves goes first
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        work(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
