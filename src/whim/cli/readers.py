"""The readers of ``whim demo``: a newspaper's sections, who clicks what, and when that changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple


class Tastes(NamedTuple):
    """Chance of a click: by device, and what the evening and a subscription add."""

    phone: float
    desktop: float
    evening: float = 0.0
    subscriber: float = 0.0

    def chance(self, reader: dict[str, Any]) -> float:
        """Of one reader."""
        found = self.phone if reader["device"] == "phone" else self.desktop
        found += self.evening if reader["evening"] else 0.0
        return found + (self.subscriber if reader["subscriber"] else 0.0)


class Shift(NamedTuple):
    """A change of interest: at which share of the demo, of which section, to what."""

    share: float
    section: str
    after: Tastes
    said: str


SECTIONS = {
    "politics": Tastes(0.15, 0.40, 0.0, 0.05),
    "sport": Tastes(0.45, 0.15, 0.05, 0.0),
    "culture": Tastes(0.12, 0.12, 0.10, 0.05),
    "science": Tastes(0.10, 0.20, 0.0, 0.10),
    "travel": Tastes(0.10, 0.10, 0.05, 0.0),
}
SHIFTS = (
    Shift(0.30, "sport", Tastes(0.10, 0.08), "the season is over: sport bores everybody"),
    Shift(0.30, "culture", Tastes(0.50, 0.15, 0.10, 0.05), "a festival: phones turn to culture"),
    Shift(0.65, "politics", Tastes(0.05, 0.08), "the election is decided: politics tires"),
    Shift(0.65, "travel", Tastes(0.15, 0.45, 0.05, 0.05), "holidays: desktops turn to travel"),
)
CONFIG: dict[str, Any] = {
    "policy": "pslinucb-disjoint",
    "params": {"alpha": 0.5},
    "context": {
        "fields": [
            {"name": "device", "kind": "choice", "values": ["phone", "desktop"]},
            {"name": "evening", "kind": "flag"},
            {"name": "subscriber", "kind": "flag"},
        ]
    },
    "rewards": {"wait_seconds": 10.0},
    "explore": 0.1,
    "holdback": 0.1,
    "baseline": "random",
}


class Newspaper:
    """Readers whose interests change within ``seconds``; ``shifted`` is called when they do."""

    def __init__(
        self, seconds: float, shifted: Callable[[float, Shift], None], *, seed: int = 0
    ) -> None:
        self._rng = random.Random(seed)
        self._seconds, self._shifted = seconds, shifted
        self._tastes = dict(SECTIONS)
        self._ahead = list(SHIFTS)

    def at(self, now: float) -> None:
        """Time passes: what is due changes."""
        while self._ahead and now >= self._ahead[0].share * self._seconds:
            shift = self._ahead.pop(0)
            self._tastes[shift.section] = shift.after
            self._shifted(now, shift)

    def reader(self) -> dict[str, Any]:
        """Somebody opens the front page."""
        rng = self._rng
        return {
            "device": "phone" if rng.random() < 0.65 else "desktop",
            "evening": rng.random() < 0.4,
            "subscriber": rng.random() < 0.3,
        }

    def clicks(self, reader: dict[str, Any], section: str) -> float:
        """Whether that reader, shown that section, clicks: 1.0 or 0.0."""
        return float(self._rng.random() < self._tastes[section].chance(reader))

    def delay(self) -> float:
        """Seconds until it is known."""
        return 0.3 + 0.7 * self._rng.random()
