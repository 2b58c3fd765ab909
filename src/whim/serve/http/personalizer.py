"""The paths and bodies of the retired Personalizer service, so that its clients still work.

Features come as lists of objects; they are flattened to names like ``user.age`` and hashed. The
space is made when the first decision is asked for.
"""

from __future__ import annotations

import contextlib
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from whim.errors import InvalidInputError
from whim.serve import wire
from whim.serve.http.problems import ProblemError
from whim.serve.http.routes import Call, Route
from whim.serve.http.service import Service
from whim.serve.starter import personalizer_config
from whim.serve.state.drawing import probabilities
from whim.serve.state.space import ConflictError

_DEEPEST = 16
EventId = Annotated[str, Meta(min_length=1, max_length=256)]


class Action(Struct, forbid_unknown_fields=True):
    """What may be shown."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]
    features: list[dict[str, Any]] = []


class RankRequest(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Who is asking, and what may be shown."""

    actions: Annotated[list[Action], Meta(min_length=1, max_length=10_000)]
    context_features: list[dict[str, Any]] | None = None
    excluded_actions: list[str] | None = None
    event_id: EventId | None = None
    defer_activation: bool | None = None


class RankedAction(Struct):
    """An action and how likely it was to be shown."""

    id: str
    probability: float


class RankResponse(Struct, rename="camel"):
    """What to show, the action to be rewarded first."""

    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str


class RewardRequest(Struct, forbid_unknown_fields=True):
    """What came of it."""

    value: wire.Number


def flat(features: list[dict[str, Any]] | None, path: str) -> dict[str, Any]:
    """Objects as one object of names and plain values; texts and numbers of one name add up."""
    flattened: dict[str, Any] = {}

    def flatten(value: Any, name: str, depth: int) -> None:
        if depth > _DEEPEST:
            raise ProblemError(
                422, "invalid", f"{path} must be nested at most {_DEEPEST} deep.", path
            )
        if isinstance(value, dict):
            for key, inner in value.items():
                flatten(inner, f"{name}.{key}" if name else key, depth + 1)
        elif isinstance(value, list):
            for inner in value:
                flatten(inner, name, depth + 1)
        elif value is not None:
            flattened.setdefault(name, []).append(value)

    for part in features or []:
        flatten(part, "", 0)
    return flattened


async def space_name(service: Service) -> str:
    """The space; it is made for the first decision, and not again after it was retired."""
    name = service.settings.personalizer_space
    if name not in service.engine and not service.engine.was_retired(name):
        with contextlib.suppress(ConflictError):  # another request has just made it
            await service.create(name, personalizer_config())
    return name


def _renamed(message: str, places: list[int]) -> str:
    """What the engine says of a field, with the name that the caller gave it."""
    match = re.match(r"\$\.candidates\[(\d+)\]", message)
    if match:
        return f"$.actions[{places[int(match[1])]}]" + message[match.end() :]
    message = re.sub(r"^\$\.decision_id\b", "$.eventId", message)
    return re.sub(r"^\$\.context\b", "$.contextFeatures", message)


async def rank(service: Service, call: Call) -> RankResponse:
    """Rank actions, as the retired service did."""
    body: RankRequest = call.body
    out = set(body.excluded_actions or ())
    places = [i for i, a in enumerate(body.actions) if a.id not in out]
    offered = [body.actions[i] for i in places]
    if not offered:
        raise ProblemError(
            422, "invalid", "$.actions must hold one that is not excluded.", "$.actions"
        )
    decision = wire.DecisionBody(
        candidates=[
            wire.Candidate(a.id, flat(a.features, f"$.actions[{i}].features"))
            for i, a in zip(places, offered, strict=True)
        ],
        context=flat(body.context_features, "$.contextFeatures"),
        decision_id=body.event_id,
        deferred=bool(body.defer_activation),
    )
    name = await space_name(service)
    space = service.engine.space(name)
    if not space.state.items.size:  # a space of the user's own may have none
        decision.candidates = [a.id for a in offered]
    try:
        raw = await service.decided(name, decision)
    except (ConflictError, InvalidInputError) as error:
        raise type(error)(_renamed(str(error), places)) from None
    answer = msgspec.json.decode(raw, type=wire.Answer)
    ids = [a.id for a in offered]
    wanted, shown = ids.index(str(answer.ranking[0].arm)), ids.index(str(answer.arm))
    draws = space.state.policy.randomised
    p = probabilities(space.config, wanted, len(ids), shown, answer.probability, draws)
    ranking = [RankedAction(arm, chance) for arm, chance in zip(ids, p, strict=True)]
    ranking.sort(key=lambda r: r.id != answer.arm)
    ranking += [RankedAction(a.id, 0.0) for a in body.actions if a.id in out]
    return RankResponse(ranking, answer.decision_id, str(answer.arm))


async def reward(service: Service, call: Call) -> None:
    """Reward an event, as the retired service did."""
    body = wire.RewardBody(decision_id=call.params["event"], value=call.body.value)
    name = service.settings.personalizer_space
    await service.commit(lambda t: service.engine.reward(name, body, t))


async def activate(service: Service, call: Call) -> None:
    """Activate an event, as the retired service did."""
    name = service.settings.personalizer_space
    await service.commit(lambda t: service.engine.activate(name, call.params["event"], t))


_BASE = "/personalizer/v1.0"
_PREVIEWS = [f"/personalizer/v1.1-preview.{i}" for i in (1, 2, 3)]


def other_paths(path: str) -> list[str]:
    """Where else a call is served: as previews had it, and without a version.

    The latest preview names its version in the query (``?api-version=``), where nothing is asked
    for that the path does not say.

    >>> other_paths("/personalizer/v1.1-preview.3/multislot/rank")[1:]
    ['/personalizer/v1.1-preview.2/multislot/rank', '/personalizer/multislot/rank']
    """
    for base in (_BASE, _PREVIEWS[-1]):
        if path.startswith(base + "/"):
            bases = [*_PREVIEWS, "/personalizer"]
            return [other + path.removeprefix(base) for other in bases if other != base]
    return []


ROUTES: list[Route] = [
    Route("POST", _BASE + "/rank", rank, scope="decide", takes=RankRequest, gives=RankResponse,
          status=201, problems=(404, 409), tag="personalizer", long="actions"),
    Route("POST", _BASE + "/events/{event}/reward", reward, scope="reward", takes=RewardRequest,
          status=204, problems=(404,), tag="personalizer"),
    Route("POST", _BASE + "/events/{event}/activate", activate, scope="decide", status=204,
          problems=(404,), tag="personalizer"),
]  # fmt: skip
