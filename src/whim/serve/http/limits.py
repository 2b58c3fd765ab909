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
