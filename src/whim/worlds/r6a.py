"""``write_blocks``: events to text in the format of Yahoo's R6A, many lines at a time."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterable, Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt

from whim.files import write_atomic
from whim.types import F64, I64

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
    pieces = _pieces(blocks, ids, items, ends)
    for at, group in itertools.groupby(pieces, key=itemgetter(0)):
        write_atomic(paths[at], partial(_write, group, paths[at].suffix == ".gz"))


def _pieces(
    blocks: Iterable[Block], ids: I64, items: list[bytes], ends: list[int]
) -> Iterator[tuple[int, bytes | memoryview]]:
    """Text of some lines, and the number of the file that it belongs to."""
    done, at = 0, 0
    yield at, b""
    for block in blocks:
        tail = b" " + b" ".join(items[a] for a in block[4]) + b"\n"
        low, count = 0, len(block[0])
        while low < count:
            high = min(count, low + LINES, low + ends[at] - done)
            yield at, _lines(block, low, high, ids, tail)
            done, low = done + high - low, high
            if done == ends[at] and done < ends[-1]:
                at += 1
                yield at, b""


def _write(pieces: Iterable[tuple[int, bytes | memoryview]], packed: bool, file: BinaryIO) -> None:
    # no name and no time inside a gzip file: same events, same bytes
    packer = gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) if packed else None
    out: Any = packer or file
    for _, text in pieces:
        out.write(text)
    if packer is not None:
        packer.close()


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
