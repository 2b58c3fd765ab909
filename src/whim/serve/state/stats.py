"""``Stats``: what a space has counted, in bins of time and by arm, for the dashboard and metrics.

Part of the state: the same rows give the same counts, and a restart loses none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from copy import copy
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from whim.serve.state.since_change import SinceChange
from whim.serve.state.spans import Bin, Spans
from whim.serve.wire import RewardState

MICRO = 1_000_000
LEFT_OUT = ""  # the mode of a decision that does not fit the features of now
_FIRST_BIN = 1 * MICRO
_BINS = 600  # kept; when there are more, two become one
_TREND = 24  # bins of an arm's trend: all of its time, and after about a day the last day
_WIDEST = _FIRST_BIN << 12
_TRENDS = 2000  # arms that have a trend
_NAMES = (
    "decisions", "decisions_policy", "decisions_explore", "decisions_holdback", "decisions_shadow",
    "rewards", "rewards_learnt", "rewards_kept", "rewards_duplicate", "rewards_late",
    "closed", "matched", "never_shown",
)  # fmt: skip
_DECISIONS = {mode: f"decisions_{mode}" for mode in ("policy", "explore", "holdback", "shadow")}
_REWARDS = {state: f"rewards_{state}" for state in RewardState}


class Pending(Struct, array_like=True, gc=False):
    """A decision whose reward may still come."""

    at: int
    due: int
    arm: str | int
    x: bytes
    probability: float
    mode: str
    agreed: bool
    deferred: bool
    total: float = 0.0
    count: int = 0
    seen: list[str] | None = None


class ArmCounts(Struct, array_like=True):
    """What is known of one arm: times shown, rewards learnt, and those of late, oldest first.

    A bin of ``trend`` is its time over the trend's width, how many were closed then, and their sum.
    """

    decisions: int = 0
    closed: int = 0
    total: float = 0.0
    squares: float = 0.0
    changed: int = 0  # when a change of it was last reported; 0: never
    trend: list[tuple[int, int, float]] | None = None

    def mean(self) -> float | None:
        """Of the rewards."""
        return self.total / self.closed if self.closed else None


class Items(Protocol):
    """A list: what came for each of its items, and how many rewards."""

    totals: list[float]
    counts: list[int]


class PositionCounts(Struct, array_like=True):
    """One position of lists: times shown, items with rewards above 0, the sum of all rewards.

    The sum is of what came, whether the item was learnt from or not.
    """

    shown: int = 0
    clicks: int = 0
    total: float = 0.0


class _Stored(Struct):
    width: int
    bins: list[tuple[int, Bin]]
    counts: dict[str, int]
    delay: float
    shadow: list[float]
    arms: list[tuple[str | int, ArmCounts]]
    trend_width: int
    since: int | None
    changed: int


class Stats:
    """Counts since the space was made."""

    def __init__(self) -> None:
        self.width = _FIRST_BIN
        self.bins: dict[int, Bin] = {}
        self.counts: dict[str, int] = dict.fromkeys(_NAMES, 0)
        self.delay = 0.0  # µs from decision to reward, over all that were matched
        # decisions agreed on, their rewards over their probabilities, the probabilities' inverses
        self.shadow = [0.0, 0.0, 0.0]
        self.arms: dict[str | int, ArmCounts] = {}
        self.trend_width = _FIRST_BIN
        self.since: int | None = None
        self._trend_end = 0  # the first bin that the trends have no room for
        self.changed = 0  # when a change was last reported that no arm alone gave away
        # stored apart: older snapshots do not have them
        self.since_change = SinceChange()
        self.positions: list[PositionCounts] = []  # of lists that are closed
        # of those that wait, too: a click closes a list, so that the closed ones have too many;
        # not stored, for it follows from what is
        self.so_far: list[PositionCounts] = []
        self.spans = Spans()

    def _bin(self, at: int) -> Bin:
        key = at // self.width
        current = self.bins.get(key)
        if current is None:
            current = self.bins[key] = Bin()
            while len(self.bins) > _BINS:
                self._halve()
                current = self.bins[at // self.width]
        return current

    def _halve(self) -> None:
        self.width *= 2
        merged: dict[int, Bin] = {}
        for key, old in self.bins.items():
            merged.setdefault(key // 2, Bin()).add(old)
        self.bins = merged

    def _arm(self, arm: str | int) -> ArmCounts:
        counts = self.arms.get(arm)
        if counts is None:
            trend: list[Any] | None = [] if len(self.arms) < _TRENDS else None
            counts = self.arms[arm] = ArmCounts(trend=trend)
        return counts

    # -- what happens -------------------------------------------------------------------------

    def decided(self, at: int, mode: str, arm: str | int) -> None:
        """A decision was made."""
        counts = self.counts
        counts["decisions"] += 1
        counts[_DECISIONS[mode]] += 1
        (self.bins.get(at // self.width) or self._bin(at)).decisions += 1
        (self.arms.get(arm) or self._arm(arm)).decisions += 1
        self.spans.decided(at, arm)

    def decided_list(self, at: int, mode: str, arms: list[str | int]) -> None:
        """A list was: a decision that shows several arms."""
        self.decided(at, mode, arms[0])
        self.counts["lists"] = self.counts.get("lists", 0) + 1
        for arm in arms[1:]:
            self._arm(arm).decisions += 1
            self.spans.shown(at, arm)

    def decided_many(self, ats: list[int], modes: list[str], arms: list[str | int]) -> bool:
        """The same for many at once; False, and nothing is done, if they must be taken one by one.

        It is done where it makes no difference to the last bit: no bins are joined, whose sums
        have an order, and no arm is new, since arms stand in the order in which they came.
        """
        by_arm = Counter(arms)
        by_bin = Counter([at // self.width for at in ats])
        if not by_arm.keys() <= self.arms.keys() or len(self.bins | by_bin) > _BINS:
            return False
        if not self.spans.decided_many(ats, arms):
            return False
        for arm, n in by_arm.items():
            self.arms[arm].decisions += n
        for key, n in by_bin.items():
            self.bins.setdefault(key, Bin()).decisions += n
        self.counts["decisions"] += len(ats)
        for mode, n in Counter(modes).items():
            self.counts[_DECISIONS[mode]] += n
        return True

    def rewarded(self, state: RewardState) -> None:
        """A reward came, whatever became of it."""
        self.counts["rewards"] += 1
        self.counts[_REWARDS[state]] += 1

    def closed(self, at: int, waiting: Pending, learn: float | None, live: bool) -> None:
        """A decision's waiting is over; ``live``: its arm has not been retired."""
        counts = self.counts
        if learn is None:
            counts["never_shown"] += 1
            return
        counts["closed"] += 1
        if waiting.count:
            counts["matched"] += 1
            self.delay += at - waiting.at
        into = self.bins.get(waiting.at // self.width) or self._bin(waiting.at)
        if waiting.mode == "holdback":
            into.holdback += 1
            into.holdback_total += learn
            into.holdback_squares += learn * learn
        else:
            into.closed += 1
            into.total += learn
            into.squares += learn * learn
        if waiting.mode == "shadow" and waiting.agreed:
            weight = 1.0 / waiting.probability
            self.shadow[0] += 1
            self.shadow[1] += learn * weight
            self.shadow[2] += weight
        arm = waiting.arm if live else None
        self.spans.closed(at, waiting.at, arm, waiting.mode == "holdback", learn)
        if live:
            self.learnt(at, waiting.arm, learn)

    def learnt(self, at: int, arm: str | int, reward: float) -> None:
        """A reward of an arm was."""
        self._learnt(at, self.arms.get(arm) or self._arm(arm), reward)
        self.since_change.add(arm, reward)

    def looked_at(self, items: Items) -> None:
        """A list was learnt from."""
        _look(self.positions, items)

    def shown(self, items: Items) -> None:
        """A list was shown, for whose items something may have come already."""
        _look(self.so_far, items)

    def item_rewarded(self, item: int, reward: float, clicks: int) -> None:
        """A reward came for an item that was shown; ``clicks`` is 1 if that makes it clicked."""
        self.so_far[item].clicks += clicks
        self.so_far[item].total += reward

    def count_positions(self, closed: list[PositionCounts], waiting: Iterable[Any]) -> None:
        """Go on from what closed lists had, and from those that were shown and wait."""
        self.positions, self.so_far = closed, [copy(one) for one in closed]
        for items in filter(None, waiting):
            self.shown(items)

    def _learnt(self, at: int, arm: ArmCounts, learn: float) -> None:
        arm.closed += 1
        arm.total += learn
        arm.squares += learn * learn
        key = at // self.trend_width
        if key >= self._trend_end:
            key = self._open_trend(at)
        trend = arm.trend
        if trend is None:
            return
        if trend and trend[-1][0] == key:  # time does not go back
            _, n, total = trend[-1]
            trend[-1] = key, n + 1, total + learn
        else:
            trend.append((key, 1, learn))
            if trend[0][0] <= key - _TREND:
                arm.trend = [b for b in trend if b[0] > key - _TREND]

    def _open_trend(self, at: int) -> int:
        """Make room in the trends for a time; its bin."""
        if self.since is None:
            self.since = at
        while at // self.trend_width - self.since // self.trend_width >= _TREND:
            if self.trend_width == _WIDEST:
                self._trend_end = 1 << 62  # from now on the oldest go
                break
            self._widen()
        else:
            self._trend_end = self.since // self.trend_width + _TREND
        return at // self.trend_width

    def _widen(self) -> None:
        self.trend_width *= 2
        for arm in self.arms.values():
            merged: list[tuple[int, int, float]] = []
            for old, n, total in arm.trend or ():
                if merged and merged[-1][0] == old // 2:
                    _, before, already = merged.pop()
                    n, total = before + n, already + total
                merged.append((old // 2, n, total))
            if arm.trend is not None:
                arm.trend = merged

    def saw_change(self, at: int, arm: Any) -> None:
        """A change was reported, of an arm or of all."""
        counts = self.arms.get(arm)
        if counts is None:
            self.changed = at
        else:
            counts.changed = at
        self.since_change.restart(None if counts is None else arm)

    def retired(self, arms: list[str | int]) -> None:
        """Arms have gone; one that comes again starts afresh."""
        for arm in arms:
            self.arms.pop(arm, None)
        self.since_change.forget(arms)
        self.spans.forget(arms)

    # -- what is shown ------------------------------------------------------------------------

    def trend(self, arm: ArmCounts, at: int) -> list[float | None]:
        """Mean reward of an arm in each bin of the trend up to ``at``; None where it had none."""
        last = at // self.trend_width
        means: list[float | None] = [None] * _TREND
        for key, n, total in arm.trend or ():
            if 0 <= last - key < _TREND:
                means[_TREND - 1 - (last - key)] = total / n
        first = (self.since or at) // self.trend_width  # nothing was before it
        return means[max(0, _TREND - 1 - (last - first)) :]

    def to_bytes(self) -> bytes:
        """For a snapshot."""
        stored = _Stored(
            self.width, sorted(self.bins.items(), key=lambda pair: pair[0]), self.counts,
            self.delay, self.shadow, list(self.arms.items()), self.trend_width, self.since,
            self.changed,
        )  # fmt: skip
        return msgspec.msgpack.encode(stored, order="deterministic")

    @classmethod
    def from_bytes(cls, data: bytes) -> Stats:
        """What ``to_bytes`` wrote."""
        stored = msgspec.msgpack.decode(data, type=_Stored)
        stats = cls()
        stats.width, stats.bins = stored.width, dict(stored.bins)
        stats.counts |= stored.counts
        stats.delay, stats.shadow = stored.delay, stored.shadow
        stats.arms, stats.trend_width = dict(stored.arms), stored.trend_width
        stats.since, stats.changed = stored.since, stored.changed
        return stats

    def summary(self) -> dict[str, Any]:
        """Counts and rates, for the API."""
        matched = self.counts["matched"]
        closed = self.counts["closed"]
        agreed, earned, weight = self.shadow
        return {
            "counts": dict(sorted(self.counts.items())),
            "matched_share": matched / closed if closed else None,
            "mean_delay_seconds": self.delay / matched / MICRO if matched else None,
            "shadow": {
                "agreed": int(agreed),
                "would_have_earned": earned / weight if weight else None,
            },
        } | ({"positions": [asdict(one) for one in self.so_far]} if self.so_far else {})


def _look(positions: list[PositionCounts], items: Items) -> None:
    """Count a list, with what came for its items."""
    positions += [PositionCounts() for _ in range(len(items.totals) - len(positions))]
    for one, total, count in zip(positions, items.totals, items.counts, strict=False):
        one.shown += 1
        one.clicks += count > 0 and total > 0
        one.total += total
