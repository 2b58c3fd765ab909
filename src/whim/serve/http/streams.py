"""``Streams``: who listens to a space's changes, and how they are woken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from whim.serve.http.problems import ProblemError


class Streams:
    """A bell for each listener, by space; at most ``most`` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bells: dict[str, set[asyncio.Event]] = {}

    def ring(self, name: str) -> None:
        """A space has reported a change."""
        for bell in self._bells.get(name, ()):
            bell.set()

    def ring_all(self) -> None:
        """Everybody should look whether to go on."""
        for name in self._bells:
            self.ring(name)

    def check(self) -> None:
        """Refuse one more listener where they would leave no connections for others."""
        if sum(map(len, self._bells.values())) >= self._most:
            raise ProblemError(
                429, "busy", f"at most {self._most} streams at a time, please.", retry_after="10"
            )

    @contextlib.contextmanager
    def listening(self, name: str) -> Iterator[asyncio.Event]:
        """A bell that rings when a space reports a change, or when the service ends."""
        bell = asyncio.Event()
        bells = self._bells.setdefault(name, set())
        bells.add(bell)
        try:
            yield bell
        finally:
            bells.discard(bell)
            if not bells:
                self._bells.pop(name, None)
