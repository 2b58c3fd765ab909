"""``Choosing``: what is shown, and why: requests become answers and rows, and nothing changes."""

from __future__ import annotations

import contextlib
import functools
import math
import uuid
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import numpy as np

from whim.errors import InvalidInputError, WhimError
from whim.policies.base.preview import Preview
from whim.serve import wire
from whim.serve.log import rows as log_rows
from whim.serve.log.rows import FeatureValues
from whim.serve.state.drawing import draws, probability, seed_of
from whim.serve.state.limits import FullError, LimitError, Limits
from whim.serve.state.lists import (
    ListRequest,
    Shown,
    baseline,
    contexts,
    in_slot,
    slot_keys,
    uniforms,
)
from whim.serve.state.lists import probabilities as list_probabilities
from whim.serve.state.loggable import canonical, check_loggable, to_bytes
from whim.serve.state.slots import Slots
from whim.serve.state.space_state import SpaceState
from whim.serve.state.waiting import list_rules
from whim.types import F64

_LITTLE = 4 << 20  # bytes of models that are moved, or that new arms get, in no time
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
    more: Any = ()  # of a list whose slots have features: the contexts of the others
    row: Any = None
    new: bool = False  # its arms, or their features, may be
    logged: bytes = b""

    @classmethod
    def of(cls, body: wire.DecisionBody, token: Any = None) -> DecisionRequest:
        """With its one form, if it may come again."""
        return cls(body, b"" if body.decision_id is None else canonical(body), token)


def try_step(step: Callable[..., Any], request: DecisionRequest, *more: Any) -> None:
    """Take a step with one request; what goes wrong is its own error and no other's."""
    if request.error is None:
        try:
            step(request, *more)
        except WhimError as error:
            request.error = error.with_traceback(None)  # which would hold all that is around it
        except Exception as error:  # a fault of ours
            request.error = error


def _slot_features(body: wire.DecisionBody) -> list[FeatureValues] | None:
    if not isinstance(body, wire.ListBody) or body.slots is None:
        return None
    features = [slot.features for slot in body.slots]
    return features if any(one is not None for one in features) else None


def _top_context(request: DecisionRequest) -> Any:
    """What the first slot is filled for; if slots do not go with the context, that is its error."""
    body = request.body
    try:
        return contexts(body.context, _slot_features(body))[0]
    except InvalidInputError as error:
        request.error = error.with_traceback(None)
        return body.context


def _times(body: wire.DecisionBody) -> int:
    """How often the candidates are scored."""
    features = _slot_features(body)
    return 1 if features is None else len(features)


def _excluded(body: wire.DecisionBody) -> int:
    """How many candidates the slots of a list name that may not stand there."""
    slots = body.slots if isinstance(body, wire.ListBody) else None
    return sum([len(slot.exclude) for slot in slots or ()])


def _filling(body: wire.ListBody) -> float:
    """About how many microseconds it takes to fill a list and to say how likely that was."""
    if body.slots is None:
        return 2.0 * (body.k or 0)
    k, held = len(body.slots), any(one.exclude or one.baseline is not None for one in body.slots)
    return 2.0 * k if not held else (20.0 + 8.0 * k) * k + 0.3 * _excluded(body)


class Choosing:
    """A space's decisions; a subclass takes them."""

    name: str
    state: SpaceState
    features: int  # places of a context and an item together
    _limits: Limits
    _arm_bytes: int

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

    def choose(self, requests: list[DecisionRequest]) -> None:
        """Give each its answer, or an error; nothing changes by it.

        Step by step for all, and not one after the other: so the code and the tables that a step
        needs are still in the processor's cache for the next one.
        """
        requests = self._within_limits(requests)
        x = self._encode_contexts(requests)
        sound = [one for one in requests if one.error is None]
        ranked = self.state.rank_many(x, [one.body.candidates for one in sound])
        coming: set[str | int] = set()
        for one, ranking in zip(sound, ranked, strict=True):
            try_step(self._choose, one, ranking, coming)
        for one in sound:
            try_step(self._encode_answer, one)

    def _check_values(self, request: DecisionRequest) -> None:
        most, n, times = self._limits.max_values, len(request.body.candidates), _times(request.body)
        if n * self.features * times > most:
            slots = f" times {times} slots with features" if times > 1 else ""
            raise LimitError(
                f"$.candidates must be at most {most} candidates times features (max_values), "
                f"got {n} times {self.features}{slots}."
            )
        if (excluded := _excluded(request.body)) > most:
            raise LimitError(
                f"$.slots must exclude at most {most} candidates in all (max_values), "
                f"got {excluded}."
            )

    def check_batch(self, field: str, bodies: Sequence[wire.DecisionBody]) -> None:
        """Raise if a batch, in a ``field`` of its body, is more than one request may decide."""
        most = self._limits.max_batch_values
        n = sum([len(body.candidates) * _times(body) for body in bodies])
        if n * self.features > most:
            raise LimitError(
                f"$.{field} must be at most {most} candidates times features in all "
                f"(max_batch_values), got {n} times {self.features}."
            )

    def work(self, body: wire.DecisionBody) -> float:
        """About how many microseconds a decision takes."""
        each = 1.0 + self.features * self.features / 1000
        if self.needs_room(body):  # as if all arms were new
            each += self._arm_bytes / 3000
        if self.state.policy.randomised:  # how likely the draw was
            each += 10.0 + 4.0 * self.features
        filling = _filling(body) if isinstance(body, wire.ListBody) else 0.0
        return 20.0 + len(body.candidates) * each * _times(body) + filling

    def _within_limits(self, requests: list[DecisionRequest]) -> list[DecisionRequest]:
        """Those that are not refused for their size, or because too many wait already."""
        most, waiting = self._limits.max_waiting, len(self.state.pending)
        room, largest = max(0, most - waiting), self._limits.max_values // self.features
        if len(requests) <= room and all(
            len(r.body.candidates) * _times(r.body) <= largest and _excluded(r.body) <= largest
            for r in requests
        ):
            return requests
        for one in requests[room:]:
            one.error = FullError(
                f"at most {most} decisions of {self.name} may wait for a reward (max_waiting), "
                f"got {waiting} that do."
            )
        for one in requests[:room]:
            try_step(self._check_values, one)
        return [one for one in requests if one.error is None]

    def _encode_contexts(self, requests: list[DecisionRequest]) -> F64:
        """The vectors of those that have no error."""
        encode, tops = self.state.context, [_top_context(one) for one in requests]
        x, fits = encode.many(tops)
        for one, top, vector, fit in zip(requests, tops, x, fits, strict=True):
            one.x = vector
            if not fit:
                try_step(lambda one, top: self._slot_context(one.body, 0, top), one, top)
        sound = [one.error is None for one in requests]
        return x if all(sound) else x[np.array(sound)]

    def _slot_context(self, body: wire.DecisionBody, i: int, context: Any) -> F64:
        """A context with the features of slot ``i``; an error about one of these says so."""
        try:
            return self.state.context(context)
        except InvalidInputError as error:
            raise InvalidInputError(in_slot(str(error), _slot_features(body), i)) from None

    def _choose(self, request: DecisionRequest, ranked: Any, coming: set[str | int]) -> None:
        """Choose; ``coming`` are the new arms of those before it."""
        state, body = self.state, request.body
        key, ids = body.decision_id or uuid.uuid4().hex, cast("list[Any]", body.candidates)
        features: list[FeatureValues] | None = None
        chances = None
        if ranked is None:  # an arm that is new, or comes with features, or twice; or it draws
            ids, features = self._split(ids)
            check_loggable(key, body.context, ids, features)
            new = self._check_new(ids, coming)
            seed = seed_of(state.config.seed, key)
            order, numbers, chances = state.preview(request.x, ids, features, seed)
        else:
            new, (order, numbers) = [], ranked
        if isinstance(body, wire.ListBody):
            first = Preview(order, numbers, chances)
            request.row = self._list_row(request, body, key, ids, features, first)
        else:
            request.row = self._row(request, key, ids, features, Preview(order, numbers, chances))
        if ranked is None:
            coming.update(new)
            request.new = True

    def _row(
        self, request: DecisionRequest, key: str, ids: list[str | int],
        features: list[FeatureValues] | None, preview: Preview,
    ) -> log_rows.DecisionRow:  # fmt: skip
        state, body, (order, numbers, chances) = self.state, request.body, preview
        wanted = order[0]
        place, mode = self._draw(key, wanted, len(ids))
        drawn = None if chances is None else float(chances[place])
        chance = probability(state.config, place, wanted, len(ids), drawn)
        return log_rows.DecisionRow(
            key, body.context, ids, features, place, chance, mode, body.deferred, 0,
            wanted, request.digest, state.version, order, numbers, drawn,
        )  # fmt: skip

    def _list_row(
        self, request: DecisionRequest, body: wire.ListBody, key: str, ids: list[str | int],
        features: list[FeatureValues] | None, top: Preview,
    ) -> log_rows.DecisionRow:  # fmt: skip
        """Fill the slots; ``top`` is what the policy thinks of the candidates in the first one."""
        state, asked = self.state, ListRequest.of(body, ids)
        examine = list_rules(state.config).examine
        if examine and asked.k > len(examine):
            raise InvalidInputError(
                f"${'.k' if body.slots is None else '.slots'} must be at most {len(examine)}, as "
                f"list.examine of the space has positions, got {asked.k}."
            )
        slots = Slots(len(ids), asked.k, asked.exclude)
        more = contexts(body.context, asked.features)[1:]
        previews = [top]
        request.more = [self._slot_context(body, i, one) for i, one in enumerate(more, 1)]
        for x, slot_key in zip(request.more, slot_keys(key, 1 + len(more))[1:], strict=True):
            seed = seed_of(state.config.seed, slot_key)
            previews.append(state.preview(x, ids, features, seed))
        own = slots.fill([one.order for one in previews])
        base = baseline(slots, state.config, asked)
        places, mode = self._draw_list(key, slots, own, base)
        chances, drawn = top.chances, None
        if chances is not None and slots.top_open:  # else what it draws may be passed over
            drawn = float(chances[places[0]])
        items, prefixes = list_probabilities(
            state.config, slots, Shown(own, base, places), drawn, chances is not None
        )
        numbers = [
            number
            for j, place in enumerate(places)
            for number in previews[j if len(previews) > 1 else 0].numbers[3 * place : 3 * place + 3]
        ]
        part = log_rows.ListPart(
            places, asked.ids, asked.features, asked.exclude, asked.baselines, items, prefixes
        )
        whole = prefixes[-1]
        return log_rows.DecisionRow(
            key, body.context, ids, features, places[0], math.nan if whole is None else whole,
            mode, body.deferred, 0, own[0], request.digest, state.version, own, numbers, drawn,
            items=part,
        )  # fmt: skip

    def _encode_answer(self, request: DecisionRequest) -> None:
        request.answer = to_bytes(_json, log_rows.answer_of(self.name, request.row), request.row)

    def encode_row(self, request: DecisionRequest) -> None:
        request.row.base = self.state.seq
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

    def _check_new(self, ids: list[str | int], coming: set[str | int]) -> list[str | int]:
        """The arms that are new, beside those to come; raise if the space may not hold them."""
        state, limits = self.state, self._limits
        new = [arm for arm in state.new_among(ids) if arm not in coming]
        if not new:
            return new
        arms = state.n_arms + len(coming) + len(new)
        most, once = self._most_arms, limits.max_new_arm_bytes // self._arm_bytes
        if arms > most:
            by = "max_arms" if most == limits.max_arms else "max_arm_bytes"
            raise LimitError(
                f"$.candidates must leave {self.name} with at most {most} arms ({by}), "
                f"got {arms} with those that are new: retire some first."
            )
        if len(new) > max(1, once):
            raise LimitError(
                f"$.candidates must bring at most {once} new arms at a time (max_new_arm_bytes), "
                f"got {len(new)}."
            )
        return new

    def needs_room(self, body: wire.DecisionBody) -> bool:
        """Whether a decision's arms, if new, need so much memory that it is got beforehand."""
        return len(body.candidates) * self._arm_bytes > _LITTLE

    def make_room(self, bodies: Sequence[wire.DecisionBody], seconds: float) -> bool:
        """Get memory for the new arms of decisions, for so long; False: call again."""
        return self.state.policy.make_room(self.brings_new(bodies), seconds)

    def brings_new(self, bodies: Sequence[wire.DecisionBody]) -> int:
        """How many arms of decisions are new; 0, too, if they are so many that it is refused."""
        once = len(bodies) * (self._limits.max_new_arm_bytes // self._arm_bytes)
        ids = {c.id if type(c) is wire.Candidate else c for body in bodies for c in body.candidates}
        new = len(self.state.new_among(ids))
        return new if new <= min(self._most_arms - self.state.n_arms, once) else 0

    def _draw_list(
        self, key: str, slots: Slots, own: list[int], base: list[int] | None
    ) -> tuple[list[int], wire.Mode]:
        """Which list is shown, and why: always a whole one."""
        config = self.state.config
        if not (config.shadow or config.holdback or config.explore):
            return own, "policy"
        u, v, _ = draws(config.seed, key)
        by_chance = functools.partial(slots.draw, uniforms(config.seed, key, slots.k))
        if config.shadow:
            return base or by_chance(), "shadow"
        if u < config.holdback:
            return base or by_chance(), "holdback"
        return (by_chance(), "explore") if v < config.explore else (own, "policy")

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
