"""``SpaceState``: what a space knows, computed from its log. No clock, no disk, no draws.

Live requests, a restart, a rebuild under other parameters and a snapshot all end in the same
``apply``, so they cannot disagree. Deciding changes nothing: it reads the state, and the row that
it makes is applied like any other.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import numpy as np

from whim.errors import InvalidInputError
from whim.policies import from_bytes
from whim.policies.base.preview import Preview
from whim.serve import wire
from whim.serve.log import rows as log_rows
from whim.serve.log.rows import (
    DECODERS,
    Change,
    DecisionHead,
    FeatureValues,
    Kind,
    Raw,
    Row,
)
from whim.serve.state.head import Head
from whim.serve.state.ledger import Ledger
from whim.serve.state.policy import build
from whim.serve.state.since_change import SinceChange
from whim.serve.state.spans import Spans
from whim.serve.state.stats import LEFT_OUT, Pending, Stats
from whim.serve.wire import RewardState
from whim.types import F64, ChangeEvent

# as plain names: they are looked up for every row
_DECISION, _REWARD = int(Kind.DECISION), int(Kind.REWARD)
_CONFIGS = frozenset((int(Kind.CONFIG), int(Kind.BUILT)))
_PLAIN = frozenset((_DECISION, _REWARD))
_LEARNT = RewardState.LEARNT
_kind = operator.itemgetter(3)
_LISTS = 4096  # of candidates that are remembered, since pages show the same ones again and again


_decode_decision = msgspec.msgpack.Decoder(DecisionHead).decode
_decode_reward = DECODERS[_REWARD].decode
_decode_ids = msgspec.msgpack.Decoder(list[str | int]).decode
_encode = msgspec.msgpack.encode


class SpaceState:
    """A space's policy, what it waits for, and what it has counted, after row ``seq``."""

    def __init__(self, config: wire.SpaceConfig, version: int = 1) -> None:
        self.config, self.version = config, version
        self.policy, self.context, self.items = build(config)
        self.ledger = Ledger(config.rewards)
        self.stats = Stats()
        self.seq = self.skipped = 0
        # by row: what became of rewards, and whether activations did anything; where asked for
        self.outcomes: dict[int, Any] | None = None
        self._contextual = self.policy.n_features is not None
        # what ``apply_many`` has put off, and where it reports changes
        self._updates: list[tuple[int, int, str | int, bytes, float]] | None = None
        self._changes: list[Change] = []
        self._start()

    @property
    def pending(self) -> dict[str, Pending]:
        """The decisions that wait for a reward, by id."""
        return self.ledger.pending

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
                self._skip(seq, at, decision)
            else:
                self._replay_decision(seq, at, decision, x.tobytes())
            return []
        row = DECODERS[kind].decode(body)
        if kind in _CONFIGS:
            self.seq = seq
            self.ledger.configured(kind, row)
            return []
        return self.apply_body(seq, at, row)

    def apply_many(self, rows: list[Raw]) -> list[Change]:
        """The same as ``apply`` of each in order, to the last bit, and much faster.

        Contexts become vectors all at once, and rewards are learnt together up to the next row
        that touches the policy otherwise.
        """
        changes: list[Change] = []
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
        shown, ledger = iter(arms or ()), self.ledger
        for seq, at, _, kind, _, body, _ in rows:
            if kind == _DECISION:
                one, vector, fit = next(each)
                if arms is not None:  # counted already
                    self.seq = seq
                    ledger.pending[one.id] = Pending(
                        at, ledger.due(at, one.due), next(shown), vector, one.probability,
                        one.mode, one.wanted == one.place, one.deferred,
                    )  # fmt: skip
                elif fit:
                    self._replay_decision(seq, at, one, vector)
                else:
                    self._skip(seq, at, one)
            elif kind == _REWARD:
                self.take_reward(seq, at, _decode_reward(body))
            else:
                self._apply(seq, at, kind, body)

    def _count_all(self, rows: list[Raw], decisions: list[DecisionHead]) -> list[str | int] | None:
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

    def _skip(self, seq: int, at: int, row: DecisionHead) -> None:
        """Leave a decision out; what becomes of its rewards is a fact all the same."""
        self.seq = seq
        self.skipped += 1
        due = self.ledger.due(at, row.due)
        self.pending[row.id] = Pending(at, due, 0, b"", 1.0, LEFT_OUT, False, row.deferred)

    def _replay_decision(self, seq: int, at: int, row: DecisionHead, x: bytes) -> None:
        """Take a logged decision, with arms that may be new."""
        raw = bytes(row.arms)
        ids = self._lists.get(raw)
        if ids is None:
            ids = _decode_ids(raw)
            try:
                self.add_arms(ids, row.features, lenient=True)
            except InvalidInputError:
                return self._skip(seq, at, row)
            if not self.items.size:
                if len(self._lists) >= _LISTS:
                    self._lists.clear()
                self._lists[raw] = ids
        self.add_decision(
            seq, at, row.id, ids[row.place], x, row.probability, row.mode, row.wanted == row.place,
            row.deferred, row.due,
        )  # fmt: skip
        return None

    def add_decision(
        self, seq: int, at: int, key: str, arm: str | int, x: bytes, probability: float, mode: str,
        agreed: bool, deferred: bool, logged_due: int = 0,
    ) -> int:  # fmt: skip
        """Take a decision among arms that are known; until when its reward is waited for."""
        self.seq = seq
        self.stats.decided(at, mode, arm)
        due = self.ledger.due(at, logged_due)
        self.ledger.pending[key] = Pending(at, due, arm, x, probability, mode, agreed, deferred)
        return due

    def apply_body(self, seq: int, at: int, row: Any) -> list[Change]:
        """Take a reward, an end of waiting, an activation, or arms that were retired."""
        if type(row) is log_rows.RewardRow:
            return self.take_reward(seq, at, row)[1]
        self.seq = seq
        if type(row) is log_rows.Expiry:
            changes = []
            for key, learn in self.ledger.ended(at, row):
                changes += self._close(seq, at, key, learn)
            return changes
        if type(row) is log_rows.Activation:
            activated = self.ledger.activated(at, row)
            if self.outcomes is not None:
                self.outcomes[seq] = activated
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

    def take_reward(
        self, seq: int, at: int, row: log_rows.RewardRow
    ) -> tuple[RewardState, list[Change]]:
        """What becomes of a reward, and the changes of interest that it revealed."""
        self.seq = seq
        state = self.ledger.rewarded(at, row)
        self.stats.rewarded(state)
        if self.outcomes is not None:
            self.outcomes[seq] = state
        if state is _LEARNT:
            return state, self._close(seq, at, row.id, self.ledger.learnt(row))
        return state, []

    def _close(self, seq: int, at: int, key: str, learn: float | None) -> list[Change]:
        waiting = self.pending.pop(key, None)
        if waiting is None or waiting.mode == LEFT_OUT:
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
        new, rows, encoded = self._came(ids, features, lenient)
        if not self.items.size:
            if new:
                self._learn_updates()
                self.policy.add_arms(new)
                self._arms.update(new)
            return
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

    def _came(
        self, ids: list[str | int], features: list[FeatureValues] | None, lenient: bool = False
    ) -> tuple[list[str | int], dict[str | int, F64], dict[str | int, bytes]]:
        """The arms that are new; the features that are, as vectors and as they are remembered."""
        new = [] if self._arms.issuperset(ids) else [a for a in ids if a not in self._arms]
        if not self.items.size:
            return new, {}, {}
        came = [(a, f) for a, f in zip(ids, features or (), strict=False) if f is not None]
        encoded = {arm: _encode(values) for arm, values in came}
        fresh = [(arm, values) for arm, values in came if self._features.get(arm) != encoded[arm]]
        rows = {arm: self.items(values, lenient=lenient) for arm, values in fresh}
        bare = [arm for arm in new if arm not in rows]
        if bare:
            raise InvalidInputError(
                f"$.candidates must come with features the first time, got {bare[0]!r} without."
            )
        return new, rows, encoded

    @property
    def n_arms(self) -> int:
        """How many arms are live."""
        return len(self._arms)

    def knows(self, candidates: list[Any]) -> bool:
        """Whether all of these are live arms, and come without features."""
        try:
            return not self.items.size and self._arms.issuperset(candidates)
        except TypeError:  # an arm and its features
            return False

    def new_among(self, ids: Collection[Any]) -> list[str | int]:
        """Those of these arms that are not live yet."""
        return [] if self._arms.issuperset(ids) else [arm for arm in ids if arm not in self._arms]

    def preview(
        self, x: F64, ids: list[str | int], features: list[FeatureValues] | None, seed: int
    ) -> Preview:
        """What the policy thinks of arms, new ones too; it draws by the seed, and all stays."""
        rows: Mapping[str | int, F64] = self._came(ids, features)[1] if self.items.size else {}
        return self.policy.preview(x if self._contextual else None, ids, rows, seed=seed)

    def rank_many(
        self, X: F64, lists: list[list[Any]]
    ) -> list[tuple[list[int], list[float]] | None]:
        """The same for many; None where a list is not of known arms, each once.

        None for all if arms come with features, or the policy draws.
        """
        if self.items.size or self.policy.randomised:
            return [None] * len(lists)
        return self.policy.ranked_many(X if self._contextual else None, lists)

    # -- as bytes -----------------------------------------------------------------------------

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Everything: what the service keeps, and the policy's own sealed state."""
        head = Head(
            self.seq, self.version, self.config, self.pending, self.stats.to_bytes(), self.skipped,
            self.stats.since_change.to_bytes(), self.ledger.rules, self.ledger.closed_by,
            self.ledger.wanted, self.stats.spans.to_bytes(),
        )  # fmt: skip
        return msgspec.msgpack.encode(head), self.policy.to_bytes()

    @classmethod
    def from_bytes(cls, head: bytes, policy: bytes) -> SpaceState:
        """The state that ``to_bytes`` wrote."""
        stored = msgspec.msgpack.decode(head, type=Head)
        state = cls(stored.config, stored.version)
        state.policy = from_bytes(policy, source="snapshot")
        state.policy.reseed()  # whose stream an earlier version moved on
        state.seq, state.skipped = stored.seq, stored.skipped
        state.ledger = Ledger(stored.rules or stored.config.rewards)
        state.ledger.pending, state.ledger.closed_by = stored.pending, stored.closed_by
        state.ledger.wanted = stored.wanted
        state.stats = Stats.from_bytes(stored.stats)
        state.stats.since_change = SinceChange.from_bytes(stored.since_change)
        decisions = state.stats.counts["decisions"]
        state.stats.spans = Spans.from_bytes(stored.spans, decisions)
        state._start()
        return state

    def digest(self) -> str:
        """Of every bit of state but ``seq``: equal states have equal digests.

        Sums since a change, counts over time, and the rules in force are left out: a state that an
        earlier Whim wrote lacks them, and is equal nevertheless.
        """
        head, policy = self.to_bytes()
        rest = msgspec.msgpack.decode(head)
        for name in ("seq", "since_change", "spans", "rules", "wanted"):
            del rest[name]
        if not rest["closed_by"]:
            del rest["closed_by"]
        seal = hashlib.sha256(msgspec.msgpack.encode(rest, order="deterministic"))
        seal.update(policy)
        return seal.hexdigest()
