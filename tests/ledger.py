"""``Ledger``: who observed what, kept by the tests beside a policy that restarts arms.

It knows just the events of the policy and the rules of the paper: an arm's observations are
frozen segments, then those before the window, then the window.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.oracles import schur
from tests.oracles.hybrid import Observation
from tests.streams import Play

__all__ = ["Ledger", "crossed", "restarts"]

F64 = npt.NDArray[np.float64]


def crossed(x: F64, Y: F64) -> F64:
    """The cross features kron(y, x) of each row y."""
    return np.array([np.kron(y, x) for y in Y])


class Ledger:
    """Observations by arm and segment, and the Schur contributions that they make."""

    def __init__(
        self, *, d: int, k: int, window: int, seed_first: bool, ridge: float = 1.0
    ) -> None:
        self.d, self.k, self.window, self.ridge = d, k, window, ridge
        self.seed_first = seed_first
        self.frozen: list[list[Observation]] = []
        self.before: dict[Hashable, list[Observation]] = {}
        self.inside: dict[Hashable, list[Observation]] = {}
        self.seeded: set[Hashable] = set()
        self.restarted: Hashable | None = None
        self._frozen_sum = (np.zeros((k, k)), np.zeros(k))
        self._frozen_seen = 0

    def add(self, arm: Hashable) -> None:
        """A new arm."""
        self.before[arm], self.inside[arm] = [], []

    def learn(self, arm: Hashable, x: F64, z: F64, r: float, changed: bool) -> None:
        """One play, and whether the policy reported a change at it."""
        self.restarted = None
        self.inside[arm].append((np.array(x), np.array(z), r))
        if changed or (
            self.seed_first and arm not in self.seeded and len(self.inside[arm]) == self.window
        ):
            assert len(self.inside[arm]) == self.window
            self.freeze(self.before[arm])
            self.before[arm], self.inside[arm] = self.inside[arm], []
            self.seeded.add(arm)
            self.restarted = arm
        elif len(self.inside[arm]) == self.window:
            self.before[arm].append(self.inside[arm].pop(0))

    def forget(self, arm: Hashable) -> None:
        """The arm is retired or reset: what it taught the shared model stays."""
        self.freeze(self.before[arm] + self.inside[arm])
        self.seeded.discard(arm)
        self.add(arm)

    def freeze(self, segment: list[Observation]) -> None:
        if segment:
            self.frozen.append(segment)

    def live(self, arm: Hashable) -> list[Observation]:
        """What M_cum of the arm has seen."""
        return self.before[arm] + self.inside[arm]

    def arrays(self, segment: list[Observation]) -> tuple[F64, F64, F64]:
        """X, Z and r of a segment."""
        n = len(segment)
        X = np.array([x for x, _, _ in segment]).reshape(n, self.d)
        Z = np.array([z for _, z, _ in segment]).reshape(n, self.k)
        return X, Z, np.array([r for _, _, r in segment])

    def schur(self, segment: list[Observation]) -> tuple[F64, F64]:
        """S and c of 7.5 for one segment."""
        return schur(segment, self.d, self.k, self.ridge)

    def total(self, of: str) -> tuple[F64, F64]:
        """A0 and b0 of all frozen segments and of each arm's ``"live"`` or ``"before"``."""
        for segment in self.frozen[self._frozen_seen :]:
            S, c = self.schur(segment)
            self._frozen_sum = (self._frozen_sum[0] + S, self._frozen_sum[1] + c)
        self._frozen_seen = len(self.frozen)
        A0 = self.ridge * np.eye(self.k) + self._frozen_sum[0]
        b0 = self._frozen_sum[1].copy()
        for arm in self.before:
            S, c = self.schur(self.live(arm) if of == "live" else self.before[arm])
            A0, b0 = A0 + S, b0 + c
        return A0, b0

    def leak(self, arm: Hashable) -> tuple[F64, F64]:
        """E of 7.5, and its b0, for a restart of this arm that has just happened."""
        E, e = np.zeros((self.k, self.k)), np.zeros(self.k)
        for other in self.before:
            if other != arm:
                S, c = self.schur(self.live(other))
                S_pre, c_pre = self.schur(self.before[other])
                E, e = E + S - S_pre, e + c - c_pre
        return E, e


def restarts(
    policy: Any, ledger: Ledger, plays: Iterator[Play], Y: F64 | None
) -> Iterator[tuple[Play, int, Any]]:
    """Let a policy decide and learn; yields each play, the arm played and the event, if any."""
    for arm in policy.arms:
        ledger.add(arm)
    for play in plays:
        arm = policy.select(play.x, play.candidates).arm
        r = float(play.rewards[arm])
        z = np.zeros(0) if Y is None else np.kron(Y[arm], play.x)
        event = policy.update(arm, play.x, r)
        ledger.learn(arm, play.x, z, r, event is not None)
        yield play, arm, event
