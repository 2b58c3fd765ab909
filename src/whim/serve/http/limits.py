"""``Rates``: how often each caller may ask, as a token bucket."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from whim.errors import InvalidInputError

_TINY = 1e-9  # seconds: rounding must not make a caller wait twice


class Rates:
    """A bucket of ``burst`` tokens for each caller, filled with ``rate`` per second; 0 is no limit.

    A bucket is kept as the time at which it will be full again, which says the same as a count.
    At most ``most`` callers are kept: the one not seen for longest is forgotten, and begins with a
    full bucket if it comes again.

    >>> rates = Rates(2.0, 1, clock=lambda: 0.0)
    >>> rates.take("a"), rates.take("a"), rates.take("b")
    (0.0, 0.5, 0.0)
    """

    def __init__(
        self,
        rate: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        most: int = 10_000,
    ) -> None:
        for name, value, least in (("rate", rate, 0), ("burst", burst, 1), ("most", most, 1)):
            if not value >= least:
                raise InvalidInputError(f"{name} must be at least {least}, got {value!r}.")
        self._clock = clock
        self._most = most
        self._step = 1.0 / rate if rate else 0.0
        self._room = (burst - 1) * self._step
        self._full: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full)

    def take(self, caller: str) -> float:
        """Take a token: 0.0, or the seconds after which there will be one."""
        step = self._step
        if not step:
            return 0.0
        now = self._clock()
        full = max(self._full.get(caller, now), now)
        wait = full - now - self._room
        if wait > _TINY:
            self._full.move_to_end(caller)
            return wait
        self._full[caller] = full + step
        self._full.move_to_end(caller)
        if len(self._full) > self._most:
            self._full.popitem(last=False)
        return 0.0

    def charge(self, caller: str, tokens: int) -> None:
        """Take more tokens for what was let pass, there or not: the next wait is the longer.

        So a batch of any size passes, and costs what its entries would have cost one by one.
        """
        if self._step and tokens > 0:
            now = self._clock()
            self._full[caller] = max(self._full.get(caller, now), now) + self._step * tokens
            self._full.move_to_end(caller)
            if len(self._full) > self._most:
                self._full.popitem(last=False)

    def wait(self, caller: str) -> float:
        """The seconds after which there will be a token; takes none."""
        now = self._clock()
        wait = self._full.get(caller, now) - now - self._room
        return wait if wait > _TINY else 0.0


class Attempts:
    """Wrong keys, by address: after ``per_minute`` of them it must wait, even with a right one.

    Else a right guess among too many would pass. Keys that an address has used before still do, so
    that nobody behind the same proxy is shut out.

    >>> attempts = Attempts(1, clock=lambda: 0.0)
    >>> attempts.right("a", "shop"), attempts.wrong("a"), attempts.wrong("a")
    (0.0, 0.0, 60.0)
    >>> attempts.right("a", "shop"), attempts.right("a", "other")
    (0.0, 60.0)
    """

    def __init__(
        self, per_minute: int, clock: Callable[[], float] = time.monotonic, most: int = 10_000
    ) -> None:
        self._rates = Rates(per_minute / 60, per_minute, clock, most)
        self._most = most
        self._used: dict[tuple[str, str], None] = {}

    def right(self, address: str, name: str) -> float:
        """A right key came: 0.0 if it may pass, or the seconds to wait."""
        if (address, name) in self._used:
            return 0.0
        wait = self._rates.wait(address)
        if not wait:
            self._used[address, name] = None
            if len(self._used) > self._most:
                del self._used[next(iter(self._used))]
        return wait

    def wrong(self, address: str) -> float:
        """A wrong key came: 0.0, or the seconds to wait if there were too many."""
        return self._rates.take(address)
