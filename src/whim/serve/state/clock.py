"""``SteadyClock``: the time that rows carry. It never goes back, and does not follow wild jumps.

The system's clock may be set wrong for a while. A jump forward would end every wait at once, and
the rows written meanwhile would hold the time there until the real one catches up. So a jump beyond
a limit is not followed: the clock goes on at its own pace until the system's is near again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

_BOOT_TIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)  # not on every system


def elapsed_ns() -> int:
    """Nanoseconds of a clock that nobody can set; time in which the machine slept counts."""
    return time.monotonic_ns() if _BOOT_TIME is None else time.clock_gettime_ns(_BOOT_TIME)


class ClockView(NamedTuple):
    """Whether a clock is held, and its seconds ahead of the system's: behind if negative."""

    held: bool
    ahead: float
    jumps: int

    @property
    def reason(self) -> str:
        """Why it is held."""
        if self.ahead < 0:
            return "the system's clock jumped forward"
        return "the system's clock is behind the last row of the log"


class SteadyClock:
    """Microseconds since 1970, from ``wall`` and ``elapsed``, both in nanoseconds.

    ``jump`` is the longest step forward that is followed, in seconds beyond those that really
    passed; None: any. ``last`` is the time of the last row, before which it never is.
    """

    def __init__(
        self,
        last: int,
        wall: Callable[[], int] = time.time_ns,
        *,
        jump: float | None = None,
        elapsed: Callable[[], int] = elapsed_ns,
    ) -> None:
        self._wall, self._elapsed = wall, elapsed
        self._jump = None if jump is None else round(jump * 1e6)
        # the first reading is taken as it is: nobody knows how long the service was down
        self._at, self._read_at = max(last, wall() // 1000), elapsed()
        self._behind = False  # it does not follow the system's clock, which jumped forward
        self._jumps = 0

    def __call__(self) -> int:
        """The time now."""
        wall = self._wall() // 1000
        if self._jump is None:
            self._at = max(self._at, wall)
            return self._at
        read_at = self._elapsed()
        passed = (read_at - self._read_at) // 1000
        if wall - (self._at + passed) > self._jump:
            self._jumps += not self._behind
            self._behind = True
            self._at += passed
            self._read_at += passed * 1000  # what is less than a microsecond is not lost
        else:
            self._behind = False
            if wall > self._at:
                self._at, self._read_at = wall, read_at
        return self._at

    @property
    def view(self) -> ClockView:
        """Where it stands now; an honest clock that is read a moment later is not held."""
        at = self()
        ahead = (at - self._wall() // 1000) / 1e6
        return ClockView(self._behind or ahead > 1.0, ahead, self._jumps)
