"""Work behind the scenes, in any process: folding the committed log for snapshots and rebuilds.

Nothing here needs an ``Engine``: a log to read, the snapshots, and which space.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import operator
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

from whim.serve import wire
from whim.serve.log.store import LogReader, StoreError
from whim.serve.state import retention
from whim.serve.state import space_state as fold
from whim.serve.state.snapshots import Snapshots
from whim.serve.state.space_state import Change, Fold, Raw
from whim.types import ChangeEvent

__all__ = [
    "Shadows",
    "advance",
    "advance_all",
    "open_spaces",
    "pack",
    "rebuild",
    "start",
    "unpack",
    "wishes",
]

Progress = Callable[[int], None]
_space = operator.itemgetter(2)


@contextlib.contextmanager
def no_sweeps() -> Iterator[None]:
    """Without sweeps for cycles: folding makes none, and the sweeps take as long as it does."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def advance(
    reader: LogReader,
    held: Fold,
    number: int,
    until: int | None = None,
    progress: Progress | None = None,
) -> list[Change]:
    """Fold the rows of a space that came since; ``progress`` is told how far it is, by row."""
    found: list[Change] = []
    began, upto, base = held.seq, reader.trimmed(), None
    if began < upto:
        base = _base(reader, number)
    with no_sweeps():
        for block in reader.blocks(held.seq, until, number):
            if block[0][0] <= upto:
                block = [row for row in block if retention.wanted(row[0], upto, base)]
            found += held.apply_many(block)
            if progress is not None:
                progress(held.seq)
    if reader.trimmed() > max(began, upto):
        raise StoreError(f"rows of space {number} must stay while they are read, got fewer.")
    return found


def advance_all(reader: LogReader, folds: dict[int, Fold], known: Collection[int]) -> int:
    """Fold the rows of many spaces, each from where it is, in one reading; how many rows.

    A row of a space that is not ``known`` is an error.
    """
    count, upto = 0, reader.trimmed()
    bases = {n: _base(reader, n) for n, held in folds.items() if held.seq < upto}
    if known and not folds:
        return 0
    with no_sweeps():
        for block in reader.blocks(min((held.seq for held in folds.values()), default=0)):
            for number, some in _by_space(block):
                if number not in known:
                    raise StoreError(
                        f"row {some[0][0]} of {reader.path.name} must be of a space that was made, "
                        f"got number {number}."
                    )
                held = folds.get(number)
                if held is None:
                    continue
                if some[0][0] <= max(held.seq, upto):
                    base, seq = bases.get(number), held.seq
                    some = [r for r in some if r[0] > seq and retention.wanted(r[0], upto, base)]
                held.apply_many(some)
                count += len(some)
    return count


def _by_space(block: list[Raw]) -> Iterable[tuple[int, list[Raw]]]:
    numbers = {*map(_space, block)}
    if len(numbers) == 1:  # as mostly, and then there is nothing to sort
        return [(numbers.pop(), block)]
    rows: dict[int, list[Raw]] = collections.defaultdict(list)
    for row in block:
        rows[row[2]].append(row)
    return rows.items()


def _base(reader: LogReader, number: int) -> retention.Base | None:
    with contextlib.closing(retention.connect(reader.path)) as connection:
        return retention.read(connection, number)


def start(reader: LogReader, number: int, told: wire.ConfigRow, held: Fold | None = None) -> Fold:
    """Where to fold a space on from: ``held``, a snapshot, if it will do, else the beginning."""
    assert told.config is not None
    upto = reader.trimmed()
    if held is not None and held.version == told.version and upto <= held.seq <= reader.last()[0]:
        return held
    base = _base(reader, number) if upto else None
    return retention.begin(base, told.config, told.version)


def rebuild(
    reader: LogReader, number: int, told: wire.ConfigRow, progress: Progress | None = None
) -> tuple[Fold, list[Change]]:
    """Fold the log of a space from the beginning, under another configuration."""
    held = start(reader, number, told)
    return held, advance(reader, held, number, None, progress)


def wishes(reader: LogReader) -> dict[int, tuple[wire.ConfigRow, wire.ConfigRow]]:
    """Of each space by number: the configuration asked for last, and the one in force."""
    found: dict[int, tuple[wire.ConfigRow, wire.ConfigRow]] = {}
    for row in reader.configs():
        told = fold.DECODERS[row.kind].decode(row.body)
        first = row.space not in found
        before = 0 if first else found[row.space][0].version
        if told.version != before + (row.kind == fold.CONFIG):
            raise StoreError(
                f"{reader.path.name} must hold every change of {told.name}, got version "
                f"{told.version} after {before}."
            )
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
            if held is None:
                self._snapshots.forget(number)  # what is there may be damaged: all of it anew
        held = start(self._reader, number, told, held)
        advance(self._reader, held, number)
        pages = self._snapshots.write(number, held)
        self._held[number] = held
        return pages

    def forget(self, number: int) -> None:
        """A space was retired."""
        self._held.pop(number, None)


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
