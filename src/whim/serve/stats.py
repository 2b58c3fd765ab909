"""``Stats``: what a space has counted, in bins of time, for the page and the metrics.

Part of the fold: the same rows give the same counts, and a restart loses none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from whim.serve.fold import Pending

__all__ = ["MICRO", "Bin", "Stats"]

MICRO = 1_000_000
_FIRST_BIN = 1 * MICRO
_BINS = 600  # kept; when there are more, two become one


class Bin(Struct, array_like=True):
    """Decisions and closed rewards of a stretch of time: the policy's, then holdback's."""

    decisions: int = 0
    closed: int = 0
    total: float = 0.0
    squares: float = 0.0
    held: int = 0
    held_total: float = 0.0
    held_squares: float = 0.0

    def add(self, other: Bin) -> None:
        """Take another bin's counts."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class _Kept(Struct):
    width: int
    bins: list[tuple[int, Bin]]
    counts: dict[str, int]
    delay: float
    shadow: list[float]


class Stats:
    """Counts since the space was made."""

    def __init__(self) -> None:
        self.width = _FIRST_BIN
        self.bins: dict[int, Bin] = {}
        self.counts: dict[str, int] = {}
        self.delay = 0.0  # µs from decision to reward, over all that were matched
        # decisions agreed on, their rewards over their probabilities, the probabilities' inverses
        self.shadow = [0.0, 0.0, 0.0]

    def _count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    def _bin(self, at: int) -> Bin:
        key = at // self.width
        found = self.bins.get(key)
        if found is None:
            found = self.bins[key] = Bin()
            while len(self.bins) > _BINS:
                self._halve()
                found = self.bins[at // self.width]
        return found

    def _halve(self) -> None:
        self.width *= 2
        merged: dict[int, Bin] = {}
        for key, old in self.bins.items():
            merged.setdefault(key // 2, Bin()).add(old)
        self.bins = merged

    def decided(self, at: int, mode: str) -> None:
        """A decision was made."""
        self._count("decisions")
        self._count(f"decisions_{mode}")
        self._bin(at).decisions += 1

    def rewarded(self, state: str) -> None:
        """A reward came, whatever became of it."""
        self._count("rewards")
        self._count(f"rewards_{state}")

    def closed(self, at: int, waiting: Pending, learn: float | None) -> None:
        """A decision's waiting is over."""
        self._count("closed" if learn is not None else "never_shown")
        if learn is None:
            return
        if waiting.count:
            self._count("matched")
            self.delay += at - waiting.at
        into = self._bin(waiting.at)
        if waiting.mode == "holdback":
            into.held += 1
            into.held_total += learn
            into.held_squares += learn * learn
        else:
            into.closed += 1
            into.total += learn
            into.squares += learn * learn
        if waiting.mode == "shadow" and waiting.agreed:
            weight = 1.0 / waiting.probability
            self.shadow[0] += 1
            self.shadow[1] += learn * weight
            self.shadow[2] += weight

    def to_bytes(self) -> bytes:
        """For a snapshot."""
        kept = _Kept(
            self.width,
            sorted(self.bins.items(), key=lambda pair: pair[0]),
            self.counts,
            self.delay,
            self.shadow,
        )
        return msgspec.msgpack.encode(kept, order="deterministic")

    @classmethod
    def from_bytes(cls, data: bytes) -> Stats:
        """What ``to_bytes`` wrote."""
        found = msgspec.msgpack.decode(data, type=_Kept)
        stats = cls()
        stats.width, stats.bins, stats.counts = found.width, dict(found.bins), found.counts
        stats.delay, stats.shadow = found.delay, found.shadow
        return stats

    def summary(self) -> dict[str, Any]:
        """Counts and rates, for the API."""
        matched = self.counts.get("matched", 0)
        closed = self.counts.get("closed", 0)
        agreed, earned, weight = self.shadow
        return {
            "counts": dict(sorted(self.counts.items())),
            "matched_share": matched / closed if closed else None,
            "mean_delay_seconds": self.delay / matched / MICRO if matched else None,
            "shadow": {
                "agreed": int(agreed),
                "would_have_earned": earned / weight if weight else None,
            },
        }
