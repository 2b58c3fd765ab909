"""``Fold``: what a space knows, as the fold of its log. No clock, no disk, no chance.

Live requests, a restart, a rebuild under other parameters and a snapshot all end in the same
``apply``, so they cannot disagree. Whatever needed a clock or a draw is a number in the row.
"""

from __future__ import annotations

import hashlib
import inspect
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from whim.errors import InvalidInputError, UnknownArmError
from whim.policies import POLICIES, Policy, from_bytes
from whim.policies import policy as make_policy
from whim.serve import wire
from whim.serve.encode import Encoder
from whim.serve.stats import Stats
from whim.types import F64, ChangeEvent

__all__ = [
    "ACTIVATION", "ARMS", "BUILT", "CONFIG", "DECISION", "EXPIRY", "REWARD", "Change", "Fold",
    "Pending", "Row",
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
_UNFIT = frozenset(("oracle-restart",))  # it is told the truth, which no service knows


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


class Pending(Struct, array_like=True):
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
    seen: list[str] = []


class _Head(Struct):
    """What a snapshot holds beside the policy."""

    seq: int
    version: int
    config: wire.SpaceConfig
    pending: dict[str, Pending]
    stats: bytes
    skipped: int


def build(config: wire.SpaceConfig) -> tuple[Policy, Encoder, Encoder]:
    """The policy of a configuration, with sizes filled in, and its two encoders."""
    if config.policy not in POLICIES or config.policy in _UNFIT:
        known = ", ".join(sorted(POLICIES.keys() - _UNFIT))
        raise InvalidInputError(f"$.policy must be one of {known}, got {config.policy!r}.")
    context, items = Encoder(config.context, "$.context"), Encoder(config.items, "$.features")
    takes = inspect.signature(POLICIES[config.policy]).parameters
    params = {"seed": config.seed, **config.params}
    for name, encoder in (("n_features", context), ("n_item_features", items)):
        fits = name not in takes or not encoder.size
        if not fits and params.setdefault(name, encoder.size) != encoder.size:
            raise InvalidInputError(
                f"$.params.{name} must be left out or {encoder.size}, as the features make it, "
                f"got {params[name]!r}."
            )
    if "seed" not in takes:
        del params["seed"]
    policy = make_policy(config.policy, **params)
    if policy.n_cross_features and not policy.n_item_features:
        raise InvalidInputError("$.params must not ask for cross rows: callers send item features.")
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
        self._known: set[str | int] = set()
        self._contextual = self.policy.n_features is not None

    # -- rows -------------------------------------------------------------------------------

    def apply(self, row: Row) -> list[Change]:
        """Take a row as it was logged; the changes of interest that it revealed."""
        kind = row.kind
        if kind == DECISION:
            self.decided(row.seq, row.at, DECODERS[DECISION].decode(row.body))
            return []
        if kind in (CONFIG, BUILT):
            self.seq = row.seq
            return []
        return self.took(row.seq, row.at, DECODERS[kind].decode(row.body))

    def decided(self, seq: int, at: int, row: wire.DecisionRow, x: F64 | None = None) -> None:
        """A decision; live, the context comes as the vector that it already is."""
        self.seq = seq
        if x is None:
            try:
                x = self.context(row.context, lenient=True)
                self.meet(row.candidates, lenient=True)
            except InvalidInputError:  # it does not fit what the space has become
                self.skipped += 1
                return
            if self.policy.randomised:  # its stream moves on, as it did live
                self.choose(x, [c.id for c in row.candidates])
        arm = row.candidates[row.place].id
        self.stats.decided(at, row.mode)
        self.pending[row.id] = Pending(
            at, row.due, arm, x.tobytes(), row.probability, row.mode, row.wanted == row.place,
            row.deferred,
        )  # fmt: skip

    def took(self, seq: int, at: int, row: Any) -> list[Change]:
        """A reward, an end of waiting, an activation, or arms that were retired."""
        self.seq = seq
        if type(row) is wire.RewardRow:
            return self._rewarded(seq, at, row)
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
                self.policy.retire_arms(live)
                self._known.difference_update(live)
        return []

    def _rewarded(self, seq: int, at: int, row: wire.RewardRow) -> list[Change]:
        self.stats.rewarded(row.state)
        waiting = self.pending.get(row.id)
        if waiting is None or row.state in ("late", "duplicate"):
            return []
        waiting.total += row.value
        waiting.count += 1
        if row.reward_id is not None:
            waiting.seen.append(row.reward_id)
        if row.state == "learnt":
            return self._close(seq, at, row.id, row.learn)
        return []

    def _close(self, seq: int, at: int, key: str, learn: float | None) -> list[Change]:
        waiting = self.pending.pop(key, None)
        if waiting is None:
            return []
        self.stats.closed(at, waiting, learn)
        if learn is None:
            return []
        x = np.frombuffer(waiting.x).copy() if self._contextual else None
        try:
            event = self.policy.update(waiting.arm, x, learn)
        except UnknownArmError:  # retired while it waited
            self.skipped += 1
            return []
        return [] if event is None else [Change(seq, at, event)]

    # -- what live decisions share with the fold --------------------------------------------

    def meet(self, candidates: list[wire.Choice], *, lenient: bool = False) -> None:
        """Arms are learnt on sight; features that came are those they have from now on."""
        ids = [c.id for c in candidates]
        if self.items.size:
            given = [c for c in candidates if c.features is not None]
            rows = {c.id: self.items(c.features, lenient=lenient) for c in given}
            new = [arm for arm in ids if arm not in self._known]
            bare = [arm for arm in new if arm not in rows]
            if bare:
                raise InvalidInputError(
                    f"$.candidates must come with features the first time, got {bare[0]!r} without."
                )
            if new:
                self.policy.add_arms(new, np.array([rows[arm] for arm in new]))
            old = [arm for arm in rows if arm in self._known]
            if old:
                self.policy.set_features(old, np.array([rows[arm] for arm in old]))
        elif not self._known.issuperset(ids):
            self.policy.add_arms([arm for arm in ids if arm not in self._known])
        self._known.update(ids)

    def choose(self, x: F64, ids: list[str | int]) -> list[Any]:
        """Every candidate, best first; moves the policy's stream on if it draws."""
        given = x if self._contextual else None
        ranking = self.policy.rank(given, ids)
        if self.policy.randomised:
            best = self.policy.select(given, ids)
            ranking.sort(key=lambda d: d.arm != best.arm)
        return ranking

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
        fold._known = set(fold.policy.arms)  # type: ignore[arg-type]
        return fold

    def digest(self) -> str:
        """Of every bit of state but ``seq``: equal folds have equal digests."""
        head, policy = self.to_bytes()
        rest = msgspec.msgpack.decode(head)
        rest.pop("seq")
        seal = hashlib.sha256(msgspec.msgpack.encode(rest, order="deterministic"))
        seal.update(policy)
        return seal.hexdigest()
