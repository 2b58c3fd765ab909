"""``Turns``: long work in slices, one per turn of the event loop, so that nobody waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

SLICE = 0.001  # seconds after which others have their turn
_PATIENCE = 0.02  # seconds that a slice waits for small requests to be answered, at most
LARGE = 1 << 16  # bytes of a body whose decoding is a slice of its own
_LARGE_AT_ONCE = 4  # large requests in work: what they hold, in and out, is many times their size


class Turns:
    """Slices of long work in the order in which they were asked for, with all else between them.

    However many callers send large requests, each turn of the event loop holds one slice of them,
    and a slice waits a while until no small request is under way: that one takes several turns, and
    would meet a slice in each.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._small: set[asyncio.Task[Any] | None] = set()  # requests under way
        self.large = asyncio.Semaphore(_LARGE_AT_ONCE)

    async def first(self, work: Awaitable[T]) -> T:
        """Let a request go before slices, until it asks for one itself."""
        task = asyncio.current_task()
        self._small.add(task)
        try:
            return await work
        finally:
            self._small.discard(task)

    async def run(self, work: Callable[[], T]) -> T:
        """Run a slice; the next one, of whomever, begins in another turn of the loop."""
        task = asyncio.current_task()
        is_first = task in self._small  # of a request that is not long, as far as is known
        self._small.discard(task)
        async with self._lock:
            until = time.monotonic() + _PATIENCE
            if not is_first:
                for _ in range(2):  # in which a request that came during the last slice begins
                    await asyncio.sleep(0)
                while self._small and time.monotonic() < until:
                    await asyncio.sleep(0.001)
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
