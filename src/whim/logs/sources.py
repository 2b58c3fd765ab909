"""Files to read from: which ones, plain or gzip, as blocks of whole lines in bounded memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim.errors import LogFileError

BLOCK = 1 << 22
LINE_LIMIT = 1 << 20  # bytes of a line
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 18  # bytes of a file at a time

Source = str | os.PathLike[str]
Progress = Callable[[int], object]


class Block(NamedTuple):
    """Whole lines of a file; or, without data, one line that was too long and skipped."""

    data: npt.NDArray[np.uint8] | None


def files_of(sources: Source | Sequence[Source]) -> list[Path]:
    """The files in the order given; a folder stands for its files sorted by name."""
    several = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    files: list[Path] = []
    for source in several:
        path = Path(source)
        if path.is_dir():
            inside = [path / name for name in names_in(path) if name[0] != "."]
            inside = [file for file in inside if file.is_file()]
            if not inside:
                raise LogFileError(f"{path} holds no files.")
            files += inside
        elif path.exists():
            files.append(path)
        else:
            raise LogFileError(f"{path}: there is no such file.")
    if not files:
        raise LogFileError("sources must name at least one file.")
    return files


def no_events(
    files: Sequence[Path], dropped: Mapping[str, int], otherwise: str, hint: str = ""
) -> LogFileError:
    """The error of files without a usable event: says what was dropped, or ``otherwise``."""
    named = ", ".join(str(file) for file in files[:3])
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    reasons = "; ".join(f"{n} × {why}" for why, n in dropped.items()) or otherwise
    return LogFileError(f"no event could be read from {named}{more}: {reasons}{hint}.")


def names_in(folder: Path) -> list[str]:
    """The names in a folder, sorted."""
    with _readable(folder):
        return sorted(inside.name for inside in folder.iterdir())


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except EOFError:
        raise LogFileError(f"{path}: the gzip file ends early") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        follows = "Not a gzipped file" in str(error)  # and what comes first is one
        what = "followed by something else" if follows else "damaged"
        raise LogFileError(f"{path}: the gzip file is {what}") from None
    except OSError as error:
        raise LogFileError(f"{path} cannot be read: {error.strerror}.") from None


class _Counted(io.FileIO):
    """A file that tells ``progress`` how many of its bytes are read, each time."""

    progress: Progress | None = None

    def readinto(self, space: Any) -> int:
        n = super().readinto(space) or 0
        if n == 1:  # of a pipe: it takes two bytes to know a gzip file
            n += super().readinto(memoryview(space)[1:2]) or 0
        if self.progress is not None:
            self.progress(n)
        return n


class opened:  # noqa: N801 - reads as a verb: with opened(path) as file
    """A file's bytes, unpacked if it is gzip (by its first bytes, whatever its name).

    ``progress`` is called with the number of bytes of the file itself that were read.
    """

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self._progress = progress

    def __enter__(self) -> opened:
        with _readable(self.path):
            file = _Counted(self.path)
            file.progress = self._progress
            self._plain = io.BufferedReader(file, _CHUNK)
            packed = self._plain.peek(2)[:2] == _GZIP
        self._file = gzip.GzipFile(fileobj=self._plain) if packed else self._plain
        return self

    def __exit__(self, *error: object) -> None:
        self._plain.close()

    def into(self, space: memoryview) -> int:
        """Fill some of ``space`` and say how much; 0 at the end."""
        with _readable(self.path):
            return self._file.readinto1(space)


def blocks(
    path: Path,
    *,
    size: int | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Block]:
    """The file as blocks that end with a line feed; a longer line than ``limit`` is skipped."""
    size = BLOCK if size is None else size
    limit = LINE_LIMIT if limit is None else limit
    rest = b""
    skipping = False
    with opened(path, progress) as file:
        while True:
            buffer = bytearray(len(rest) + size + 1)  # one more, for a last line feed
            buffer[: len(rest)] = rest
            filled, failed = _fill(file, memoryview(buffer)[:-1], len(rest))
            over = filled < len(buffer) - 1
            start = 0
            if skipping:
                start = buffer.find(b"\n", 0, filled) + 1
                skipping = not start
                start = start or filled
            if over and failed is None and filled > start and buffer[filled - 1] != 10:
                buffer[filled] = 10  # the last line has none
                filled += 1
            end = max(start, buffer.rfind(b"\n", start, filled) + 1)
            if end > start:
                yield Block(np.frombuffer(buffer, np.uint8, end - start, start))
            if failed is not None:
                raise failed
            if over:
                return
            rest = bytes(memoryview(buffer)[end:filled])
            if len(rest) > limit:
                yield Block(None)
                rest, skipping = b"", True


def beginning(path: Path, size: int = 1 << 12) -> bytes:
    """The first bytes of a file, unpacked; fewer if it cannot be read further."""
    space = bytearray(size)
    with opened(path) as file:
        filled, failed = _fill(file, memoryview(space), 0)
    if failed is not None and not filled:
        raise LogFileError(f"{failed}.")
    return bytes(space[:filled])


def _fill(file: opened, space: memoryview, filled: int) -> tuple[int, LogFileError | None]:
    """How far the space is filled, and why no further if the file cannot be read to its end."""
    try:
        while filled < len(space) and (n := file.into(space[filled:])):
            filled += n
    except LogFileError as error:
        return filled, error
    return filled, None
