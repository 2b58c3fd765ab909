"""The base of a space: what stands for rows that retention has removed, and the rows that remain.

State is then computed from the base and the remaining rows. ``jobs.trim`` writes bases.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from whim.errors import InvalidInputError
from whim.serve.log.reader import LogReader
from whim.serve.log.rows import ArmFeatures, Raw
from whim.serve.state.space_state import SpaceState
from whim.serve.wire import SpaceConfig


class BaseBody(msgspec.Struct, array_like=True):
    """A base as it is stored: the bytes of a state, and what a rebuild needs beside it.

    ``arms`` are those with features as they came last, and ``kept`` the rows that are still there:
    decisions that waited for a reward. ``since`` is the time of the first row that it has learnt
    from, if there were earlier ones (microseconds), else 0.
    """

    at: int
    head: bytes
    policy: bytes
    arms: list[ArmFeatures]
    kept: list[int]
    since: int


class Base(NamedTuple):
    """The base of a space up to row ``seq``."""

    seq: int
    version: int
    body: BaseBody
    kept: frozenset[int]

    def state(self) -> SpaceState:
        """What it had learnt."""
        state = SpaceState.from_bytes(self.body.head, self.body.policy)
        state.seq = self.seq
        return state


def read_base(reader: LogReader, number: int) -> Base | None:
    """The base of a space, if rows of it were removed."""
    stored = reader.base(number)
    if stored is None:
        return None
    seq, version, data = stored
    body = msgspec.msgpack.decode(data, type=BaseBody)
    return Base(seq, version, body, frozenset(body.kept))


def begin(base: Base | None, config: SpaceConfig, version: int) -> SpaceState:
    """The state from which a space is replayed: its base, or nothing learnt.

    What a base learnt is of one version. Another one learns from the rows that remain.
    """
    if base is not None and base.version == version:
        return base.state()
    state = SpaceState(config, version)
    if base is not None and state.items.size:
        for arm in base.body.arms:
            try:
                state.add_arms([arm.id], [arm.features], lenient=True)
            except InvalidInputError:  # features of another kind than the space has now
                continue
    return state


def remains(seq: int, trimmed: int, base: Base | None) -> bool:
    """Whether a row counts: after those that were trimmed, or a decision that waited then."""
    return seq > trimmed or (base is not None and seq in base.kept)


def rows_of(
    reader: LogReader, number: int, after: int = 0, until: int | None = None
) -> Iterator[list[Raw]]:
    """The rows of a space that count, in order, many at a time."""
    trimmed = reader.trimmed()
    base = read_base(reader, number) if after < trimmed else None
    for block in reader.blocks(after, until, number):
        if block[0][0] <= trimmed:
            block = [row for row in block if remains(row[0], trimmed, base)]
        if block:
            yield block
