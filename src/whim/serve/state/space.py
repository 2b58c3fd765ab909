"""``Space``: the live side of a fold. Requests and the clock become rows; rows become state."""

from __future__ import annotations

import hashlib
import heapq
import inspect
import uuid
from collections.abc import Callable
from typing import Any, cast

import msgspec
import numpy as np

from whim.checks import LARGEST
from whim.errors import InvalidInputError, WhimError
from whim.serve import wire
from whim.serve.state import space_state as fold
from whim.serve.state.space_state import Change, Fold, Row
from whim.serve.state.stats import MICRO, ArmCounts
from whim.types import F64

__all__ = ["ArmView", "Asked", "ConflictError", "NotFoundError", "Space", "chance", "draws"]

_REMEMBERED = 65_536  # rewards that closed a decision
_encode = msgspec.msgpack.encode
_packed = msgspec.msgpack.Encoder(order="deterministic").encode
_answer = msgspec.json.Encoder().encode


class ConflictError(WhimError):
    """The same id came with another body."""


class NotFoundError(WhimError):
    """There is nothing of that name."""


def draws(seed: int, key: str) -> tuple[float, float, float]:
    """Three uniform numbers that belong to a decision: no stream, so no order to keep."""
    digest = hashlib.blake2b(f"{seed} {key}".encode("utf-8", "surrogatepass"), digest_size=24)
    data = digest.digest()
    a, b, c = (int.from_bytes(data[i : i + 8], "little") >> 11 for i in (0, 8, 16))
    return a * 2.0**-53, b * 2.0**-53, c * 2.0**-53


def chance(config: wire.SpaceConfig, place: int, wanted: int, n: int) -> float:
    """How likely the candidate at ``place`` of ``n`` is shown when the policy wants another."""
    by_base = 1.0 / n if config.baseline == "random" else float(place == 0)
    by_policy = config.explore / n + (1 - config.explore) * (place == wanted)
    share = 1.0 if config.shadow else config.holdback
    return share * by_base + (1 - share) * by_policy


def _canonical(body: msgspec.Struct) -> bytes:
    """A body as bytes that are the same for the same body."""
    try:
        return _packed(body)
    except OverflowError:  # a whole number that MessagePack has no room for
        return msgspec.json.encode(body, order="deterministic")


def _sayable(
    encode: Callable[[Any], bytes], value: Any, of: wire.DecisionRow | None = None
) -> bytes:
    """As bytes; what cannot be said is named, in a decision by its path."""
    try:
        return encode(value)
    except (OverflowError, UnicodeEncodeError) as error:
        if of is not None:
            _must_be_sayable(of.id, of.context, of.arms, of.features)
        raise InvalidInputError(
            f"$ must be text and numbers that can be logged: {error}."
        ) from None


def _must_be_sayable(
    key: str, context: Any, ids: list[str | int], features: list[wire.Told] | None
) -> None:
    try:
        _encode((key, context, ids, features))
    except (OverflowError, UnicodeEncodeError) as error:
        path = "$.decision_id" if _odd(key) else _place("$.context", context)
        for i, (arm, told) in enumerate(zip(ids, features or [None] * len(ids), strict=True)):
            if path is None:
                path = f"$.candidates[{i}]" if _odd(arm) else None
            if path is None:
                path = _place(f"$.candidates[{i}].features", told)
        raise InvalidInputError(
            f"{path or '$'} must be text and numbers that can be logged: {error}."
        ) from None


def _odd(value: Any) -> bool:
    """Whether it cannot be logged."""
    try:
        _encode(value)
    except (OverflowError, UnicodeEncodeError):
        return True
    return False


def _place(path: str, value: Any) -> str | None:
    """Where in features something cannot be logged."""
    if not _odd(value):
        return None
    names = [n for n, v in value.items() if _odd((n, v))] if isinstance(value, dict) else []
    return f"{path}.{names[0]}" if names else path


class ArmView(msgspec.Struct, kw_only=True):
    """An arm as it is shown: times shown and learnt, its mean reward with 95 %, and its trend.

    ``trend`` is the mean reward in equal stretches of time, the last one now; times are in
    microseconds since 1970.
    """

    arm: str | int
    decisions: int
    plays: int
    mean: float | None
    low: float | None
    high: float | None
    trend: list[float | None]
    last_change_at: int | None


class Asked(msgspec.Struct):
    """A decision that is asked for, and how it went: an answer, as JSON, or an error.

    ``raw`` is its body in one form, which is told from another's by its ``digest``.
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
    def of(cls, body: wire.DecisionBody, token: Any = None) -> Asked:
        """With its one form, if it may come again."""
        return cls(body, b"" if body.decision_id is None else _canonical(body), token)


def _try(step: Callable[..., Any], one: Asked, *more: Any) -> None:
    """Take a step with one; what goes wrong is its own error and no other's."""
    if one.error is None:
        try:
            step(one, *more)
        except WhimError as error:
            one.error = error.with_traceback(None)  # which would hold all that is around it
        except Exception as error:  # a fault of ours
            one.error = error


class Space:
    """One bandit while it serves.

    Every method that changes something returns rows that are already applied here and must be
    committed before the caller is told. ``at`` is the time of the row, in microseconds.
    """

    def __init__(self, number: int, name: str, held: Fold) -> None:
        self.number, self.name = number, name
        self.fold = held
        self._due: list[tuple[int, str]] = []
        self._learnt: dict[str, str] = {}
        self.reschedule()

    def reschedule(self) -> None:
        """Read the ends of waiting from the fold, after it was loaded or swapped."""
        self._wait = round(self.fold.config.rewards.wait_seconds * MICRO)
        self._due = [(waiting.due, key) for key, waiting in self.fold.pending.items()]
        heapq.heapify(self._due)

    @property
    def config(self) -> wire.SpaceConfig:
        """The configuration in force."""
        return self.fold.config

    # -- decisions --------------------------------------------------------------------------

    def decide(self, asked: list[Asked], seq: int, at: int) -> list[Row]:
        """Choose for each of them; the rows, from ``seq`` on, of those that have no error.

        Step by step for all, and not one after the other: so the code and the tables that a step
        needs are still in the processor's cache for the next one.
        """
        x = self._read(asked)
        fine = [one for one in asked if one.error is None]
        self._choose_all(fine, x, at)
        for step in (self._word, self._pack):
            for one in fine:
                _try(step, one)
        held, rows = self.fold, []
        for one in asked:
            if one.error is not None:
                continue
            row, key = one.row, one.row.id
            arm, agreed = row.arms[row.place], row.wanted == row.place
            held.decided(seq, at, key, arm, one.x.tobytes(), row.probability, row.mode, agreed,
                         row.deferred, row.due)  # fmt: skip
            heapq.heappush(self._due, (row.due, key))
            rows.append(Row(seq, at, self.number, fold.DECISION, key, one.logged))
            seq += 1
        return rows

    def _read(self, asked: list[Asked]) -> F64:
        """Contexts become vectors; those of the ones that have no error."""
        encode = self.fold.context
        x, fits = encode.many([one.body.context for one in asked])
        for one, vector, fit in zip(asked, x, fits, strict=True):
            one.x = vector
            if not fit:
                _try(lambda one: encode(one.body.context), one)  # says why
        return x if all(fits) else x[np.array(fits)]

    def _choose_all(self, asked: list[Asked], x: F64, at: int) -> None:
        held = self.fold
        lists = [one.body.candidates for one in asked]
        found = held.choose_many(x, lists)
        for i, one in enumerate(asked):
            arms = len(held.policy.arms) if found[i] is None else 0
            _try(self._choose, one, found[i], at)
            if arms and len(held.policy.arms) != arms:  # those that follow may know them now
                found[i + 1 :] = held.choose_many(x[i + 1 :], lists[i + 1 :])

    def _choose(self, one: Asked, chosen: Any, at: int) -> None:
        held, body = self.fold, one.body
        key, ids = body.decision_id or uuid.uuid4().hex, cast("list[Any]", body.candidates)
        features: list[wire.Told] | None = None
        if chosen is None:  # an arm that is new, or comes with features, or twice
            ids, features = self._asked(ids)
            # what cannot be logged must change nothing: it is tried before anything is touched
            _must_be_sayable(key, body.context, ids, features)
            held.meet(ids, features)
            chosen = held.choose(one.x, ids)
        order, numbers = chosen
        wanted = order[0]
        place, mode, probability = self._draw(key, wanted, len(ids))
        one.row = wire.DecisionRow(
            key, body.context, ids, features, place, probability, mode, body.deferred,
            at + self._wait, wanted, one.digest, held.version, order, numbers,
        )  # fmt: skip

    def _word(self, one: Asked) -> None:
        one.answer = _sayable(_answer, wire.answered(self.name, one.row), one.row)

    def _pack(self, one: Asked) -> None:
        one.logged = _sayable(_encode, one.row, one.row)

    def _asked(self, given: list[Any]) -> tuple[list[str | int], list[wire.Told] | None]:
        """Ids of candidates, and their features in a space that takes some."""
        full = [c.__class__ is wire.Candidate for c in given]
        ids = [c.id if f else c for c, f in zip(given, full, strict=True)]
        if len(set(ids)) != len(ids):
            twice = next(i for i, arm in enumerate(ids) if arm in ids[:i])
            raise InvalidInputError(f"$.candidates[{twice}] must not repeat, got {ids[twice]!r}.")
        if not self.fold.items.size or not any(full):
            return ids, None
        return ids, [c.features if f else None for c, f in zip(given, full, strict=True)]

    def _draw(self, key: str, wanted: int, n: int) -> tuple[int, wire.Mode, float]:
        """Which candidate is shown, why, and how likely that was."""
        config = self.fold.config
        if not (config.shadow or config.holdback or config.explore):
            return wanted, "policy", 1.0
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
        return place, mode, chance(config, place, wanted, n)  # type: ignore[return-value]

    # -- rewards ----------------------------------------------------------------------------

    def reward(
        self, body: wire.RewardBody, seq: int, at: int
    ) -> tuple[Row, wire.RewardRow, list[Change]]:
        """Take a reward for a decision that is known to exist."""
        waiting = self.fold.pending.get(body.decision_id)
        row = wire.RewardRow(body.decision_id, body.value, "kept", None, body.reward_id)
        if waiting is None or (at >= waiting.due and not waiting.deferred):
            again = body.reward_id is not None and self._learnt.get(row.id) == body.reward_id
            row.state = "duplicate" if again else "late"
        elif body.reward_id is not None and body.reward_id in (waiting.seen or ()):
            row.state = "duplicate"
        elif self.config.rewards.combine == "earliest":
            if waiting.count:
                row.state = "duplicate"
            elif not waiting.deferred:
                row.state, row.learn = "learnt", body.value
                self._remember(row.id, body.reward_id)
        body_bytes = _sayable(_encode, row)
        changes = self.fold.took(seq, at, row)
        return Row(seq, at, self.number, fold.REWARD, None, body_bytes), row, changes

    def _remember(self, key: str, reward_id: str | None) -> None:
        """What closed a decision, so that the same one sent again is told so: not part of state."""
        if reward_id is not None:
            self._learnt[key] = reward_id
            if len(self._learnt) > _REMEMBERED:
                del self._learnt[next(iter(self._learnt))]

    def activate(self, key: str, seq: int, at: int) -> tuple[Row | None, list[Change]]:
        """A deferred decision was shown: its waiting begins."""
        waiting = self.fold.pending.get(key)
        if waiting is None or not waiting.deferred:
            return None, []
        due = at + self._wait
        row = wire.Activation(key, due)
        changes = self.fold.took(seq, at, row)
        heapq.heappush(self._due, (due, key))
        return Row(seq, at, self.number, fold.ACTIVATION, None, _encode(row)), changes

    def expire(self, seq: int, at: int, most: int = 500) -> tuple[Row | None, list[Change]]:
        """Close decisions whose time is over: with what came, or with the default."""
        closed: list[tuple[str, float | None]] = []
        while self._due and self._due[0][0] <= at and len(closed) < most:
            due, key = heapq.heappop(self._due)
            waiting = self.fold.pending.get(key)
            if waiting is None or waiting.due != due:
                continue
            rules = self.config.rewards
            if waiting.deferred:
                learn = None
            elif waiting.count:
                learn = max(-LARGEST, min(LARGEST, waiting.total))  # a sum knows no bound
            else:
                learn = rules.default
            closed.append((key, learn))
        if not closed:
            return None, []
        row = wire.Expiry(closed)
        changes = self.fold.took(seq, at, row)
        return Row(seq, at, self.number, fold.EXPIRY, None, _encode(row)), changes

    def retire(self, arms: list[str | int], seq: int, at: int) -> Row:
        """Retire arms by hand."""
        row = wire.ArmsRow(arms)
        self.fold.took(seq, at, row)
        return Row(seq, at, self.number, fold.ARMS, None, _encode(row))

    @property
    def next_due(self) -> int | None:
        """When the next waiting ends."""
        return self._due[0][0] if self._due else None

    # -- what is shown ----------------------------------------------------------------------

    def arms_view(self, at: int | None = None) -> list[ArmView]:
        """Every live arm, in the order in which they were met; ``at``: the end of the trends."""
        stats, plays = self.fold.stats, self.fold.policy.plays
        now = max((b.trend[-1][0] for b in stats.arms.values() if b.trend), default=0)
        now = now * stats.trend_width if at is None else at
        never, found = ArmCounts(), []
        arms: list[Any] = self.fold.policy.arms
        for arm in arms:
            counts = stats.arms.get(arm, never)
            low, high = counts.interval()
            found.append(
                ArmView(
                    arm=arm, decisions=counts.decisions, plays=plays(arm), mean=counts.mean(),
                    low=low, high=high,
                    trend=stats.trend(counts, now) if counts.trend else [],
                    last_change_at=max(counts.changed, stats.changed) or None,
                )
            )  # fmt: skip
        return found

    def theta(self, arm: str | int) -> dict[str, float] | None:
        """Coefficients of an arm by the names of the features, if its policy has such."""
        tell = getattr(self.fold.policy, "coefficients", None)
        if tell is None:
            return None
        try:
            found = tell(arm) if inspect.signature(tell).parameters else tell()
        except WhimError:  # one that shares its model with all
            found = tell()
        names = self.fold.context.names
        if found.shape != (len(names),):
            return None
        return dict(zip(names, found.tolist(), strict=True))
