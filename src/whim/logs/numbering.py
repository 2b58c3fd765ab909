"""Numbers for arms, items and pools by first appearance, remembered in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from whim.arms import check_id
from whim.errors import InvalidInputError, LogFileError
from whim.types import F64, ArmId

_REMEMBERED_ITEMS = 1 << 18
_REMEMBERED_POOLS = 1 << 16
_REMEMBERED_BYTES = 1 << 25  # of pools' members, and of items' features
_MOST = 2**31 - 1  # numbers of pools and items are int32


class Numbering:
    """The numbers given so far; ``put(column, bytes)`` writes what is new."""

    def __init__(self, put: Callable[[str, bytes | memoryview], None]) -> None:
        self._put = put
        self.arms: dict[ArmId, int] = {}
        self.n_items = self.n_pools = self.n_members = 0
        self._items: dict[tuple[int, bytes], int] = {}
        self._pools: dict[bytes, int] = {}
        self._pool_bytes = self._item_bytes = 0

    def item(self, arm: ArmId, key: bytes, event: int) -> int:
        """The item of an arm with these features, as bytes, first seen at this event."""
        number = self.arms.setdefault(arm, len(self.arms))
        item = self._items.get((number, key))
        if item is None:
            self._item_bytes += len(key)
            if len(self._items) >= _REMEMBERED_ITEMS or self._item_bytes > _REMEMBERED_BYTES:
                self._items.clear()
                self._item_bytes = len(key)
            item = self._items[number, key] = self.n_items
            self.n_items = _few(item + 1, "items")
            self._put("item_arm", number.to_bytes(4, "little"))
            self._put("item_features", key)
            self._put("item_first", event.to_bytes(8, "little"))
        return item

    def block(
        self,
        pool: npt.NDArray[Any],
        offsets: npt.NDArray[Any],
        members: npt.NDArray[Any],
        item_arm: Sequence[ArmId],
        Y: F64,
        n_events: int,
    ) -> npt.NDArray[np.int32]:
        """The log's numbers for a block's pools, by event; new pools and items are written.

        They are those that one event at a time would get: a block during which something is
        forgotten is halved until that happens between two events. So the log does not depend on
        how events come in blocks.
        """
        first = _first(pool, len(offsets) - 1)
        order = np.argsort(first, kind="stable")
        order = order[first[order] < len(pool)]  # a pool of no event is left out
        sizes = np.diff(offsets)[order]
        ends = np.cumsum(sizes)
        within = np.arange(ends[-1]) - np.repeat(ends - sizes, sizes)
        local = members[np.repeat(offsets[order], sizes) + within]
        at = _first(local, len(item_arm))
        used = np.argsort(at, kind="stable")
        used = used[at[used] < len(local)]
        named = [(item_arm[item], Y[item].tobytes()) for item in used.tolist()]
        if len(pool) > 1 and not self._room_for_items(named):
            return self._halves(pool, (offsets, members, item_arm, Y, n_events))
        item_of = np.full(len(item_arm), -1, "<i4")
        for item, (arm, key) in zip(used.tolist(), named, strict=True):
            event = n_events + int(first[order[np.searchsorted(ends, at[item], "right")]])
            item_of[item] = self.item(arm, key, event)
        text = item_of[local].tobytes()
        bounds = (4 * ends).tolist()
        keys = [text[low:high] for low, high in zip([0, *bounds], bounds, strict=False)]
        if len(pool) > 1 and not self._room_for_pools(keys):
            return self._halves(pool, (offsets, members, item_arm, Y, n_events))
        pool_of = np.full(len(first), -1, np.int32)
        pool_of[order] = self.pools(keys)
        pools: npt.NDArray[np.int32] = pool_of[pool]
        return pools

    def _halves(self, pool: npt.NDArray[Any], block: Sequence[Any]) -> npt.NDArray[np.int32]:
        """``block`` for the first half of the events, then for the second."""
        offsets, members, item_arm, Y, n_events = block
        half = len(pool) // 2
        first = self.block(pool[:half], offsets, members, item_arm, Y, n_events)
        second = self.block(pool[half:], offsets, members, item_arm, Y, n_events + half)
        return np.concatenate([first, second])

    def _room_for_items(self, named: list[tuple[ArmId, bytes]]) -> bool:
        """Whether these can be remembered without forgetting any."""
        there, size = len(self._items), self._item_bytes
        if _fits(there + len(named), size + sum(len(key) for _, key in named), _REMEMBERED_ITEMS):
            return True
        new = {each for each in named if (self.arms.get(each[0], -1), each[1]) not in self._items}
        return _fits(there + len(new), size + sum(len(key) for _, key in new), _REMEMBERED_ITEMS)

    def _room_for_pools(self, keys: list[bytes]) -> bool:
        """The same for pools."""
        there, size = len(self._pools), self._pool_bytes
        if _fits(there + len(keys), size + sum(map(len, keys)), _REMEMBERED_POOLS):
            return True
        new = {key for key in keys if key not in self._pools}
        return _fits(there + len(new), size + sum(map(len, new)), _REMEMBERED_POOLS)

    def pools(self, keys: list[bytes]) -> list[int]:
        """The number of each pool, given by its members' bytes; new ones are written."""
        numbers, fresh, ends = [], [], []
        pools = self._pools
        for members in keys:
            pool = pools.get(members)
            if pool is None:
                size = len(members)
                self._pool_bytes += size
                if len(pools) >= _REMEMBERED_POOLS or self._pool_bytes > _REMEMBERED_BYTES:
                    pools.clear()
                    self._pool_bytes = size
                pool = pools[members] = self.n_pools
                self.n_pools = pool + 1
                self.n_members += size // 4
                fresh.append(members)
                ends.append(self.n_members)
            numbers.append(pool)
        if fresh:
            _few(self.n_pools, "pools")
            self._put("pool_items", b"".join(fresh))
            self._put("pool_offsets", np.array(ends, "<i8").data)
        return numbers


def _fits(count: int, size: int, most: int) -> bool:
    return count <= most and size <= _REMEMBERED_BYTES


def _first(numbers: npt.NDArray[Any], n: int) -> npt.NDArray[np.int64]:
    """Where each of 0..n-1 comes first, or the length if nowhere."""
    first = np.full(n, len(numbers), np.int64)
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]  # the last one assigned stays
    return first


def plain_id(arm: object) -> ArmId:
    """An id as a log can hold it: an int or text."""
    id_ = check_id(arm)
    if not isinstance(id_, (int, str)):
        raise InvalidInputError(f"arm id must be a number or text in a log, got {arm!r}.")
    return id_


def _few(count: int, what: str) -> int:
    if count > _MOST:
        raise LogFileError(f"a log holds at most {_MOST} {what}.")
    return count
