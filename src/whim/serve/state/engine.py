"""``Engine``: all spaces, their one log, and what goes on beside requests: waiting, rebuilds.

Requests run on one thread (the event loop): compute, apply, queue the row, and wait for its
commit before the reply. Snapshots and rebuilds fold the committed log elsewhere (``behind``) and
never touch what serves until they are done.
"""

from __future__ import annotations

import collections
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from whim.errors import WhimError
from whim.serve import wire
from whim.serve.log.ids import Ids
from whim.serve.log.lock import DataLock
from whim.serve.log.store import Packed, Store, packed
from whim.serve.state import space_state as fold
from whim.serve.state.recovery import (
    Shadows,
    advance,
    advance_all,
    open_spaces,
    rebuild,
    start,
    wishes,
)
from whim.serve.state.snapshots import Snapshots
from whim.serve.state.space import Asked, ConflictError, NotFoundError, Space
from whim.serve.state.space_state import Change, Fold, Row

__all__ = ["BusyError", "Engine", "Info", "advance", "open_spaces"]

_FIRST_LOOK = 0.5  # seconds at the start, and then at each tick, for ids of old decisions
_LOOK = 0.003


class BusyError(WhimError):
    """The space has become another one meanwhile."""


class Info(msgspec.Struct, kw_only=True):
    """A space as it is told to callers."""

    name: str
    version: int
    config: wire.SpaceConfig
    wanted: int  # the version asked for last; it is being built while it is another
    rebuilding: bool
    failed: str | None  # why the version wanted could not be built
    arms: int
    waiting: int
    steps: int


class Engine:
    """Spaces over a data directory.

    Parameters
    ----------
    data
        The directory; made if it is not there.
    told
        Called with the tokens of requests whose rows are safe.
    clock
        Nanoseconds since 1970. One that goes back is held: rows never do.
    on_change
        Called after their commit with changes that were found: the name of the space, its
        version, and the change.
    """

    def __init__(
        self,
        data: Path,
        *,
        told: Callable[[list[Any], Exception | None], None] | None = None,
        clock: Callable[[], int] = time.time_ns,
        on_change: Callable[[list[tuple[str, int, Change]]], None] | None = None,
    ) -> None:
        self._clock = clock
        self._told, self._on_change = told, on_change
        self.spaces: dict[str, Space] = {}
        self._configs: dict[int, wire.ConfigRow] = {}  # the last wish of each space
        self._in_force: dict[int, wire.ConfigRow] = {}
        self._failed: dict[int, tuple[int, str]] = {}  # versions that could not be built
        self._ids = Ids()
        self._flying: dict[tuple[int, str], tuple[bytes, bytes]] = {}  # not yet committed
        self._landing: collections.deque[tuple[int, list[tuple[int, str]]]] = collections.deque()
        self._numbers = 0
        self._lock = DataLock(data)
        try:
            self.store = Store(data / "log.db", self._safe, self._news)
            try:
                self.snapshots = Snapshots(data / "snapshots.db")
                self.recovered = self._recover()
                self._ids.learn(self.store, _FIRST_LOOK)
            except BaseException:
                self.store.close()
                raise
        except BaseException:
            self._lock.release()
            raise
        self._seq, self._at = self.store.last_seq, self.store.last_at
        self._shadows = Shadows(self.store, self.snapshots)

    @property
    def ever(self) -> bool:
        """Whether there ever was a space."""
        return self._numbers > 0

    # -- time and order ---------------------------------------------------------------------

    def now(self) -> int:
        """Microseconds; never before the last row."""
        self._at = max(self._at, self._clock() // 1000)
        return self._at

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _check(self) -> None:
        if self.store.failed is not None:
            raise self.store.failed

    def _commit(self, space: Space, rows: list[Row], changes: list[Change], token: Any) -> None:
        found = [(space.number, space.fold.version, c) for c in changes] if changes else []
        self.store.append(rows, found, [] if token is None else [token])

    def _safe(self, tokens: list[Any], error: Exception | None) -> None:
        self._land()
        if self._told is not None:
            self._told(tokens, error)

    def _news(self, changes: list[tuple[int, int, Change]]) -> None:
        if self._on_change is not None:
            self._on_change([(self._configs[n].name, version, c) for n, version, c in changes])

    # -- recovery ---------------------------------------------------------------------------

    def _recover(self) -> int:
        """Last snapshot and the rest of the log, for every space; how many rows were folded."""
        folds: dict[int, Fold] = {}
        for number, (wish, told) in wishes(self.store).items():
            self._numbers = max(self._numbers, number)
            self._configs[number], self._in_force[number] = wish, told
            if told.config is None:
                continue
            held = folds[number] = start(self.store, number, told, self.snapshots.read(number))
            self.spaces[told.name] = Space(number, told.name, held)
        self.snapshots.keep(set(folds))
        count = advance_all(self.store, folds, self._configs.keys())
        for space in self.spaces.values():
            space.reschedule()
        return count

    # -- spaces -----------------------------------------------------------------------------

    def space(self, name: str) -> Space:
        """A space that serves."""
        found = self.spaces.get(name)
        if found is None:
            raise NotFoundError(f"space must be one that exists, got {name!r}.")
        return found

    def info(self, name: str) -> Info:
        """What is known about a space."""
        space = self.space(name)
        held = space.fold
        wanted = self._configs[space.number].version
        version, failed = self._failed.get(space.number, (0, None))
        if version != wanted:
            failed = None
        return Info(
            name=name, version=held.version, config=held.config, wanted=wanted, failed=failed,
            rebuilding=wanted != held.version and failed is None,
            arms=len(held.policy.arms), waiting=len(held.pending), steps=held.policy.step,
        )  # fmt: skip

    def create(self, name: str, config: wire.SpaceConfig, token: Any = None) -> Space:
        """Make a space."""
        self._check()
        if name in self.spaces:
            raise ConflictError(f"$.name must be new, got {name!r} which exists.")
        msgspec.convert(name, wire.Name)
        config = _as_read(config)
        held = Fold(config)
        self._numbers += 1
        told = wire.ConfigRow(name, 1, config)
        row = self._config_row(self._numbers, fold.CONFIG, told)
        held.seq = row.seq
        space = self.spaces[name] = Space(self._numbers, name, held)
        self._configs[space.number] = self._in_force[space.number] = told
        self._commit(space, [row], [], token)
        return space

    def _config_row(self, number: int, kind: int, told: wire.ConfigRow) -> Row:
        body = msgspec.msgpack.encode(told)
        return Row(self._next(), self.now(), number, kind, None, body)

    def change(self, name: str, config: wire.SpaceConfig, token: Any = None) -> int:
        """Ask for other parameters; the version that will have them once it is built.

        What was learnt is not lost: the whole log is folded anew under them, see ``swap``. A
        change that came before and is not built yet is given up for this one.
        """
        self._check()
        space = self.space(name)
        last = self._configs[space.number]
        config = _as_read(config)
        Fold(config)  # refuses what cannot be built
        told = wire.ConfigRow(name, last.version + 1, config)
        self._configs[space.number] = told
        self._commit(space, [self._config_row(space.number, fold.CONFIG, told)], [], token)
        return told.version

    def retire(self, name: str, token: Any = None) -> None:
        """End a space; its log stays."""
        self._check()
        space = self.space(name)
        told = wire.ConfigRow(name, self._configs[space.number].version + 1, None)
        self._configs[space.number] = self._in_force[space.number] = told
        self._commit(space, [self._config_row(space.number, fold.CONFIG, told)], [], token)
        del self.spaces[name]
        self._shadows.forget(space.number)

    # -- requests ---------------------------------------------------------------------------

    def decide(self, name: str, body: wire.DecisionBody, raw: bytes, token: Any = None) -> bytes:
        """The answer as JSON; it may be sent once ``token`` is told."""
        one = Asked(body, raw, token)
        self.decide_many(name, [one])
        if one.error is not None:
            raise one.error
        return one.answer

    def decide_many(self, name: str, asked: list[Asked]) -> None:
        """Decide each as if it had come alone: it has an answer or an error then.

        An answer may be sent once its token is told.
        """
        self._check()
        space = self.space(name)
        new: dict[str | int, Asked] = {}  # by id, or by place where the caller gives none
        for i, one in enumerate(asked):
            key = one.body.decision_id
            if key is None:
                new[i] = one
                continue
            if key in new:  # it comes twice: the first goes first
                self._decide(space, list(new.values()))
                new.clear()
            one.digest = hashlib.blake2b(one.raw, digest_size=16).digest()
            # what the filter has not seen is new for certain
            if not self._ids.add(space.number, key) or not self._repeated(space, key, one):
                new[key] = one
        self._decide(space, list(new.values()))

    def _decide(self, space: Space, asked: list[Asked]) -> None:
        rows = space.decide(asked, self._seq + 1, self.now())
        if not rows:
            return
        self._seq = rows[-1].seq
        number, tokens, keys = space.number, [], []
        for one in asked:
            if one.error is not None:
                continue
            key = number, one.row.id
            if one.digest:
                self._flying[key] = (one.digest, one.answer)
                keys.append(key)
            else:
                self._ids.add(*key)
            if one.token is not None:
                tokens.append(one.token)
        self._landing.append((self._seq, keys))
        self.store.append(rows, [], tokens)

    def _repeated(self, space: Space, key: str, one: Asked) -> bool:
        """Whether a decision was made before: its answer is given again, to the same body."""
        try:
            known = self._known(space, key)
        except WhimError as error:
            one.error = error
            return True
        if known is None:
            return False
        if known[0] != one.digest:
            one.error = ConflictError(
                f"$.decision_id must come with the same body, got another for {key!r}."
            )
            return True
        one.answer = known[1]
        self._commit(space, [], [], one.token)
        return True

    def _land(self) -> None:
        """Forget what was on its way: for what is committed the log answers."""
        committed, landing = self.store.committed, self._landing
        while landing and landing[0][0] <= committed:
            for key in landing.popleft()[1]:
                del self._flying[key]

    def _known(self, space: Space, key: str) -> tuple[bytes, bytes] | None:
        """Digest and answer of a decision that was made before."""
        flying = self._flying.get((space.number, key))
        if flying is not None:
            return flying
        if not self._ids.may_have(space.number, key):
            return None
        row = self.store.decision(space.number, key)
        if row is None:
            return None
        told = fold.DECODERS[fold.DECISION].decode(row.body)
        return told.digest, msgspec.json.encode(wire.answered(space.name, told))

    def reward(self, name: str, body: wire.RewardBody, token: Any = None) -> str:
        """What becomes of a reward: learnt, kept, duplicate or late."""
        self._check()
        space = self.space(name)
        self._must_exist(space, body.decision_id)
        row, told, changes = space.reward(body, self._seq + 1, self.now())
        self._seq += 1
        self._commit(space, [row], changes, token)
        return told.state

    def _must_exist(self, space: Space, key: str) -> None:
        if key not in space.fold.pending and self._known(space, key) is None:
            raise NotFoundError(f"$.decision_id must be a decision of {space.name}, got {key!r}.")

    def activate(self, name: str, key: str, token: Any = None) -> bool:
        """Whether a deferred decision was activated by this call."""
        self._check()
        space = self.space(name)
        self._must_exist(space, key)
        row, changes = space.activate(key, self._seq + 1, self.now())
        if row is None:
            self._commit(space, [], [], token)
            return False
        self._seq += 1
        self._commit(space, [row], changes, token)
        return True

    def retire_arms(self, name: str, arms: list[str | int], token: Any = None) -> None:
        """Retire arms of a space."""
        self._check()
        space = self.space(name)
        unknown = [arm for arm in arms if arm not in space.fold.policy.arms]
        if unknown:
            raise NotFoundError(f"$.arms must be arms of {name}, got {unknown[0]!r}.")
        row = space.retire(arms, self._seq + 1, self.now())
        self._seq += 1
        self._commit(space, [row], [], token)

    def tick(self, token: Any = None, most: int | None = None) -> int | None:
        """Close what has waited long enough; when the next waiting ends.

        With ``most``, so many of each space, so that nobody waits long; then the time may be past.
        """
        if self.store.failed is not None:
            return None
        self._land()
        self._ids.learn(self.store, _LOOK)
        nexts = []
        for space in self.spaces.values():
            while True:
                row, changes = space.expire(self._seq + 1, self.now(), most or 500)
                if row is None:
                    break
                self._seq += 1
                self._commit(space, [row], changes, token)
                if most is not None:
                    break
            if space.next_due is not None:
                nexts.append(space.next_due)
        return min(nexts, default=None)

    # -- behind the scenes ------------------------------------------------------------------

    def in_force(self, name: str) -> wire.ConfigRow:
        """The configuration that a space serves with."""
        return self._in_force[self.space(name).number]

    def snapshot(self, name: str) -> int:
        """Write what changed since the last snapshot; where no clerk does it."""
        return self._shadows.snapshot(self.space(name).number, self.in_force(name))

    def begin_rebuild(self, name: str) -> tuple[int, wire.ConfigRow]:
        """A space's number and the configuration asked for last, to be built from the log."""
        number = self.space(name).number
        return number, self._configs[number]

    def rebuilt(self, name: str) -> tuple[int, Fold, list[Packed]]:
        """Build it here, from any thread; what ``swap`` takes."""
        number, told = self.begin_rebuild(name)
        held, changes = rebuild(self.store, number, told)
        return number, held, packed(number, told.version, changes)

    def rebuild_failed(self, name: str, version: int, message: str) -> None:
        """Say why a version cannot be built; the one in force serves on until another is asked."""
        space = self.spaces.get(name)
        if space is not None and self._configs[space.number].version == version:
            self._failed[space.number] = version, message

    @property
    def given_up(self) -> dict[int, int]:
        """Versions that cannot be built, by the number of their space."""
        return {number: version for number, (version, _) in self._failed.items()}

    def catch_up(self, held: Fold, number: int) -> list[Change]:
        """Fold what was committed since a rebuild began, so that little is left for ``swap``."""
        return advance(self.store, held, number)

    def swap(
        self, name: str, number: int, held: Fold, changes: list[Packed], token: Any = None
    ) -> None:
        """Let a rebuilt fold serve, after the last few rows; on the thread that serves."""
        self._check()
        space = self.space(name)
        told = self._configs[space.number]
        if space.number != number or told.version != held.version:
            raise BusyError(f"{name} must not have been changed again while it was rebuilt.")
        self.store.flush()
        changes = changes + packed(number, held.version, advance(self.store, held, number))
        row = self._config_row(number, fold.BUILT, told)
        held.seq = row.seq
        space.fold = held
        space.reschedule()
        self._in_force[number] = told
        self._failed.pop(number, None)
        self.store.append([row], [], [] if token is None else [token], changes)

    def close(self) -> None:
        """Finish what was accepted, then close."""
        self.store.close()
        self.snapshots.close()
        self._lock.release()


def _as_read(config: wire.SpaceConfig) -> wire.SpaceConfig:
    """A configuration as it will be read from the log, numbers of the declared kinds included."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=wire.SpaceConfig)
