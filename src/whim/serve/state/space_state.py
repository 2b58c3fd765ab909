"""``Fold``: what a space knows, as the fold of its log. No clock, no disk, no chance.

Live requests, a restart, a rebuild under other parameters and a snapshot all end in the same
``apply``, so they cannot disagree. Whatever needed a clock or a draw is a number in the row.
"""

from __future__ import annotations

import hashlib
import inspect
import operator
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from whim.errors import InvalidInputError
from whim.policies import POLICIES, Policy, from_bytes
from whim.policies import policy as make_policy
from whim.serve import wire
from whim.serve.state.encode import Encoder
from whim.serve.state.stats import Stats
from whim.types import F64, ChangeEvent

__all__ = [
    "ACTIVATION", "ARMS", "BUILT", "CONFIG", "DECISION", "EXPIRY", "REWARD", "Change", "Fold",
    "Pending", "Raw", "Row",
]  # fmt: skip

CONFIG, BUILT, DECISION, REWARD, EXPIRY, ACTIVATION, ARMS = range(1, 8)
_ROWS: dict[int, Any] = {
    CONFIG: wire.ConfigRow,
    BUILT: wire.ConfigRow,
    DECISION: wire.DecisionRow,
    REWARD: wire.RewardRow,
    EXPIRY: wire.Expiry,
    ACTIVATION: wire.Activation,
    ARMS: wire.ArmsRow,
}
DECODERS = {kind: msgspec.msgpack.Decoder(row) for kind, row in _ROWS.items()}
_IDS = msgspec.msgpack.Decoder(list[str | int])
_PLAIN = frozenset((DECISION, REWARD))
_kind = operator.itemgetter(3)
_LISTS = 4096  # of candidates that are remembered, since pages show the same ones again and again
_LARGEST_PRODUCT = 4096  # what the hybrids share has its square
_UNFIT = frozenset(("oracle-restart",))  # it is told the truth, which no service knows


Raw = tuple[int, int, int, int, str | None, bytes, int]  # as it is stored: checksum last


class Row(NamedTuple):
    """A row of the log; times are microseconds since 1970."""

    seq: int
    at: int
    space: int
    kind: int
    key: str | None
    body: bytes


class Change(NamedTuple):
    """A change of interest, and the row that revealed it."""

    seq: int
    at: int
    event: ChangeEvent


class Pending(Struct, array_like=True, gc=False):
    """A decision whose reward may still come."""

    at: int
    due: int
    arm: str | int
    x: bytes
    probability: float
    mode: str
    agreed: bool
    deferred: bool
    total: float = 0.0
    count: int = 0
    seen: list[str] | None = None


class _Asked(Struct, array_like=True):
    """A ``wire.DecisionRow`` as far as the fold needs it, its arms not yet looked at."""

    id: str
    context: list[float] | dict[str, Any]
    arms: msgspec.Raw
    features: list[wire.Told] | None
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


_ASKED = msgspec.msgpack.Decoder(_Asked)
_encode = msgspec.msgpack.encode


def build(config: wire.SpaceConfig) -> tuple[Policy, Encoder, Encoder]:
    """The policy of a configuration, with sizes filled in, and its two encoders."""
    if config.policy not in POLICIES or config.policy in _UNFIT:
        known = ", ".join(sorted(POLICIES.keys() - _UNFIT))
        raise InvalidInputError(f"$.policy must be one of {known}, got {config.policy!r}.")
    context, items = Encoder(config.context, "$.context"), Encoder(config.items, "$.features")
    if context.size * items.size > _LARGEST_PRODUCT:
        raise InvalidInputError(
            f"$.items must have at most {_LARGEST_PRODUCT} places times those of the context, got "
            f"{items.size} times {context.size}."
        )
    takes = inspect.signature(POLICIES[config.policy]).parameters
    params = {"seed": config.seed, **config.params}
    for name, encoder in (("n_features", context), ("n_item_features", items)):
        if name in takes and encoder.size:
            params.setdefault(name, encoder.size)
        if name in params and params[name] not in (None, encoder.size):
            raise InvalidInputError(
                f"$.params.{name} must be left out or {encoder.size}, as the features make it, "
                f"got {params[name]!r}."
            )
    if params.get("n_cross_features"):
        raise InvalidInputError(
            "$.params.n_cross_features must be left out: callers send item features."
        )
    if "seed" not in takes:
        del params["seed"]
    try:
        policy = make_policy(config.policy, **params)
    except InvalidInputError as error:
        named = str(error).partition(" ")[0] in takes
        raise InvalidInputError(f"$.params{'.' if named else ': '}{error}") from None
    if items.size and not policy.n_item_features:
        raise InvalidInputError(
            f"$.items must be empty: {config.policy} takes no item features, got {items.size}."
        )
    if policy.n_item_features and not items.size:
        raise InvalidInputError(f"$.items must describe the item features of {config.policy}.")
    return policy, context, items


class Fold:
    """A space's policy, what it waits for, and what it has counted, after row ``seq``."""

    def __init__(self, config: wire.SpaceConfig, version: int = 1) -> None:
        self.config, self.version = config, version
        self.policy, self.context, self.items = build(config)
        self.pending: dict[str, Pending] = {}
        self.stats = Stats()
        self.seq = self.skipped = 0
        self._contextual = self.policy.n_features is not None
        self._late: list[tuple[int, int, str | int, bytes, float]] | None = None
        self._news: list[Change] = []
        self._start()

    def _start(self) -> None:
        self._known: set[str | int] = set(self.policy.arms)  # type: ignore[arg-type]
        self._told: dict[str | int, bytes] = {}  # features that an arm came with last
        self._lists: dict[bytes, list[str | int]] = {}

    # -- rows -------------------------------------------------------------------------------

    def apply(self, row: Row) -> list[Change]:
        """Take a row as it was logged; the changes of interest that it revealed."""
        return self._apply(row.seq, row.at, row.kind, row.body)

    def _apply(self, seq: int, at: int, kind: int, body: bytes) -> list[Change]:
        if kind == DECISION:
            asked = _ASKED.decode(body)
            try:
                x = self.context(asked.context, lenient=True)
            except InvalidInputError:  # it does not fit what the space has become
                self._skip(seq)
            else:
                self._asked(seq, at, asked, x.tobytes())
            return []
        if kind in (CONFIG, BUILT):
            self.seq = seq
            return []
        return self.took(seq, at, DECODERS[kind].decode(body))

    def apply_many(self, rows: list[Raw]) -> list[Change]:
        """The same as ``apply`` of each in order, to the last bit, and much faster.

        Contexts become vectors all at once, and rewards are learnt together up to the next row
        that touches the policy otherwise.
        """
        found: list[Change] = []
        if self.policy.randomised:  # its draws may depend on what it has learnt
            for seq, at, _, kind, _, body, _ in rows:
                found += self._apply(seq, at, kind, body)
            return found
        asked = [_ASKED.decode(row[5]) for row in rows if row[3] == DECISION]
        x, fits = self.context.many([one.context for one in asked], lenient=True)
        flat, size = x.tobytes(), x.itemsize * self.context.size
        vectors = [flat[i * size : (i + 1) * size] for i in range(len(asked))]
        each = zip(asked, vectors, fits, strict=True)
        reward = DECODERS[REWARD].decode
        self._late, self._news = [], found
        arms = self._arms_shown(rows, asked) if all(fits) else None
        shown = iter(arms or ())
        try:
            for seq, at, _, kind, _, body, _ in rows:
                if kind == DECISION:
                    one, vector, fit = next(each)
                    if arms is not None:  # counted already
                        self.seq = seq
                        self.pending[one.id] = Pending(
                            at, one.due, next(shown), vector, one.probability, one.mode,
                            one.wanted == one.place, one.deferred,
                        )  # fmt: skip
                    elif fit:
                        self._asked(seq, at, one, vector)
                    else:
                        self._skip(seq)
                elif kind == REWARD:
                    self._rewarded(seq, at, reward(body))
                else:
                    self._apply(seq, at, kind, body)
            self._catch_up()
        finally:
            self._late = None
        return found

    def _arms_shown(self, rows: list[Raw], asked: list[_Asked]) -> list[str | int] | None:
        """The arm of each decision, if all of them can be counted at once; else nothing is done.

        That is, if only decisions and rewards came, and the candidates are lists that were seen.
        """
        if not {*map(_kind, rows)} <= _PLAIN:
            return None
        try:
            arms = [self._lists[bytes(one.arms)][one.place] for one in asked]
        except KeyError:
            return None
        ats = [row[1] for row in rows if row[3] == DECISION]
        return arms if self.stats.decided_many(ats, [one.mode for one in asked], arms) else None

    def _skip(self, seq: int) -> None:
        self.seq = seq
        self.skipped += 1

    def _asked(self, seq: int, at: int, row: _Asked, x: bytes) -> None:
        """A decision of the log: its arms are met, and a policy that draws draws again."""
        raw = bytes(row.arms)
        ids = self._lists.get(raw)
        if ids is None:
            ids = _IDS.decode(raw)
            try:
                self.meet(ids, row.features, lenient=True)
            except InvalidInputError:
                return self._skip(seq)
            if not self.items.size:
                if len(self._lists) >= _LISTS:
                    self._lists.clear()
                self._lists[raw] = ids
        if self.policy.randomised:  # its stream moves on, as it did live
            self.policy.select(np.frombuffer(x).copy() if self._contextual else None, ids)
        self.decided(
            seq, at, row.id, ids[row.place], x, row.probability, row.mode, row.wanted == row.place,
            row.deferred, row.due,
        )  # fmt: skip
        return None

    def decided(
        self, seq: int, at: int, key: str, arm: str | int, x: bytes, probability: float, mode: str,
        agreed: bool, deferred: bool, due: int,
    ) -> None:  # fmt: skip
        """A decision among arms that were met."""
        self.seq = seq
        self.stats.decided(at, mode, arm)
        self.pending[key] = Pending(at, due, arm, x, probability, mode, agreed, deferred)

    def took(self, seq: int, at: int, row: Any) -> list[Change]:
        """A reward, an end of waiting, an activation, or arms that were retired."""
        if type(row) is wire.RewardRow:
            return self._rewarded(seq, at, row)
        self.seq = seq
        if type(row) is wire.Expiry:
            found = []
            for key, learn in row.closed:
                found += self._close(seq, at, key, learn)
            return found
        if type(row) is wire.Activation:
            waiting = self.pending.get(row.id)
            if waiting is not None:
                waiting.deferred, waiting.due = False, row.due
        elif type(row) is wire.ArmsRow:
            live = [arm for arm in row.retired if arm in self._known]
            if live:
                self._catch_up()
                self.policy.retire_arms(live)
                self.stats.retired(live)
                self._known.difference_update(live)
                self._lists.clear()
                for arm in live:
                    self._told.pop(arm, None)
        return []

    def _rewarded(self, seq: int, at: int, row: wire.RewardRow) -> list[Change]:
        self.seq, state = seq, row.state
        self.stats.rewarded(state)
        waiting = self.pending.get(row.id)
        if waiting is None or state in ("late", "duplicate"):
            return []
        waiting.total += row.value
        waiting.count += 1
        if row.reward_id is not None:
            waiting.seen = [*(waiting.seen or ()), row.reward_id]
        if state == "learnt":
            return self._close(seq, at, row.id, row.learn)
        return []

    def _close(self, seq: int, at: int, key: str, learn: float | None) -> list[Change]:
        waiting = self.pending.pop(key, None)
        if waiting is None:
            return []
        live = waiting.arm in self._known  # or retired while it waited
        self.stats.closed(at, waiting, learn, live)
        if learn is None:
            return []
        if not live:
            self.skipped += 1
            return []
        if self._late is not None:
            self._late.append((seq, at, waiting.arm, waiting.x, learn))
            return []
        x = np.frombuffer(waiting.x).copy() if self._contextual else None
        event = self.policy.update(waiting.arm, x, learn)
        return [] if event is None else [self._change(seq, at, event)]

    def _change(self, seq: int, at: int, event: ChangeEvent) -> Change:
        self.stats.saw_change(at, event.arm)
        return Change(seq, at, event)

    def _catch_up(self) -> None:
        """Learn what ``apply_many`` has put off."""
        if not self._late:
            return
        seqs, ats, arms, contexts, rewards = zip(*self._late, strict=True)
        self._late.clear()
        x = None
        if self._contextual:
            x = np.frombuffer(b"".join(contexts)).reshape(len(arms), -1).copy()
        before = self.policy.step
        for event in self.policy.update_many(arms, x, np.array(rewards, np.float64)):
            i = event.step - before - 1  # the play that gave it away
            self._news.append(self._change(seqs[i], ats[i], event))

    # -- what live decisions share with the fold --------------------------------------------

    def meet(
        self, ids: list[str | int], features: list[wire.Told] | None, *, lenient: bool = False
    ) -> None:
        """Arms are learnt on sight; features that came are those they have from now on."""
        new = [] if self._known.issuperset(ids) else [a for a in ids if a not in self._known]
        if not self.items.size:
            if new:
                self._catch_up()
                self.policy.add_arms(new)
                self._known.update(new)
            return
        came = [(a, f) for a, f in zip(ids, features or (), strict=False) if f is not None]
        told = {arm: _encode(given) for arm, given in came}
        fresh = [(arm, given) for arm, given in came if self._told.get(arm) != told[arm]]
        rows = {arm: self.items(given, lenient=lenient) for arm, given in fresh}
        bare = [arm for arm in new if arm not in rows]
        if bare:
            raise InvalidInputError(
                f"$.candidates must come with features the first time, got {bare[0]!r} without."
            )
        old = [arm for arm in rows if arm in self._known]
        if new or old:
            self._catch_up()
        if new:
            self.policy.add_arms(new, np.array([rows[arm] for arm in new]))
            self._known.update(new)
        if old:
            self.policy.set_features(old, np.array([rows[arm] for arm in old]))
        for arm in rows:
            self._told[arm] = told[arm]

    def choose_many(
        self, X: F64, lists: list[list[Any]]
    ) -> list[tuple[list[int], list[float]] | None]:
        """The same for many; nothing where a list is not of arms that were met, each once.

        Nor for any if asking changes something: arms come with features, or the policy draws.
        """
        if self.items.size or self.policy.randomised:
            return [None] * len(lists)
        return self.policy.ranked_many(X if self._contextual else None, lists)

    def choose(self, x: F64, ids: list[str | int]) -> tuple[list[int], list[float]]:
        """Places, best first; score, mean and width of each. A policy that draws moves on."""
        return self.policy.ranked(x if self._contextual else None, ids, draw=True)

    # -- as bytes ---------------------------------------------------------------------------

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Everything: what the service keeps, and the policy's own sealed state."""
        head = _Head(
            self.seq, self.version, self.config, self.pending, self.stats.to_bytes(), self.skipped
        )
        return msgspec.msgpack.encode(head), self.policy.to_bytes()

    @classmethod
    def from_bytes(cls, head: bytes, policy: bytes) -> Fold:
        """The fold that ``to_bytes`` wrote."""
        found = msgspec.msgpack.decode(head, type=_Head)
        fold = cls(found.config, found.version)
        fold.policy = from_bytes(policy, source="snapshot")
        fold.pending, fold.seq, fold.skipped = found.pending, found.seq, found.skipped
        fold.stats = Stats.from_bytes(found.stats)
        fold._start()
        return fold

    def digest(self) -> str:
        """Of every bit of state but ``seq``: equal folds have equal digests."""
        head, policy = self.to_bytes()
        rest = msgspec.msgpack.decode(head)
        rest.pop("seq")
        seal = hashlib.sha256(msgspec.msgpack.encode(rest, order="deterministic"))
        seal.update(policy)
        return seal.hexdigest()
