"""``write_blocks``: events to text in the format of Yahoo's R6A, many lines at a time."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from whim.types import F64, I64

__all__ = ["Block", "write_blocks"]

# times, shown places, clicks, contexts, and the articles of the one pool of all these events
Block: TypeAlias = tuple[I64, I64, F64, F64, I64]

LINES = 4_000  # made at once: some 6 MB of text
USER = b" 2:0.000000 3:0.000000 4:0.000000 5:0.000000 6:0.000000 1:1.000000"
HEAD = b"1241160900 109417 0 |user" + USER
STARTS = len(HEAD) - len(USER) + 11 * np.arange(5) + 3  # where the five memberships stand


def write_blocks(
    paths: list[Path], blocks: Iterable[Block], *, ids: I64, features: F64, events: int
) -> None:
    """Write the events of all blocks to the paths in turn, each an even share of them."""
    items = [_item(int(i), y) for i, y in zip(ids, features, strict=True)]
    ends = [events * (i + 1) // len(paths) for i in range(len(paths))]
    done, at = 0, 0
    with contextlib.ExitStack() as files:
        out = files.enter_context(_whole_file(paths[0]))
        for block in blocks:
            tail = b" " + b" ".join(items[a] for a in block[4]) + b"\n"
            low, count = 0, len(block[0])
            while low < count:
                high = min(count, low + LINES, low + ends[at] - done)
                out.write(_lines(block, low, high, ids, tail))
                done, low = done + high - low, high
                if done == ends[at] and done < events:
                    files.close()
                    at += 1
                    out = files.enter_context(_whole_file(paths[at]))


def _item(article: int, y: F64) -> bytes:
    values = " ".join(f"{j}:{v:.6f}" for j, v in enumerate(y[1:], 2))
    return f"|{article} {values} 1:{y[0]:.6f}".encode()


def _lines(block: Block, low: int, high: int, ids: I64, tail: bytes) -> memoryview:
    times, shown, clicks, contexts, pool = block
    line = np.frombuffer(HEAD + tail, np.uint8)
    text = np.empty((high - low, len(line)), np.uint8)
    text[:] = line
    _digits(text[:, :10], times[low:high])
    _digits(text[:, 11:17], ids[pool][shown[low:high]])
    _digits(text[:, 18:19], clicks[low:high].astype(np.int64))
    micro = np.rint(contexts[low:high, 1:] * 1e6).astype(np.int64)
    for j, start in enumerate(STARTS):
        _digits(text[:, start : start + 1], micro[:, j] // 10**6)
        _digits(text[:, start + 2 : start + 8], micro[:, j] % 10**6)
    return text.data


def _digits(out: npt.NDArray[np.uint8], numbers: I64) -> None:
    """Write each number into its row, right-aligned and filled up with zeros."""
    for column in range(out.shape[1] - 1, -1, -1):
        out[:, column] = 48 + numbers % 10
        numbers = numbers // 10


@contextlib.contextmanager
def _whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name once it is complete."""
    part = path.with_name(path.name + ".part")
    try:
        with contextlib.ExitStack() as files:
            out: Any = files.enter_context(part.open("wb"))
            if path.suffix == ".gz":  # no name and no time inside: same events, same bytes
                out = files.enter_context(
                    gzip.GzipFile("", "wb", compresslevel=1, fileobj=out, mtime=0)
                )
            yield out
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
