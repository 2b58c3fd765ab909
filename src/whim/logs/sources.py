"""Files to read from: which ones, plain or gzip, as blocks of whole lines in bounded memory."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from whim.errors import LogFileError

BLOCK = 1 << 22
LINE_LIMIT = 1 << 20  # bytes of a line
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 18  # compressed bytes at a time

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


def no_events(files: Sequence[Path], dropped: Mapping[str, int], otherwise: str) -> LogFileError:
    """The error of files without a usable event: says what was dropped, or ``otherwise``."""
    named = ", ".join(str(file) for file in files[:3])
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    reasons = "; ".join(f"{n} × {why}" for why, n in dropped.items()) or otherwise
    return LogFileError(f"no event could be read from {named}{more}: {reasons}.")


def names_in(folder: Path) -> list[str]:
    """The names in a folder, sorted."""
    with _readable(folder):
        return sorted(inside.name for inside in folder.iterdir())


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LogFileError(f"{path} cannot be read: {error.strerror}.") from None


class opened:  # noqa: N801 - reads as a verb: with opened(path) as file
    """A file's bytes, unpacked if it is gzip (by its first bytes, whatever its name).

    ``progress`` is called with the number of bytes of the file itself that were read.
    """

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self._progress = progress
        self._file: BinaryIO
        self._unpack: zlib._Decompress | None = None
        self._packed = b""
        self._over = False

    def __enter__(self) -> opened:
        with _readable(self.path):
            self._file = self.path.open("rb", buffering=0)
            self._packed = self._file.read(2)
            while len(self._packed) < 2 and (more := self._file.read(1)):
                self._packed += more
        self._tell(len(self._packed))
        if self._packed == _GZIP:
            self._unpack = zlib.decompressobj(31)
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def into(self, space: memoryview) -> int:
        """Fill some of ``space`` and say how much; 0 at the end."""
        if self._unpack is not None:
            return self._unpacked(space)
        if self._packed:
            n = min(len(space), len(self._packed))
            space[:n] = self._packed[:n]
            self._packed = self._packed[n:]
            return n
        with _readable(self.path):
            n = int(self._file.readinto(space))  # type: ignore[attr-defined]
        self._tell(n)
        return n

    def _tell(self, n: int) -> None:
        if self._progress is not None:
            self._progress(n)

    def _more(self) -> bytes:
        with _readable(self.path):
            chunk = self._file.read(_CHUNK)
        self._tell(len(chunk))
        return chunk

    def _unpacked(self, space: memoryview) -> int:
        while not self._over:
            assert self._unpack is not None
            packed = self._packed or self._more()
            if not packed:
                raise LogFileError(f"{self.path}: the gzip file ends early")
            try:
                plain = self._unpack.decompress(packed, len(space))
            except zlib.error:
                raise LogFileError(f"{self.path}: the gzip file is damaged") from None
            self._packed = self._unpack.unconsumed_tail
            if self._unpack.eof:
                self._next_member()
            if plain:
                space[: len(plain)] = plain
                return len(plain)
        return 0

    def _next_member(self) -> None:
        """A gzip file may be several, one after the other, and padded with zeros."""
        assert self._unpack is not None
        rest = self._unpack.unused_data.lstrip(b"\0")
        while len(rest) < 2:
            more = self._more()
            if not more:
                break
            rest = (rest + more).lstrip(b"\0")
        if not rest:
            self._over = True
        elif rest[:2] == _GZIP:
            self._unpack, self._packed = zlib.decompressobj(31), rest
        else:
            raise LogFileError(f"{self.path}: the gzip file is followed by something else")


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
