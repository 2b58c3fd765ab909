"""``Spans``: decisions and rewards of a space and of its arms, in bins that widen with their age.

What is recent is known finely and what is old coarsely, so that the last hour, day or week of a
space that is years old can be told without its log. Part of the state: the same rows give the same
bins, one by one or many at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

ArmId = str | int
_SECOND = 1_000_000
_HOUR, _DAY = 3600 * _SECOND, 86_400 * _SECOND
_ARMS = 2000  # that are counted over time
_MOST = 1000  # bins, before they are joined although no reward came


class Bin(Struct, array_like=True):
    """Decisions and closed rewards of a span of time: the policy's, then the holdback's."""

    decisions: int = 0
    closed: int = 0
    total: float = 0.0
    squares: float = 0.0
    holdback: int = 0
    holdback_total: float = 0.0
    holdback_squares: float = 0.0

    def add(self, other: Bin) -> None:
        """Take another bin's counts."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Level(NamedTuple):
    """Bins of one width, for times up to an age; each width divides that of the next level."""

    width: int
    age: int


OF_SPACE = (
    Level(60 * _SECOND, 2 * _HOUR), Level(900 * _SECOND, 2 * _DAY), Level(2 * _HOUR, 16 * _DAY),
    Level(_DAY, 256 * _DAY), Level(8 * _DAY, 1 << 62),
)  # fmt: skip
OF_ARM = (
    Level(15 * _SECOND, 900 * _SECOND), Level(300 * _SECOND, 2 * _HOUR), Level(_HOUR, 2 * _DAY),
    Level(6 * _HOUR, 16 * _DAY), Level(2 * _DAY, 64 * _DAY), Level(8 * _DAY, 256 * _DAY),
    Level(64 * _DAY, 1 << 62),
)  # fmt: skip


class Ladder:
    """Bins by the start of their time; those older than ``bounds[i]`` have left level i."""

    def __init__(self, levels: tuple[Level, ...]) -> None:
        self._levels = levels
        self._finest = levels[0].width
        self.bins: dict[int, Bin] = {}
        self.bounds = [0] * (len(levels) - 1)
        self._next = 0  # when the next bounds move

    def _width(self, at: int) -> int:
        for level, bound in zip(self._levels, self.bounds, strict=False):
            if at >= bound:
                return level.width
        return self._levels[-1].width

    def bin(self, at: int) -> Bin:
        """The bin of a time."""
        width = self._finest if at >= self.bounds[0] else self._width(at)
        current = self.bins.get(at - at % width)
        if current is None:
            if len(self.bins) >= _MOST:
                self._join(at)
            current = self.bins.setdefault(at - at % self._width(at), Bin())
        return current

    def has_room(self, keys: int) -> bool:
        """Whether so many bins may be new, and none is joined by that."""
        return len(self.bins) + keys < _MOST

    def count(self, key: int, decisions: int) -> None:
        """Count decisions in one of the finest bins, by its start."""
        self.bins.setdefault(key, Bin()).decisions += decisions

    def pass_time(self, now: int) -> None:
        """Join bins that are old enough; called with times of rows, which never go back."""
        if now >= self._next:
            self._join(now)

    def _join(self, now: int) -> None:
        wider = [level.width for level in self._levels[1:]]
        self.bounds = [
            max(0, now - level.age) // width * width
            for level, width in zip(self._levels, wider, strict=False)
        ]
        self._next = self.bounds[0] + wider[0] + self._levels[0].age
        joined: dict[int, Bin] = {}
        for start, old in sorted(self.bins.items(), key=lambda pair: pair[0]):
            joined.setdefault(start - start % self._width(start), Bin()).add(old)
        self.bins = joined

    def between(self, since: int, until: int) -> Iterator[tuple[int, int, Bin]]:
        """Start, width and counts of the bins that have a part in a span, in order of time."""
        for start, one in sorted(self.bins.items(), key=lambda pair: pair[0]):
            width = self._width(start)
            if start < until and start + width > since:
                yield start, width, one


class _StoredLadder(Struct, array_like=True):
    bounds: list[int]
    next: int
    bins: list[tuple[int, Bin]]


class _Stored(Struct):
    space: _StoredLadder
    arms: list[tuple[ArmId, _StoredLadder]]
    since: int | None
    whole: bool


class Spans:
    """Counts over time since the space was made, or since a Whim counted them first."""

    def __init__(self) -> None:
        self.space = Ladder(OF_SPACE)
        self.arms: dict[ArmId, Ladder] = {}
        self.since: int | None = None  # the first decision that it knows of
        self.whole = True  # it knows all decisions of the space

    def _arm(self, arm: ArmId) -> Ladder | None:
        ladder = self.arms.get(arm)
        if ladder is None and len(self.arms) < _ARMS:
            ladder = self.arms[arm] = Ladder(OF_ARM)
        return ladder

    def decided(self, at: int, arm: ArmId) -> None:
        """A decision was made."""
        if self.since is None:
            self.since = at
        self.space.bin(at).decisions += 1
        ladder = self.arms.get(arm) or self._arm(arm)
        if ladder is not None:
            ladder.bin(at).decisions += 1

    def decided_many(self, ats: Sequence[int], arms: Sequence[ArmId]) -> bool:
        """The same for many; False, and nothing is done, if they must be taken one by one."""
        fine, coarse = OF_SPACE[0].width, OF_ARM[0].width
        by_bin = Counter([at - at % fine for at in ats])
        by_arm = Counter([(a, at - at % coarse) for at, a in zip(ats, arms, strict=True)])
        keys = Counter(arm for arm, _ in by_arm)
        full = len(self.arms) >= _ARMS
        if not self.space.has_room(len(by_bin)) or self.since is None:
            return False
        for arm, n in keys.items():
            ladder = self.arms.get(arm)
            if (ladder is None and not full) or (ladder is not None and not ladder.has_room(n)):
                return False
        for key, n in by_bin.items():
            self.space.count(key, n)
        for (arm, key), n in by_arm.items():
            if arm in self.arms:
                self.arms[arm].count(key, n)
        return True

    def closed(self, now: int, at: int, arm: ArmId | None, holdback: bool, reward: float) -> None:
        """A decision of time ``at`` was closed; None: its arm is gone."""
        self.space.pass_time(now)
        into = self.space.bin(at)
        if holdback:
            into.holdback += 1
            into.holdback_total += reward
            into.holdback_squares += reward * reward
        else:
            into.closed += 1
            into.total += reward
            into.squares += reward * reward
        ladder = None if arm is None else self.arms.get(arm)
        if ladder is not None:
            ladder.pass_time(now)
            into = ladder.bin(at)
            into.closed += 1
            into.total += reward
            into.squares += reward * reward

    def forget(self, arms: Sequence[ArmId]) -> None:
        """Drop arms that were retired."""
        for arm in arms:
            self.arms.pop(arm, None)

    def to_bytes(self) -> bytes:
        """For a snapshot."""
        arms = [(arm, _stored(ladder)) for arm, ladder in self.arms.items()]
        return msgspec.msgpack.encode(_Stored(_stored(self.space), arms, self.since, self.whole))

    @classmethod
    def from_bytes(cls, data: bytes, decisions: int) -> Spans:
        """What ``to_bytes`` wrote.

        A snapshot that was written before this existed has nothing of the ``decisions`` it counted.
        """
        spans = cls()
        if not data:
            spans.whole = not decisions
            return spans
        stored = msgspec.msgpack.decode(data, type=_Stored)
        spans.space = _loaded(OF_SPACE, stored.space)
        spans.arms = {arm: _loaded(OF_ARM, ladder) for arm, ladder in stored.arms}
        spans.since, spans.whole = stored.since, stored.whole
        return spans


def _stored(ladder: Ladder) -> _StoredLadder:
    bins = sorted(ladder.bins.items(), key=lambda pair: pair[0])
    return _StoredLadder(ladder.bounds, ladder._next, bins)


def _loaded(levels: tuple[Level, ...], stored: _StoredLadder) -> Ladder:
    ladder = Ladder(levels)
    ladder.bounds, ladder._next = stored.bounds, stored.next
    ladder.bins = dict(stored.bins)
    return ladder
