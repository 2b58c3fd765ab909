"""Dates and times of day in a table: they are no features, but hours and weekdays of them are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_CLOCK = r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?(?: ?[AaPp][Mm])?"
_DAY = r"(?:\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{4}|\d\d?/\d\d?/\d\d)"
_ZONE = r"(?: ?(?:Z|UTC|[+-]\d\d(?::?\d\d)?))?"
_OF_DAY = re.compile(_CLOCK + _ZONE)
_DATE = re.compile(rf"{_DAY}(?:[T ]+{_CLOCK}{_ZONE})?")
_MOST = 0.9  # share of a column's cells that make it one of times


def advice(value: Any) -> str:
    """What to make of a date or a time of day; nothing where the value is neither.

    >>> advice("09:15"), advice("2026-01-31 09:15:00Z")
    (': as hours, 9:15 is 9.25', ': make columns such as hour and weekday of it')
    >>> advice("16:9")
    ''
    """
    if isinstance(value, str) and _OF_DAY.fullmatch(value):
        return ": as hours, 9:15 is 9.25"
    date = _DATE.fullmatch(value) if isinstance(value, str) else hasattr(value, "isoformat")
    return ": make columns such as hour and weekday of it" if date else ""


def first_time(values: Sequence[Any]) -> Any:
    """The first date or time of day of a column that has little else, or None.

    >>> first_time([None, "2026-01-31", "2026-02-01"]), first_time(["9:15", "early", "late"])
    ('2026-01-31', None)
    """
    there = [value for value in values if value is not None]
    times = [value for value in there if advice(value)]
    return times[0] if times and len(times) >= _MOST * len(there) else None
