"""Sliding windows of many rows in one pool of chunks: memory for plays observed, not promised.

Each row is a first-in-first-out queue of records (a few float64 each). Records live in chunks;
a chunk is taken from the free list when the last one is full and given back when emptied, so an
arm that was never played costs nothing and a restarted arm gives its window back.

``pool[chunk, place, :]`` holds records; ``links[chunk]`` is the next chunk of the same queue or
of the free list, whose head is ``links[0]`` (chunk 0 is never used). ``ends[row]`` holds the
five numbers below. A push must be preceded by ``full``: the caller grows the pool, kernels do not.
"""

from __future__ import annotations

import numpy as np

from whim.kernels.jit import inline, jit
from whim.types import F64, I64

__all__ = [
    "CHUNK",
    "COUNT",
    "ENDS",
    "HEAD",
    "HEAD_AT",
    "TAIL",
    "TAIL_AT",
    "advance",
    "clear",
    "empty_pool",
    "full",
    "grown",
    "pop",
    "push",
    "total",
]

HEAD, HEAD_AT, TAIL, TAIL_AT, COUNT = range(5)
ENDS = 5
CHUNK = 32


def empty_pool(width: int, chunk: int = CHUNK) -> tuple[F64, I64]:
    """A pool with no free chunk; ``width`` numbers a record."""
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
def full(ends: I64, row: int, pool: F64, links: I64) -> bool:
    """Whether a push to ``row`` would find no chunk."""
    needs: bool = ends[row, COUNT] == 0 or ends[row, TAIL_AT] == pool.shape[1]
    return needs and links[0] == 0


@inline
def push(ends: I64, row: int, pool: F64, links: I64) -> tuple[int, int]:
    """Make room for one record at the end; returns its chunk and place."""
    if ends[row, COUNT] == 0 or ends[row, TAIL_AT] == pool.shape[1]:
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
def pop(ends: I64, row: int, pool: F64, links: I64) -> tuple[int, int]:
    """Take the oldest record away; its numbers stay readable until the next push."""
    chunk, place = ends[row, HEAD], ends[row, HEAD_AT]
    ends[row, HEAD_AT] = place + 1
    ends[row, COUNT] -= 1
    if ends[row, COUNT] == 0 or place + 1 == pool.shape[1]:
        ends[row, HEAD] = links[chunk]
        ends[row, HEAD_AT] = 0
        links[chunk] = links[0]
        links[0] = chunk
    if ends[row, COUNT] == 0:
        ends[row, :] = 0
    return chunk, place


@inline
def advance(pool: F64, links: I64, chunk: int, place: int) -> tuple[int, int]:
    """The record after this one, for a walk from ``HEAD, HEAD_AT`` over ``COUNT`` records."""
    if place + 1 == pool.shape[1]:
        return links[chunk], 0
    return chunk, place + 1


@jit
def clear(ends: I64, row: int, links: I64) -> None:
    """Empty one queue and free its chunks."""
    if ends[row, COUNT] > 0:
        links[ends[row, TAIL]] = links[0]
        links[0] = ends[row, HEAD]
    ends[row, :] = 0


@jit
def total(row: int, at: int, sums: F64, pool: F64, links: I64, ends: I64) -> None:
    """Recompute a window's sums into ``sums[row, at:]``: running ones gather rounding errors."""
    for j in range(at, sums.shape[1]):
        sums[row, j] = 0.0
    chunk, place = ends[row, HEAD], ends[row, HEAD_AT]
    for _ in range(ends[row, COUNT]):
        for j in range(sums.shape[1] - at):
            sums[row, at + j] += pool[chunk, place, j]
        chunk, place = advance(pool, links, chunk, place)
