"""``ServedChanges``: the changes of interest that a space reported, as it reported them.

A rebuild computes all changes anew under its version, also those of rows before it. Whoever is sent
each change once must get those of a version only for the rows during which it served: the others
were reported by the version before it, perhaps a few rows earlier or later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from whim.features.encoder import Encoder
from whim.serve.log.configs import config_histories
from whim.serve.log.reader import LogReader
from whim.serve.state.views import change_fields
from whim.serve.wire import SpaceConfig

_NEVER = 2**62


class _Period(NamedTuple):
    """A version of a space while it served: from one row on, and before another."""

    first: int
    end: int
    number: int
    version: int
    config: SpaceConfig


class ServedChanges:
    """Of all spaces in a log, by name; of those that were retired, too."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._last = -1
        self._periods: dict[str, list[_Period]] = {}

    def __contains__(self, name: str) -> bool:
        self._refresh()
        return name in self._periods

    def _refresh(self) -> None:
        """Read the configurations again if there are new ones."""
        ((last,),) = self._reader.query("SELECT max(seq) FROM log WHERE kind <= 2")
        if last == self._last:
            return
        periods: dict[str, list[_Period]] = {}
        for number, history in config_histories(self._reader).items():
            ends = [seq for seq, _ in history.in_force[1:]] + [_NEVER]
            for (first, row), end in zip(history.in_force, ends, strict=True):
                if row.config is not None:
                    period = _Period(first, end, number, row.version, row.config)
                    periods.setdefault(row.name, []).append(period)
        self._periods, self._last = periods, last

    @property
    def names(self) -> list[str]:
        """Of all spaces that there ever were."""
        self._refresh()
        return sorted(self._periods)

    def after(self, name: str, since: int, most: int = 1000) -> list[dict[str, Any]]:
        """Changes after row ``since``, oldest first."""
        self._refresh()
        views: list[dict[str, Any]] = []
        for first, end, number, version, config in self._periods.get(name, ()):
            if end <= since or len(views) >= most:
                continue
            events = self._reader.changes(number, version, max(since, first), most - len(views))
            names = Encoder(config.context, "$.context").names if events else []
            views += [
                change_fields(name, version, names, event) for event in events if event[0] < end
            ]
        return views


class AllServedChanges:
    """Those of several logs, each of which has its own spaces."""

    def __init__(self, readers: Sequence[LogReader]) -> None:
        self._logs = [ServedChanges(reader) for reader in readers]

    @property
    def names(self) -> list[str]:
        """Of all spaces that there ever were."""
        return sorted(name for log in self._logs for name in log.names)

    def is_first(self, name: str) -> bool:
        """Whether a space is in the first log."""
        return name in self._logs[0]

    def after(self, name: str, since: int, most: int = 1000) -> list[dict[str, Any]]:
        """Changes of a space after row ``since`` of its log, oldest first."""
        for log in self._logs:
            if name in log:
                return log.after(name, since, most)
        return []
