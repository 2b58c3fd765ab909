"""Sliding windows of many rows in one pool of chunks: memory for plays observed, not promised.

Each row is a first-in-first-out queue of records (a few float64 each). Records live in chunks;
a chunk is taken from the free list when the last one is full and given back when emptied, so an
arm that was never played costs nothing and a restarted arm gives its window back.

A push must be preceded by ``full``: the caller grows the pool, kernels do not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.kernels.jit import inline, jit
from whim.types import F64, I64

HEAD, HEAD_AT, TAIL, TAIL_AT, COUNT = range(5)
ENDS = 5
CHUNK = 32


class Windows(NamedTuple):
    """The windows of all rows.

    ``table`` has the five numbers above per row, then what a test counts; ``pool[chunk, place]`` is
    a record; ``links[chunk]`` is the next chunk of the same queue or of the free list, whose head
    is ``links[0]`` (chunk 0 is never used).
    """

    table: I64
    pool: F64
    links: I64


def empty_pool(width: int, chunk: int = CHUNK) -> tuple[F64, I64]:
    """A pool with no free chunk; ``width`` numbers per record."""
    return np.zeros((1, chunk, width)), np.zeros(1, np.int64)


def grown(pool: F64, links: I64, chunks: int) -> tuple[F64, I64]:
    """Copies with ``chunks`` chunks in all, the new ones on the free list in rising order."""
    old = len(links)
    new_pool = np.zeros((chunks, *pool.shape[1:]))
    new_pool[:old] = pool
    new_links = np.zeros(chunks, np.int64)
    new_links[:old] = links
    new_links[old : chunks - 1] = np.arange(old + 1, chunks)
    new_links[chunks - 1] = links[0]
    new_links[0] = old
    return new_pool, new_links


@inline
def full(w: Windows, row: int) -> bool:
    """Whether a push to ``row`` would find no chunk."""
    needs: bool = w.table[row, COUNT] == 0 or w.table[row, TAIL_AT] == w.pool.shape[1]
    return needs and w.links[0] == 0


@inline
def push(w: Windows, row: int) -> tuple[int, int]:
    """Make room for one record at the end; its chunk and place."""
    ends, links = w.table, w.links
    if ends[row, COUNT] == 0 or ends[row, TAIL_AT] == w.pool.shape[1]:
        chunk = links[0]
        links[0] = links[chunk]
        links[chunk] = 0
        if ends[row, COUNT] == 0:
            ends[row, HEAD] = chunk
            ends[row, HEAD_AT] = 0
        else:
            links[ends[row, TAIL]] = chunk
        ends[row, TAIL] = chunk
        ends[row, TAIL_AT] = 0
    chunk, place = ends[row, TAIL], ends[row, TAIL_AT]
    ends[row, TAIL_AT] = place + 1
    ends[row, COUNT] += 1
    return chunk, place


@inline
def pop(w: Windows, row: int) -> tuple[int, int]:
    """Take the oldest record away; where its numbers stay readable until the next push."""
    ends, links = w.table, w.links
    chunk, place = ends[row, HEAD], ends[row, HEAD_AT]
    ends[row, HEAD_AT] = place + 1
    ends[row, COUNT] -= 1
    if ends[row, COUNT] == 0 or place + 1 == w.pool.shape[1]:
        ends[row, HEAD] = links[chunk]
        ends[row, HEAD_AT] = 0
        links[chunk] = links[0]
        links[0] = chunk
    if ends[row, COUNT] == 0:
        for j in range(ENDS):
            ends[row, j] = 0
    return chunk, place


@inline
def advance(w: Windows, chunk: int, place: int) -> tuple[int, int]:
    """The record after this one, for a way from ``HEAD, HEAD_AT`` over ``COUNT`` records."""
    if place + 1 == w.pool.shape[1]:
        return w.links[chunk], 0
    return chunk, place + 1


@inline
def newest(w: Windows, row: int, n: int) -> tuple[int, int]:
    """Where the newest n records of a window start."""
    skip = w.table[row, HEAD_AT] + w.table[row, COUNT] - n
    chunk = w.table[row, HEAD]
    for _ in range(skip // w.pool.shape[1]):
        chunk = w.links[chunk]
    return chunk, skip % w.pool.shape[1]


@inline
def empty(w: Windows, row: int) -> None:
    """Empty one queue, free its chunks and zero what its test has counted."""
    if w.table[row, COUNT] > 0:
        w.links[w.table[row, TAIL]] = w.links[0]
        w.links[0] = w.table[row, HEAD]
    for j in range(w.table.shape[1]):
        w.table[row, j] = 0


@jit
def clear(w: Windows, row: int) -> None:
    """``empty``, for Python to call."""
    empty(w, row)


@inline
def resum(w: Windows, row: int, sums: F64) -> None:
    """Recompute a window's sums: running ones gather rounding errors."""
    for j in range(sums.shape[0]):
        sums[j] = 0.0
    chunk, place = w.table[row, HEAD], w.table[row, HEAD_AT]
    for _ in range(w.table[row, COUNT]):
        for j in range(sums.shape[0]):
            sums[j] += w.pool[chunk, place, j]
        chunk, place = advance(w, chunk, place)
