"""``Replica``: an engine over the log that any number of replicas share, in PostgreSQL.

A request is decided here, on what was taken so far, and becomes a row of the shared log; what a row
does happens when it comes back (``incoming``). Any replica answers any request, and the database
sees to it that the same id is decided once. One of them leads: it ends waitings and says that new
versions serve.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from whim.errors import WhimError
from whim.serve import wire
from whim.serve.log.reader import LogReader, StoreError
from whim.serve.log.rows import ConfigRow, Kind
from whim.serve.log.store import CommitLimits, OnCommit, QueueFullError
from whim.serve.logging import get
from whim.serve.postgres.append import Appended, Entry
from whim.serve.postgres.connection import UnavailableError
from whim.serve.postgres.cursors import SharedCursors
from whim.serve.postgres.databases import Shard
from whim.serve.postgres.lease import Leader, Lease
from whim.serve.postgres.link import Events, Link
from whim.serve.postgres.queries import Queries
from whim.serve.postgres.trimming import trim_shared
from whim.serve.state import copied, recovery
from whim.serve.state.answering import AWAY, Answering
from whim.serve.state.limits import Limits
from whim.serve.state.outgoing import Act, Outgoing, fail, tell, too_late
from whim.serve.state.placing import make_space
from whim.serve.state.space import ConflictError, Space
from whim.serve.state.space_state import SpaceState
from whim.serve.state.totals import not_counted

_CLOCK_SECONDS = 1.0
_SETTLE_SECONDS = 1.0  # that a reading waits for what was accepted before it
_encode = msgspec.msgpack.encode


class Replica(Answering):
    """One of many over one shard of the log.

    ``on_config`` is called with a space's name when a version of it is wanted, ``on_lead`` when
    this replica begins or ceases to lead; both on the event loop. After ``max_lag`` seconds
    without the end of the log nothing more is put, as long as that is not left to others.
    """

    def __init__(
        self,
        data: Path,
        shard: Shard,
        *,
        on_commit: OnCommit | None = None,
        on_config: Callable[[str], None] = lambda name: None,
        on_lead: Callable[[bool], None] = lambda leads: None,
        commits: CommitLimits | None = None,
        limits: Limits | None = None,
        max_lag: float = float("inf"),
    ) -> None:
        self.shard, self._on_config, self._on_lead = shard, on_config, on_lead
        self._seconds, self._queue_bytes = commits or CommitLimits()
        self._max_lag = max_lag
        self.placing = 0  # spaces that are being made here
        self._queries = Queries(shard.address)
        with contextlib.ExitStack() as opened:
            opened.callback(self._queries.close)
            self._queries.set_clock()
            self._last = copied.prepare(data, shard)
            super().__init__(
                data, on_commit=on_commit, clock=self._queries.time_ns, commits=commits,
                limits=limits, copy=True,
            )  # fmt: skip
            opened.pop_all()  # they stay open
        self._begin()
        self._said_built: set[tuple[int, int]] = set()

    # -- life ---------------------------------------------------------------------------------

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Follow the log, and take requests, on an event loop."""
        super().attach(loop)
        self._loop, self._out = loop, Outgoing(loop, self._seconds)
        self._out.took(self.seq)
        events = Events(self._out.answered, self._arrive, self._link_ended)
        self._link = self._out.link = Link(
            self.shard.address, events, self.shard.number, self._last
        )
        self._link.attach(loop)
        number = self.shard.number
        lease = Lease(self.shard.address, f"leader {number}" if number else "leader")
        self._leader = Leader(lease, self._changed)
        self.spawn(self._watch())

    def _changed(self, leads: bool) -> None:  # in the leader's thread
        self._loop.call_soon_threadsafe(self._on_lead, leads)

    async def caught_up(self) -> None:
        """Wait until all that was in the log when this began was taken here."""
        while self._link.stale == float("inf") or self._arrived:
            super()._check()
            await asyncio.sleep(0.01)

    async def detach(self) -> None:
        """Wait for what was put, if the database answers, and let others lead."""
        await asyncio.to_thread(self._leader.close)
        done = self._loop.create_future()
        self._out.sync(done)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done, self._seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._link.close()
        self._out.give_up("the service has stopped.")
        self._queries.close()
        await super().detach()

    async def _watch(self) -> None:
        """Keep the time, give up on what takes too long, and say what is built if it is ours to."""
        asked, said = 0.0, False
        while True:
            await asyncio.sleep(0.1)
            if self.is_outgrown and not said:
                said = True
                get("whim").error("the log has shards that this replica does not follow: start it "
                                  "again, with the same settings as the others")  # fmt: skip
            self._out.give_up_old()
            for number in list(self._built) if self.leads else ():
                self._say_built(number)
            if self._loop.time() - asked > _CLOCK_SECONDS:
                asked = self._loop.time()
                with contextlib.suppress(WhimError):
                    await asyncio.to_thread(self._queries.set_clock)

    def abandon(self, reason: str) -> None:
        """Answer all who wait."""
        self._out.give_up(f"{reason}.")
        super().abandon(reason)

    def _link_ended(self, error: StoreError) -> None:
        """Nothing more can be read or written: a restart begins with what the log has then."""
        self.fail(str(error).rstrip("."))

    def found_damage(self, problem: str) -> None:
        """Accept nothing more; the copy is made anew at the next start."""
        copied.mark_void(self.store.path.parent, problem)
        super().found_damage(problem)

    @property
    def is_outgrown(self) -> bool:
        """Whether there are shards, or databases, that were added since this one began."""
        return self._queries.layout != self.shard.layout

    def _unknown(self, name: str) -> Exception:
        if self.is_outgrown:  # it may be on a shard that others follow
            return UnavailableError(
                f"space must be on a shard that this replica follows, and {name!r} is not: try "
                "again soon."
            )
        return super()._unknown(name)

    def _check(self) -> None:
        super()._check()
        away, stale = self._link.away, self._link.staleness
        if stale > self._max_lag:
            away = max(away, stale)
        if away > AWAY:
            raise UnavailableError(
                f"the database must answer, and has not for {away:.1f} s; try again soon."
            )
        if self._link.waiting_bytes > self._queue_bytes:
            raise QueueFullError(
                f"at most {self._queue_bytes} bytes may wait to be written, got "
                f"{self._link.waiting_bytes}; try again soon."
            )

    @property
    def leads(self) -> bool:
        """Whether this replica does what only one should."""
        return self._leader.leads

    @property
    def lag(self) -> tuple[int, float] | None:
        """Rows that have come and were not taken yet; seconds since the end of the log was seen."""
        return len(self._arrived), self._link.staleness

    @property
    def queued_bytes(self) -> int:
        """Of rows that wait to be written, to the shared log or to the copy."""
        return self._link.waiting_bytes + super().queued_bytes

    @property
    def refusal(self) -> str | None:
        """Why nothing is put now, if that is so."""
        try:
            self._check()
        except WhimError as error:
            return str(error)
        return None

    async def know(self, name: str) -> None:
        """Wait for rows that are in the log and not here yet: one may have made the space."""

        async def taken_to_the_end() -> None:
            await self._taken(await asyncio.to_thread(self._queries.end, self.shard.number))

        if name not in self.spaces:
            try:
                await asyncio.wait_for(taken_to_the_end(), self._seconds)
            except TimeoutError:
                raise too_late(self._seconds) from None

    async def settled(self, name: str | None = None) -> None:
        """Wait until what was accepted here was taken here, but not for long."""
        if self._out.appended > self.seq:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._taken(self._out.appended), _SETTLE_SECONDS)

    def trim_shared(self) -> int:
        """Remove from the shared log what was removed from the copy, if this replica leads."""
        if not self.leads:
            return 0
        with contextlib.closing(LogReader(self.store.path)) as copy:
            return trim_shared(self.shard.address, copy, self.shard.number)

    @property
    def documents(self) -> Queries:
        """Where replicas keep what they share beside the log."""
        return self._queries

    def cursors(self) -> SharedCursors:
        """Where webhooks keep how far they are: the next one to lead goes on there."""
        return SharedCursors(self._queries)

    def sync(self, token: Any) -> None:
        """Have ``token`` returned once all that was put so far is told."""
        self._out.sync(token)

    # -- spaces -------------------------------------------------------------------------------

    def retire_arms(self, name: str, arms: list[str | int], token: Any = None) -> None:
        """Retire arms of a space."""
        space = self._writable(name)
        entry = Entry(space.number, Kind.ARMS, None, space.encoded(space.retirement(arms)))
        self._out.put_one(entry, token, lambda seq: None)

    def create(self, name: str, config: wire.SpaceConfig, token: Any = None) -> Any:
        """Make a space; it is there when the token comes back."""
        self.spawn(make_space([self], name, config, token))

    def make(self, name: str, config: wire.SpaceConfig, number: int) -> asyncio.Future[bool]:
        """Make a space in the place that it was given; False if a space has that number already."""
        self._check()
        config_row = self._first_config(name, config)
        assert config_row.config is not None
        SpaceState(config_row.config)  # refuses what cannot be built
        entry = Entry(number, Kind.CONFIG, "1", _encode(config_row))
        made: asyncio.Future[bool] = self._loop.create_future()

        def done(appended: Appended, finish: Act) -> None:
            def told() -> None:
                tell(made, not appended.old)
                finish()

            self._out.when_taken(appended.seqs[0], told)

        self._out.put([entry], done, functools.partial(fail, made))
        return made

    def holds(self, number: int, name: str) -> bool:
        """Whether a space of another name has a number."""
        row = self._wanted.get(number)
        return row is not None and row.name != name

    def last_number(self, name: str) -> int:
        """Of the last space that has a name, or had it; 0 if there never was one."""
        return max((n for n, row in self._wanted.items() if row.name == name), default=0)

    def _want(self, space: Space, config: wire.SpaceConfig | None, token: Any) -> ConfigRow:
        config_row = self._next_config(space, config)
        entry = Entry(space.number, Kind.CONFIG, str(config_row.version), _encode(config_row))
        self._out.put_one(
            entry, token, lambda seq: None,
            ConflictError(f"$ must not come while {space.name} is changed by another: try again."),
        )  # fmt: skip
        return config_row

    def retire(self, name: str, token: Any = None) -> None:
        """End a space; its log stays."""
        self._want(self._writable(name), None, token)

    def swap(self, name: str, rebuilt: recovery.Rebuilt, token: Any = None) -> None:
        """Have a version ready; it serves from the row on that says so, on every replica."""
        if self._blocked == name:  # the row that says so is there, and waits to be taken
            self._said_built.add((rebuilt.number, rebuilt.state.version))
        super().swap(name, rebuilt, token)
        if self.leads and rebuilt.number in self._built:
            self._say_built(rebuilt.number)
        tell(token, None)

    def _say_built(self, number: int) -> None:
        """Append the row by which a version serves, once."""
        state, wanted = self._built[number].state, self._wanted[number]
        space, key = self._by_number(number), (number, wanted.version)
        if space is None or state.version != wanted.version:
            del self._built[number]
        elif key not in self._said_built and self._blocked is None:
            self._said_built.add(key)
            uncounted = not_counted(self.totals[space.name], state)
            row = msgspec.structs.replace(wanted, uncounted=uncounted)
            entry = Entry(number, Kind.BUILT, str(wanted.version), _encode(row))
            with contextlib.suppress(WhimError):  # then the next one to lead says it
                self._out.put(
                    [entry], lambda appended, finish: finish(),
                    lambda error: self._said_built.discard(key),
                )  # fmt: skip
