"""``SinceChange``: the rewards of each arm since its last change, for the rate that holds now.

It starts with the play after the one that revealed the change: what gave the change away was
picked for being unusual, and would tilt the rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

ArmId = str | int


class _Stored(msgspec.Struct):
    sums: list[tuple[ArmId, list[float]]]
    every: bool


class SinceChange:
    """Number, sum and sum of squares of the rewards of arms that have changed."""

    def __init__(self) -> None:
        self._sums: dict[ArmId, list[float]] = {}
        self._every = False  # a change was reported of all arms at once

    def add(self, arm: ArmId, reward: float) -> None:
        """Count a reward; nothing is kept of an arm that never changed."""
        sums = self._sums.get(arm)
        if sums is None:
            if not self._every:
                return
            sums = self._sums[arm] = [0.0, 0.0, 0.0]
        sums[0] += 1.0
        sums[1] += reward
        sums[2] += reward * reward

    def restart(self, arm: ArmId | None) -> None:
        """Begin anew with an arm that has changed; None: with all."""
        if arm is None:
            self._sums.clear()
            self._every = True
        else:
            self._sums[arm] = [0.0, 0.0, 0.0]

    def recount(
        self, changes: Mapping[int, ArmId | None], arms: Sequence[ArmId], rewards: Sequence[float]
    ) -> None:
        """Put right what was added before it was known which of these plays revealed changes.

        ``changes`` are arms by the play's place; None stands for all. The sums are then those of
        adding and restarting play by play, to the last bit.
        """
        if not changes:
            return
        restarted: set[ArmId] = set()
        every = False
        for i in range(min(changes), len(arms)):
            arm = arms[i]
            if every or arm in restarted:
                self.add(arm, rewards[i])
            if i in changes:
                self.restart(changes[i])
                if (changed := changes[i]) is None:
                    every = True
                else:
                    restarted.add(changed)

    def forget(self, arms: Sequence[ArmId]) -> None:
        """Drop arms that were retired."""
        for arm in arms:
            self._sums.pop(arm, None)

    def sums(self, arm: ArmId) -> tuple[int, float, float] | None:
        """Number of rewards, their sum and that of their squares; None if it never changed.

        None, too, if it changed only before this was counted, in a state of an earlier Whim.
        """
        sums = self._sums.get(arm)
        if sums is None:
            return (0, 0.0, 0.0) if self._every else None
        return int(sums[0]), sums[1], sums[2]

    def to_bytes(self) -> bytes:
        """For a snapshot."""
        return msgspec.msgpack.encode(_Stored(list(self._sums.items()), self._every))

    @classmethod
    def from_bytes(cls, data: bytes) -> SinceChange:
        """What ``to_bytes`` wrote; nothing, of a snapshot that was written before it existed."""
        since = cls()
        if data:
            stored = msgspec.msgpack.decode(data, type=_Stored)
            since._sums, since._every = dict(stored.sums), stored.every
        return since
