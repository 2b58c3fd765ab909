"""``Shards``: replicas of several shards behind the interface of one engine.

A space is in one shard, with its rows, its clock and its leader; what is asked of a space is asked
of the replica of that shard. So a database that is away is away for its own spaces alone. What
replicas share beside the log (keys, places, webhook cursors, what-ifs) is in the first database.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Sequence
from typing import Any, cast

from whim.serve import wire
from whim.serve.log.reader import StoreError
from whim.serve.postgres.cursors import SharedCursors
from whim.serve.postgres.queries import Queries
from whim.serve.state.clock import SteadyClock
from whim.serve.state.engine import Engine
from whim.serve.state.outgoing import tell
from whim.serve.state.placing import make_space
from whim.serve.state.recovery import Rebuilt
from whim.serve.state.replica import Replica
from whim.serve.state.space import DecisionRequest
from whim.serve.state.views import ShardView


class Shards(Engine):
    """All shards of a log, the first of the first database first; each has its own directory.

    It has no store of its own: ``parts`` have.
    """

    def __init__(self, parts: Sequence[Replica]) -> None:
        self._parts, self._first = list(parts), parts[0]
        self.data = self._first.data
        # numbers are of one sequence over all shards, so that nothing is hidden by another
        self.spaces = cast("Any", collections.ChainMap(*(one.spaces for one in parts)))
        self._wanted = cast("Any", collections.ChainMap(*(one._wanted for one in parts)))
        self._in_force = cast("Any", collections.ChainMap(*(one._in_force for one in parts)))
        self._failed = cast("Any", collections.ChainMap(*(one._failed for one in parts)))
        self.recovered = sum(one.recovered for one in parts)

    @property
    def made(self) -> int:  # type: ignore[override]
        """The number of the last space that was made."""
        return max(one.made for one in self._parts)

    @property
    def seq(self) -> int:  # type: ignore[override]
        """Rows, of all shards."""
        return sum(one.seq for one in self._parts)

    @property
    def parts(self) -> Sequence[Engine]:
        """The replica of each shard."""
        return self._parts

    def part(self, name: str) -> Replica:
        """The one that has a space; raises if none has."""
        for one in self._parts:
            if name in one.spaces:
                return one
        raise self._unknown(name)

    def _unknown(self, name: str) -> Exception:
        outgrown = [one for one in self._parts if one.is_outgrown]
        return outgrown[0]._unknown(name) if outgrown else super()._unknown(name)

    @property
    def _answering(self) -> list[Replica]:
        return [one for one in self._parts if one.refusal is None]

    # -- life ---------------------------------------------------------------------------------

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Follow all shards, and take requests, on an event loop."""
        for one in self._parts:
            one.attach(loop)

    async def caught_up(self) -> None:
        """Wait until all that was in the log when this began was taken here."""
        await asyncio.gather(*(one.caught_up() for one in self._parts))

    async def detach(self) -> None:
        """Wait for what was put, where the database answers, and let others lead."""
        await asyncio.gather(*(one.detach() for one in self._parts))

    def abandon(self, reason: str) -> None:
        """Answer all who wait."""
        for one in self._parts:
            one.abandon(reason)

    def close(self) -> None:
        """Close all."""
        for one in self._parts:
            one.close()

    # -- how it is ----------------------------------------------------------------------------

    @property
    def clock(self) -> SteadyClock:  # type: ignore[override]
        """One that is held, if there is any; else the first."""
        return next((one.clock for one in self._parts if one.clock.view.held), self._first.clock)

    def now(self) -> int:
        """Microseconds, by the first database's clock."""
        return self._first.now()

    @property
    def failed(self) -> StoreError | None:
        """Why nothing more is accepted, if no shard accepts anything."""
        failed = [one.failed for one in self._parts]
        return failed[0] if all(failed) else None

    @property
    def trouble(self) -> StoreError | None:
        """Why a shard accepts nothing more until a restart, if that is so."""
        for one in self._parts:
            if one.failed is not None:
                return StoreError(f"shard {one.shard.label}: {one.failed}")
        return None

    @property
    def shards(self) -> list[ShardView]:
        """How each shard is."""
        return [
            ShardView(one.shard.label, len(one.spaces), one.leads, *_lag(one), one.refusal)
            for one in self._parts
        ]

    @property
    def leads(self) -> bool:
        """Whether this replica leads the first shard; each has a leader of its own."""
        return self._first.leads

    @property
    def lag(self) -> tuple[int, float] | None:
        """Of the shard that is furthest behind."""
        lags = [_lag(one) for one in self._parts]
        return max(rows for rows, _ in lags), max(seconds for _, seconds in lags)

    @property
    def documents(self) -> Queries:
        """Where replicas keep what they share beside the log."""
        return self._first.documents

    def cursors(self) -> SharedCursors:
        """Where webhooks keep how far they are."""
        return self._first.cursors()

    async def know(self, name: str) -> None:
        """Wait for rows that are not here yet, of any shard; raise if one cannot be asked."""
        told = await asyncio.gather(
            *(one.know(name) for one in self._parts), return_exceptions=True
        )
        errors = [error for error in told if error is not None]
        if errors and name not in self:
            raise errors[0]

    async def settled(self, name: str | None = None) -> None:
        """Wait until what was accepted here was taken here, but not for a database that is away."""
        for one in self._answering if name is None or name not in self else [self.part(name)]:
            await one.settled()

    def send(self) -> None:
        """Have what is queued written to the copies now."""
        for one in self._parts:
            one.store.send()

    def sync(self, token: Any) -> None:
        """Have ``token`` returned once all that was put so far is told, where it can be."""
        loop, waiting = token.get_loop(), self._answering
        futures = [loop.create_future() for _ in waiting]
        for one, future in zip(waiting, futures, strict=True):
            one.sync(future)
        done = asyncio.gather(*futures)
        done.add_done_callback(lambda _: tell(token, None))

    # -- spaces -------------------------------------------------------------------------------

    def create(self, name: str, config: wire.SpaceConfig, token: Any = None) -> Any:
        """Make a space; it is there when the token comes back."""
        self._first.spawn(make_space(self._parts, name, config, token))

    def change(self, name: str, config: wire.SpaceConfig, token: Any = None) -> int:
        """Request other parameters; the version that will have them once it is built."""
        return self.part(name).change(name, config, token)

    def retire(self, name: str, token: Any = None) -> None:
        """End a space; its log stays."""
        self.part(name).retire(name, token)

    def retire_arms(self, name: str, arms: list[str | int], token: Any = None) -> None:
        """Retire arms of a space."""
        self.part(name).retire_arms(name, arms, token)

    def needs_build(self, name: str) -> bool:
        """Whether a version of a space is wanted that is not built here yet."""
        return self.part(name).needs_build(name)

    def rebuild_failed(self, name: str, version: int, message: str) -> None:
        """Record why a version cannot be built."""
        for one in self._parts:  # where there is no such space it does nothing
            one.rebuild_failed(name, version, message)

    def swap(self, name: str, rebuilt: Rebuilt, token: Any = None) -> None:
        """Have a version ready; it serves from the row on that says so, on every replica."""
        self.part(name).swap(name, rebuilt, token)

    # -- requests -----------------------------------------------------------------------------

    def decide_many(self, name: str, requests: list[DecisionRequest]) -> None:
        """Decide each on what was taken so far; a token comes back when its answer holds."""
        self.part(name).decide_many(name, requests)

    def reward(self, name: str, body: wire.RewardBody, token: Any = None) -> Any:
        """What becomes of a reward: by the token, unless it is known at once."""
        return self.part(name).reward(name, body, token)

    async def know_decision(self, name: str, key: str) -> None:
        """Wait until a decision that was made is known here, or raise: there is none."""
        await self.part(name).know_decision(name, key)

    def activate(self, name: str, key: str, token: Any = None) -> Any:
        """Whether a deferred decision was activated by this call: by the token."""
        return self.part(name).activate(name, key, token)

    def tick(self, token: Any = None, most: int | None = None) -> int | None:
        """Say what has waited long enough in the shards that this replica leads."""
        dues = [
            due - one.now() + self.now()  # clocks of databases may differ
            for one in self._parts
            if (due := one.tick(token, most)) is not None
        ]
        return min(dues, default=None)

    # -- changes of interest ------------------------------------------------------------------

    def changes(self, name: str, since: int, most: int = 1000) -> list[dict[str, Any]]:
        """Changes of a space after row ``since``, as callers see them."""
        return self.part(name).changes(name, since, most)

    def recent_changes(
        self, name: str, before: int | None = None, most: int = 20, **limited: Any
    ) -> Any:
        """The last changes of a space, newest first: row, time, and the event's fields."""
        return self.part(name).recent_changes(name, before, most, **limited)

    def count_changes(self, name: str, since: int) -> int:
        """Changes of a space from a time on, up to a thousand."""
        return self.part(name).count_changes(name, since)


def _lag(one: Replica) -> tuple[int, float]:
    lag = one.lag
    assert lag is not None
    return lag
