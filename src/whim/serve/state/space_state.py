"""``SpaceState``: what a space knows, computed from its log. No clock, no disk, no draws.

Live requests, a restart, a rebuild under other parameters and a snapshot all end in the same
``apply``, so they cannot disagree. Whatever needed a clock or a draw is a number in the row.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Collection
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from whim.errors import InvalidInputError
from whim.policies import from_bytes
from whim.serve import wire
from whim.serve.log import rows as log_rows
from whim.serve.log.rows import DECODERS, Change, FeatureValues, Kind, Raw, Row
from whim.serve.state.policy import build
from whim.serve.state.since_change import SinceChange
from whim.serve.state.stats import Pending, Stats
from whim.serve.wire import RewardState
from whim.types import F64, ChangeEvent

# as plain names: they are looked up for every row
_DECISION, _REWARD = int(Kind.DECISION), int(Kind.REWARD)
_CONFIGS = frozenset((int(Kind.CONFIG), int(Kind.BUILT)))
_PLAIN = frozenset((_DECISION, _REWARD))
_LEARNT, _IGNORED = RewardState.LEARNT, frozenset((RewardState.LATE, RewardState.DUPLICATE))
_kind = operator.itemgetter(3)
_LISTS = 4096  # of candidates that are remembered, since pages show the same ones again and again


class _LoggedDecision(Struct, array_like=True):
    """A ``DecisionRow`` as far as the state needs it, its arms not yet decoded."""

    id: str
    context: list[float] | dict[str, Any]
    arms: msgspec.Raw
    features: list[FeatureValues] | None
    place: int
    probability: float
    mode: str
    deferred: bool
    due: int
    wanted: int


class _Head(Struct):
    """What a snapshot holds beside the policy."""

    seq: int
    version: int
    config: wire.SpaceConfig
    pending: dict[str, Pending]
    stats: bytes
    skipped: int
    since_change: bytes = b""


_decode_decision = msgspec.msgpack.Decoder(_LoggedDecision).decode
_decode_reward = DECODERS[_REWARD].decode
_decode_ids = msgspec.msgpack.Decoder(list[str | int]).decode
_encode = msgspec.msgpack.encode


class SpaceState:
    """A space's policy, what it waits for, and what it has counted, after row ``seq``."""

    def __init__(self, config: wire.SpaceConfig, version: int = 1) -> None:
        self.config, self.version = config, version
        self.policy, self.context, self.items = build(config)
        self.pending: dict[str, Pending] = {}
        self.stats = Stats()
        self.seq = self.skipped = 0
        self._contextual = self.policy.n_features is not None
        # what ``apply_many`` has put off, and where it reports changes
        self._updates: list[tuple[int, int, str | int, bytes, float]] | None = None
        self._changes: list[Change] = []
        self._start()

    def _start(self) -> None:
        self._arms: set[str | int] = set(self.policy.arms)  # type: ignore[arg-type]
        self._features: dict[str | int, bytes] = {}  # those that an arm came with last
        self._lists: dict[bytes, list[str | int]] = {}

    # -- rows ---------------------------------------------------------------------------------

    def apply(self, row: Row) -> list[Change]:
        """Take a row as it was logged; the changes of interest that it revealed."""
        return self._apply(row.seq, row.at, row.kind, row.body)

    def _apply(self, seq: int, at: int, kind: int, body: bytes) -> list[Change]:
        if kind == _DECISION:
            decision = _decode_decision(body)
            try:
                x = self.context(decision.context, lenient=True)
            except InvalidInputError:  # it does not fit the features of now
                self._skip(seq)
            else:
                self._replay_decision(seq, at, decision, x.tobytes())
            return []
        if kind in _CONFIGS:
            self.seq = seq
            return []
        return self.apply_body(seq, at, DECODERS[kind].decode(body))

    def apply_many(self, rows: list[Raw]) -> list[Change]:
        """The same as ``apply`` of each in order, to the last bit, and much faster.

        Contexts become vectors all at once, and rewards are learnt together up to the next row
        that touches the policy otherwise.
        """
        changes: list[Change] = []
        if self.policy.randomised:  # its draws may depend on what it has learnt
            for seq, at, _, kind, _, body, _ in rows:
                changes += self._apply(seq, at, kind, body)
            return changes
        self._updates, self._changes = [], changes
        try:
            self._apply_all(rows)
            self._learn_updates()
        finally:
            self._updates = None
        return changes

    def _apply_all(self, rows: list[Raw]) -> None:
        decisions = [_decode_decision(row[5]) for row in rows if row[3] == _DECISION]
        x, fits = self.context.many([one.context for one in decisions], lenient=True)
        flat, size = x.tobytes(), x.itemsize * self.context.size
        vectors = [flat[i * size : (i + 1) * size] for i in range(len(decisions))]
        each = zip(decisions, vectors, fits, strict=True)
        arms = self._count_all(rows, decisions) if all(fits) else None
        shown = iter(arms or ())
        for seq, at, _, kind, _, body, _ in rows:
            if kind == _DECISION:
                one, vector, fit = next(each)
                if arms is not None:  # counted already
                    self.seq = seq
                    self.pending[one.id] = Pending(
                        at, one.due, next(shown), vector, one.probability, one.mode,
                        one.wanted == one.place, one.deferred,
                    )  # fmt: skip
                elif fit:
                    self._replay_decision(seq, at, one, vector)
                else:
                    self._skip(seq)
            elif kind == _REWARD:
                self._apply_reward(seq, at, _decode_reward(body))
            else:
                self._apply(seq, at, kind, body)

    def _count_all(
        self, rows: list[Raw], decisions: list[_LoggedDecision]
    ) -> list[str | int] | None:
        """Count all decisions at once, if that is possible; the arm of each, or else nothing.

        It is if only decisions and rewards came, and the candidates are lists that were seen.
        """
        if not {*map(_kind, rows)} <= _PLAIN:
            return None
        try:
            arms = [self._lists[bytes(one.arms)][one.place] for one in decisions]
        except KeyError:
            return None
        ats = [row[1] for row in rows if row[3] == _DECISION]
        counted = self.stats.decided_many(ats, [one.mode for one in decisions], arms)
        return arms if counted else None

    def _skip(self, seq: int) -> None:
        self.seq = seq
        self.skipped += 1

    def _replay_decision(self, seq: int, at: int, row: _LoggedDecision, x: bytes) -> None:
        """Add the arms of a logged decision; a policy that draws draws again."""
        raw = bytes(row.arms)
        ids = self._lists.get(raw)
        if ids is None:
            ids = _decode_ids(raw)
            try:
                self.add_arms(ids, row.features, lenient=True)
            except InvalidInputError:
                return self._skip(seq)
            if not self.items.size:
                if len(self._lists) >= _LISTS:
                    self._lists.clear()
                self._lists[raw] = ids
        if self.policy.randomised:  # its stream moves on, as it did live
            self.policy.select(np.frombuffer(x).copy() if self._contextual else None, ids)
        self.add_decision(
            seq, at, row.id, ids[row.place], x, row.probability, row.mode, row.wanted == row.place,
            row.deferred, row.due,
        )  # fmt: skip
        return None

    def add_decision(
        self, seq: int, at: int, key: str, arm: str | int, x: bytes, probability: float, mode: str,
        agreed: bool, deferred: bool, due: int,
    ) -> None:  # fmt: skip
        """Take a decision among arms that are known; its reward is waited for."""
        self.seq = seq
        self.stats.decided(at, mode, arm)
        self.pending[key] = Pending(at, due, arm, x, probability, mode, agreed, deferred)

    def apply_body(self, seq: int, at: int, row: Any) -> list[Change]:
        """Take a reward, an end of waiting, an activation, or arms that were retired."""
        if type(row) is log_rows.RewardRow:
            return self._apply_reward(seq, at, row)
        self.seq = seq
        if type(row) is log_rows.Expiry:
            changes = []
            for key, learn in row.closed:
                changes += self._close(seq, at, key, learn)
            return changes
        if type(row) is log_rows.Activation:
            waiting = self.pending.get(row.id)
            if waiting is not None:
                waiting.deferred, waiting.due = False, row.due
        elif type(row) is log_rows.ArmsRow:
            live = [arm for arm in row.retired if arm in self._arms]
            if live:
                self._learn_updates()
                self.policy.retire_arms(live)
                self.stats.retired(live)
                self._arms.difference_update(live)
                self._lists.clear()
                for arm in live:
                    self._features.pop(arm, None)
        return []

    def _apply_reward(self, seq: int, at: int, row: log_rows.RewardRow) -> list[Change]:
        self.seq, state = seq, row.state
        self.stats.rewarded(state)
        waiting = self.pending.get(row.id)
        if waiting is None or state in _IGNORED:
            return []
        waiting.total += row.value
        waiting.count += 1
        if row.reward_id is not None:
            if waiting.seen is None:
                waiting.seen = []
            waiting.seen.append(row.reward_id)  # in place: a copy for each would be quadratic
        if state is _LEARNT:
            return self._close(seq, at, row.id, row.learn)
        return []

    def _close(self, seq: int, at: int, key: str, learn: float | None) -> list[Change]:
        waiting = self.pending.pop(key, None)
        if waiting is None:
            return []
        live = waiting.arm in self._arms  # or retired while it waited
        self.stats.closed(at, waiting, learn, live)
        if learn is None:
            return []
        if not live:
            self.skipped += 1
            return []
        if self._updates is not None:
            self._updates.append((seq, at, waiting.arm, waiting.x, learn))
            return []
        x = np.frombuffer(waiting.x).copy() if self._contextual else None
        event = self.policy.update(waiting.arm, x, learn)
        return [] if event is None else [self._change(seq, at, event)]

    def _change(self, seq: int, at: int, event: ChangeEvent) -> Change:
        self.stats.saw_change(at, event.arm)
        return Change(seq, at, event)

    def _learn_updates(self) -> None:
        """Learn what ``apply_many`` has put off."""
        if not self._updates:
            return
        seqs, ats, arms, contexts, rewards = zip(*self._updates, strict=True)
        self._updates.clear()
        x = None
        if self._contextual:
            x = np.frombuffer(b"".join(contexts)).reshape(len(arms), -1).copy()
        before, changed = self.policy.step, {}
        for event in self.policy.update_many(arms, x, np.array(rewards, np.float64)):
            i = event.step - before - 1  # the play that revealed it
            self._changes.append(self._change(seqs[i], ats[i], event))
            changed[i] = event.arm if event.arm in self.stats.arms else None
        self.stats.since_change.recount(changed, arms, rewards)

    # -- what live decisions share with the log's ---------------------------------------------

    def add_arms(
        self, ids: list[str | int], features: list[FeatureValues] | None, *, lenient: bool = False
    ) -> None:
        """Add arms that are new; features that came are those they have from now on."""
        new = [] if self._arms.issuperset(ids) else [a for a in ids if a not in self._arms]
        if not self.items.size:
            if new:
                self._learn_updates()
                self.policy.add_arms(new)
                self._arms.update(new)
            return
        came = [(a, f) for a, f in zip(ids, features or (), strict=False) if f is not None]
        encoded = {arm: _encode(values) for arm, values in came}
        fresh = [(arm, values) for arm, values in came if self._features.get(arm) != encoded[arm]]
        rows = {arm: self.items(values, lenient=lenient) for arm, values in fresh}
        bare = [arm for arm in new if arm not in rows]
        if bare:
            raise InvalidInputError(
                f"$.candidates must come with features the first time, got {bare[0]!r} without."
            )
        old = [arm for arm in rows if arm in self._arms]
        if new or old:
            self._learn_updates()
        if new:
            self.policy.add_arms(new, np.array([rows[arm] for arm in new]))
            self._arms.update(new)
        if old:
            self.policy.set_features(old, np.array([rows[arm] for arm in old]))
        for arm in rows:
            self._features[arm] = encoded[arm]

    @property
    def n_arms(self) -> int:
        """How many arms are live."""
        return len(self._arms)

    def count_new(self, ids: Collection[Any]) -> int:
        """How many of these arms are not live yet."""
        return 0 if self._arms.issuperset(ids) else sum(arm not in self._arms for arm in ids)

    def rank(self, x: F64, ids: list[str | int]) -> tuple[list[int], list[float]]:
        """Places, best first; score, mean and width of each. A policy that draws moves on."""
        return self.policy.ranked(x if self._contextual else None, ids, draw=True)

    def chances(self, x: F64, ids: list[str | int]) -> F64:
        """How likely the policy itself is to choose each; what it has learnt decides."""
        return self.policy.probabilities(x if self._contextual else None, ids)

    def rank_many(
        self, X: F64, lists: list[list[Any]]
    ) -> list[tuple[list[int], list[float]] | None]:
        """The same for many; None where a list is not of known arms, each once.

        None for all if ranking changes something: arms come with features, or the policy draws.
        """
        if self.items.size or self.policy.randomised:
            return [None] * len(lists)
        return self.policy.ranked_many(X if self._contextual else None, lists)

    # -- as bytes -----------------------------------------------------------------------------

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Everything: what the service keeps, and the policy's own sealed state."""
        head = _Head(
            self.seq, self.version, self.config, self.pending, self.stats.to_bytes(), self.skipped,
            self.stats.since_change.to_bytes(),
        )  # fmt: skip
        return msgspec.msgpack.encode(head), self.policy.to_bytes()

    @classmethod
    def from_bytes(cls, head: bytes, policy: bytes) -> SpaceState:
        """The state that ``to_bytes`` wrote."""
        stored = msgspec.msgpack.decode(head, type=_Head)
        state = cls(stored.config, stored.version)
        state.policy = from_bytes(policy, source="snapshot")
        state.pending, state.seq, state.skipped = stored.pending, stored.seq, stored.skipped
        state.stats = Stats.from_bytes(stored.stats)
        state.stats.since_change = SinceChange.from_bytes(stored.since_change)
        state._start()
        return state

    def digest(self) -> str:
        """Of every bit of state but ``seq``: equal states have equal digests.

        Sums since a change are left out: a state that an earlier Whim wrote lacks them, and is
        equal nevertheless.
        """
        head, policy = self.to_bytes()
        rest = msgspec.msgpack.decode(head)
        del rest["seq"], rest["since_change"]
        seal = hashlib.sha256(msgspec.msgpack.encode(rest, order="deterministic"))
        seal.update(policy)
        return seal.hexdigest()
