"""``make_space``: on which shard a new space is, and the space itself.

A name is on one shard for ever, so that a space which is made again goes on where it was. The first
database says which (``whim.place``), and gives the number of the space: whoever makes the same name
at the same time is given the same place, and one of them makes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from whim.serve import wire
from whim.serve.log.reader import UnavailableError
from whim.serve.postgres.queries import Place
from whim.serve.state.outgoing import fail, tell
from whim.serve.state.space import ConflictError

if TYPE_CHECKING:
    from whim.serve.state.replica import Replica


async def make_space(
    parts: Sequence[Replica], name: str, config: wire.SpaceConfig, token: Any
) -> None:
    """Make a space on one of the shards; the token gets None when it is there, or the error."""
    try:
        while not await _make(parts, name, config):
            pass
        tell(token, None)
    except Exception as error:  # of any kind: those who wait must get an answer
        fail(token, error)


async def _make(parts: Sequence[Replica], name: str, config: wire.SpaceConfig) -> bool:
    """Make a space; False if its place has another meanwhile, which is known here by now."""
    if any(name in part for part in parts):
        raise ConflictError(f"$.name must be new, got {name!r} which exists.")
    before = [part for part in parts if part.was_retired(name)]
    part = before[0] if before else _emptiest(parts)
    gone, made = part.last_number(name), max(one.made for one in parts)
    part.placing += 1
    try:
        where = part.shard
        place = await asyncio.to_thread(
            parts[0].documents.take_place, name, gone, made, where.number, where.store
        )
        found = _at(parts, place)
        if any(one.holds(place.space, name) for one in parts):  # another name has it: a new one
            place = await asyncio.to_thread(
                parts[0].documents.take_place, name, place.space, made, where.number, where.store
            )
        return await found.make(name, config, place.space)
    finally:
        part.placing -= 1


def _emptiest(parts: Sequence[Replica]) -> Replica:
    """The shard with the fewest spaces of those that answer; of several the first."""
    answering = [part for part in parts if part.refusal is None]
    return min(answering or parts, key=lambda part: len(part.spaces) + part.placing)


def _at(parts: Sequence[Replica], place: Place) -> Replica:
    for part in parts:
        if (part.shard.store, part.shard.number) == (place.store, place.shard):
            return part
    raise UnavailableError("the space is on a shard that this replica does not follow: try again.")
