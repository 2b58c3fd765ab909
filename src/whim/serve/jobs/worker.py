"""``Clerk``: a child process that folds the log, for snapshots, rebuilds and what-ifs.

It has its own interpreter, so no decision ever waits for it. It reads the committed log and speaks
with the service in frames of MessagePack: a length, then the message. If it dies, the service
goes on and starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from whim.errors import WhimError
from whim.serve import wire

__all__ = ["Clerk", "ClerkError", "Task"]

_LENGTH = struct.Struct("<I")
_PART = 1 << 24  # a frame's most; a large fold comes in several


class ClerkError(WhimError):
    """The clerk could not do it."""


class Task(msgspec.Struct):
    """What it is asked: ``snapshot``, ``rebuild`` or ``whatif`` of a space; ``trim``, ``verify``.

    ``before`` is the time, in microseconds, up to which rows may go; ``given_up`` has versions of
    spaces that cannot be built, so that nobody waits for them.
    """

    do: str
    number: int
    told: wire.ConfigRow
    before: int = 0
    given_up: dict[int, int] = {}


class Word(msgspec.Struct, omit_defaults=True):
    """What it says: how far it is, a part of the result, the end, or why not."""

    progress: float | None = None
    part: bytes | None = None
    done: Any = None
    failed: str | None = None


# -- the service's side -----------------------------------------------------------------------


class Clerk:
    """A clerk for a data directory; one task at a time."""

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
                raise ClerkError(f"the clerk ended before its work was done: {error}.") from None
            except asyncio.CancelledError:
                await self.close()
                raise

    async def _run(
        self, task: Task, progress: Callable[[float], None] | None
    ) -> tuple[Any, list[bytes]]:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "whim.serve.jobs.worker", str(self._data),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the service, which tells it
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
            word = msgspec.msgpack.decode(await process.stdout.readexactly(length), type=Word)
            if word.progress is not None:
                if progress is not None:
                    progress(word.progress)
            elif word.part is not None:
                parts.append(word.part)
            elif word.failed is not None:
                raise ClerkError(word.failed)
            else:
                return word.done, parts

    async def close(self) -> None:
        """End it: at once, since it holds nothing that the log does not."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def joined(parts: list[bytes]) -> tuple[bytes, bytes]:
    """The two byte strings of a fold, from the parts in which they came."""
    whole = b"".join(parts)
    (first,) = struct.unpack_from("<Q", whole)
    return whole[8 : 8 + first], whole[8 + first :]


# -- the child's side -------------------------------------------------------------------------


def _say(out: BinaryIO, word: Word) -> None:
    body = msgspec.msgpack.encode(word)
    out.write(_LENGTH.pack(len(body)) + body)
    out.flush()


def work(data: Path, given: BinaryIO, out: BinaryIO) -> None:
    """Do tasks until there are none; a closed pipe means that the service is gone."""
    from whim.serve.jobs.tasks import Desk

    desk = Desk(data)
    while True:
        head = given.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return
        task = msgspec.msgpack.decode(given.read(_LENGTH.unpack(head)[0]), type=Task)
        try:
            done, parts = desk.do(task, lambda share: _say(out, Word(progress=share)))
            for part in parts:
                for at in range(0, len(part), _PART):
                    _say(out, Word(part=part[at : at + _PART]))
            _say(out, Word(done=done))
        except Exception as error:  # the service says it to whom it may concern
            _say(out, Word(failed=str(error) or type(error).__name__))


if __name__ == "__main__":
    import os

    os.nice(10)  # those who serve go first
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        work(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
