"""``Ids``: whether a decision's id may be in the log, without looking into it.

A filter of fixed size, two bits of one byte per id: what it has not seen is new for certain,
what it may have seen is looked up. It learns the ids of an old log a few at a time; until it has,
everything is looked up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from whim.serve.log.reader import LogReader

_BYTES = 1 << 24  # one look-up in fifty is in vain for five million ids, one in five for twenty
_MASK = _BYTES - 1
_STEP = 2000


class Ids:
    """Ids of all spaces; each with its space's number."""

    def __init__(self) -> None:
        self._bytes = bytearray(_BYTES)
        self._at: tuple[int, str] | None = (0, "")

    def add(self, space: int, key: str) -> bool:
        """Remember an id; whether it was perhaps there before, and False is certain."""
        h = hash((space, key))
        place, bits = h & _MASK, 1 << (h >> 24 & 7) | 1 << (h >> 27 & 7)
        had = self._bytes[place]
        self._bytes[place] = had | bits
        return had & bits == bits or self._at is not None

    def may_have(self, space: int, key: str) -> bool:
        """Whether it was perhaps there before; False is certain."""
        h = hash((space, key))
        bits = 1 << (h >> 24 & 7) | 1 << (h >> 27 & 7)
        return self._bytes[h & _MASK] & bits == bits or self._at is not None

    def _add_all(self, keys: list[tuple[int, str]]) -> None:
        hashes = np.fromiter(map(hash, keys), np.int64, len(keys))
        table = np.frombuffer(self._bytes, np.uint8)
        for shift in (24, 27):
            bits = 1 << (hashes >> shift & 7)
            np.bitwise_or.at(table, hashes & _MASK, bits.astype(np.uint8))

    def learn(self, reader: LogReader, seconds: float) -> bool:
        """Go on with the ids of the log for so long; whether all of them are known."""
        end = time.monotonic() + seconds
        while self._at is not None:
            keys = reader.keys(self._at, _STEP)
            self._add_all(keys)
            self._at = keys[-1] if len(keys) == _STEP else None
            if time.monotonic() >= end:
                break
        return self._at is None
