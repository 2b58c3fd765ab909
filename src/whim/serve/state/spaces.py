"""``Spaces``: the spaces of a log by name: what is in force, what is wanted, what is known."""

from __future__ import annotations

from typing import Any

import msgspec

from whim.serve import wire
from whim.serve.log.rows import ConfigRow
from whim.serve.log.store import Store
from whim.serve.state.choosing import ConflictError, NotFoundError
from whim.serve.state.policy import as_logged
from whim.serve.state.space import Space
from whim.serve.state.totals import totals
from whim.serve.state.views import Info, change_views


class Spaces:
    """All that can be asked of spaces; an ``Engine`` makes and changes them."""

    store: Store

    def __init__(self) -> None:
        self.spaces: dict[str, Space] = {}
        self._wanted: dict[int, ConfigRow] = {}  # the configuration requested last, by number
        self._in_force: dict[int, ConfigRow] = {}
        self._failed: dict[int, tuple[int, str]] = {}  # versions that could not be built
        self.made = 0  # spaces that there ever were

    @property
    def names(self) -> list[str]:
        """Of the spaces that serve, in order of the alphabet."""
        return sorted(self.spaces)

    @property
    def seqs(self) -> dict[str, int]:
        """The last row that each space has taken."""
        return {name: space.state.seq for name, space in self.spaces.items()}

    def __contains__(self, name: str) -> bool:
        return name in self.spaces

    def space(self, name: str) -> Space:
        """A space that serves."""
        space = self.spaces.get(name)
        if space is None:
            raise self._unknown(name)
        return space

    def _unknown(self, name: str) -> Exception:
        return NotFoundError(f"space must be one that exists, got {name!r}.")

    def name(self, number: int) -> str:
        """The name of a space by its number, retired or not."""
        return self._wanted[number].name

    def made_and_changed(self, name: str) -> tuple[int, int]:
        """When a space was made, and when its last row came, in microseconds."""
        space = self.space(name)
        made = "SELECT min(at) FROM log WHERE kind <= 2 AND space = ?"
        ((first,),) = self.store.query(made, (space.number,))
        rows = self.store.query("SELECT at FROM log WHERE seq = ?", (space.state.seq,))
        return int(first or 0), int(rows[0][0] if rows else self.store.last_at)

    def was_retired(self, name: str) -> bool:
        """Whether there was a space of that name, and there is none now."""
        return name not in self.spaces and any(row.name == name for row in self._wanted.values())

    def info(self, name: str) -> Info:
        """What is known about a space."""
        space = self.space(name)
        state = space.state
        wanted = self._wanted[space.number].version
        version, failed = self._failed.get(space.number, (0, None))
        if version != wanted:
            failed = None
        return Info(
            name=name, version=state.version, config=state.config, wanted=wanted, failed=failed,
            rebuilding=wanted != state.version and failed is None,
            arms=state.n_arms, waiting=len(state.pending), steps=state.policy.step,
            skipped=state.skipped,
        )  # fmt: skip

    @property
    def totals(self) -> dict[str, dict[str, int]]:
        """By name, decisions, rewards and steps of all spaces that ever had it; they never fall."""
        return {
            name: totals(space.state, self._in_force[space.number].uncounted)
            for name, space in list(self.spaces.items())
        }

    # -- configurations -----------------------------------------------------------------------

    def _first_config(self, name: str, config: wire.SpaceConfig) -> ConfigRow:
        """Of a space that is to be made; raises if its name is not new."""
        if name in self.spaces:
            raise ConflictError(f"$.name must be new, got {name!r} which exists.")
        msgspec.convert(name, wire.Name)
        retired = [row.uncounted for row in self._wanted.values() if row.name == name]
        return ConfigRow(name, 1, as_logged(config), retired[-1] if retired else {})

    def _next_config(self, space: Space, config: wire.SpaceConfig | None) -> ConfigRow:
        """The next version of a space; None ends it."""
        uncounted = self.totals[space.name] if config is None else {}
        version = self._wanted[space.number].version + 1
        return ConfigRow(space.name, version, config, uncounted)

    def in_force(self, name: str) -> tuple[int, ConfigRow]:
        """A space's number and the configuration that it serves with."""
        number = self.space(name).number
        return number, self._in_force[number]

    def needs_build(self, name: str) -> bool:
        """Whether a version of a space is wanted that is not built yet."""
        return self.info(name).rebuilding

    def wanted(self, name: str) -> tuple[int, ConfigRow]:
        """A space's number and the configuration requested last, to be built from the log."""
        number = self.space(name).number
        return number, self._wanted[number]

    def rebuild_failed(self, name: str, version: int, message: str) -> None:
        """Record why a version cannot be built; the current one serves until another request."""
        space = self.spaces.get(name)
        if space is not None and self._wanted[space.number].version == version:
            self._failed[space.number] = version, message

    @property
    def given_up(self) -> dict[int, int]:
        """Versions that cannot be built, by the number of their space."""
        return {number: version for number, (version, _) in self._failed.items()}

    # -- changes of interest ------------------------------------------------------------------

    def changes(self, name: str, since: int, most: int = 1000) -> list[dict[str, Any]]:
        """Changes of a space after row ``since``, as callers see them."""
        return change_views(self.store, self.space(name), since, most)

    def recent_changes(
        self,
        name: str,
        before: int | None = None,
        most: int = 20,
        *,
        span: tuple[int, int] | None = None,
        arm: str | int | None = None,
    ) -> Any:
        """The last changes of a space, newest first: row, time, and the event's fields."""
        space = self.space(name)
        return self.store.recent_changes(
            space.number, space.state.version, before, most, span=span, arm=arm
        )

    def count_changes(self, name: str, since: int) -> int:
        """Changes of a space from a time on, up to a thousand."""
        space = self.space(name)
        return self.store.count_changes(space.number, space.state.version, since)
