"""PSLinUCB with arms in groups, written with least squares of whole lists of plays."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2  # type: ignore[import-untyped]

from .scoretest import (
    Found,
    Matrix,
    Plays,
    ScoreTestOracle,
    Vector,
    least_squares,
    price,
    stretches,
    surprise,
    tempered,
)


class Play(NamedTuple):
    """One reward of one arm."""

    arm: Hashable
    x: Vector
    r: float


class Group:
    """Plays that the model has, of which the oldest ``old`` are no longer in its window."""

    def __init__(self) -> None:
        self.plays: list[Play] = []
        self.old = 0


def columns(plays: list[Play], d: int) -> tuple[Matrix, Vector]:
    """Contexts and rewards."""
    return np.array([p.x for p in plays]).reshape(-1, d), np.array([p.r for p in plays])


class GroupsOracle:
    """Every play is kept, and every test fits every list anew."""

    def __init__(
        self, *, d: int, alpha: float, false_alarm: float, window: int, ridge: float = 1.0
    ) -> None:
        self.d, self.alpha, self.ridge, self.rate = d, alpha, ridge, false_alarm / 2
        self.lengths = [n for n in (8 * 2**i for i in range(20)) if n <= window]
        self.alone = ScoreTestOracle(
            d=d, alpha=alpha, false_alarm=false_alarm, window=window, ridge=ridge
        )
        self.groups: dict[Hashable, Group] = {}
        self.home: dict[Hashable, Hashable] = {}
        self.count: dict[Hashable, int] = {}

    def add(self, a: Hashable, group: Hashable) -> None:
        """Create an arm, and its group if need be."""
        self.home[a], self.count[a] = group, 0
        self.groups.setdefault(group, Group())

    def model(self, a: Hashable) -> tuple[Matrix, Vector]:
        """λI + Σ x xᵀ and θ of an arm's model."""
        if a in self.alone.X:
            return self.alone.matrix(a), self.alone.theta(a)
        X, r = columns(self.groups[self.home[a]].plays, self.d)
        A = self.ridge * np.eye(self.d) + X.T @ X
        return A, np.asarray(np.linalg.solve(A, X.T @ r))

    def score(self, x: Vector, a: Hashable) -> float:
        """Upper confidence bound of one arm."""
        A, theta = self.model(a)
        return float(x @ theta + self.alpha * np.sqrt(x @ np.linalg.solve(A, x)))

    def select(self, x: Vector, candidates: list[Hashable]) -> Hashable:
        """The best, of equal ones that with the fewest plays, of equal ones the first."""
        return min(candidates, key=lambda a: (-self.score(x, a), self.count[a]))

    def bound(self, n: int, k: int) -> float:
        """As for an arm alone, at half the rate."""
        return float(chi2.isf(min(0.25, self.rate * (n / 4) / len(self.lengths)), k))

    def value(
        self, gain: float, loss: float, r: Vector, freedom: tuple[int, int, float], theta: Vector,
        before: Plays, window: Plays,
    ) -> tuple[float, float]:  # fmt: skip
        """χ² value of the gain of the window, and the noise; ``loss`` is that of two models."""
        _, k, free = freedom
        if k < 1 or free < max(8, 2 * k) or gain <= 0:
            return 0.0, 0.0
        noise = max(loss, 1e-12 * float(r @ r)) / free
        value = tempered(gain / noise, k, free)
        if value >= self.bound(len(window[1]), 1) + k - 1:
            value = surprise(*stretches(theta, before, window), gain, noise, freedom)
        return value, noise

    def cost(self, rank: int) -> float:
        """What the directions of some plays cost."""
        return price(self.bound(8, rank), rank) if rank else 0.0

    def split(self, plays: list[Play], mine: set[int]) -> tuple[float, int, float, int]:
        """Chow: gain of two models, its degrees of freedom, their loss, a rank."""
        X, r = columns(plays, self.d)
        part = np.array([i in mine for i in range(len(plays))], bool)
        whole = least_squares(X, r)
        one, rest = least_squares(X[part], r[part]), least_squares(X[~part], r[~part])
        loss = one.loss + rest.loss
        k = one.rank + rest.rank - whole.rank
        return whole.loss - loss, k, loss, one.rank

    def leaves(self, a: Hashable, plays: list[Play], old: int) -> Found | None:
        """Whether an arm's newest plays differ from its group's others."""
        own = [i for i, p in enumerate(plays) if p.arm == a][-self.lengths[-1] :]
        X, r = columns(plays, self.d)
        whole = least_squares(X, r)
        window = plays[max(old, len(plays) - 1 - self.lengths[-1]) : -1]
        others = columns([p for p in window if p.arm != a], self.d)
        best: tuple[float, Found, float] | None = None
        for n in self.lengths:
            if n > len(own) or self.count[a] % (n // 4):
                continue
            gain, k, loss, rank = self.split(plays, set(own[-n:]))
            freedom = rank, k, len(r) - whole.rank - k
            mine = X[own[-n:]], r[own[-n:]]
            found, noise = self.value(gain, loss, r, freedom, whole.theta, others, mine)
            if k and found >= self.bound(n, k):
                over = found / self.bound(n, k)
                if best is None or over > best[0]:
                    best = over, Found(found, self.bound(n, k), k, 0), noise
        if best is None:
            return None
        most, kept = -np.inf, 1
        for m in range(1, len(own) + 1):
            gain, _, _, rank = self.split(plays, set(own[-m:]))
            worth = gain - best[2] * self.cost(rank)
            if worth > most + 1e-6 * best[2]:
                most, kept = worth, m
        return best[1]._replace(kept=kept) if kept >= FEWEST else None

    def forget(self, group: Group, gone: list[int]) -> None:
        """Take plays out of a group, if the others know every direction of theirs."""
        left = list(group.plays)
        for i in gone:
            X, _ = columns(left, self.d)
            x = group.plays[i].x
            if 1 - x @ np.linalg.pinv(X.T @ X, hermitian=True) @ x < 1e-6:
                return
            left = [p for p in left if p is not group.plays[i]]
        group.plays, group.old = left, len(left)

    def broad(self, plays: list[Play], n: int, found: float) -> bool:
        """Whether the newest n plays show a change without the arm that shows it most."""
        X, r = columns(plays, self.d)
        e = r - X @ least_squares(X, r).theta
        newest = range(len(plays) - n, len(plays))
        by_arm = {plays[i].arm: 0.0 for i in newest}
        for i in newest:
            by_arm[plays[i].arm] += e[i] ** 2
        worst = max(by_arm, key=by_arm.__getitem__)
        others = {i for i in newest if plays[i].arm != worst}
        if not others:
            return True
        gain, k, _, _ = self.split(plays, others)
        everything = self.split(plays, set(newest))[0]
        return k > 0 and found * gain / everything >= self.bound(n, k)

    def changed(self, group: Group) -> Found | None:
        """The group's own score test, of the plays since its window was emptied."""
        X, r = columns(group.plays, self.d)
        whole, old = least_squares(X, r), least_squares(X[: group.old], r[: group.old])
        recent = len(r) - group.old
        best: tuple[float, Found, float] | None = None
        for n in self.lengths:
            if n >= recent or recent % (n // 4):
                continue
            before, window = least_squares(X[:-n], r[:-n]), least_squares(X[-n:], r[-n:])
            gain = whole.loss - before.loss - window.loss
            k = window.rank + before.rank - whole.rank
            free = recent - (whole.rank - old.rank) - k
            loss = before.loss + window.loss - old.loss
            first = max(group.old, len(r) - self.lengths[-1])
            found, noise = self.value(
                gain, loss, r[group.old :], (window.rank, k, free), whole.theta,
                (X[first:-n], r[first:-n]), (X[-n:], r[-n:]),
            )  # fmt: skip
            if k and found >= self.bound(n, k) and self.broad(group.plays, n, found):
                over = found / self.bound(n, k)
                if best is None or over > best[0]:
                    best = over, Found(found, self.bound(n, k), k, 0), noise
        if best is None:
            return None
        most, kept = -np.inf, 1
        for m in range(1, min(self.lengths[-1], recent - 1) + 1):
            before, window = least_squares(X[:-m], r[:-m]), least_squares(X[-m:], r[-m:])
            worth = whole.loss - before.loss - window.loss - best[2] * self.cost(window.rank)
            if worth > most + 1e-6 * best[2]:
                most, kept = worth, m
        return best[1]._replace(kept=kept)

    def update(self, a: Hashable, x: Vector, r: float) -> tuple[str, Found] | None:
        """Learn one reward; which of the three changes it revealed."""
        self.count[a] += 1
        if a in self.alone.X:
            found = self.alone.update(a, x, r)
            return None if found is None else ("alone", found)
        group = self.groups[self.home[a]]
        play = Play(a, x, r)
        found = self.leaves(a, [*group.plays, play], group.old)
        if found is not None:
            own = [i for i, p in enumerate(group.plays) if p.arm == a]
            mine = own[len(own) - (found.kept - 1) :]
            self.alone.add(a)
            kept = [*(group.plays[i] for i in mine), play]
            self.alone.X[a], self.alone.r[a] = columns(kept, self.d)
            self.forget(group, mine)
            return "left", found
        group.plays.append(play)
        found = self.changed(group)
        if found is None:
            return None
        group.plays, group.old = group.plays[-found.kept :], 0
        return "group", found


# as in docs/math.md
FEWEST = 4
