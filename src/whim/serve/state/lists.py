"""Lists: what may stand where, how one is drawn uniformly at random, and how likely each item was.

A list is drawn slot by slot, each time uniformly among the candidates that may stand there: those
that are not taken, not excluded, and without which the slots after it can still be filled. So the
probability of every prefix is a product, and exact. That of one item at one place is a sum over all
that may stand before it: without exclusions it is 1/n, and with them candidates that are excluded
from the same slots count as one.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

from whim.errors import InvalidInputError
from whim.serve import wire
from whim.serve.log.rows import DecisionHead, DecisionRow, FeatureValues
from whim.serve.state.drawing import draws

_STATES = 256  # ways to fill the slots before one that are looked at, so that nobody waits long


def contexts_of(row: DecisionHead | DecisionRow) -> list[Any]:
    """The context that a decision was made for; one for each slot where these have features."""
    return contexts(row.context, row.items.features if row.items is not None else None)


def contexts(context: Any, features: list[FeatureValues] | None) -> list[Any]:
    """A context joined by the features of each slot; it alone if no slot has any.

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


class Slots:
    """Which of ``n`` candidates may stand in which of ``k`` slots."""

    def __init__(self, n: int, k: int, exclude: list[list[int]] | None = None) -> None:
        self.n, self.k = n, k
        self._out = [frozenset(out) for out in exclude or [[]] * k]
        # those that the others could leave without any candidate: fewer than k may stand there
        self._tight = {
            j: [p for p in range(n) if p not in out]
            for j, out in enumerate(self._out)
            if n - len(out) < k
        }
        if self._tight and self._matching(0, set()) is None:
            raise InvalidInputError(
                "$.slots must leave a candidate of its own for each, which their exclusions do not."
            )

    def _matching(self, first: int, used: set[int]) -> dict[int, int] | None:
        """A candidate for each tight slot from ``first`` on, by candidate; None: there is none."""
        matched: dict[int, int] = {}
        whole = all(self._find(j, matched, used, set()) for j in self._tight if j >= first)
        return matched if whole else None

    def _find(self, j: int, matched: dict[int, int], used: set[int], tried: set[int]) -> bool:
        """Match one more slot, moving others where that helps."""
        for place in self._tight[j]:
            if place in used or place in tried:
                continue
            tried.add(place)
            if place not in matched or self._find(matched[place], matched, used, tried):
                matched[place] = j
                return True
        return False

    def _closed(self, j: int, used: set[int]) -> set[int]:
        """Candidates that may not stand in slot ``j`` when some are used."""
        closed = used | self._out[j]
        matched = self._matching(j + 1, used) if self._tight else None
        for place, slot in list((matched or {}).items()):
            assert matched is not None
            rest = {p: s for p, s in matched.items() if p != place}
            if not self._find(slot, rest, used | {place}, set()):
                closed.add(place)  # a later slot has nothing else
        return closed

    def fill(self, orders: list[list[int]]) -> list[int]:
        """From the top, the first that may stand there; one order for all, or one for each."""
        places: list[int] = []
        for j in range(self.k):
            closed = self._closed(j, set(places))
            order = orders[j if len(orders) > 1 else 0]
            places.append(next(p for p in order if p not in closed))
        return places

    def draw(self, uniforms: Iterable[float]) -> list[int]:
        """An ordered draw without replacement, each time uniform among those that may."""
        places: list[int] = []
        if not any(self._out):
            pool = list(range(self.n))
            some = itertools.islice(uniforms, self.k)
            return [pool.pop(min(int(u * len(pool)), len(pool) - 1)) for u in some]
        for j, u in zip(range(self.k), uniforms, strict=False):
            closed = self._closed(j, set(places))
            free = [p for p in range(self.n) if p not in closed]
            places.append(free[min(int(u * len(free)), len(free) - 1)])
        return places

    def prefixes(self, places: list[int]) -> list[float]:
        """How likely ``draw`` is to begin as a list does, down to each of its items."""
        chance, chances = 1.0, []
        for j in range(self.k):
            chance /= self.n - len(self._closed(j, set(places[:j])))
            chances.append(chance)
        return chances

    def chances(self, places: list[int]) -> list[float | None]:
        """How likely ``draw`` is to put each item of a list where it is.

        None where too many ways lead to a slot.
        """
        if not any(self._out):
            return [1.0 / self.n] * self.k
        excluded_from: dict[int, list[int]] = {}
        for j, out in enumerate(self._out):
            for p in out:
                excluded_from.setdefault(p, []).append(j)
        groups: dict[tuple[int, ...], list[int]] = {}
        for p in range(self.n):
            groups.setdefault(tuple(excluded_from.get(p, ())), []).append(p)
        members = list(groups.values())
        group_of = {p: g for g, some in enumerate(members) for p in some}
        # how likely it is that so many of each group are used
        states: dict[tuple[int, ...], float] = {(0,) * len(members): 1.0}
        found: list[float | None] = []
        for j, place in enumerate(places):
            if len(states) > _STATES:
                return found + [None] * (self.k - j)
            at, own, after = 0.0, group_of[place], dict[tuple[int, ...], float]()
            for counts, chance in states.items():
                used = {q for some, c in zip(members, counts, strict=True) for q in some[:c]}
                closed = self._closed(j, used)
                free = [0 if some[-1] in closed else len(some) - c
                        for some, c in zip(members, counts, strict=True)]  # fmt: skip
                at += chance * free[own] / len(members[own]) / sum(free)
                for g, n in enumerate(free):
                    if n:
                        then = (*counts[:g], counts[g] + 1, *counts[g + 1 :])
                        after[then] = after.get(then, 0.0) + chance * n / sum(free)
            states = after
            found.append(at)
        return found


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
    everything = range(slots.n)
    if request.baselines is not None:
        out = request.exclude or [[]] * slots.k
        fixed = [
            out[j] if base is None else [p for p in everything if p != base]
            for j, base in enumerate(request.baselines)
        ]
        slots = Slots(slots.n, slots.k, fixed)
    return slots.fill([list(everything)])


class Shown(NamedTuple):
    """Lists by places: the policy's own, the one for comparison (None: a draw), the one shown."""

    own: list[int]
    base: list[int] | None
    places: list[int]


def probabilities(
    config: wire.SpaceConfig, slots: Slots, shown: Shown, drawn: float | None, draws: bool
) -> tuple[list[float | None], list[float | None]]:
    """How likely each item was where it is, and how likely all down to it were.

    Of a policy that ``draws`` only the top is known, if ``drawn`` is how likely that was.

    >>> config = wire.SpaceConfig(explore=0.5)
    >>> probabilities(config, Slots(4, 2), Shown([0, 1], [0, 1], [0, 2]), None, False)
    ([0.625, 0.125], [0.625, 0.041666666666666664])
    """
    places, k = shown.places, slots.k
    share = 1.0 if config.shadow else config.holdback
    by_draw = (1 - share) * config.explore + (share if shown.base is None else 0.0)
    by_base = 0.0 if shown.base is None else share
    by_policy = (1 - share) * (1 - config.explore)
    items: list[float | None] = slots.chances(places) if by_draw else [0.0] * k
    prefixes: list[float | None] = [*slots.prefixes(places)] if by_draw else [0.0] * k
    for j in range(k):
        own: list[float | None] = [float(shown.own[j] == places[j]),
                                   float(shown.own[: j + 1] == places[: j + 1])]  # fmt: skip
        if draws:
            own = [drawn if j == 0 else None] * 2
        base = shown.base or [-1] * k
        same = base[j] == places[j], base[: j + 1] == places[: j + 1]
        for found, i in ((items, 0), (prefixes, 1)):
            chance, part = found[j], own[i]
            if chance is None or (part is None and by_policy):
                found[j] = None
            else:
                found[j] = by_draw * chance + by_base * same[i] + by_policy * (part or 0.0)
    return items, prefixes
