"""``ArmTable``: arm ids <-> slots, the only place where ids become row numbers.

A slot is a row in every array of a policy. Retiring an arm frees its slot for the next one.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whim.errors import InvalidInputError, UnknownArmError
from whim.types import I64, ArmId

_BOOLS = frozenset((bool, np.bool_))  # True would find the arm called 1


def check_id(arm: object) -> ArmId:
    """The id as a plain Python value; raises an error if it cannot be an arm's id.

    >>> check_id("news-17"), check_id(np.int64(3))
    ('news-17', 3)
    """
    if isinstance(arm, (str, int)) and not isinstance(arm, bool):
        return str(arm) if isinstance(arm, np.str_) else arm
    if type(arm) in _BOOLS:
        raise InvalidInputError(f"arm id must not be a bool, got {arm!r}.")
    if isinstance(arm, np.generic):
        return check_id(arm.item())
    if not isinstance(arm, Hashable) or arm is None or arm != arm:
        raise InvalidInputError(
            f"arm id must be hashable, equal to itself and not None, got {arm!r}."
        )
    try:
        hash(arm)
    except TypeError:
        raise InvalidInputError(f"arm id must be hashable, got {arm!r}.") from None
    return arm


class ArmTable:
    """The live arms in the order in which they were added, each with its slot.

    >>> table = ArmTable()
    >>> table.add(["a", "b", "a"])
    [('a', 0), ('b', 1)]
    >>> table.retire(["a"])
    [0]
    >>> table.add(["c"]), list(table.slot_of)
    ([('c', 0)], ['b', 'c'])
    """

    def __init__(self) -> None:
        self.slot_of: dict[ArmId, int] = {}
        self.id_of: list[ArmId | None] = []
        self._free: list[int] = []
        self._slots: I64 | None = None
        self._numbers: I64 | None = None  # slot of each arm whose id is a small number

    def __len__(self) -> int:
        return len(self.slot_of)

    def missing(self, ids: Iterable[object]) -> list[ArmId]:
        """The ids that are not live, checked and without duplicates."""
        return [a for a in dict.fromkeys(check_id(a) for a in ids) if a not in self.slot_of]

    def add(self, ids: Iterable[object]) -> list[tuple[ArmId, int]]:
        """Give a slot to each new id; ids that are live keep theirs."""
        added = []
        self._numbers = None
        for arm in self.missing(ids):
            if self._free:
                slot = heapq.heappop(self._free)
                self.id_of[slot] = arm
            else:
                slot = len(self.id_of)
                self.id_of.append(arm)
            self.slot_of[arm] = slot
            added.append((arm, slot))
        if self._slots is not None:  # new arms come last
            self._slots = np.append(self._slots, [slot for _, slot in added]).astype(np.int64)
        return added

    def retire(self, ids: Iterable[object]) -> list[int]:
        """Free the slots of live ids; if one is unknown, raise an error and free none."""
        slots = self.slots(list(dict.fromkeys(check_id(a) for a in ids))).tolist()
        for slot in slots:
            arm = self.id_of[slot]
            del self.slot_of[arm]
            self.id_of[slot] = None
            heapq.heappush(self._free, slot)
        self._slots = self._numbers = None
        return list(slots)

    @property
    def live(self) -> I64:
        """Slots of every live arm, in the order of the arms."""
        if self._slots is None:
            self._slots = np.fromiter(self.slot_of.values(), np.int64, len(self.slot_of))
        return self._slots

    def slot(self, arm: object) -> int:
        """The slot of one live id."""
        try:
            slot = self.slot_of[arm]
        except (KeyError, TypeError):
            raise self._unknown([arm], "arm") from None
        if arm.__class__ in _BOOLS:
            raise self._unknown([arm], "arm")
        return slot

    def slots(self, ids: Sequence[object], name: str = "arms") -> I64:
        """The slots of live ids; the error names every unknown one."""
        slots = self.slots_if_live(ids)
        if slots is None:
            raise self._unknown(ids, name)
        return slots

    def slots_if_live(self, ids: Sequence[object]) -> I64 | None:
        """The same, and None if one is not: sooner than an error that names them."""
        try:
            slots = np.fromiter(map(self.slot_of.__getitem__, ids), np.int64, len(ids))
        except (KeyError, TypeError):
            return None
        return None if self._has_bool(ids) else slots

    def _has_bool(self, ids: Sequence[object]) -> bool:
        """Whether a bool was taken for an arm; it can be only if one is called 0 or 1."""
        known = self.slot_of
        return (0 in known or 1 in known) and not _BOOLS.isdisjoint(map(type, ids))

    def same(self, ids: list[ArmId], known: list[ArmId]) -> bool:
        """Whether ids equal those of a list that was looked up before."""
        try:
            return ids == known and not self._has_bool(ids)
        except Exception:  # from an id's own __eq__: the lookup will raise
            return False

    def slots_of_numbers(self, ids: NDArray[Any]) -> I64:
        """As ``slots``, for an array of integers; small numbers are looked up all at once."""
        if self._numbers is None:
            most = 8 * len(self.slot_of) + 1024  # a table of ids must not outgrow the arms
            known = [(a, s) for a, s in self.slot_of.items() if type(a) is int and 0 <= a < most]
            self._numbers = np.full(max((a for a, _ in known), default=-1) + 1, -1)
            for arm, slot in known:
                self._numbers[arm] = slot
        if len(ids) and ids.min() >= 0 and ids.max() < len(self._numbers):
            slots: I64 = self._numbers[ids]
            if slots.min() >= 0:
                return slots
        return self.slots(ids.tolist())

    def _unknown(self, ids: Sequence[object], name: str) -> InvalidInputError | UnknownArmError:
        unknown = []
        for arm in ids:
            try:
                if check_id(arm) not in self.slot_of:
                    unknown.append(arm)
            except InvalidInputError as error:
                return error
        shown = ", ".join(repr(a) for a in unknown[:5]) + (" …" if len(unknown) > 5 else "")
        kind = "a live arm" if name == "arm" else "live arms"
        return UnknownArmError(f"{name} must be {kind}, got unknown or retired: {shown}.")

    def restore(self, ids: list[ArmId], slots: list[int], size: int) -> None:
        """Become the table that has these arms at these slots, and ``size`` slots in total."""
        self.slot_of = dict(zip(ids, slots, strict=True))
        self.id_of = [None] * size
        for arm, slot in self.slot_of.items():
            self.id_of[slot] = arm
        self._free = [s for s in range(size) if self.id_of[s] is None]
        self._slots = self._numbers = None
