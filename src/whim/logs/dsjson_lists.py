"""Decision-service JSON: lines of several slots, those of VW's CCB and of its slates, as lists.

CCB fills slots one after another from the same actions, and each slot has a cost. In slates each
slot has actions of its own and is drawn by itself, and only the whole has a cost.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeGuard

from whim.logs.dsjson_features import BadLine, features_of, is_number

SLATES = "slates: slots had candidates of their own, the log has those of all slots"
UNSEEN = "slot without a cost: not seen, it earned nothing"
_CLOSE = 1 + 1e-9  # as for the writer of lists


class Slots(NamedTuple):
    """What a line shows, from the top; a decision about one action is a list of one.

    ``places`` are among the actions. ``rewards`` is None where only the whole list has one,
    ``probabilities`` and ``prefixes`` where they are not asked for; a probability of an item at
    its position is None where it does not follow. ``features`` are those of an only slot.
    """

    places: list[int]
    rewards: list[float] | None
    reward: float
    probabilities: list[float | None] | None
    prefixes: list[float] | None
    features: dict[str, float] | list[float] | None = None
    notices: tuple[str, ...] = ()


def is_list(entry: dict[str, Any], about: dict[str, Any]) -> bool:
    """Whether a line has slots."""
    return "_outcomes" in entry or "_slots" in about


def slots_of(
    entry: dict[str, Any], about: dict[str, Any], *, weighted: bool, ignore: bool
) -> Slots:
    """The slots of a line; ``ignore`` what the columns of a log do not hold of them."""
    actions, slots, outcomes = about["_multi"], about.get("_slots"), entry.get("_outcomes")
    if not _are_objects(slots) or not _are_objects(outcomes) or len(slots) != len(outcomes):
        raise BadLine("outcomes")
    for slot, outcome in zip(slots, outcomes, strict=True):
        if "_id" in slot and "_id" in outcome and slot["_id"] != outcome["_id"]:
            raise BadLine("outcomes")
    slates = any("_slot_id" in action for action in actions)
    own = [features_of(slot, "_x", ()) for slot in slots]
    if not ignore and len(slots) > 1 and any(own):
        raise BadLine("slot_features")
    if not ignore and not slates and any(_excludes(slot, len(actions)) for slot in slots):
        raise BadLine("slot_candidates")
    candidates = _by_slot(actions, len(slots)) if slates else [[*range(len(actions))]] * len(slots)
    places = [_place(o, mine) for o, mine in zip(outcomes, candidates, strict=True)]
    if len(set(places)) < len(places):
        raise BadLine("twice")
    costs = [entry.get("_label_cost")] if slates else [o.get("_label_cost") for o in outcomes]
    known = [cost for cost in costs if cost is not None]
    if not known or not all(is_number(cost) for cost in known):
        raise BadLine("cost")
    rewards = [0.0 if cost is None else 0.0 - cost for cost in costs]
    chances, prefixes = _chances(outcomes, slates) if weighted else (None, None)
    return Slots(
        places, None if slates else rewards, math.fsum(rewards), chances, prefixes,
        own[0] if len(slots) == 1 and own[0] else None,
        (SLATES,) * slates + (UNSEEN,) * (len(costs) - len(known)),
    )  # fmt: skip


def joined(
    context: dict[str, float] | list[float], more: dict[str, float] | list[float] | None
) -> dict[str, float] | list[float]:
    """A context with the features of the only slot; a vector is both already."""
    if more is None:
        return context
    if isinstance(context, dict) and isinstance(more, dict):
        return {**context, **more}
    return more


def chance(value: Any) -> float:
    """A probability that something was shown."""
    if not is_number(value) or not 0 < value <= 1:
        raise BadLine("propensity")
    return float(value)


def _are_objects(value: Any) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _excludes(slot: dict[str, Any], n: int) -> bool:
    """Whether only some of the actions may stand in a slot; an empty list names all of them."""
    included = slot.get("_inc")
    if included is None or included == []:
        return False
    if not isinstance(included, list):
        return True
    return len({i for i in included if type(i) is int and 0 <= i < n}) < n


def _by_slot(actions: list[dict[str, Any]], k: int) -> list[list[int]]:
    """The places of each slot's actions."""
    found: list[list[int]] = [[] for _ in range(k)]
    for place, action in enumerate(actions):
        slot = action.get("_slot_id")
        if type(slot) is not int or not 0 <= slot < k:
            raise BadLine("slot_id")
        found[slot].append(place)
    return found


def _place(outcome: dict[str, Any], candidates: list[int]) -> int:
    """The place of what a slot shows: the first of ``_a``, which counts its candidates from 0."""
    number = _first(outcome.get("_a"))
    if type(number) is not int or not 0 <= number < len(candidates):
        raise BadLine("action")
    return candidates[number]


def _first(value: Any) -> Any:
    if isinstance(value, list):
        return value[0] if value else None
    return value


def _chances(
    outcomes: list[dict[str, Any]], slates: bool
) -> tuple[list[float | None], list[float]]:
    """Of each item at its position over all lists, and of the list up to and including it.

    ``_p`` is given the slots above, so the prefixes are products. Over all lists it holds for the
    top and where slots are drawn by themselves; Whim's own export says it for the others.
    """
    chances: list[float | None] = []
    prefixes: list[float] = []
    above = 1.0
    for i, outcome in enumerate(outcomes):
        given = chance(_first(outcome.get("_p")))
        over_all = outcome.get("_probability", given if slates or i == 0 else None)
        prefix = chance(outcome.get("_prefix_probability", above * given))
        most = above if over_all is None else min(above, chance(over_all))
        if prefix > most * _CLOSE:
            raise BadLine("prefix")
        chances.append(over_all)
        prefixes.append(prefix)
        above = prefix
    return chances, prefixes
