"""``Space``: the live side of a state. Requests and the clock become rows; rows become state.

Making a row changes nothing; taking it does, and does the same in every process.
"""

from __future__ import annotations

import heapq
from typing import Any

import msgspec

from whim.errors import InvalidInputError
from whim.serve import wire
from whim.serve.log import rows as log_rows
from whim.serve.log.rows import DECODERS, Change, Kind, Raw, Row
from whim.serve.state.choosing import (
    Choosing,
    ConflictError,
    DecisionRequest,
    NotFoundError,
    try_step,
)
from whim.serve.state.limits import LimitError, Limits
from whim.serve.state.loggable import to_bytes
from whim.serve.state.reward_rules import RewardGuard
from whim.serve.state.space_state import SpaceState
from whim.serve.state.waiting import WaitingList
from whim.serve.wire import RewardState

__all__ = ["ConflictError", "DecisionRequest", "NotFoundError", "Space"]

# as plain names: an enumeration's members are slow to look up
_DECISION, _REWARD = int(Kind.DECISION), int(Kind.REWARD)
_ACTIVATION, _EXPIRY = int(Kind.ACTIVATION), int(Kind.EXPIRY)
_WITHOUT_EFFECT = frozenset((RewardState.DUPLICATE, RewardState.LATE))
_OUTCOMES = 10_000  # of rewards that were taken last, for those who have not asked yet
_encode = msgspec.msgpack.encode


class Space(Choosing):
    """One bandit while it serves.

    Every method that changes something returns rows that are already applied here and must be
    committed before the caller gets a reply. ``at`` is the time of the row, in microseconds.
    """

    def __init__(
        self, number: int, name: str, state: SpaceState, limits: Limits | None = None
    ) -> None:
        self.number, self.name = number, name
        self.guard = RewardGuard()
        self._limits = limits or Limits()
        self.swap(state)
        self._reserve(always=True)

    def swap(self, state: SpaceState) -> None:
        """Serve from this state; the ends of waiting are read from it."""
        if hasattr(self, "state"):
            state.outcomes = self.state.outcomes
        self.state = state
        self._due = [(waiting.due, key) for key, waiting in state.pending.items()]
        heapq.heapify(self._due)
        self.features = max(1, state.context.size + state.items.size)
        self._arm_bytes = state.policy.arm_bytes
        self._reserve()

    # -- decisions ----------------------------------------------------------------------------

    def decide(self, requests: list[DecisionRequest], seq: int, at: int) -> list[Row]:
        """Choose for each and take it; the rows, from ``seq`` on, of those that have no error.

        It is as if they had come one after the other. Those whose arms are known change nothing
        that the next one sees, so they are chosen together.
        """
        state, rows, rest = self.state, list[Row](), requests
        while rest:
            some, rest = self._first(rest)
            self.choose(some)
            for one in some:
                try_step(self.encode_row, one)
                if one.error is not None:
                    continue
                row, key = one.row, one.row.id
                if one.new:
                    state.add_arms(row.arms, row.features)
                if row.items is not None:
                    x = [one.x.tobytes(), *(more.tobytes() for more in one.more)]
                    due = state.add_list(seq, at, row, WaitingList.of(row.items, row.arms, x))
                else:
                    arm, agreed = row.arms[row.place], row.wanted == row.place
                    due = state.add_decision(seq, at, key, arm, one.x.tobytes(), row.probability,
                                             row.mode, agreed, row.deferred)  # fmt: skip
                heapq.heappush(self._due, (due, key))
                rows.append(Row(seq, at, self.number, _DECISION, key, one.logged))
                seq += 1
        return rows

    def _first(
        self, requests: list[DecisionRequest]
    ) -> tuple[list[DecisionRequest], list[DecisionRequest]]:
        """Those that can be chosen together, and the others."""
        knows = self.state.knows
        n = next((i for i, one in enumerate(requests) if not knows(one.body.candidates)), None)
        return (requests, []) if n is None else (requests[: n or 1], requests[n or 1 :])

    # -- rewards ------------------------------------------------------------------------------

    def reward(
        self, body: wire.RewardBody, seq: int, at: int
    ) -> tuple[Row | None, RewardState, list[Change]]:
        """Take a reward for a decision that is known to exist; no row if it need not be logged."""
        row = self.reward_row(body, at)
        if row.state is not None:
            return None, row.state, []
        logged = to_bytes(_encode, row)
        state, changes = self.state.take_reward(seq, at, row)
        return Row(seq, at, self.number, _REWARD, None, logged), state, changes

    def reward_row(self, body: wire.RewardBody, at: int) -> log_rows.RewardRow:
        """A reward as it is logged; with its ``state`` if it changes nothing and is not."""
        item = self._item(body)
        value = self.guard.in_range(body.value, self.config.rewards)
        ledger = self.state.ledger
        row = log_rows.RewardRow(body.decision_id, value, None, None, body.reward_id, item)
        state = ledger.outcome(at, row)
        if state in _WITHOUT_EFFECT:
            if not self.guard.logs(row.id):
                row.state = state
        else:
            self._check_sum(row.id)
        return row

    def check_reward(self, body: wire.RewardBody, before: int = 0) -> int | None:
        """Which item of a list that waits it is for.

        Raises if it would be refused once so many others of its decision were taken.
        """
        item = self._item(body)
        self.guard.refuse(body.value, self.config.rewards)
        self._check_sum(body.decision_id, before)
        return item

    def _check_sum(self, key: str, before: int = 0) -> None:
        ledger, most = self.state.ledger, self._limits.max_rewards
        waiting = ledger.pending.get(key)
        if ledger.rules.combine == "sum" and waiting and waiting.count + before >= most:
            raise LimitError(
                f"$.decision_id must have at most {most} rewards to be summed (max_rewards), got "
                f"one more for {key!r}."
            )

    def _item(self, body: wire.RewardBody) -> int | None:
        """Which item of a list that waits a reward is for."""
        items = self.state.ledger.lists.get(body.decision_id)
        if items is not None:
            return items.item_of(body)
        for name in ("slot", "arm"):
            if getattr(body, name) is not None and body.decision_id in self.state.pending:
                raise InvalidInputError(
                    f"$.{name} must be left out: {body.decision_id!r} is a decision about one arm."
                )
        return None

    def activate(self, key: str, seq: int, at: int) -> Row | None:
        """Begin to wait for the reward of a deferred decision: it was shown."""
        row = self.activation(key)
        if row is None:
            return None
        self.state.apply_body(seq, at, row)
        self._push(key)
        return Row(seq, at, self.number, _ACTIVATION, None, _encode(row))

    def activation(self, key: str) -> log_rows.Activation | None:
        """That a deferred decision was shown, as it is logged; None if it does not wait for it."""
        waiting = self.state.pending.get(key)
        return None if waiting is None or not waiting.deferred else log_rows.Activation(key)

    def expire(self, seq: int, at: int, most: int = 500) -> tuple[Row | None, list[Change]]:
        """Close decisions whose time is over: with what came, or with the default."""
        row = self.expiry(at, most)
        if row is None:
            return None, []
        changes = self.state.apply_body(seq, at, row)
        return Row(seq, at, self.number, _EXPIRY, None, _encode(row)), changes

    def expiry(self, at: int, most: int = 500) -> log_rows.Expiry | None:
        """Decisions whose time is over, the first of them first; each is named once."""
        closed: list[str | tuple[str, float | None]] = []
        while self._due and self._due[0][0] <= at and len(closed) < most:
            due, key = heapq.heappop(self._due)
            waiting = self.state.pending.get(key)
            if waiting is not None and waiting.due == due and closed[-1:] != [key]:
                closed.append(key)
        return log_rows.Expiry(closed) if closed else None

    def not_expired(self, row: log_rows.Expiry, _: Exception | None = None) -> None:
        """What still waits of these must be named again."""
        for key in row.closed:
            self._push(str(key))

    def _push(self, key: str) -> None:
        waiting = self.state.pending.get(key)
        if waiting is not None:
            heapq.heappush(self._due, (waiting.due, key))

    def retire(self, arms: list[str | int], seq: int, at: int) -> Row:
        """Retire arms by hand."""
        row = self.retirement(arms)
        self.state.apply_body(seq, at, row)
        return Row(seq, at, self.number, Kind.ARMS, None, _encode(row))

    def retirement(self, arms: list[str | int]) -> log_rows.ArmsRow:
        """That arms are retired, as it is logged."""
        unknown = self.state.new_among(arms)
        if unknown:
            raise NotFoundError(f"$.arms must be arms of {self.name}, got {unknown[0]!r}.")
        return log_rows.ArmsRow(arms)

    @property
    def next_due(self) -> int | None:
        """When the next waiting ends."""
        return self._due[0][0] if self._due else None

    # -- rows of a log that others write, too ---------------------------------------------------

    def propose(self, requests: list[DecisionRequest]) -> None:
        """Give each its answer and its row, or an error; nothing changes by it."""
        self.choose(requests)
        for one in requests:
            try_step(self.encode_row, one)

    @staticmethod
    def encoded(row: Any) -> bytes:
        """A row as it is logged."""
        return to_bytes(_encode, row)

    def take(self, rows: list[Raw]) -> list[Change]:
        """Take rows of the log in their order."""
        state = self.state
        outcomes = state.outcomes = state.outcomes or {}
        changes = state.apply_many(rows)
        for _, _, _, kind, key, body, _ in rows:
            if kind == _DECISION and key is not None:
                self._push(key)
            elif kind == _ACTIVATION:
                self._push(DECODERS[kind].decode(body).id)
            elif kind == _EXPIRY:
                self.not_expired(DECODERS[kind].decode(body))
        if len(outcomes) > 2 * _OUTCOMES:
            for seq in list(outcomes)[:_OUTCOMES]:
                del outcomes[seq]
        return changes

    def outcome_of(self, seq: int) -> Any:
        """What became of a reward that was taken lately; whether an activation did anything."""
        return (self.state.outcomes or {})[seq]
