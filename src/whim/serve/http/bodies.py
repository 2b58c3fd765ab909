"""Bodies of requests and answers of single routes; what several layers share is in ``wire``."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from whim.errors import InvalidInputError
from whim.serve import wire
from whim.serve.jobs.background import Check
from whim.serve.state.views import ArmView, ChangeView, Info, ShardView


def _either(name: str) -> Meta:
    """Items of a batch's answer, for the document: one that went well, or what was wrong."""
    refs = [{"$ref": f"#/components/schemas/{n}"} for n in (name, "Failure")]
    return Meta(extra_json_schema={"items": {"anyOf": refs}})


class NewSpace(wire.SpaceConfig, kw_only=True, forbid_unknown_fields=True):
    """A space to make."""

    name: wire.Name


class OtherConfig(wire.SpaceConfig, kw_only=True, forbid_unknown_fields=True):
    """A configuration in place of a space's own: it is whole, so defaults stand for what is absent.

    But not for ``context`` and ``items`` of a space that has others: what is logged would not fit.
    """

    context: wire.Features | UnsetType = UNSET  # type: ignore[assignment]
    items: wire.Features | UnsetType = UNSET  # type: ignore[assignment]

    def instead_of(self, *known: wire.SpaceConfig) -> wire.SpaceConfig:
        """All of it, where it may take the place of these."""
        given = {name: value for name, value in asdict(self).items() if value is not UNSET}
        config = wire.SpaceConfig(**given)
        for name in ("context", "items"):
            absent = name not in given
            if absent and any(getattr(one, name) != getattr(config, name) for one in known):
                raise InvalidInputError(
                    f"$.{name} must be given where the space's is not the default, since a "
                    "configuration is whole ({} is none), got none."
                )
        return config


class SpaceList(Struct):
    """All spaces that serve."""

    spaces: list[Info]


class Rebuilding(Struct):
    """The version that will have the new parameters once the space is rebuilt from its log."""

    version: int


class Decisions(Struct, forbid_unknown_fields=True):
    """Several decisions at once."""

    decisions: Annotated[list[wire.DecisionBody], Meta(min_length=1, max_length=1000)]


class Answers(Struct):
    """One answer, or what was wrong, for each decision of the batch, in its order."""

    answers: Annotated[list[Any], _either("Answer")]


class Lists(Struct, forbid_unknown_fields=True):
    """Several lists at once."""

    lists: Annotated[list[wire.ListBody], Meta(min_length=1, max_length=1000)]


class ListAnswers(Struct):
    """One list, or what was wrong, for each that was asked for, in their order."""

    answers: Annotated[list[Any], _either("ListAnswer")]


class Rewarded(Struct):
    """What became of a reward: learnt, kept (for a sum), duplicate or late."""

    decision_id: str
    state: str


class Rewards(Struct, forbid_unknown_fields=True):
    """Several rewards at once."""

    rewards: Annotated[list[wire.RewardBody], Meta(min_length=1, max_length=1000)]


class Results(Struct):
    """What became of each reward, in the order of the batch."""

    results: Annotated[list[Any], _either("Rewarded")]


class Activated(Struct):
    """Whether this call activated it; false if it was active before."""

    activated: bool


class RetireArms(Struct, forbid_unknown_fields=True):
    """Arms to retire."""

    arms: Annotated[list[wire.ArmName], Meta(min_length=1, max_length=10_000)]


class ArmList(Struct):
    """All live arms of a space, of at most ``limit``."""

    arms: list[ArmView]


class PositionView(Struct):
    """One position of lists, from the top: times shown, rewards above 0 ("clicks"), their sum.

    Lists that still wait are counted, with what came so far.
    """

    shown: int
    clicks: int
    total: float


class StatsView(Struct, kw_only=True):
    """Counts since the space was made; see docs/serving.md for their names."""

    counts: dict[str, int]
    matched_share: float | None
    mean_delay_seconds: float | None
    shadow: dict[str, Any]
    positions: list[PositionView] | UnsetType = UNSET


class ChangeList(Struct):
    """Changes after a row, oldest first; ask again from the last one's ``seq`` for more."""

    changes: list[ChangeView]


class Begun(Struct):
    """A what-if that was started."""

    job: str


class ClockHealth(Struct):
    """A clock that does not follow the system's: how far ahead of it, behind if negative."""

    reason: str
    ahead_seconds: float


class ReplicaHealth(Struct, omit_defaults=True):
    """A replica over a shared log: whether it leads, and how far it is behind.

    Where there are several shards it is of the worst, and ``shards`` has all.
    """

    leads: bool
    lag_rows: int
    lag_seconds: float
    shards: list[ShardView] = []


class Health(Struct, omit_defaults=True):
    """The state of the service.

    ``check`` is of the whole log, until it has ended well; ``clock`` is there while it is held, and
    ``replica`` where the log is shared.
    """

    status: str
    reason: str | None = None
    spaces: int | None = None
    check: Check | None = None
    clock: ClockHealth | None = None
    replica: ReplicaHealth | None = None
