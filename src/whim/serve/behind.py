"""Work behind the scenes, in any process: folding the committed log for snapshots and rebuilds.

Nothing here needs an ``Engine``: a log to read, the snapshots, and which space.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from whim.serve import fold, wire
from whim.serve.fold import Change, Fold
from whim.serve.pages import Snapshots
from whim.serve.store import LogReader
from whim.types import ChangeEvent

__all__ = ["Shadows", "advance", "open_spaces", "pack", "rebuild", "unpack"]

Progress = Callable[[int], None]


def advance(
    reader: LogReader,
    held: Fold,
    number: int,
    until: int | None = None,
    progress: Progress | None = None,
) -> list[Change]:
    """Fold the rows of a space that came since; ``progress`` is told how far it is, by row."""
    found: list[Change] = []
    for block in reader.blocks(held.seq, until, number):
        found += held.apply_many(block)
        if progress is not None:
            progress(held.seq)
    return found


def rebuild(
    reader: LogReader, number: int, told: wire.ConfigRow, progress: Progress | None = None
) -> tuple[Fold, list[Change]]:
    """Fold the whole log of a space under another configuration."""
    assert told.config is not None
    held = Fold(told.config, told.version)
    return held, advance(reader, held, number, None, progress)


def wishes(reader: LogReader) -> dict[int, tuple[wire.ConfigRow, wire.ConfigRow]]:
    """Of each space by number: the configuration asked for last, and the one in force."""
    found: dict[int, tuple[wire.ConfigRow, wire.ConfigRow]] = {}
    for row in reader.configs():
        told = fold.DECODERS[row.kind].decode(row.body)
        first = row.space not in found
        if first or row.kind == fold.BUILT or told.config is None:
            found[row.space] = told, told
        else:
            found[row.space] = told, found[row.space][1]
    return found


def open_spaces(reader: LogReader) -> dict[str, tuple[int, wire.ConfigRow]]:
    """The spaces that are not retired: number and configuration in force."""
    return {
        told.name: (number, told)
        for number, (_, told) in wishes(reader).items()
        if told.config is not None
    }


class Shadows:
    """Folds that follow the log from one snapshot to the next.

    Parameters
    ----------
    reader, snapshots
        Where rows come from, and where pages go to.
    """

    def __init__(self, reader: LogReader, snapshots: Snapshots) -> None:
        self._reader, self._snapshots = reader, snapshots
        self._held: dict[int, Fold] = {}

    def snapshot(self, number: int, told: wire.ConfigRow) -> int:
        """Bring a space's shadow up to the log and write what changed; pages written."""
        held = self._held.pop(number, None)  # not kept if it stops within a row
        if held is None or held.version != told.version:
            held = self._snapshots.read(number)
        if held is None or held.version != told.version or held.seq > self._reader.last()[0]:
            assert told.config is not None
            held = Fold(told.config, told.version)
        advance(self._reader, held, number)
        pages = self._snapshots.write(number, held)
        self._held[number] = held
        return pages

    def forget(self, number: int) -> None:
        """A space was retired."""
        self._held.pop(number, None)
        self._snapshots.forget(number)


# -- changes, from one process to another -----------------------------------------------------


class _Event(msgspec.Struct, array_like=True):
    """A ``ChangeEvent``, its fields in their order, of arms as the service names them."""

    arm: str | int | None
    step: int
    plays: int
    statistic: float
    threshold: float
    theta_before: tuple[float, ...]
    theta_after: tuple[float, ...]
    window: int
    began: int | None
    p_value: float | None
    direction: tuple[float, ...]
    group: str | int | None


_NAMES = _Event.__struct_fields__


def pack(changes: list[Change]) -> bytes:
    """Changes as bytes."""
    return msgspec.msgpack.encode(
        [(c.seq, c.at, [getattr(c.event, name) for name in _NAMES]) for c in changes]
    )


def unpack(data: bytes) -> list[Change]:
    """What ``pack`` made."""
    found = msgspec.msgpack.decode(data, type=list[tuple[int, int, _Event]])
    return [
        Change(seq, at, ChangeEvent(**{name: getattr(event, name) for name in _NAMES}))
        for seq, at, event in found
    ]
