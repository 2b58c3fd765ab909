"""``Ids``: whether a decision's id may be in the log, without a look into it.

A filter of fixed size, three bits of one word an id: what it has not seen is new for certain,
what it may have seen is looked up. It learns the ids of an old log a few at a time; until it has,
everything is looked up.
"""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from whim.serve.store import LogReader

__all__ = ["Ids"]

_WORDS = 20  # 8 MiB: one look-up in a hundred for five million ids, one in four for twenty
_MASK = (1 << _WORDS) - 1
_STEP = 2000


class Ids:
    """Ids of all spaces; each with its space's number."""

    def __init__(self) -> None:
        self._words = array("Q", bytes(8 << _WORDS))
        self._at: tuple[int, str] | None = (0, "")

    def add(self, space: int, key: str) -> bool:
        """Remember an id; whether it was perhaps there before, and False is certain."""
        h = hash((space, key))
        word, bits = h & _MASK, 1 << (h >> 20 & 63) | 1 << (h >> 26 & 63) | 1 << (h >> 32 & 63)
        had = self._words[word]
        self._words[word] = had | bits
        return had & bits == bits or self._at is not None

    def may_have(self, space: int, key: str) -> bool:
        """Whether it was perhaps there before; False is certain."""
        h = hash((space, key))
        bits = 1 << (h >> 20 & 63) | 1 << (h >> 26 & 63) | 1 << (h >> 32 & 63)
        return self._words[h & _MASK] & bits == bits or self._at is not None

    def _add_all(self, found: list[tuple[int, str]]) -> None:
        hashes = np.fromiter(map(hash, found), np.int64, len(found))
        words, one = np.frombuffer(self._words, np.uint64), np.uint64(1)
        for shift in (20, 26, 32):
            bits = one << (hashes >> shift & 63).astype(np.uint64)
            np.bitwise_or.at(words, hashes & _MASK, bits)

    def learn(self, reader: LogReader, seconds: float) -> bool:
        """Go on with the ids of the log for so long; whether all of them are known."""
        end = time.monotonic() + seconds
        while self._at is not None:
            found = reader.keys(self._at, _STEP)
            self._add_all(found)
            self._at = found[-1] if len(found) == _STEP else None
            if time.monotonic() >= end:
                break
        return self._at is None
