"""``SpaceState``: what a space knows, computed from its log. No clock, no disk, no draws.

Live requests, a restart, a rebuild under other parameters and a snapshot all end in the same
``apply``, so they cannot disagree. Deciding changes nothing: it reads the state, and the row that
it makes is applied like any other.
"""

from __future__ import annotations

import hashlib
import operator
from typing import Any

import msgspec
import numpy as np

from whim.errors import InvalidInputError
from whim.policies import from_bytes
from whim.serve import wire
from whim.serve.log import rows as log_rows
from whim.serve.log.rows import (
    DECODERS,
    Change,
    DecisionHead,
    Kind,
    Raw,
    Row,
)
from whim.serve.state.arms import SpaceArms
from whim.serve.state.head import Head
from whim.serve.state.ledger import Learn, Ledger
from whim.serve.state.lists import contexts_of
from whim.serve.state.policy import build
from whim.serve.state.since_change import SinceChange
from whim.serve.state.spans import Spans
from whim.serve.state.stats import LEFT_OUT, Pending, Stats
from whim.serve.state.waiting import Play, WaitingList, list_rules
from whim.serve.wire import RewardState
from whim.types import ChangeEvent

# as plain names: they are looked up for every row
_DECISION, _REWARD = int(Kind.DECISION), int(Kind.REWARD)
_CONFIGS = frozenset((int(Kind.CONFIG), int(Kind.BUILT)))
_PLAIN = frozenset((_DECISION, _REWARD))
_LEARNT = RewardState.LEARNT
_TAKEN = frozenset((_LEARNT, RewardState.KEPT))
_kind = operator.itemgetter(3)
_LISTS = 4096  # of candidates that are remembered, since pages show the same ones again and again


_decode_decision = msgspec.msgpack.Decoder(DecisionHead).decode
_decode_reward = DECODERS[_REWARD].decode
_decode_ids = msgspec.msgpack.Decoder(list[str | int]).decode


class SpaceState(SpaceArms):
    """A space's policy, what it waits for, and what it has counted, after row ``seq``."""

    def __init__(self, config: wire.SpaceConfig, version: int = 1) -> None:
        self.config, self.version = config, version
        self.policy, self.context, self.items = build(config)
        self._list_rules = list_rules(config)
        self.ledger = Ledger(config.rewards, self._list_rules)
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

    # -- rows ---------------------------------------------------------------------------------

    def apply(self, row: Row) -> list[Change]:
        """Take a row as it was logged; the changes of interest that it revealed."""
        return self._apply(row.seq, row.at, row.kind, row.body)

    def _apply(self, seq: int, at: int, kind: int, body: bytes) -> list[Change]:
        if kind == _DECISION:
            decision = _decode_decision(body)
            try:
                x = self.context(contexts_of(decision)[0], lenient=True)
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
        contexts = [one.context if one.items is None else contexts_of(one)[0] for one in decisions]
        x, fits = self.context.many(contexts, lenient=True)
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

        It is if only decisions about one arm and rewards came, and the candidates were seen.
        """
        if not {*map(_kind, rows)} <= _PLAIN or any(one.items is not None for one in decisions):
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
        if row.items is not None:
            self.ledger.lists[row.id] = WaitingList.of(row.items, _decode_ids(bytes(row.arms)), [])

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
        if row.items is not None:
            try:
                more = [self.context(one, lenient=True) for one in contexts_of(row)[1:]]
            except InvalidInputError:
                return self._skip(seq, at, row)
            items = WaitingList.of(row.items, ids, [x, *(one.tobytes() for one in more)])
            self.add_list(seq, at, row, items)
            return None
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

    def add_list(
        self, seq: int, at: int, row: DecisionHead | log_rows.DecisionRow, items: WaitingList
    ) -> int:
        """Take a list of arms that are known; until when its rewards are waited for."""
        assert row.items is not None
        self.seq = seq
        self.stats.decided_list(at, row.mode, items.arms)
        if not row.deferred:
            self.stats.shown(items)
        own = row.own_list if isinstance(row, DecisionHead) else row.order
        due = self.ledger.due(at, row.due)
        self.ledger.pending[row.id] = Pending(
            at, due, items.arms[0], items.x[0], row.probability, row.mode,
            own == row.items.places, row.deferred,
        )  # fmt: skip
        self.ledger.lists[row.id] = items
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
            if activated and (items := self.ledger.shown_list(row.id)):
                self.stats.shown(items)
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
        items, item = self.ledger.shown_list(row.id), row.item or 0
        before = items is not None and items.clicked(item)
        state = self.ledger.rewarded(at, row)
        self.stats.rewarded(state)
        if items is not None and state in _TAKEN:
            self.stats.item_rewarded(item, row.value, items.clicked(item) - before)
        if self.outcomes is not None:
            self.outcomes[seq] = state
        if state is _LEARNT:
            return state, self._close(seq, at, row.id, self.ledger.learnt(row))
        return state, []

    def _close(self, seq: int, at: int, key: str, learn: Learn) -> list[Change]:
        waiting, items = self.pending.pop(key, None), self.ledger.lists.pop(key, None)
        if waiting is None or waiting.mode == LEFT_OUT:
            return []
        if isinstance(learn, list):
            assert items is not None
            return self._close_list(seq, at, waiting, items, learn)
        live = waiting.arm in self._arms  # or retired while it waited
        self.stats.closed(at, waiting, learn, live)
        if learn is None:
            return []
        if not live:
            self.skipped += 1
            return []
        return self._learn(seq, at, waiting.arm, waiting.x, learn)

    def _close_list(
        self, seq: int, at: int, waiting: Pending, items: WaitingList, rewards: list[float]
    ) -> list[Change]:
        """Learn from the items that were seen, one after the other, those that are live still."""
        plays = items.plays(rewards, self._list_rules)
        self.stats.closed(at, waiting, sum([play.reward for play in plays]), live=False)
        self.stats.looked_at(items)
        changes = []
        for play in plays:
            if play.arm not in self._arms:
                self.skipped += 1
                continue
            x = items.x[play.item if len(items.x) > 1 else 0]
            self.stats.learnt(at, play.arm, play.reward)
            self.stats.spans.learnt(at, waiting.at, play.arm, play.reward)
            if play.seen == 1.0:
                changes += self._learn(seq, at, play.arm, x, play.reward)
            else:
                changes += self._learn_seen(seq, at, x, play)
        return changes

    def _learn(
        self, seq: int, at: int, arm: str | int, context: bytes, reward: float
    ) -> list[Change]:
        if self._updates is not None:
            self._updates.append((seq, at, arm, context, reward))
            return []
        x = np.frombuffer(context).copy() if self._contextual else None
        event = self.policy.update(arm, x, reward)
        return [] if event is None else [self._change(seq, at, event)]

    def _learn_seen(self, seq: int, at: int, context: bytes, play: Play) -> list[Change]:
        """Learn an item that was seen with some probability, which its policy knows to count."""
        self._learn_updates()
        x = np.frombuffer(context).copy() if self._contextual else None
        events = self.policy.update_list(
            [play.arm], x, [play.reward], feedback="positions", examine=[play.seen]
        )
        changes = [self._change(seq, at, event) for event in events]
        if self._updates is None:
            return changes
        self._changes += changes
        return []

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

    # -- as bytes -----------------------------------------------------------------------------

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Everything: what the service keeps, and the policy's own sealed state."""
        head = Head(
            self.seq, self.version, self.config, self.pending, self.stats.to_bytes(), self.skipped,
            self.stats.since_change.to_bytes(), self.ledger.rules, self.ledger.closed_by,
            self.ledger.wanted, self.ledger.lists, self.ledger.list_rules, self.stats.positions,
            self.stats.spans.to_bytes(),
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
        state.ledger = Ledger(*stored.in_force)
        state.ledger.pending, state.ledger.closed_by = stored.pending, stored.closed_by
        state.ledger.wanted, state.ledger.lists = stored.wanted, stored.lists
        state.stats = Stats.from_bytes(stored.stats)
        state.stats.since_change = SinceChange.from_bytes(stored.since_change)
        state.stats.count_positions(stored.positions, map(state.ledger.shown_list, stored.lists))
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
        for name in ("seq", "since_change", "spans", "rules", "wanted", "list_rules"):
            del rest[name]
        for name in ("closed_by", "lists", "positions"):
            if not rest[name]:
                del rest[name]
        seal = hashlib.sha256(msgspec.msgpack.encode(rest, order="deterministic"))
        seal.update(policy)
        return seal.hexdigest()
