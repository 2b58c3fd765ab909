"""``Slots``: which candidates may stand where in a list, and how one is drawn at random.

A list is drawn slot by slot, each time uniformly among the candidates that may stand there: those
that are not taken, not excluded, and without which the slots after it can still be filled. So the
probability of every prefix is a product, and exact. That of one item at one place is a sum over all
that may stand before it: without exclusions it is 1/n, and with them candidates that are excluded
from the same slots count as one.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator

from whim.errors import InvalidInputError

_STATES = 256  # ways to fill the slots before one that are looked at, so that nobody waits long
_EFFORT = 1 << 14  # and so many in all, each as often as there are slots that it must leave filled


class Slots:
    """Which of ``n`` candidates may stand in which of ``k`` slots.

    A set of candidates is a number, of which each has one bit. Slots with a ``fixed`` candidate
    have that one and no other. ``free``: any may stand anywhere.
    """

    def __init__(
        self, n: int, k: int, exclude: list[list[int]] | None = None,
        fixed: list[int | None] | None = None,
    ) -> None:  # fmt: skip
        self.n, self.k, self._all = n, k, (1 << n) - 1
        self._out = [0] * k if exclude is None else [_bits(n, out) for out in exclude]
        for j, base in enumerate(fixed or ()):
            if base is not None:
                self._out[j] = self._all & ~(1 << base)
        self.free = not any(self._out)
        # those that the others could leave without any candidate: fewer than k may stand there
        self._tight = {
            j: self._all & ~out for j, out in enumerate(self._out) if n - out.bit_count() < k
        }
        self._holders: dict[int, list[int]] = {}  # by candidate: the tight slots for it
        for j, allowed in self._tight.items():
            while allowed:
                low = allowed & -allowed
                self._holders.setdefault(low.bit_length() - 1, []).append(j)
                allowed ^= low
        matched = self._matching(0, 0, {})
        if matched is None:
            raise InvalidInputError(
                "$.slots must leave a candidate of its own for each, which their exclusions and "
                "baselines do not."
            )
        self._matched = matched

    def _matching(self, first: int, used: int, known: dict[int, int]) -> dict[int, int] | None:
        """A candidate for each tight slot from ``first`` on, as far as may be those ``known``.

        None: there is none.
        """
        matched = {j: p for j, p in known.items() if j >= first and not used >> p & 1}
        for j in self._tight:
            if j >= first and j not in matched and not self._match(j, matched, used):
                return None
        return matched

    def _match(self, slot: int, matched: dict[int, int], used: int) -> bool:
        """Match one more slot, moving others where that helps."""
        owners = {p: j for j, p in matched.items()}
        taken = sum([1 << p for p in owners])
        came_from: dict[int, int | None] = {slot: None}
        queue, closed = [slot], used
        for j in queue:
            allowed = self._tight[j] & ~closed
            free = allowed & ~taken
            if free:
                place, at = (free & -free).bit_length() - 1, j
                while True:
                    before, previous = matched.get(at), came_from[at]
                    matched[at] = place
                    if before is None or previous is None:
                        return True
                    place, at = before, previous
            closed |= allowed
            while allowed:
                low = allowed & -allowed
                allowed ^= low
                owner = owners[low.bit_length() - 1]
                came_from[owner] = j
                queue.append(owner)
        return False

    def _closed(self, j: int, used: int, matched: dict[int, int]) -> int:
        """Candidates that may not stand in slot ``j`` when some are used.

        Of those ``matched`` to later slots one may if its slot can have another: directly, or by
        moving others.
        """
        closed = used | self._out[j]
        if not matched:
            return closed
        taken = sum([1 << p for p in matched.values()])
        free = self._all & ~used & ~taken
        movable = {slot for slot in matched if self._tight[slot] & free}
        queue = list(movable)
        for slot in queue:
            for other in self._holders[matched[slot]]:
                if other in matched and other not in movable:
                    movable.add(other)
                    queue.append(other)
        if len(movable) == len(matched):
            return closed
        return closed | sum([1 << p for slot, p in matched.items() if slot not in movable])

    @property
    def top_open(self) -> bool:
        """Whether any candidate may stand on top."""
        return self.free or next(self._steps([])) == 0

    def _steps(self, places: list[int]) -> Iterator[int]:
        """For each slot the candidates that may not stand there, once ``places`` has those above.

        The caller appends to it what stands there.
        """
        used, matched = 0, self._matched
        for j in range(self.k):
            matched = self._matching(j + 1, used, matched) or {}
            yield self._closed(j, used, matched)
            used |= 1 << places[j]

    def fill(self, orders: list[list[int]]) -> list[int]:
        """From the top, the first that may stand there; one order for all, or one for each."""
        if self.free and len(orders) == 1:
            return orders[0][: self.k]
        places: list[int] = []
        for j, closed in enumerate(self._steps(places)):
            order = orders[j if len(orders) > 1 else 0]
            places.append(next(p for p in order if not closed >> p & 1))
        return places

    def draw(self, uniforms: Iterable[float]) -> list[int]:
        """An ordered draw without replacement, each time uniform among those that may."""
        if self.free:
            pool = list(range(self.n))
            some = itertools.islice(uniforms, self.k)
            return [pool.pop(min(int(u * len(pool)), len(pool) - 1)) for u in some]
        places: list[int] = []
        for closed, u in zip(self._steps(places), uniforms, strict=False):
            free = self._all & ~closed
            count = free.bit_count()
            places.append(_nth(free, min(int(u * count), count - 1)))
        return places

    def prefixes(self, places: list[int]) -> list[float]:
        """How likely ``draw`` is to begin as a list does, down to each of its items."""
        if self.free:
            counts = list(range(self.n, self.n - self.k, -1))
        else:
            counts = [self.n - closed.bit_count() for closed in self._steps(places)]
        return list(itertools.accumulate(counts, operator.truediv, initial=1.0))[1:]

    def chances(self, places: list[int]) -> list[float | None]:
        """How likely ``draw`` is to put each item of a list where it is.

        None where too many ways lead to a slot.
        """
        if self.free:
            return [1.0 / self.n] * self.k
        groups = self._groups()
        if len(groups) > _STATES:
            return [self.prefixes(places)[0], *[None] * (self.k - 1)]
        # how likely it is that so many of each group are used: the first ones of each
        states: dict[int, float] = {0: 1.0}
        found: list[float | None] = []
        effort = 0
        for j, place in enumerate(places):
            effort += len(states) * (1 + sum([slot > j for slot in self._tight]))
            if len(states) > _STATES or effort > _EFFORT:
                return found + [None] * (self.k - j)
            own = next(group for group in groups if group >> place & 1)
            at, after = 0.0, dict[int, float]()
            for used, chance in states.items():
                matched = self._matching(j + 1, used, self._matched) or {}
                free = self._all & ~self._closed(j, used, matched)
                each = chance / free.bit_count()
                at += each * (own & free).bit_count() / own.bit_count()
                for group in groups if len(after) <= _STATES else ():
                    some = group & free
                    if some:
                        then = used | (some & -some)
                        after[then] = after.get(then, 0.0) + each * some.bit_count()
            states = after
            found.append(at)
        return found

    def _groups(self) -> list[int]:
        """Candidates that are excluded from the same slots; all of them, or more than enough."""
        groups = [self._all]
        for out in dict.fromkeys(self._out):
            parts = [part for group in groups for part in (group & out, group & ~out) if part]
            groups = parts
            if len(groups) > _STATES:
                break
        return groups


def _bits(n: int, places: list[int]) -> int:
    """Some of ``n`` places as a number: the bit of each is 1."""
    digits = bytearray(b"0") * n
    for p in places:
        digits[n - 1 - p] = ord("1")
    return int(digits, 2)


def _nth(bits: int, i: int) -> int:
    """The place of the bit before which ``i`` others are 1."""
    low, high = 0, bits.bit_length()
    while high - low > 1:
        middle = (low + high) // 2
        if (bits & ((1 << middle) - 1)).bit_count() > i:
            high = middle
        else:
            low = middle
    return low
