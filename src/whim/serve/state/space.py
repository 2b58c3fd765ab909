"""``Space``: the live side of a state. Requests and the clock become rows; rows become state."""

from __future__ import annotations

import contextlib
import heapq
import uuid
from collections.abc import Callable
from typing import Any, cast

import msgspec
import numpy as np

from whim.checks import LARGEST
from whim.errors import InvalidInputError, WhimError
from whim.serve import wire
from whim.serve.log import rows as log_rows
from whim.serve.log.rows import Change, FeatureValues, Kind, Row
from whim.serve.state.drawing import draws, probability
from whim.serve.state.limits import FullError, LimitError, Limits
from whim.serve.state.loggable import canonical, check_loggable, to_bytes
from whim.serve.state.reward_rules import RewardGuard
from whim.serve.state.space_state import SpaceState
from whim.serve.state.stats import MICRO
from whim.serve.wire import RewardState
from whim.types import F64

_REMEMBERED = 65_536  # rewards that closed a decision
_LITTLE = 4 << 20  # bytes of models that are moved, or that new arms get, in no time
# as plain names: an enumeration's members are slow to look up
_DECISION, _REWARD = int(Kind.DECISION), int(Kind.REWARD)
_LEARNT, _KEPT = RewardState.LEARNT, RewardState.KEPT
_DUPLICATE, _LATE = RewardState.DUPLICATE, RewardState.LATE
_WITHOUT_EFFECT = frozenset((_DUPLICATE, _LATE))
_encode = msgspec.msgpack.encode
_json = msgspec.json.Encoder().encode


class ConflictError(WhimError):
    """The same id came with another body."""


class NotFoundError(WhimError):
    """There is nothing of that name."""


class DecisionRequest(msgspec.Struct):
    """A requested decision and its outcome: an answer, as JSON, or an error.

    ``raw`` is its body in one form, and ``digest`` identifies it.
    """

    body: wire.DecisionBody
    raw: bytes = b""
    token: Any = None
    digest: bytes = b""
    answer: bytes = b""
    error: Exception | None = None
    x: Any = None
    row: Any = None
    logged: bytes = b""

    @classmethod
    def of(cls, body: wire.DecisionBody, token: Any = None) -> DecisionRequest:
        """With its one form, if it may come again."""
        return cls(body, b"" if body.decision_id is None else canonical(body), token)


def _try(step: Callable[..., Any], request: DecisionRequest, *more: Any) -> None:
    """Take a step with one request; what goes wrong is its own error and no other's."""
    if request.error is None:
        try:
            step(request, *more)
        except WhimError as error:
            request.error = error.with_traceback(None)  # which would hold all that is around it
        except Exception as error:  # a fault of ours
            request.error = error


class Space:
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
        self._learnt: dict[str, str] = {}
        self.swap(state)
        self._reserve(always=True)

    def swap(self, state: SpaceState) -> None:
        """Serve from this state; the ends of waiting are read from it."""
        self.state = state
        self._wait = round(state.config.rewards.wait_seconds * MICRO)
        self._due = [(waiting.due, key) for key, waiting in state.pending.items()]
        heapq.heapify(self._due)
        self.features = max(1, state.context.size + state.items.size)
        self._arm_bytes = state.policy.arm_bytes
        self._reserve()

    def _reserve(self, always: bool = False) -> None:
        """Have addresses for all arms that there may be, unless large models had to be moved."""
        if always or self.state.n_arms * self._arm_bytes < _LITTLE:
            with contextlib.suppress(MemoryError):  # then arrays grow as arms come
                self.state.policy.make_room(max(0, self._most_arms - self.state.n_arms))

    @property
    def _most_arms(self) -> int:
        limits = self._limits
        return min(limits.max_arms, limits.max_arm_bytes // self._arm_bytes)

    @property
    def config(self) -> wire.SpaceConfig:
        """The configuration in force."""
        return self.state.config

    # -- decisions ----------------------------------------------------------------------------

    def decide(self, requests: list[DecisionRequest], seq: int, at: int) -> list[Row]:
        """Choose for each of them; the rows, from ``seq`` on, of those that have no error.

        Step by step for all, and not one after the other: so the code and the tables that a step
        needs are still in the processor's cache for the next one.
        """
        requests = self._within_limits(requests)
        x = self._encode_contexts(requests)
        sound = [one for one in requests if one.error is None]
        self._choose_all(sound, x, at)
        for step in (self._encode_answer, self._encode_row):
            for one in sound:
                _try(step, one)
        state, rows = self.state, []
        for one in requests:
            if one.error is not None:
                continue
            row, key = one.row, one.row.id
            arm, agreed = row.arms[row.place], row.wanted == row.place
            state.add_decision(seq, at, key, arm, one.x.tobytes(), row.probability, row.mode,
                               agreed, row.deferred, row.due)  # fmt: skip
            heapq.heappush(self._due, (row.due, key))
            rows.append(Row(seq, at, self.number, _DECISION, key, one.logged))
            seq += 1
        return rows

    def _check_values(self, request: DecisionRequest) -> None:
        most, n = self._limits.max_values, len(request.body.candidates)
        if n * self.features > most:
            raise LimitError(
                f"$.candidates must be at most {most} candidates times features (max_values), "
                f"got {n} times {self.features}."
            )

    def check_batch(self, bodies: list[wire.DecisionBody]) -> None:
        """Raise if a batch is more than one request may have decided."""
        most, n = self._limits.max_batch_values, sum([len(body.candidates) for body in bodies])
        if n * self.features > most:
            raise LimitError(
                f"$.decisions must be at most {most} candidates times features in all "
                f"(max_batch_values), got {n} times {self.features}."
            )

    def work(self, body: wire.DecisionBody) -> float:
        """About how many microseconds a decision takes."""
        each = 1.0 + self.features * self.features / 1000
        if self.needs_room(body):  # as if all arms were new
            each += self._arm_bytes / 3000
        if self.state.policy.randomised:  # how likely the draw was
            each += 10.0 + 4.0 * self.features
        return 20.0 + len(body.candidates) * each

    def _within_limits(self, requests: list[DecisionRequest]) -> list[DecisionRequest]:
        """Those that are not refused for their size, or because too many wait already."""
        most, waiting = self._limits.max_waiting, len(self.state.pending)
        room, largest = max(0, most - waiting), self._limits.max_values // self.features
        if len(requests) <= room and all(len(r.body.candidates) <= largest for r in requests):
            return requests
        for one in requests[room:]:
            one.error = FullError(
                f"at most {most} decisions of {self.name} may wait for a reward (max_waiting), "
                f"got {waiting} that do."
            )
        for one in requests[:room]:
            _try(self._check_values, one)
        return [one for one in requests if one.error is None]

    def _encode_contexts(self, requests: list[DecisionRequest]) -> F64:
        """The vectors of those that have no error."""
        encode = self.state.context
        x, fits = encode.many([one.body.context for one in requests])
        for one, vector, fit in zip(requests, x, fits, strict=True):
            one.x = vector
            if not fit:
                _try(lambda one: encode(one.body.context), one)  # says why
        return x if all(fits) else x[np.array(fits)]

    def _choose_all(self, requests: list[DecisionRequest], x: F64, at: int) -> None:
        state = self.state
        lists = [one.body.candidates for one in requests]
        ranked = state.rank_many(x, lists)
        for i, one in enumerate(requests):
            arms = state.n_arms if ranked[i] is None else 0
            _try(self._choose, one, ranked[i], at)
            if arms and state.n_arms != arms:  # those that follow may know them now
                ranked[i + 1 :] = state.rank_many(x[i + 1 :], lists[i + 1 :])

    def _choose(self, request: DecisionRequest, ranked: Any, at: int) -> None:
        state, body = self.state, request.body
        key, ids = body.decision_id or uuid.uuid4().hex, cast("list[Any]", body.candidates)
        features: list[FeatureValues] | None = None
        if ranked is None:  # an arm that is new, or comes with features, or twice
            ids, features = self._split(ids)
            # what cannot be logged must change nothing: it is tried before anything is touched
            check_loggable(key, body.context, ids, features)
            self._check_new(ids)
            state.add_arms(ids, features)
            ranked = state.rank(request.x, ids)
        order, numbers = ranked
        wanted = order[0]
        place, mode = self._draw(key, wanted, len(ids))
        drawn = None
        if state.policy.randomised:
            drawn = float(state.chances(request.x, ids)[place])
        chance = probability(state.config, place, wanted, len(ids), drawn)
        request.row = log_rows.DecisionRow(
            key, body.context, ids, features, place, chance, mode, body.deferred,
            at + self._wait, wanted, request.digest, state.version, order, numbers, drawn,
        )  # fmt: skip

    def _encode_answer(self, request: DecisionRequest) -> None:
        request.answer = to_bytes(_json, log_rows.answer_of(self.name, request.row), request.row)

    def _encode_row(self, request: DecisionRequest) -> None:
        request.logged = to_bytes(_encode, request.row, request.row)

    def _split(self, candidates: list[Any]) -> tuple[list[str | int], list[FeatureValues] | None]:
        """Ids of candidates, and their features in a space that takes some."""
        full = [c.__class__ is wire.Candidate for c in candidates]
        ids = [c.id if f else c for c, f in zip(candidates, full, strict=True)]
        if len(set(ids)) != len(ids):
            first: dict[str | int, int] = {}
            twice = next(i for i, arm in enumerate(ids) if first.setdefault(arm, i) != i)
            raise InvalidInputError(f"$.candidates[{twice}] must not repeat, got {ids[twice]!r}.")
        if not self.state.items.size or not any(full):
            return ids, None
        return ids, [c.features if f else None for c, f in zip(candidates, full, strict=True)]

    def _check_new(self, ids: list[str | int]) -> None:
        """Raise if the arms that are new among these are more than the space may hold."""
        state, limits = self.state, self._limits
        arms = state.n_arms + state.count_new(ids)
        if arms == state.n_arms:
            return
        most, once = self._most_arms, limits.max_new_arm_bytes // self._arm_bytes
        if arms > most:
            by = "max_arms" if most == limits.max_arms else "max_arm_bytes"
            raise LimitError(
                f"$.candidates must leave {self.name} with at most {most} arms ({by}), "
                f"got {arms} with those that are new: retire some first."
            )
        if arms - state.n_arms > max(1, once):
            raise LimitError(
                f"$.candidates must bring at most {once} new arms at a time (max_new_arm_bytes), "
                f"got {arms - state.n_arms}."
            )

    def needs_room(self, body: wire.DecisionBody) -> bool:
        """Whether a decision's arms, if new, need so much memory that it is got beforehand."""
        return len(body.candidates) * self._arm_bytes > _LITTLE

    def make_room(self, bodies: list[wire.DecisionBody], seconds: float) -> bool:
        """Get memory for the new arms of decisions, for so long; False: call again."""
        return self.state.policy.make_room(self.brings_new(bodies), seconds)

    def brings_new(self, bodies: list[wire.DecisionBody]) -> int:
        """How many arms of decisions are new; 0, too, if they are so many that it is refused."""
        once = len(bodies) * (self._limits.max_new_arm_bytes // self._arm_bytes)
        ids = {c.id if type(c) is wire.Candidate else c for body in bodies for c in body.candidates}
        new = self.state.count_new(ids)
        return new if new <= min(self._most_arms - self.state.n_arms, once) else 0

    def _draw(self, key: str, wanted: int, n: int) -> tuple[int, wire.Mode]:
        """Which candidate is shown, and why."""
        config = self.state.config
        if not (config.shadow or config.holdback or config.explore):
            return wanted, "policy"
        u, v, w = draws(config.seed, key)
        any_place = min(int(w * n), n - 1)
        base = 0 if config.baseline == "first" else any_place
        place, mode = wanted, "policy"
        if config.shadow:
            place, mode = base, "shadow"
        elif u < config.holdback:
            place, mode = base, "holdback"
        elif v < config.explore:
            place, mode = any_place, "explore"
        return place, mode  # type: ignore[return-value]

    # -- rewards ------------------------------------------------------------------------------

    def reward(
        self, body: wire.RewardBody, seq: int, at: int
    ) -> tuple[Row | None, RewardState, list[Change]]:
        """Take a reward for a decision that is known to exist; no row if it need not be logged."""
        rules = self.config.rewards
        value = self.guard.in_range(body.value, rules)
        waiting = self.state.pending.get(body.decision_id)
        row = log_rows.RewardRow(body.decision_id, value, _KEPT, None, body.reward_id)
        if waiting is None or (at >= waiting.due and not waiting.deferred):
            again = body.reward_id is not None and self._learnt.get(row.id) == body.reward_id
            row.state = _DUPLICATE if again else _LATE
        elif body.reward_id is not None and body.reward_id in (waiting.seen or ()):
            row.state = _DUPLICATE
        elif rules.combine == "earliest":
            if waiting.count:
                row.state = _DUPLICATE
            elif not waiting.deferred:
                row.state, row.learn = _LEARNT, value
                self._remember(row.id, body.reward_id)
        elif waiting.count >= self._limits.max_rewards:
            raise LimitError(
                f"$.decision_id must have at most {self._limits.max_rewards} rewards to be summed "
                f"(max_rewards), got one more for {row.id!r}."
            )
        if row.state in _WITHOUT_EFFECT and not self.guard.logs(row.id):
            return None, row.state, []
        logged = to_bytes(_encode, row)
        changes = self.state.apply_body(seq, at, row)
        return Row(seq, at, self.number, _REWARD, None, logged), row.state, changes

    def _remember(self, key: str, reward_id: str | None) -> None:
        """What closed a decision, so that its repetition is called one: not part of the state."""
        if reward_id is not None:
            self._learnt[key] = reward_id
            if len(self._learnt) > _REMEMBERED:
                del self._learnt[next(iter(self._learnt))]

    def activate(self, key: str, seq: int, at: int) -> Row | None:
        """Begin to wait for the reward of a deferred decision: it was shown."""
        waiting = self.state.pending.get(key)
        if waiting is None or not waiting.deferred:
            return None
        due = at + self._wait
        row = log_rows.Activation(key, due)
        self.state.apply_body(seq, at, row)
        heapq.heappush(self._due, (due, key))
        return Row(seq, at, self.number, Kind.ACTIVATION, None, _encode(row))

    def expire(self, seq: int, at: int, most: int = 500) -> tuple[Row | None, list[Change]]:
        """Close decisions whose time is over: with what came, or with the default."""
        closed: list[tuple[str, float | None]] = []
        while self._due and self._due[0][0] <= at and len(closed) < most:
            due, key = heapq.heappop(self._due)
            waiting = self.state.pending.get(key)
            if waiting is None or waiting.due != due:
                continue
            if waiting.deferred:
                learn = None
            elif waiting.count:
                learn = max(-LARGEST, min(LARGEST, waiting.total))  # a sum knows no bound
            else:
                learn = self.config.rewards.default
            closed.append((key, learn))
        if not closed:
            return None, []
        row = log_rows.Expiry(closed)
        changes = self.state.apply_body(seq, at, row)
        return Row(seq, at, self.number, Kind.EXPIRY, None, _encode(row)), changes

    def retire(self, arms: list[str | int], seq: int, at: int) -> Row:
        """Retire arms by hand."""
        row = log_rows.ArmsRow(arms)
        self.state.apply_body(seq, at, row)
        return Row(seq, at, self.number, Kind.ARMS, None, _encode(row))

    @property
    def next_due(self) -> int | None:
        """When the next waiting ends."""
        return self._due[0][0] if self._due else None
