"""The time that a page is about: the last hour, day or week, from one time to another, or all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlencode

from whim.errors import InvalidInputError
from whim.serve.state.stats import MICRO

NAMED = {"hour": 3600, "day": 86_400, "week": 604_800}
_LAST = datetime(3000, 1, 1, tzinfo=UTC)


class Range(NamedTuple):
    """A span of time in microseconds; all of it has none."""

    name: str
    span: tuple[int, int] | None
    query: str  # the part of an address that says it
    moving: bool = False  # it ends now, and so is another one at the next look

    @property
    def words(self) -> str:
        """What it is called where its times are not told."""
        if self.span is None:
            return "overall"
        return f"last {self.name}" if self.name in NAMED else "this time"

    def path(self, base: str) -> str:
        """An address with this range."""
        return f"{base}?{self.query}" if self.query else base


ALL = Range("all", None, "")


def range_of(query: Mapping[str, str], now: int) -> Range:
    """The range that an address names; ``now`` in microseconds.

    >>> range_of({"range": "hour"}, 7200 * MICRO).span  # up to and with now
    (3600000000, 7200000001)
    >>> found = range_of({"from": "2026-01-01T10:00", "to": "2026-01-01T11:00"}, 0)
    >>> found.name, (found.span[1] - found.span[0]) // MICRO
    ('custom', 3600)
    >>> range_of({"from": "2026-01-01"}, 1 << 60).moving, range_of({}, 0).span is None
    (True, True)
    """
    if query.get("from") or query.get("to"):
        since = _time(query, "from", 0)
        until = _time(query, "to", now)
        if since >= until:
            raise InvalidInputError("from must be before to, got a time that is not.")
        kept = {name: query[name] for name in ("from", "to") if query.get(name)}
        return Range("custom", (since, until), urlencode(kept), "to" not in kept)
    name = query.get("range", "")
    if name in NAMED:
        return Range(name, (now - NAMED[name] * MICRO, now + 1), f"range={name}", True)
    return ALL


def _time(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")[:40]
    if not text:
        return default
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            f"{name} must be a time such as 2026-01-31T18:00, got {text!r}."
        ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    if not datetime(1970, 1, 2, tzinfo=UTC) <= at < _LAST:
        raise InvalidInputError(f"{name} must be between 1970 and 3000, got {text!r}.")
    return round(at.timestamp() * MICRO)
