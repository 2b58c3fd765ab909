"""``Ids``: whether a decision's id may be in the log, without a look into it.

A filter of fixed size: what it has not seen is new for certain, what it may have seen is looked
up. It learns the ids of an old log a few at a time; until it has, everything is looked up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from whim.serve.store import LogReader

__all__ = ["Ids"]

_BITS = 26  # 8 MiB: one look-up in a hundred for five million ids, one in five for twenty
_MASK = (1 << _BITS) - 1
_STEP = 2000


class Ids:
    """Ids of all spaces; each with its space's number."""

    def __init__(self) -> None:
        self._bits = bytearray(1 << (_BITS - 3))
        self._at: tuple[int, str] | None = (0, "")

    def add(self, space: int, key: str) -> None:
        """Remember an id."""
        bits, h = self._bits, hash((space, key))
        a, b, c = h & _MASK, h >> 19 & _MASK, h >> 38 & _MASK
        bits[a >> 3] |= 1 << (a & 7)
        bits[b >> 3] |= 1 << (b & 7)
        bits[c >> 3] |= 1 << (c & 7)

    def may_have(self, space: int, key: str) -> bool:
        """Whether it was perhaps there before; False is certain."""
        if self._at is not None:
            return True
        bits, h = self._bits, hash((space, key))
        a, b, c = h & _MASK, h >> 19 & _MASK, h >> 38 & _MASK
        return bool(bits[a >> 3] >> (a & 7) & bits[b >> 3] >> (b & 7) & bits[c >> 3] >> (c & 7) & 1)

    def _add_all(self, found: list[tuple[int, str]]) -> None:
        hashes = np.fromiter(map(hash, found), np.int64, len(found))
        bits = np.frombuffer(self._bits, np.uint8)
        for shift in (0, 19, 38):
            places = hashes >> shift & _MASK
            np.bitwise_or.at(bits, places >> 3, (1 << (places & 7)).astype(np.uint8))

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
