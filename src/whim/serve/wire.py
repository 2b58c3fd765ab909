"""What callers send and get: requests, answers and configurations, as JSON and checked once.

An error carries the path of the field.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field, msgpack

from whim.features.fields import LARGEST_SIZE

# the end is looked at twice: Python's $ also matches before a last line break
_WORD = r"^[A-Za-z0-9][A-Za-z0-9._-]*$(?!\s)"
LONGEST_LIST = 100  # items: each is learnt from when the list is
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=_WORD)]
DecisionId = Annotated[str, Meta(min_length=1, max_length=128)]
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
ArmName = Annotated[str, Meta(min_length=1, max_length=256)] | Whole
Share = Annotated[float, Meta(ge=0, le=1)]
Number = Annotated[float, Meta(ge=-1e10, le=1e10)]


class Field(Struct, forbid_unknown_fields=True, kw_only=True):
    """One feature by name: how its value becomes numbers.

    ``number``: (value - mean) / scale. ``choice``: a dimension for each of ``values``; others give
    zeros. ``flag``: 0 or 1. ``hash``: text, or a list of texts, spread over ``size`` dimensions.
    ``cyclic``: sines and cosines of a value with this ``period``, such as 24 hours.

    ``log`` takes a skewed number as ``±log(1 + abs(value) / log)`` before it is scaled. ``missing``
    gives a missing value, and ``other`` choices that are not listed, a dimension of their own.
    ``words`` hashes each word of a text by itself.
    """

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    kind: Literal["number", "choice", "flag", "hash", "cyclic"]
    mean: Number = 0.0
    scale: Annotated[float, Meta(gt=0, le=1e10)] = 1.0
    values: list[str] = []
    size: Annotated[int, Meta(ge=1, le=LARGEST_SIZE)] = 16
    # unset, which is false: fields without them are stored as they always were
    log: Annotated[float, Meta(ge=0, le=1e10)] | UnsetType = UNSET
    period: Annotated[float, Meta(gt=0, le=1e10)] | UnsetType = UNSET
    harmonics: Annotated[int, Meta(ge=1, le=16)] | UnsetType = UNSET
    missing: bool | UnsetType = UNSET
    other: bool | UnsetType = UNSET
    words: bool | UnsetType = UNSET


class Features(Struct, forbid_unknown_fields=True, kw_only=True):
    """How a context, or an item, becomes a vector.

    Without ``fields`` it comes as a vector of ``size`` numbers. With them it comes as an object;
    ``rest`` dimensions take, by hashing, what no field names (0: an unnamed feature is an error).
    ``constant`` adds a 1.
    """

    size: Annotated[int, Meta(ge=0, le=LARGEST_SIZE)] = 0
    fields: list[Field] = []
    rest: Annotated[int, Meta(ge=0, le=LARGEST_SIZE)] = 0
    constant: bool = False


class RewardRange(Struct, forbid_unknown_fields=True, kw_only=True):
    """Between which numbers a reward must be; one ``outside`` is refused, or clipped to the range.

    One reward that is far too large moves a mean more than all others together.
    """

    least: Number
    most: Number
    outside: Literal["refuse", "clip"] = "refuse"


class RewardRules(Struct, forbid_unknown_fields=True, kw_only=True):
    """How long a reward is waited for, what stands for none, which counts, and how large it may be.

    ``earliest``: the first reward, learnt as it comes. ``sum``: all that come in time, learnt
    when the time is over; the range is that of each of them.
    """

    wait_seconds: Annotated[float, Meta(gt=0, le=10_000_000)] = 600.0
    default: Number = 0.0
    combine: Literal["earliest", "sum"] = "earliest"
    # unset rather than null: configurations without a range are stored as they always were
    range: RewardRange | UnsetType = UNSET


class ListRules(Struct, forbid_unknown_fields=True, kw_only=True):
    """How a list was looked at, and so what is learnt from the rewards of its items.

    ``cascade``: from the top up to the first click, a reward above 0; the rest was not seen.
    ``semi``: every item was seen. ``positions``: the item at each position was seen with the
    probability that ``examine`` has for it.
    """

    feedback: Literal["cascade", "semi", "positions"] = "cascade"
    examine: Annotated[list[Annotated[float, Meta(gt=0, le=1)]], Meta(max_length=LONGEST_LIST)] = []


class SpaceConfig(Struct, forbid_unknown_fields=True, kw_only=True):
    """A named bandit: its policy and parameters, its features, its rewards, its caution."""

    policy: str = "pslinucb-disjoint"
    params: dict[str, Any] = {}
    context: Features = field(default_factory=lambda: Features(size=1))
    items: Features = field(default_factory=Features)
    rewards: RewardRules = field(default_factory=RewardRules)
    explore: Share = 0.0
    holdback: Share = 0.0
    baseline: Literal["first", "random"] = "first"
    shadow: bool = False
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    # unset rather than null, as for the range of rewards
    list: ListRules | UnsetType = UNSET

    def __post_init__(self) -> None:
        try:
            msgpack.encode(self.params)
        except OverflowError:
            raise ValueError(
                "params must hold whole numbers between -2**63 and 2**64 - 1, got a larger one"
            ) from None


class Candidate(Struct, forbid_unknown_fields=True):
    """An arm that may be chosen, with its features if the space has any."""

    id: ArmName
    features: list[Number] | dict[str, Any] | None = None


class DecisionBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """Who is asking, and what may be shown."""

    candidates: Annotated[
        list[Candidate | Annotated[str, Meta(min_length=1, max_length=256)] | Whole],
        Meta(min_length=1, max_length=10_000),
    ]
    context: list[Number] | dict[str, Any] = []
    decision_id: DecisionId | None = None
    deferred: bool = False


class Slot(Struct, forbid_unknown_fields=True, kw_only=True):
    """A place of a list. Its features join the context; without an id it has its number, from 0.

    ``exclude`` are candidates that may not stand there; ``baseline`` is what the holdback shows.
    """

    id: ArmName | None = None
    features: list[Number] | dict[str, Any] | None = None
    exclude: Annotated[list[ArmName], Meta(max_length=10_000)] = []
    baseline: ArmName | None = None


class ListBody(DecisionBody, forbid_unknown_fields=True, kw_only=True):
    """Who is asking, what may be shown, and where: in ``k`` places, or in ``slots``."""

    k: Annotated[int, Meta(ge=1, le=LONGEST_LIST)] | None = None
    slots: Annotated[list[Slot], Meta(min_length=1, max_length=LONGEST_LIST)] | None = None


class Ranked(Struct, gc=False):  # they hold no others, and there are many
    """A candidate as the policy sees it; null where it is infinite, as for an arm never played.

    ``mean`` is the reward expected now, ``width`` what is added to explore. An arm that was not
    played lately may have changed since: with ``revisit`` its mean is drawn towards a new arm's.
    """

    arm: str | int
    score: float | None
    mean: float | None
    width: float | None


Mode = Literal["policy", "explore", "holdback", "shadow"]


class RewardState(enum.StrEnum):
    """What became of a reward; ``KEPT``: for a sum that is learnt when the waiting ends."""

    LEARNT = "learnt"
    KEPT = "kept"
    DUPLICATE = "duplicate"
    LATE = "late"


class Answer(Struct, kw_only=True, gc=False):
    """What to show; ``probability`` is that with which this arm was going to be chosen."""

    decision_id: str
    space: str
    arm: str | int
    probability: float
    mode: Mode
    version: int
    ranking: list[Ranked]


class ListItem(Struct, kw_only=True, gc=False):
    """An item of a list: how likely it was at this place, and how likely all down to it were.

    Null where that is not known: see docs/serving.md. Score, mean and width are as in a ranking.
    """

    slot: str | int
    arm: str | int
    probability: float | None
    prefix_probability: float | None
    score: float | None
    mean: float | None
    width: float | None


class ListAnswer(Struct, kw_only=True):
    """What to show, from the top."""

    decision_id: str
    space: str
    items: list[ListItem]
    mode: Mode
    version: int


class RewardBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """What came of a decision. With ``reward_id`` the same reward counts once.

    Of a list, ``slot`` or ``arm`` says which item it is for.
    """

    decision_id: DecisionId
    value: Number
    reward_id: DecisionId | None = None
    slot: ArmName | None = None
    arm: ArmName | None = None
