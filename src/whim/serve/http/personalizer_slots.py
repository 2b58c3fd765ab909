"""Personalizer's multi-slot calls: a page of slots is a list, each slot with its own reward.

The features of a slot join the context under names like ``slot.size``.
"""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from whim.errors import InvalidInputError
from whim.serve import wire
from whim.serve.http.personalizer import Action, EventId, flat, space_name
from whim.serve.http.routes import Call, Route
from whim.serve.http.service import Service
from whim.serve.state.limits import LimitError
from whim.serve.state.space import ConflictError

_MOST = 50  # actions, and slots
_NAMES = {"id": "id", "features": "features", "exclude": "excludedActions",
          "baseline": "baselineAction"}  # fmt: skip


class SlotRequest(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A place to be filled: what stands there without Personalizer, and what may not."""

    id: Annotated[str, Meta(min_length=1, max_length=256)]
    baseline_action: Annotated[str, Meta(min_length=1, max_length=256)]
    features: list[dict[str, Any]] | None = None
    excluded_actions: list[str] | None = None


class MultiSlotRankRequest(Struct, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """Who is asking, what may be shown, and where."""

    actions: Annotated[list[Action], Meta(min_length=1, max_length=_MOST)]
    slots: Annotated[list[SlotRequest], Meta(min_length=1, max_length=_MOST)]
    context_features: list[dict[str, Any]] | None = None
    event_id: EventId | None = None
    defer_activation: bool | None = None


class SlotResponse(Struct, rename="camel"):
    """What to show in a slot."""

    id: str
    reward_action_id: str


class MultiSlotRankResponse(Struct, rename="camel"):
    """What to show in each."""

    slots: list[SlotResponse]
    event_id: str


class SlotReward(Struct, forbid_unknown_fields=True, rename="camel"):
    """What came of one slot."""

    slot_id: Annotated[str, Meta(min_length=1, max_length=256)]
    value: wire.Number


class MultiSlotRewardRequest(Struct, forbid_unknown_fields=True):
    """What came of some of them."""

    reward: Annotated[list[SlotReward], Meta(min_length=1, max_length=_MOST)]


def _renamed(message: str) -> str:
    """What the engine says of a field, with the name that the caller gave it."""
    match = re.match(r"\$\.slots\[(\d+)\]\.(\w+)", message)
    if match:
        rest = re.sub(r"^\.slot\.", ".", message[match.end() :])  # as ``_slot`` names features
        return f"$.slots[{match[1]}].{_NAMES.get(match[2], match[2])}{rest}"
    for ours, theirs in (("candidates", "actions"), ("decision_id", "eventId"),
                         ("context", "contextFeatures")):  # fmt: skip
        message = re.sub(rf"^\$\.{ours}\b", f"$.{theirs}", message)
    return message


def _reward_renamed(message: str, i: int) -> str:
    """The same for one reward of several."""
    message = message.replace("one of the list's", "one of the event's")
    for ours, theirs in (("decision_id", ""), ("slot", f"[{i}].slotId"), ("value", f"[{i}].value")):
        message = re.sub(rf"^\$\.{ours}\b", f"$.reward{theirs}", message)
    return message


def _slot(i: int, slot: SlotRequest) -> wire.Slot:
    features = flat(slot.features, f"$.slots[{i}].features")
    return wire.Slot(
        id=slot.id,
        features={f"slot.{name}": value for name, value in features.items()} or None,
        exclude=list(slot.excluded_actions or ()),
        baseline=slot.baseline_action,
    )


async def rank_slots(service: Service, call: Call) -> MultiSlotRankResponse:
    """Fill slots with actions, as the retired service did."""
    asked: MultiSlotRankRequest = call.body
    body = wire.ListBody(
        candidates=[
            wire.Candidate(a.id, flat(a.features, f"$.actions[{i}].features"))
            for i, a in enumerate(asked.actions)
        ],
        context=flat(asked.context_features, "$.contextFeatures"),
        slots=[_slot(i, slot) for i, slot in enumerate(asked.slots)],
        decision_id=asked.event_id,
        deferred=bool(asked.defer_activation),
    )
    name = await space_name(service)
    if not service.engine.space(name).state.items.size:  # a space of the user's own may have none
        body.candidates = [a.id for a in asked.actions]
    try:
        raw = await service.decided(name, body)
    except (ConflictError, InvalidInputError) as error:
        raise type(error)(_renamed(str(error))) from None
    answer = msgspec.json.decode(raw, type=wire.ListAnswer)
    slots = [SlotResponse(str(item.slot), str(item.arm)) for item in answer.items]
    return MultiSlotRankResponse(slots, answer.decision_id)


async def reward_slots(service: Service, call: Call) -> None:
    """Reward slots of an event, as the retired service did."""
    name, event = service.settings.personalizer_space, call.params["event"]
    bodies = [
        wire.RewardBody(decision_id=event, value=one.value, slot=one.slot_id)
        for one in call.body.reward
    ]
    await service.engine.know_decision(name, event)
    space = service.engine.space(name)
    items = []
    for i, body in enumerate(bodies):
        try:  # all or none
            items.append(space.check_reward(body, before=i))
        except (InvalidInputError, LimitError) as error:
            raise type(error)(_reward_renamed(str(error), i)) from None

    def act(body: wire.RewardBody) -> Any:
        return service.commit(lambda token: service.engine.reward(name, body, token))

    # from the top down, for in a cascade the first click ends the list
    order = sorted(range(len(bodies)), key=lambda i: items[i] or 0)
    await asyncio.gather(*[act(bodies[i]) for i in order])


async def activate_slots(service: Service, call: Call) -> None:
    """Activate a multi-slot event, as the retired service did."""
    name = service.settings.personalizer_space
    await service.commit(lambda t: service.engine.activate(name, call.params["event"], t))


_BASE = "/personalizer/v1.1-preview.3/multislot"
ROUTES: list[Route] = [
    Route("POST", _BASE + "/rank", rank_slots, scope="decide", takes=MultiSlotRankRequest,
          gives=MultiSlotRankResponse, status=201, problems=(404, 409), tag="personalizer",
          long="actions"),
    Route("POST", _BASE + "/events/{event}/reward", reward_slots, scope="reward",
          takes=MultiSlotRewardRequest, status=204, problems=(404,), tag="personalizer"),
    Route("POST", _BASE + "/events/{event}/activate", activate_slots, scope="decide", status=204,
          problems=(404,), tag="personalizer"),
]  # fmt: skip
