"""Lists: what a request asks for, what is drawn and compared, and how likely what was shown was."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from whim.errors import InvalidInputError
from whim.serve import wire
from whim.serve.log.rows import DecisionHead, DecisionRow, FeatureValues
from whim.serve.state.drawing import draws
from whim.serve.state.slots import Slots

_LEAST = 1e-300  # probabilities below this are not told: they end as 0, and weights as infinity


def contexts_of(row: DecisionHead | DecisionRow) -> list[Any]:
    """The context that a decision was made for; one for each slot where these have features."""
    return contexts(row.context, row.items.features if row.items is not None else None)


def contexts(context: Any, features: list[FeatureValues] | None) -> list[Any]:
    """A context joined by the features of each slot, whose word counts; it alone if none has any.

    >>> contexts({"hour": 9}, [{"size": "large"}, None])
    [{'hour': 9, 'size': 'large'}, {'hour': 9}]
    """
    if features is None:
        return [context]
    joined: list[Any] = []
    for i, more in enumerate(features):
        if more is None:
            joined.append(context)
        elif isinstance(more, dict) and isinstance(context or {}, dict):
            joined.append({**(context or {}), **more})
        elif isinstance(more, list) and isinstance(context, list):
            joined.append([*context, *more])
        else:
            kind = "an object" if isinstance(context, dict) else "a list"
            raise InvalidInputError(f"$.slots[{i}].features must be {kind} as the context is.")
    return joined


def in_slot(message: str, features: list[FeatureValues] | None, i: int) -> str:
    """An error about a context that slot ``i`` joined: if it is about the slot's own, it says so.

    >>> in_slot("$.context.size must be a number, got 'big'.", [None, {"size": "big"}], 1)
    "$.slots[1].features.size must be a number, got 'big'."
    """
    own = None if features is None else features[i]
    for name in own if isinstance(own, dict) else ():
        path = f"$.context.{name}"
        if message.startswith(path) and message[len(path)] in " [.":
            return f"$.slots[{i}].features.{name}{message[len(path) :]}"
    return message


class ListRequest(NamedTuple):
    """What a body asks for, candidates by their places; as ``ListPart`` has it."""

    k: int
    ids: list[str | int] | None
    features: list[FeatureValues] | None
    exclude: list[list[int]] | None
    baselines: list[int | None] | None

    @classmethod
    def of(cls, body: wire.ListBody, candidates: list[Any]) -> ListRequest:
        """Checked: raises where it contradicts itself."""
        n = len(candidates)
        if (body.k is None) == (body.slots is None):
            got = "neither" if body.k is None else "both"
            raise InvalidInputError(f"$.k or $.slots must say what to fill, got {got}.")
        if body.slots is None:
            assert body.k is not None
            if body.k > n:
                raise InvalidInputError(
                    f"$.k must be at most {n}, as there are candidates, got {body.k}."
                )
            return cls(body.k, None, None, None, None)
        slots, place = body.slots, {arm: i for i, arm in enumerate(candidates)}
        if len(slots) > n:
            raise InvalidInputError(
                f"$.slots must be at most {n}, as there are candidates, got {len(slots)}."
            )
        ids = [i if one.id is None else one.id for i, one in enumerate(slots)]
        _once("id", ids, slots)
        exclude = [[place[arm] for arm in one.exclude if arm in place] for one in slots]
        for i, one in enumerate(slots):
            if one.baseline is not None and one.baseline not in place:
                raise InvalidInputError(
                    f"$.slots[{i}].baseline must be a candidate, got {one.baseline!r}."
                )
            if one.baseline is not None and one.baseline in one.exclude:
                raise InvalidInputError(
                    f"$.slots[{i}].baseline must not be excluded, got {one.baseline!r}."
                )
        bases = [None if one.baseline is None else place[one.baseline] for one in slots]
        _once("baseline", bases, slots)
        features = [one.features for one in slots]
        return cls(
            len(slots),
            None if ids == list(range(len(ids))) else ids,
            features if any(f is not None for f in features) else None,
            exclude if any(exclude) else None,
            bases if any(base is not None for base in bases) else None,
        )


def _once(name: str, values: list[Any], slots: list[wire.Slot]) -> None:
    seen: set[Any] = set()
    for i, value in enumerate(values):
        if value is not None and value in seen:
            said = getattr(slots[i], name)
            raise InvalidInputError(
                f"$.slots[{i}].{name} must not repeat, got {value if said is None else said!r}."
            )
        seen.add(value)


def uniforms(seed: int, key: str, k: int) -> list[float]:
    """As many uniform numbers for a list; the first is the one that a decision would have."""
    more = hashlib.shake_128(f"list {seed} {key}".encode("utf-8", "surrogatepass"))
    data = more.digest(8 * (k - 1)) if k > 1 else b""
    rest = (int.from_bytes(data[i : i + 8], "little") >> 11 for i in range(0, len(data), 8))
    return [draws(seed, key)[2], *(a * 2.0**-53 for a in rest)]


def slot_keys(key: str, n: int) -> list[str]:
    """By what a policy that draws does so in each slot: the first is that of a decision."""
    return [key, *(f"{key} {j}" for j in range(1, n))]


def baseline(slots: Slots, config: wire.SpaceConfig, request: ListRequest) -> list[int] | None:
    """What is shown for comparison; None: a draw.

    Slots without a baseline of their own have the first candidates that may stand there and that
    no other slot has.
    """
    if config.baseline == "random":
        return None
    if request.baselines is not None:
        slots = Slots(slots.n, slots.k, request.exclude, request.baselines)
    return slots.fill([list(range(slots.n))])


class Shown(NamedTuple):
    """Lists by places: the policy's own, the one for comparison (None: a draw), the one shown."""

    own: list[int]
    base: list[int] | None
    places: list[int]


def probabilities(
    config: wire.SpaceConfig, slots: Slots, shown: Shown, drawn: float | None, draws: bool
) -> tuple[list[float | None], list[float | None]]:
    """How likely each item was where it is, and how likely all down to it were.

    Of a policy that ``draws`` only the top is known, if ``drawn`` is how likely that was; but a
    random list without exclusions is drawn as ``Slots.draw`` does. None is what is not known, or
    too small for a number: a long list of many candidates that was drawn.

    >>> config = wire.SpaceConfig(explore=0.5)
    >>> probabilities(config, Slots(4, 2), Shown([0, 1], [0, 1], [0, 2]), None, False)
    ([0.625, 0.125], [0.625, 0.041666666666666664])
    """
    places, k = shown.places, slots.k
    share = 1.0 if config.shadow else config.holdback
    by_draw = (1 - share) * config.explore + (share if shown.base is None else 0.0)
    by_base = 0.0 if shown.base is None else share
    by_policy = (1 - share) * (1 - config.explore)
    uniform = config.policy == "random" and slots.free
    items: list[float | None] = slots.chances(places) if by_draw or uniform else [0.0] * k
    prefixes: list[float | None] = [*slots.prefixes(places)] if by_draw or uniform else [0.0] * k
    for j in range(k):
        own: list[float | None] = [float(shown.own[j] == places[j]),
                                   float(shown.own[: j + 1] == places[: j + 1])]  # fmt: skip
        if uniform:
            own = [items[j], prefixes[j]]
        elif draws:
            own = [drawn if j == 0 else None] * 2
        base = shown.base or [-1] * k
        same = base[j] == places[j], base[: j + 1] == places[: j + 1]
        for found, i in ((items, 0), (prefixes, 1)):
            chance, part = found[j], own[i]
            if chance is None or (part is None and by_policy):
                found[j] = None
            else:
                chance = by_draw * chance + by_base * same[i] + by_policy * (part or 0.0)
                found[j] = chance if chance >= _LEAST else None
    return items, prefixes
