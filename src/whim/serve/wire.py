"""What the service says and keeps: requests, answers and rows of the log, checked once.

Bodies are JSON on the wire and MessagePack in the log. An error carries the path of the field.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

__all__ = [
    "Activation",
    "Answer",
    "ArmsRow",
    "Candidate",
    "Choice",
    "ConfigRow",
    "DecisionBody",
    "DecisionRow",
    "Expiry",
    "Features",
    "Field",
    "Ranked",
    "RewardBody",
    "RewardRow",
    "RewardRules",
    "SpaceConfig",
    "answered",
]

# the end is looked at twice: Python's $ also matches before a last line break
_WORD = r"^[A-Za-z0-9][A-Za-z0-9._-]*$(?!\s)"
LARGEST_SIZE = 1024  # places of a vector: a policy holds its square for each arm
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=_WORD)]
DecisionId = Annotated[str, Meta(min_length=1, max_length=128)]
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
ArmName = Annotated[str, Meta(min_length=1, max_length=256)] | Whole
Share = Annotated[float, Meta(ge=0, le=1)]
Number = Annotated[float, Meta(ge=-1e10, le=1e10)]


class Field(Struct, forbid_unknown_fields=True, kw_only=True):
    """One feature by name: how its value becomes numbers.

    ``number``: (value - mean) / scale. ``choice``: one place for each of ``values``; others give
    zeros. ``flag``: 0 or 1. ``hash``: text, or a list of texts, spread over ``size`` places.
    """

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    kind: Literal["number", "choice", "flag", "hash"]
    mean: Number = 0.0
    scale: Annotated[float, Meta(gt=0, le=1e10)] = 1.0
    values: list[str] = []
    size: Annotated[int, Meta(ge=1, le=LARGEST_SIZE)] = 16


class Features(Struct, forbid_unknown_fields=True, kw_only=True):
    """How a context, or an item, becomes a vector.

    Without ``fields`` it comes as a vector of ``size`` numbers. With them it comes as an object;
    ``rest`` places take, by hashing, what no field names (0: an unnamed feature is an error).
    ``constant`` adds a 1.
    """

    size: Annotated[int, Meta(ge=0, le=LARGEST_SIZE)] = 0
    fields: list[Field] = []
    rest: Annotated[int, Meta(ge=0, le=LARGEST_SIZE)] = 0
    constant: bool = False


class RewardRules(Struct, forbid_unknown_fields=True, kw_only=True):
    """How long a reward is waited for, what stands for none, and which counts.

    ``earliest``: the first reward, learnt as it comes. ``sum``: all that come in time, learnt
    when the time is over.
    """

    wait_seconds: Annotated[float, Meta(gt=0, le=10_000_000)] = 600.0
    default: Number = 0.0
    combine: Literal["earliest", "sum"] = "earliest"


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


class Ranked(Struct, gc=False):  # they hold no others, and there are many
    """A candidate as the policy sees it; null where it is infinite, as for an arm never played."""

    arm: str | int
    score: float | None
    mean: float | None
    width: float | None


Mode = Literal["policy", "explore", "holdback", "shadow"]


class Answer(Struct, kw_only=True, gc=False):
    """What to show; ``probability`` is that with which this arm was going to be chosen."""

    decision_id: str
    space: str
    arm: str | int
    probability: float
    mode: Mode
    version: int
    ranking: list[Ranked]


class RewardBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """What came of a decision. With ``reward_id`` the same reward counts once."""

    decision_id: DecisionId
    value: Number
    reward_id: DecisionId | None = None


# -- rows of the log --------------------------------------------------------------------------


Told = list[float] | dict[str, Any] | None  # features as they came


class Choice(Struct, array_like=True, gc=False):
    """An arm with the features that it came with."""

    id: str | int
    features: Told = None


class DecisionRow(Struct, array_like=True, gc=False):
    """A decision: what was asked, what was answered, and how."""

    id: str
    context: list[float] | dict[str, Any]
    arms: list[str | int]
    features: list[Told] | None  # of each arm, in a space that takes some
    place: int
    probability: float
    mode: Mode
    deferred: bool
    due: int
    wanted: int  # the place that the policy itself would have chosen
    digest: bytes
    version: int
    order: list[int]  # places, best first
    numbers: list[float]  # score, mean and width of each arm in turn


def answered(space: str, row: DecisionRow) -> Answer:
    """The answer that was given, from what was logged of it."""
    arms, numbers = row.arms, row.numbers
    scores, means, widths = numbers[::3], numbers[1::3], numbers[2::3]
    ranking = [Ranked(arms[i], scores[i], means[i], widths[i]) for i in row.order]
    return Answer(
        decision_id=row.id, space=space, arm=arms[row.place], probability=row.probability,
        mode=row.mode, version=row.version, ranking=ranking,
    )  # fmt: skip


class RewardRow(Struct, array_like=True):
    """A reward: ``state`` is what became of it, ``learn`` what the policy learns of it now."""

    id: str
    value: float
    state: Literal["learnt", "kept", "duplicate", "late"]
    learn: float | None = None
    reward_id: str | None = None


class Expiry(Struct, array_like=True):
    """Decisions whose time is over, each with what is learnt for it; None: it was never shown."""

    closed: list[tuple[str, float | None]]


class Activation(Struct, array_like=True):
    """A deferred decision was shown after all."""

    id: str
    due: int


class ArmsRow(Struct, array_like=True):
    """Arms that were retired by hand."""

    retired: list[str | int]


class ConfigRow(Struct, array_like=True):
    """A space's configuration from ``version`` on; in force once a row says that it is built."""

    name: str
    version: int
    config: SpaceConfig | None  # None: retired
