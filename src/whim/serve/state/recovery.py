"""Replaying the committed log, in any process: for a restart, for snapshots and rebuilds.

Nothing here needs an ``Engine``: a log to read, the snapshots, and which space.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from whim.errors import InvalidInputError, WhimError
from whim.serve.log.base import Base, read_base, remains, rows_of
from whim.serve.log.committed import CommittedLog, StoreError
from whim.serve.log.rows import Change, ConfigRow, Raw
from whim.serve.log.store import Packed
from whim.serve.state.head import rules_of
from whim.serve.state.snapshots import Snapshots
from whim.serve.state.space_state import SpaceState
from whim.serve.wire import SpaceConfig

Progress = Callable[[int], None]


class BusyError(WhimError):
    """The configuration changed during the rebuild."""


class Rebuilt(NamedTuple):
    """A state under another configuration, and the changes of interest detected on the way."""

    number: int
    state: SpaceState
    packed: list[Packed]


_space = operator.itemgetter(2)


def state_of(base: Base) -> SpaceState:
    """What a base had learnt."""
    state = SpaceState.from_bytes(base.body.head, base.body.policy)
    state.seq = base.seq
    return state


def begin(base: Base | None, config: SpaceConfig, version: int) -> SpaceState:
    """The state from which a space is replayed: its base, or nothing learnt.

    What a base learnt is of one version. Another one learns from the rows that remain.
    """
    if base is not None and base.version == version:
        return state_of(base)
    state = SpaceState(config, version)
    if base is None:
        return state
    state.ledger.use(*rules_of(base.body.head))
    if state.items.size:
        for arm in base.body.arms:
            try:
                state.add_arms([arm.id], [arm.features], lenient=True)
            except InvalidInputError:  # features of another kind than the space has now
                continue
    return state


@contextlib.contextmanager
def _no_gc() -> Iterator[None]:
    """Without garbage collection: replaying makes no cycles, and collecting would take as long."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def advance(
    reader: CommittedLog, state: SpaceState, number: int, progress: Progress | None = None
) -> list[Change]:
    """Replay the rows of a space that came since; ``progress`` gets the row that it has reached."""
    changes: list[Change] = []
    began, trimmed = state.seq, reader.trimmed()
    with _no_gc():
        for block in rows_of(reader, number, began):
            changes += state.apply_many(block)
            if progress is not None:
                progress(state.seq)
    if reader.trimmed() > max(began, trimmed):
        raise StoreError(f"rows of space {number} must stay while they are read, got fewer.")
    return changes


def advance_all(reader: CommittedLog, states: dict[int, SpaceState], known: Collection[int]) -> int:
    """Replay the rows of many spaces, each from where it is, in one pass; how many rows.

    A row of a space that is not ``known`` is an error.
    """
    count, trimmed = 0, reader.trimmed()
    bases = {n: read_base(reader, n) for n, state in states.items() if state.seq < trimmed}
    if known and not states:
        return 0
    with _no_gc():
        for block in reader.blocks(min((state.seq for state in states.values()), default=0)):
            for number, rows in by_space(block):
                if number not in known:
                    raise StoreError(
                        f"row {rows[0][0]} of {reader.path.name} must be of a space that was made, "
                        f"got number {number}."
                    )
                state = states.get(number)
                if state is None:
                    continue
                if rows[0][0] <= max(state.seq, trimmed):
                    base, seq = bases.get(number), state.seq
                    rows = [r for r in rows if r[0] > seq and remains(r[0], trimmed, base)]
                state.apply_many(rows)
                count += len(rows)
    return count


def by_space(block: list[Raw]) -> Iterable[tuple[int, list[Raw]]]:
    """Rows by the number of their space, in order."""
    numbers = {*map(_space, block)}
    if len(numbers) == 1:  # as mostly, and then there is nothing to sort
        return [(numbers.pop(), block)]
    rows: dict[int, list[Raw]] = collections.defaultdict(list)
    for row in block:
        rows[row[2]].append(row)
    return rows.items()


def start(
    reader: CommittedLog, number: int, config_row: ConfigRow, snapshot: SpaceState | None = None
) -> SpaceState:
    """Where to replay a space from: its snapshot if it is usable, else the beginning."""
    assert config_row.config is not None
    trimmed = reader.trimmed()
    if (
        snapshot is not None
        and snapshot.version == config_row.version
        and trimmed <= snapshot.seq <= reader.last()[0]
    ):
        return snapshot
    base = read_base(reader, number) if trimmed else None
    return begin(base, config_row.config, config_row.version)


def rebuild(
    reader: CommittedLog, number: int, config_row: ConfigRow, progress: Progress | None = None
) -> tuple[SpaceState, list[Change]]:
    """Replay the log of a space from the beginning, under another configuration."""
    state = start(reader, number, config_row)
    return state, advance(reader, state, number, progress)


class Replicas:
    """States that follow the log from one snapshot to the next, beside those that serve."""

    def __init__(self, reader: CommittedLog, snapshots: Snapshots) -> None:
        self._reader, self._snapshots = reader, snapshots
        self._states: dict[int, SpaceState] = {}

    def snapshot(self, number: int, config_row: ConfigRow) -> int:
        """Bring a space's replica up to the log and write what changed; pages written."""
        state = self._states.pop(number, None)  # not kept if it stops within a row
        if state is None or state.version != config_row.version:
            state = self._snapshots.read(number)
            if state is None:
                self._snapshots.forget(number)  # what is there may be damaged: all of it anew
        state = start(self._reader, number, config_row, state)
        advance(self._reader, state, number)
        pages = self._snapshots.write(number, state)
        self._states[number] = state
        return pages

    def forget(self, number: int) -> None:
        """Forget a space that was retired."""
        self._states.pop(number, None)
