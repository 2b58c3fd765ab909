"""``Answering``: decisions and rewards at any replica. They become rows, and wait for them."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

from whim.errors import WhimError
from whim.serve import wire
from whim.serve.log.reader import StoreError
from whim.serve.log.rows import Kind
from whim.serve.postgres.append import Appended, Entry
from whim.serve.postgres.queries import Queries
from whim.serve.state.incoming import Following
from whim.serve.state.outgoing import Act, attempt, fail, tell, too_late
from whim.serve.state.space import DecisionRequest, NotFoundError, Space

AWAY = 1.0  # seconds without an answer after which nothing more is put
_EXPIRED = 500  # decisions that one row ends


class Answering(Following):
    """What callers ask for most; the database sees to it that the same id is decided once."""

    _queries: Queries
    _seconds: float

    def _begin(self) -> None:
        super()._begin()
        self._own: dict[tuple[int, str], int] = {}  # decisions made here that are to come back
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside requests, until this is detached."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _copy(self, rows: Any, packed: Any, told: Any) -> None:
        super()._copy(rows, packed, told)
        for row in rows if self._own else ():
            if row.kind == Kind.DECISION:
                self._own.pop((row.space, row.key), None)

    # -- decisions ----------------------------------------------------------------------------

    def decide_many(self, name: str, requests: list[DecisionRequest]) -> None:
        """Decide each on what was taken so far; a token comes back when its answer holds."""
        space = self._writable(name)
        new = []
        for one in requests:
            key = one.body.decision_id
            if key is not None:
                one.digest = hashlib.blake2b(one.raw, digest_size=16).digest()
                known = not self._known.is_new(space.number, key)
                if known and self._known.repeat(space, key, one):
                    if one.error is None:
                        tell(one.token, None)
                    continue
            new.append(one)
        space.propose(new)
        sound = [one for one in new if one.error is None]
        if sound:
            entries = [Entry(space.number, Kind.DECISION, o.row.id, o.logged) for o in sound]
            self._out.put(
                entries, functools.partial(self._decided, space, sound),
                functools.partial(_fail_all, sound),
            )  # fmt: skip

    def _decided(
        self, space: Space, requests: list[DecisionRequest], appended: Appended, finish: Act
    ) -> None:
        left = len(appended.old)

        def repeat(one: DecisionRequest) -> None:
            nonlocal left
            self._repeat(space, one)
            left -= 1
            if not left:
                finish()

        for i, one in enumerate(requests):
            if i in appended.old:  # it was decided before, here or elsewhere: that is the answer
                self._out.when_taken(appended.seqs[i], functools.partial(repeat, one))
            else:
                self._own[space.number, one.row.id] = appended.seqs[i]
                tell(one.token, None)
        if not appended.old:
            finish()

    def _repeat(self, space: Space, one: DecisionRequest) -> None:
        try:
            self.store.flush()
            if not self._known.repeat(space, one.row.id, one):
                raise StoreError(f"decision {one.row.id!r} must be in the log, and is not.")
        except WhimError as error:
            one.error = error
        if one.error is None:
            tell(one.token, None)
        else:
            fail(one.token, one.error)

    # -- rewards ------------------------------------------------------------------------------

    def reward(self, name: str, body: wire.RewardBody, token: Any = None) -> Any:
        """What becomes of a reward: by the token, unless it is known at once."""
        space = self._writable(name)
        act = functools.partial(self._reward, space, body, token)
        return self._once_known(space, body.decision_id, act, token)

    def _reward(self, space: Space, body: wire.RewardBody, token: Any) -> Any:
        row = space.reward_row(body, self.store.last_at)
        if row.state is not None:
            tell(token, row.state)
            return row.state
        entry = Entry(space.number, Kind.REWARD, None, space.encoded(row))
        self._out.put_one(entry, token, space.outcome_of)
        return None

    def activate(self, name: str, key: str, token: Any = None) -> Any:
        """Whether a deferred decision was activated by this call: by the token."""
        space = self._writable(name)

        def act() -> Any:
            row = space.activation(key)
            if row is None:
                tell(token, False)
                return False
            entry = Entry(space.number, Kind.ACTIVATION, None, space.encoded(row))
            self._out.put_one(entry, token, space.outcome_of)
            return None

        return self._once_known(space, key, act, token)

    def _once_known(self, space: Space, key: str, act: Callable[[], Any], token: Any) -> Any:
        """Act at once if a decision is known here, else when it is: another replica made it."""
        if key in space.state.pending or self._known.exists(space, key):
            return act()
        seq = self._own.get((space.number, key))
        if seq is not None:
            self._out.when_taken(seq, functools.partial(attempt, act, token))
            return None
        self.spawn(self._find(space, key, act, token))
        return None

    async def know_decision(self, name: str, key: str) -> None:
        """Wait until a decision that was made is known here, or raise: there is none."""
        found = self._loop.create_future()
        self._once_known(self._writable(name), key, lambda: tell(found, None), found)
        await found

    async def _find(self, space: Space, key: str, act: Callable[[], Any], token: Any) -> None:
        try:
            await asyncio.wait_for(self._known_here(space, key), self._seconds)
            act()
        except TimeoutError:
            fail(token, too_late(self._seconds))
        except Exception as error:  # of any kind: those who wait must get an answer
            fail(token, error)

    async def _known_here(self, space: Space, key: str) -> None:
        """Wait until a decision that another replica made was taken here."""
        seq = await asyncio.to_thread(self._queries.decision, space.number, key)
        if seq is None:
            raise NotFoundError(f"$.decision_id must be a decision of {space.name}, got {key!r}.")
        await self._taken(seq)

    async def _taken(self, seq: int) -> None:
        """Wait until a row was taken here."""
        taken = self._loop.create_future()
        self._out.when_taken(seq, functools.partial(tell, taken, None))
        await taken

    def tick(self, token: Any = None, most: int | None = None) -> int | None:
        """Say what has waited long enough, if this replica leads; when the next waiting ends."""
        self._known.learn(0.003)
        if self.store.failed is not None or not self.leads or self._link.away > AWAY:
            return None
        nexts = []
        for space in self.spaces.values():
            row = space.expiry(self.now(), most or _EXPIRED)
            if row is not None:
                entry = Entry(space.number, Kind.EXPIRY, None, space.encoded(row))
                self._out.put(
                    [entry], lambda appended, finish: finish(),
                    functools.partial(space.not_expired, row),
                )  # fmt: skip
            if space.next_due is not None:
                nexts.append(space.next_due)
        return min(nexts, default=None)


def _fail_all(requests: list[DecisionRequest], error: Exception) -> None:
    for one in requests:
        one.error = error
        fail(one.token, error)
