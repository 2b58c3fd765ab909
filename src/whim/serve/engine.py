"""``Engine``: all spaces, their one log, and the work behind them: waiting, snapshots, rebuilds.

Requests run on one thread (the event loop): compute, apply, queue the row, and wait for its
commit before the reply. Snapshots and rebuilds fold the committed log on a thread of their own and
never touch what serves until they are done.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from whim.errors import WhimError
from whim.serve import fold, wire
from whim.serve.fold import Change, Fold, Row
from whim.serve.pages import Snapshots
from whim.serve.space import ConflictError, NotFoundError, Space
from whim.serve.store import Store

__all__ = ["BusyError", "Engine", "Info"]

_CATCH_UP = 200  # rows behind at which a rebuild is finished by the thread that serves


class BusyError(WhimError):
    """The space is being rebuilt already."""


class Info(msgspec.Struct, kw_only=True):
    """A space as it is told to callers."""

    name: str
    version: int
    config: wire.SpaceConfig
    rebuilding: bool
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
        Called from the log's thread with the tokens of requests whose rows are safe.
    clock
        Nanoseconds since 1970. One that goes back is held: rows never do.
    on_change
        Called with a space's name and each change that it reports, when its row is queued.
    """

    def __init__(
        self,
        data: Path,
        *,
        told: Callable[[list[Any], Exception | None], None] | None = None,
        clock: Callable[[], int] = time.time_ns,
        on_change: Callable[[str, Change], None] | None = None,
    ) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._on_change = on_change
        self.store = Store(data / "log.db", told)
        self.snapshots = Snapshots(data / "snapshots.db")
        self.spaces: dict[str, Space] = {}
        self._configs: dict[int, wire.ConfigRow] = {}  # the last wish of each space
        self._in_force: dict[int, wire.ConfigRow] = {}
        self._flying: dict[tuple[int, str], tuple[bytes, bytes]] = {}  # not yet committed
        self._numbers = 0
        self._shadows: dict[int, Fold] = {}
        self._snapping = threading.Lock()
        self.recovered = self._recover()
        self._seq, self._at = self.store.last_seq, self.store.last_at

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
        version = space.fold.version
        self.store.append(rows, [(space.number, version, c) for c in changes], token)
        if self._on_change is not None:
            for change in changes:
                self._on_change(space.name, change)

    # -- recovery ---------------------------------------------------------------------------

    def _recover(self) -> int:
        """Last snapshot and the rest of the log, for every space; how many rows were folded."""
        for row in self.store.configs():
            told = fold.DECODERS[row.kind].decode(row.body)
            self._numbers = max(self._numbers, row.space)
            self._configs[row.space] = told
            if row.kind == fold.BUILT or told.version == 1 or told.config is None:
                self._in_force[row.space] = told
        folds: dict[int, Fold] = {}
        for number, told in self._in_force.items():
            if told.config is None:
                continue
            held = self.snapshots.read(number)
            if held is None or held.version != told.version or held.seq > self.store.last_seq:
                held = Fold(told.config, told.version)
            folds[number] = held
            self.spaces[told.name] = Space(number, told.name, held)
        if not folds:
            return 0
        count = 0
        for row in self.store.rows(min(held.seq for held in folds.values())):
            held = folds.get(row.space)
            if held is not None and row.seq > held.seq:
                held.apply(row)
                count += 1
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
        return Info(
            name=name, version=held.version, config=held.config,
            rebuilding=self._configs[space.number].version != held.version,
            arms=len(held.policy.arms), waiting=len(held.pending), steps=held.policy.step,
        )  # fmt: skip

    def create(self, name: str, config: wire.SpaceConfig, token: Any = None) -> Space:
        """Make a space."""
        self._check()
        if name in self.spaces:
            raise ConflictError(f"name must be new, got {name!r} which exists.")
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

        What was learnt is not lost: the whole log is folded anew under them, see ``rebuild``.
        """
        self._check()
        space = self.space(name)
        last = self._configs[space.number]
        if last.version != space.fold.version:
            raise BusyError(f"{name} must not be rebuilding, got another change meanwhile.")
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
        self._shadows.pop(space.number, None)
        self.snapshots.forget(space.number)

    # -- requests ---------------------------------------------------------------------------

    def decide(self, name: str, body: wire.DecisionBody, raw: bytes, token: Any = None) -> bytes:
        """The answer as JSON; it may be sent once ``token`` is told."""
        self._check()
        space = self.space(name)
        digest = b""
        if body.decision_id is not None:
            digest = hashlib.blake2b(raw, digest_size=16).digest()
            known = self._known(space, body.decision_id)
            if known is not None:
                if known[0] != digest:
                    raise ConflictError(
                        f"$.decision_id must come with the same body, got another for "
                        f"{body.decision_id!r}."
                    )
                self.store.append([], [], token)
                return known[1]
        row, answer = space.decide(body, digest, self._seq + 1, self.now())
        self._seq += 1
        if digest:
            self._flying[space.number, row.key or ""] = (digest, answer)
        self._commit(space, [row], [], token)
        return answer

    def _known(self, space: Space, key: str) -> tuple[bytes, bytes] | None:
        """Digest and answer of a decision that was made before."""
        flying = self._flying.get((space.number, key))
        if flying is not None:
            return flying
        row = self.store.decision(space.number, key)
        if row is None:
            return None
        told = fold.DECODERS[fold.DECISION].decode(row.body)
        return told.digest, told.answer

    def landed(self, name: str, key: str) -> None:
        """A decision with an id of the caller's is committed: the log answers for it now."""
        space = self.spaces.get(name)
        if space is not None:
            self._flying.pop((space.number, key), None)

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
            self.store.append([], [], token)
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

    def tick(self, token: Any = None) -> int | None:
        """Close what has waited long enough; when the next waiting ends."""
        if self.store.failed is not None:
            return None
        nexts = []
        for space in self.spaces.values():
            while True:
                row, changes = space.expire(self._seq + 1, self.now())
                if row is None:
                    break
                self._seq += 1
                self._commit(space, [row], changes, token)
            if space.next_due is not None:
                nexts.append(space.next_due)
        return min(nexts, default=None)

    # -- behind the scenes ------------------------------------------------------------------

    def snapshot(self, name: str) -> int:
        """Bring a space's shadow up to the log and write what changed; from any thread."""
        with self._snapping:
            space = self.space(name)
            told = self._in_force[space.number]
            shadow = self._shadows.get(space.number)
            if shadow is None or shadow.version != told.version:
                shadow = self.snapshots.read(space.number)
                if shadow is None or shadow.version != told.version:
                    assert told.config is not None
                    shadow = Fold(told.config, told.version)
                self._shadows[space.number] = shadow
            try:
                self._advance(shadow, space.number)
            except BaseException:
                self._shadows.pop(space.number, None)  # it may have stopped within a row
                raise
            return self.snapshots.write(space.number, shadow)

    def _advance(self, held: Fold, number: int, until: int | None = None) -> list[Change]:
        found: list[Change] = []
        for i, row in enumerate(self.store.rows(held.seq, until, number)):
            found += held.apply(row)
            if i % 64 == 63:
                time.sleep(0)  # let those who serve go first
        return found

    def rebuilt(self, name: str) -> tuple[Fold, list[Change]]:
        """Fold the whole log under the last configuration asked for; from any thread."""
        space = self.space(name)
        told = self._configs[space.number]
        assert told.config is not None
        held = Fold(told.config, told.version)
        changes: list[Change] = []
        while True:
            before = held.seq
            changes += self._advance(held, space.number)
            if held.seq - before < _CATCH_UP:
                return held, changes

    def swap(self, name: str, held: Fold, changes: list[Change], token: Any = None) -> None:
        """Let a rebuilt fold serve, after the last few rows; on the thread that serves."""
        self._check()
        space = self.space(name)
        self.store.flush()
        changes = changes + self._advance(held, space.number)
        told = self._configs[space.number]
        if told.version != held.version:
            raise BusyError(f"{name} must not have been changed again while it was rebuilt.")
        row = self._config_row(space.number, fold.BUILT, told)
        held.seq = row.seq
        space.fold = held
        space.reschedule()
        self._in_force[space.number] = told
        self._shadows.pop(space.number, None)
        self.store.append([row], [(space.number, held.version, c) for c in changes], token)

    def close(self) -> None:
        """Finish what was accepted, then close."""
        self.store.close()
        self.snapshots.close()


def _as_read(config: wire.SpaceConfig) -> wire.SpaceConfig:
    """A configuration as it will be read from the log, numbers of the declared kinds included."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=wire.SpaceConfig)
