"""``Engine``: all spaces over their one log; what a service does, without a network or a loop.

Requests run on one thread (the event loop): compute, apply, queue the row, and wait for its
commit before the reply. Snapshots and rebuilds replay the committed log elsewhere (``recovery``)
and never touch what serves until they are done.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from whim.serve import wire
from whim.serve.log.configs import config_histories
from whim.serve.log.migrate import migrate
from whim.serve.log.origin import refuse_copy, refuse_moved
from whim.serve.log.reader import StoreError
from whim.serve.log.rows import Change, ConfigRow, Kind, Row
from whim.serve.log.store import CommitLimits, DataLock, OnCommit, Packed, Store, pack_changes
from whim.serve.state import recovery
from whim.serve.state.clock import SteadyClock
from whim.serve.state.known import KnownDecisions
from whim.serve.state.limits import Limits
from whim.serve.state.policy import as_logged
from whim.serve.state.snapshots import Snapshots
from whim.serve.state.space import DecisionRequest, NotFoundError, Space
from whim.serve.state.space_state import SpaceState
from whim.serve.state.spaces import Spaces
from whim.serve.state.totals import not_counted
from whim.serve.state.views import ShardView

_LEARN_AT_START = 0.5  # seconds for ids of old decisions, and then at each tick
_LEARN_PER_TICK = 0.003


class Engine(Spaces):
    """Spaces over a data directory, which is made if it is not there.

    ``on_commit`` is called once per commit with the tokens of requests whose rows are safe now, and
    with the changes of interest that they revealed. ``clock`` gives nanoseconds since 1970; one
    that goes back is held, for rows never do, and one that jumps forward by more than
    ``clock_jump`` seconds too. ``commits`` are the store's limits, ``limits`` each space's.
    ``copy``: the directory holds a copy of a log that is elsewhere (``Replica``).
    """

    def __init__(
        self,
        data: Path,
        *,
        on_commit: OnCommit | None = None,
        clock: Callable[[], int] = time.time_ns,
        clock_jump: float | None = None,
        commits: CommitLimits | None = None,
        limits: Limits | None = None,
        copy: bool = False,
    ) -> None:
        super().__init__()
        self.data = data
        self._limits = limits
        with contextlib.ExitStack() as opened:
            self._lock = DataLock(data)
            opened.callback(self._lock.release)
            refuse_moved(data)
            if not copy:
                refuse_copy(data)
            migrate(data / "log.db")
            self.store = Store(data / "log.db", on_commit, commits)
            opened.callback(self.store.close)
            self._snapshots = Snapshots(data / "snapshots.db")
            self.recovered = self._recover()
            self._known = KnownDecisions(self.store)
            self._known.learn(_LEARN_AT_START)
            opened.pop_all()  # they stay open
        self.seq = self.store.last_seq  # the last row, which may not be committed yet
        self.clock = SteadyClock(self.store.last_at, clock, jump=clock_jump)
        self._replicas = recovery.Replicas(self.store, self._snapshots)

    def _recover(self) -> int:
        """Last snapshot and the rest of the log, for every space; how many rows were replayed."""
        states: dict[int, SpaceState] = {}
        for number, history in config_histories(self.store).items():
            self.made = max(self.made, number)
            self._wanted[number], self._in_force[number] = history.wanted, history.now
            if history.now.config is not None:
                snapshot = self._snapshots.read(number)
                states[number] = recovery.start(self.store, number, history.now, snapshot)
        self._snapshots.keep(set(states))
        count = recovery.advance_all(self.store, states, self._wanted.keys())
        for number, state in states.items():
            name = self._in_force[number].name
            self.spaces[name] = Space(number, name, state, self._limits)
        return count

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit on an event loop."""
        self.store.attach(loop)

    async def caught_up(self) -> None:
        """Wait until it may serve: at once, for all there is to know was read."""

    # -- what is more where the log is shared ---------------------------------------------------

    @property
    def parts(self) -> Sequence[Engine]:
        """The engines that it consists of, each with a log and a directory of its own."""
        return [self]

    def part(self, name: str) -> Engine:
        """The one of them that has a space; raises if none has."""
        self.space(name)
        return self

    @property
    def shards(self) -> list[ShardView]:
        """How each shard is, where there are several."""
        return []

    @property
    def trouble(self) -> StoreError | None:
        """Why something is refused that only a restart may help, if that is so."""
        return self.failed

    @property
    def leads(self) -> bool:
        """Whether this one does what only one service should."""
        return True

    @property
    def lag(self) -> tuple[int, float] | None:
        """Rows and seconds behind a log that is shared; None: it is not."""
        return None

    @property
    def queued_bytes(self) -> int:
        """Of rows that wait to be written."""
        return self.store.queued_bytes

    def trim_shared(self) -> int:
        """Remove from a shared log what was removed from the copy; how many rows."""
        return 0

    def cursors(self) -> Any:
        """Where webhooks keep how far they are, if not in the data directory."""
        return None

    async def know(self, name: str) -> None:
        """Wait until it is known whether there is a space of this name."""

    async def know_decision(self, name: str, key: str) -> None:
        """Wait until a decision that was made is known, or raise: there is none.

        At once, for it is known when it is made.
        """

    async def settled(self, name: str | None = None) -> None:
        """Wait until what was accepted here, for a space or any, shows.

        At once, for it is applied before it is safe.
        """

    @property
    def documents(self) -> Any:
        """Where replicas keep what they share beside the log; None: there are no others."""
        return None

    async def detach(self) -> None:
        """Commit what was accepted and leave the event loop."""
        with contextlib.suppress(StoreError):
            self.store.detach()

    def abandon(self, reason: str) -> None:
        """Answer those who wait for a commit that does not end."""
        self.store.abandon(reason)

    # -- time, order, commits -----------------------------------------------------------------

    def now(self) -> int:
        """Microseconds; never before the last row."""
        return self.clock()

    def _check(self) -> None:
        if self.store.failed is not None:
            raise self.store.failed

    def _commit(self, space: Space, rows: list[Row], changes: list[Change], token: Any) -> None:
        tokens = [] if token is None else [token]
        if not changes:
            self.store.append(rows, tokens)
            return
        packed = pack_changes(space.number, space.state.version, changes)
        self.store.append(rows, tokens, packed, [(space.number, c) for c in changes])

    @property
    def failed(self) -> StoreError | None:
        """Why nothing more is accepted, if that is so."""
        return self.store.failed

    def fail(self, reason: str) -> None:
        """Accept nothing more."""
        self.store.failed = StoreError(reason)

    def found_damage(self, problem: str) -> None:
        """Accept nothing more: a row of the log is not as it was written."""
        self.fail(f"log.db must be sound: {problem}.")

    def send(self) -> None:
        """Have what is queued committed now, not at the end of the turn."""
        self.store.send()

    def sync(self, token: Any) -> None:
        """Have ``token`` returned once all rows queued so far are safe."""
        self.store.append([], [token])

    # -- spaces -------------------------------------------------------------------------------

    def _writable(self, name: str) -> Space:
        self._check()
        self.store.must_have_room()
        return self.space(name)

    def create(self, name: str, config: wire.SpaceConfig, token: Any = None) -> Any:
        """Make a space."""
        self._check()
        self.store.must_have_room()
        config_row = self._first_config(name, config)
        assert config_row.config is not None
        state = SpaceState(config_row.config)
        self.made += 1
        row = self._config_row(self.made, Kind.CONFIG, config_row)
        state.apply(row)
        space = self.spaces[name] = Space(self.made, name, state, self._limits)
        self._wanted[space.number] = self._in_force[space.number] = config_row
        self._commit(space, [row], [], token)
        return space

    def _config_row(self, number: int, kind: int, config_row: ConfigRow) -> Row:
        self.seq += 1
        return Row(self.seq, self.now(), number, kind, None, msgspec.msgpack.encode(config_row))

    def change(self, name: str, config: wire.SpaceConfig, token: Any = None) -> int:
        """Request other parameters; the version that will have them once it is built.

        What was learnt is not lost: the whole log is replayed with them, see ``swap``. A
        change that came before and is not built yet is given up for this one.
        """
        space, config = self._writable(name), as_logged(config)
        SpaceState(config)  # refuses what cannot be built
        return self._want(space, config, token).version

    def _want(self, space: Space, config: wire.SpaceConfig | None, token: Any) -> ConfigRow:
        config_row = self._wanted[space.number] = self._next_config(space, config)
        self._commit(space, [self._config_row(space.number, Kind.CONFIG, config_row)], [], token)
        return config_row

    def retire(self, name: str, token: Any = None) -> None:
        """End a space; its log stays."""
        space = self._writable(name)
        self._in_force[space.number] = self._want(space, None, token)
        del self.spaces[name]
        self._replicas.forget(space.number)

    # -- requests -----------------------------------------------------------------------------

    def decide(self, name: str, body: wire.DecisionBody, raw: bytes, token: Any = None) -> bytes:
        """The answer as JSON; it may be sent once ``token`` has come back."""
        request = DecisionRequest(body, raw, token)
        self.decide_many(name, [request])
        if request.error is not None:
            raise request.error
        return request.answer

    def decide_many(self, name: str, requests: list[DecisionRequest]) -> None:
        """Decide each as if it had come alone: it has an answer or an error then.

        An answer may be sent once its token has come back.
        """
        space = self._writable(name)
        self._known.forget_committed()
        new: dict[str | int, DecisionRequest] = {}  # by id, or by place where there is none
        for i, one in enumerate(requests):
            key = one.body.decision_id
            if key is None:
                new[i] = one
                continue
            if key in new:  # it comes twice: the first goes first
                self._decide(space, list(new.values()))
                new.clear()
            one.digest = hashlib.blake2b(one.raw, digest_size=16).digest()
            if self._known.is_new(space.number, key) or not self._known.repeat(space, key, one):
                new[key] = one
            elif one.error is None:
                self._commit(space, [], [], one.token)
        self._decide(space, list(new.values()))

    def _decide(self, space: Space, requests: list[DecisionRequest]) -> None:
        rows = space.decide(requests, self.seq + 1, self.now())
        if not rows:
            return
        self.seq = rows[-1].seq
        decided = [one for one in requests if one.error is None]
        self._known.add(space.number, self.seq, decided)
        self.store.append(rows, [one.token for one in decided if one.token is not None])

    def reward(self, name: str, body: wire.RewardBody, token: Any = None) -> Any:
        """What becomes of a reward."""
        space = self._writable(name)
        self._must_exist(space, body.decision_id)
        row, state, changes = space.reward(body, self.seq + 1, self.now())
        if row is not None:
            self.seq += 1
        self._commit(space, [] if row is None else [row], changes, token)
        return state

    def _must_exist(self, space: Space, key: str) -> None:
        if key not in space.state.pending and not self._known.exists(space, key):
            raise NotFoundError(f"$.decision_id must be a decision of {space.name}, got {key!r}.")

    def activate(self, name: str, key: str, token: Any = None) -> Any:
        """Whether a deferred decision was activated by this call."""
        space = self._writable(name)
        self._must_exist(space, key)
        row = space.activate(key, self.seq + 1, self.now())
        if row is not None:
            self.seq += 1
        self._commit(space, [] if row is None else [row], [], token)
        return row is not None

    def retire_arms(self, name: str, arms: list[str | int], token: Any = None) -> None:
        """Retire arms of a space."""
        space = self._writable(name)
        row = space.retire(arms, self.seq + 1, self.now())
        self.seq += 1
        self._commit(space, [row], [], token)

    def tick(self, token: Any = None, most: int | None = None) -> int | None:
        """Close what has waited long enough; when the next waiting ends.

        With ``most``, so many of each space, so that nobody waits long; then the time may be past.
        """
        if self.store.failed is not None or self.store.full:
            return None
        self._known.forget_committed()
        self._known.learn(_LEARN_PER_TICK)
        nexts = []
        for space in self.spaces.values():
            while True:
                row, changes = space.expire(self.seq + 1, self.now(), most or 500)
                if row is None:
                    break
                self.seq += 1
                self._commit(space, [row], changes, token)
                if most is not None:
                    break
            if space.next_due is not None:
                nexts.append(space.next_due)
        return min(nexts, default=None)

    # -- snapshots and rebuilds ---------------------------------------------------------------

    def snapshot(self, name: str) -> int:
        """Write what changed since the last snapshot; where no worker does it."""
        return self._replicas.snapshot(*self.in_force(name))

    def catch_up(self, state: SpaceState, number: int) -> list[Packed]:
        """Replay what was committed since a rebuild began, so that little is left for ``swap``."""
        changes = recovery.advance(self.store, state, number)
        return pack_changes(number, state.version, changes)

    def swap(self, name: str, rebuilt: recovery.Rebuilt, token: Any = None) -> None:
        """Let a rebuilt state serve, after the last few rows; on the thread that serves."""
        self._check()
        space = self.space(name)
        number, state, packed = rebuilt
        config_row = self._wanted[space.number]
        if space.number != number or config_row.version != state.version:
            raise recovery.BusyError(f"the configuration of {name} changed during the rebuild.")
        self.store.flush()
        packed = packed + self.catch_up(state, number)
        uncounted = not_counted(self.totals[name], state)
        config_row = msgspec.structs.replace(config_row, uncounted=uncounted)
        row = self._config_row(number, Kind.BUILT, config_row)
        state.apply(row)
        space.swap(state)
        self._in_force[number] = config_row
        self._failed.pop(number, None)
        self.store.append([row], [] if token is None else [token], packed)

    def close(self) -> None:
        """Finish what was accepted, then close."""
        self.store.close()
        self._snapshots.close()
        self._lock.release()
