"""Rows of the log: their kinds, their bodies (MessagePack), and the answer that a row recorded."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from whim.serve.wire import (
    Answer,
    ListAnswer,
    ListItem,
    Mode,
    Ranked,
    RewardState,
    SpaceConfig,
)
from whim.types import ChangeEvent


class Kind(enum.IntEnum):
    """What a row says; the numbers are stored."""

    CONFIG = 1
    BUILT = 2
    DECISION = 3
    REWARD = 4
    EXPIRY = 5
    ACTIVATION = 6
    ARMS = 7


Raw = tuple[int, int, int, int, str | None, bytes, int]  # as it is stored: checksum last
FeatureValues = list[float] | dict[str, Any] | None  # as callers send them


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


# -- bodies -----------------------------------------------------------------------------------


class ArmFeatures(Struct, array_like=True, gc=False):
    """An arm with the features that it came with."""

    id: str | int
    features: FeatureValues = None


class ListPart(Struct, array_like=True, gc=False):
    """What the row of a list has beside what a decision about one arm has; by slot, from the top.

    ``slots`` are their ids, None: their numbers; ``features``, ``exclude`` and ``baselines`` as
    they came, the latter two as places. Probabilities are those of the answer.
    """

    places: list[int]
    slots: list[str | int] | None
    features: list[FeatureValues] | None
    exclude: list[list[int]] | None
    baselines: list[int | None] | None
    probabilities: list[float | None]
    prefixes: list[float | None]


class DecisionRow(Struct, array_like=True, gc=False):
    """A decision: the request, the answer, and how it was made.

    Of a list, ``place`` and ``wanted`` are those of its top, ``probability`` is that of the whole
    (nan where it is not known), ``order`` is the list that the policy itself would have shown, and
    ``numbers`` are of the items shown, from the top.
    """

    id: str
    context: list[float] | dict[str, Any]
    arms: list[str | int]
    features: list[FeatureValues] | None  # of each arm, in a space that takes some
    place: int
    probability: float
    mode: Mode
    deferred: bool
    due: int  # as an earlier version logged it; 0: it follows from the row's time
    wanted: int  # the place that the policy itself would have chosen
    digest: bytes
    version: int
    order: list[int]  # places, best first
    numbers: list[float]  # score, mean and width of each arm in turn
    # how likely a policy that draws was to choose what was shown, which ``probability`` includes;
    # None: it does not draw, or the row was written before this was logged
    drawn: float | None = None
    # the last row of the space that what decided had learnt from; None: the row is older than this
    base: int | None = None
    items: ListPart | None = None  # of a list


class DecisionHead(Struct, array_like=True):
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
    digest: msgspec.Raw = msgspec.Raw()
    version: int = 0
    order: msgspec.Raw = msgspec.Raw()
    numbers: msgspec.Raw = msgspec.Raw()
    drawn: float | None = None
    base: int | None = None
    items: ListPart | None = None

    @property
    def own_list(self) -> list[int]:
        """The places that the policy itself would have shown, if this is of a list."""
        return _decode_places(self.order)


_decode_places = msgspec.msgpack.Decoder(list[int]).decode


class RewardRow(Struct, array_like=True):
    """A reward; what becomes of it follows from the rows before it (``state.ledger``).

    An earlier version logged it: ``state``, and ``learn``, what the policy learns of it. ``item``
    is that of a list, from the top.
    """

    id: str
    value: float
    state: RewardState | None = None
    learn: float | None = None
    reward_id: str | None = None
    item: int | None = None


class Expiry(Struct, array_like=True):
    """Decisions whose time is over, if they wait still.

    An earlier version logged each with what is learnt for it; None: it was never shown.
    """

    closed: list[str | tuple[str, float | None]]


class Activation(Struct, array_like=True):
    """A deferred decision was shown after all."""

    id: str
    due: int = 0  # as an earlier version logged it; 0: it follows from the row's time


class ArmsRow(Struct, array_like=True):
    """Arms that were retired by hand."""

    retired: list[str | int]


class ConfigRow(Struct, array_like=True):
    """A space's configuration from ``version`` on; in force once a row says that it is built.

    ``uncounted`` are decisions, rewards and steps of its name that its state does not count: those
    of rows that were left out or removed, and of a space of that name that was retired. With
    ``config`` None, the end of a space, they are all of them.
    """

    name: str
    version: int
    config: SpaceConfig | None  # None: retired
    uncounted: dict[str, int] = {}


DECODERS: dict[int, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(body)
    for kind, body in {
        Kind.CONFIG: ConfigRow,
        Kind.BUILT: ConfigRow,
        Kind.DECISION: DecisionRow,
        Kind.REWARD: RewardRow,
        Kind.EXPIRY: Expiry,
        Kind.ACTIVATION: Activation,
        Kind.ARMS: ArmsRow,
    }.items()
}


def answer_of(space: str, row: DecisionRow) -> Answer | ListAnswer:
    """The answer that was given, from what was logged of it."""
    arms, numbers = row.arms, row.numbers
    scores, means, widths = numbers[::3], numbers[1::3], numbers[2::3]
    if row.items is not None:
        part = row.items
        slots: list[Any] = part.slots or list(range(len(part.places)))
        items = [
            ListItem(
                slot=slots[i], arm=arms[place], probability=part.probabilities[i],
                prefix_probability=part.prefixes[i], score=scores[i], mean=means[i],
                width=widths[i],
            )
            for i, place in enumerate(part.places)
        ]  # fmt: skip
        return ListAnswer(
            decision_id=row.id, space=space, items=items, mode=row.mode, version=row.version
        )
    ranking = [Ranked(arms[i], scores[i], means[i], widths[i]) for i in row.order]
    return Answer(
        decision_id=row.id, space=space, arm=arms[row.place], probability=row.probability,
        mode=row.mode, version=row.version, ranking=ranking,
    )  # fmt: skip
