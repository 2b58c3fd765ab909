"""``Turns``: long work in slices, one per turn of the event loop, so that nobody waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

SLICE = 0.003  # seconds after which others have their turn
LARGE = 1 << 16  # bytes of a body whose decoding is a slice of its own
_LARGE_AT_ONCE = 4  # large requests in work: what they hold, in and out, is many times their size


class Turns:
    """Slices of long work in the order in which they were asked for, with all else between them.

    However many callers send large requests, each turn of the event loop holds one slice of them.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.large = asyncio.Semaphore(_LARGE_AT_ONCE)

    async def run(self, work: Callable[[], T]) -> T:
        """Run a slice; the next one, of whomever, begins in another turn of the loop."""
        async with self._lock:
            try:
                return work()
            finally:
                await asyncio.sleep(0)

    async def collect(self, items: Iterator[T]) -> list[T]:
        """All that an iterator gives, slice by slice."""
        found: list[T] = []

        def take() -> bool:
            until = time.perf_counter() + SLICE
            for item in items:
                found.append(item)
                if time.perf_counter() > until:
                    return True
            return False

        while await self.run(take):
            pass
        return found
