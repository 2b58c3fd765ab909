"""``Following``: an engine whose rows come from the shared log, in the order that all see.

What a row does happens here and nowhere else. Every row is copied to the log in the data directory,
so that snapshots, rebuilds, what-ifs, exports and look-ups read that, as in a service of its own.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import Any

from whim.serve.log.rows import DECODERS, Change, ConfigRow, Kind, Raw, Row
from whim.serve.log.store import Packed, pack_changes
from whim.serve.postgres.link import Link
from whim.serve.state import recovery
from whim.serve.state.engine import Engine
from whim.serve.state.outgoing import Outgoing
from whim.serve.state.space import Space
from whim.serve.state.space_state import SpaceState

_AT_ONCE = 200  # rows that are taken before others have their turn
_MANY, _FEW = 20_000, 5_000  # rows that have come: no more are read, and again


class Following(Engine):
    """Takes rows as they come; a version that is not built here yet holds up what follows it."""

    _loop: asyncio.AbstractEventLoop
    _link: Link
    _out: Outgoing
    _on_config: Callable[[str], None]

    def _begin(self) -> None:
        self._arrived: collections.deque[Raw] = collections.deque()
        self._built: dict[int, recovery.Rebuilt] = {}  # versions that are ready to serve
        self._blocked: str | None = None  # the space whose new version is waited for
        self._scheduled = self._paused = False

    def _arrive(self, rows: list[Raw]) -> None:
        """Rows have come."""
        self._arrived.extend(rows)
        if len(self._arrived) > _MANY and self._blocked is None and not self._paused:
            self._paused = True
            self._link.pause()
        self._schedule()

    def _schedule(self, seconds: float = 0.0) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(seconds, self._take_some)

    def _take_some(self) -> None:
        """Take rows that have come, some at a time."""
        self._scheduled = False
        if self._blocked is not None or self.store.failed is not None:
            return
        if self.store.full:
            self._schedule(0.01)
            return
        arrived, some = self._arrived, list[Raw]()
        while arrived and len(some) < _AT_ONCE:
            if arrived[0][3] > Kind.BUILT:
                some.append(arrived.popleft())
                continue
            self._take(some)
            some = []
            if not self._take_config(arrived[0]):
                return  # it goes on when it is built
            arrived.popleft()
        self._take(some)
        if self._paused and len(arrived) < _FEW:
            self._paused = False
            self._link.resume()
        if arrived:
            self._schedule()

    def _take(self, rows: list[Raw]) -> None:
        """Let rows do what they do, and copy them."""
        if not rows:
            return
        packed: list[Packed] = []
        told: list[tuple[int, Change]] = []
        for number, some in recovery.by_space(rows):
            space = self._by_number(number)
            if space is None:
                continue
            changes = space.take(some)
            if changes:
                packed += pack_changes(number, space.state.version, changes)
                told += [(number, change) for change in changes]
        self._copy([Row(*row[:6]) for row in rows], packed, told)

    def _copy(self, rows: list[Row], packed: list[Packed], told: list[tuple[int, Change]]) -> None:
        self.store.append(rows, [], packed, told)
        self.seq, self.store.last_at = rows[-1].seq, rows[-1].at
        self._out.took(self.seq)

    def _by_number(self, number: int) -> Space | None:
        row = self._in_force.get(number)
        space = None if row is None else self.spaces.get(row.name)
        return space if space is not None and space.number == number else None

    # -- configurations -----------------------------------------------------------------------

    def _take_config(self, raw: Raw) -> bool:
        """Take a configuration; False if its version is not built here yet."""
        row = Row(*raw[:6])
        config_row: ConfigRow = DECODERS[row.kind].decode(row.body)
        space, number, packed = self._by_number(row.space), row.space, list[Packed]()
        if row.kind == Kind.BUILT and config_row.version < self._wanted[number].version:
            if space is not None:
                space.state.apply(row)
            self._copy([row], [], [])  # another version was asked for before it was built
            return True
        serving = None if space is None else space.state.version
        if row.kind == Kind.BUILT and space is not None and serving == config_row.version:
            space.state.apply(row)  # it is said twice: rows of a log that was moved have no keys
            self._in_force[number] = config_row
        elif row.kind == Kind.BUILT:
            built = self._built.get(number)
            if space is not None and (built is None or built.state.version != config_row.version):
                self._blocked = config_row.name
                self._on_config(config_row.name)
                return False
            if space is not None:
                packed = self._serve(space, config_row, row)
        elif config_row.config is None:
            self._end(config_row, number)
        elif config_row.version == 1:
            self._made(config_row, row)
        elif space is not None:
            space.state.apply(row)
        self._wanted[number] = config_row
        self._copy([row], packed, [])
        if row.kind == Kind.CONFIG and space is not None and config_row.config is not None:
            self._on_config(config_row.name)
        return True

    def _made(self, config_row: ConfigRow, row: Row) -> None:
        assert config_row.config is not None
        state = SpaceState(config_row.config)
        state.apply(row)
        self.spaces[config_row.name] = Space(row.space, config_row.name, state, self._limits)
        self.made = max(self.made, row.space)
        self._in_force[row.space] = config_row

    def _end(self, config_row: ConfigRow, number: int) -> None:
        self._in_force[number] = config_row
        self.spaces.pop(config_row.name, None)
        self._built.pop(number, None)
        self._replicas.forget(number)

    def _serve(self, space: Space, config_row: ConfigRow, row: Row) -> list[Packed]:
        """Let a version serve from its row on; the changes that it has found before."""
        number, state, packed = self._built.pop(space.number)
        self.store.flush()
        packed = packed + self.catch_up(state, number)
        state.apply(row)
        space.swap(state)
        self._in_force[number] = config_row
        self._failed.pop(number, None)
        return packed

    def needs_build(self, name: str) -> bool:
        """Whether a version of a space is wanted that is not built here yet."""
        number, wanted = self.wanted(name)
        built = self._built.get(number)
        return super().needs_build(name) and (
            built is None or built.state.version != wanted.version
        )

    def swap(self, name: str, rebuilt: recovery.Rebuilt, token: Any = None) -> None:
        """Have a version ready; it serves from the row on that says so, on every replica."""
        space = self.space(name)
        wanted = self._wanted[space.number].version
        if (space.number, wanted) != (rebuilt.number, rebuilt.state.version):
            raise recovery.BusyError(f"the configuration of {name} changed during the rebuild.")
        self._built[space.number] = rebuilt
        if self._blocked == name:
            self._blocked = None
            self._schedule()
