"""All lists that a uniform draw, slot by slot, can make, and how likely each of them is."""

from __future__ import annotations

import functools
import itertools


def can_be_filled(slots: list[set[int]], used: tuple[int, ...]) -> bool:
    """Literally: whether some candidates, each once, fill the slots that are left."""
    left = slots[len(used) :]
    free = set().union(*slots) - set(used)
    return any(
        all(p in allowed for p, allowed in zip(places, left, strict=True))
        for places in itertools.permutations(free, len(left))
    )


def enumerated(slots: list[set[int]]) -> dict[tuple[int, ...], float]:
    """How likely each list is: all of them, slot by slot, as the description says."""
    lists: dict[tuple[int, ...], float] = {(): 1.0}
    for j, allowed in enumerate(slots):
        longer: dict[tuple[int, ...], float] = {}
        for used, chance in lists.items():
            free = [p for p in allowed - set(used) if can_be_filled(slots, (*used, p))]
            for p in free:
                longer[*used, p] = chance / len(free)
        assert all(len(one) == j + 1 for one in longer)
        lists = longer
    return lists


@functools.cache
def told(
    slots: tuple[frozenset[int], ...], places: tuple[int, ...]
) -> tuple[list[float], list[float]]:
    """How likely a draw is to put each item where it is, and to begin as the list does."""
    lists = enumerated([set(one) for one in slots])
    each = range(len(places))
    items = [sum(p for one, p in lists.items() if one[j] == places[j]) for j in each]
    starts = [sum(p for one, p in lists.items() if one[: j + 1] == places[: j + 1]) for j in each]
    return items, starts


@functools.cache
def tops(slots: tuple[frozenset[int], ...]) -> frozenset[int]:
    """What can stand on top."""
    return frozenset(one[0] for one in enumerated([set(one) for one in slots]))
