"""Policies without contexts."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests import oracles

from benchmarks.references.common import (
    F64,
    Params,
    Reference,
    all_arms,
    by_context,
    oracle_of,
    stream_of,
    work,
)


def random(params: Params) -> Reference:
    rng = stream_of(params)
    return Reference(lambda x: rng.random(len(all_arms())), lambda arm, x, r: None)


def ucb(params: Params) -> Reference:
    return by_context(oracle_of(oracles.UCBOracle, params))


class Forced(Reference):
    """A round robin goes before every index, infinite ones too."""

    def __init__(self, oracle: Any) -> None:
        super().__init__(lambda x: oracle.ucb(x, all_arms()), oracle.update)
        self.forced = oracle.forced

    def choose(self, x: F64) -> int:
        arm = self.forced()
        return super().choose(x) if arm is None else int(arm)


def mucb(params: Params) -> Reference:
    return Forced(oracle_of(oracles.MUCBOracle, params))


class _Explores(Reference):
    """Two numbers per decision: whether to explore, and which arm."""

    def __init__(self, oracle: Any, params: Params) -> None:
        super().__init__(lambda x: oracle.scores(x, all_arms()), oracle.update)
        self.rng, self.explore = stream_of(params), params["explore"]

    def choose(self, x: F64) -> int:
        whether, which = self.rng.random(2)
        return int(which * len(all_arms())) if whether < self.explore else super().choose(x)


def cusum_ucb(params: Params) -> Reference:
    return _Explores(oracle_of(oracles.CUSUMUCBOracle, params), params)


class Log:
    """Plays as arrays, for sums over a whole history that a loop would take hours for."""

    def __init__(self, gamma: float, length: int, least: float = 0.0) -> None:
        steps = len(work().X)
        self.powers = gamma ** np.arange(steps)
        self.reach = int((self.powers > least).sum())  # older plays weigh nothing beside λ
        self.arms, self.r = np.empty(steps, np.int64), np.empty(steps)
        self.phi = np.empty((steps, length))
        self.n = 0
        self.last: dict[int | None, tuple[F64, F64, F64]] = {}

    def add(self, arm: int, phi: F64, r: float) -> None:
        self.arms[self.n], self.phi[self.n], self.r[self.n] = arm, phi[: self.phi.shape[1]], r
        self.n += 1
        self.last = {}

    def of(self, arm: int | None) -> tuple[F64, F64, F64]:
        """Weights, features and rewards of an arm's plays, or of all."""
        if arm not in self.last:
            own = np.arange(max(0, self.n - self.reach), self.n)
            if arm is not None:
                own = own[self.arms[own] == arm]
            self.last[arm] = self.powers[self.n - 1 - own], self.phi[own], self.r[own]
        return self.last[arm]


class _DUCB(oracles.DUCBOracle):
    """The oracle, with its sums over the history as sums of arrays."""

    log: Log

    def update(self, a: Any, x: Any, r: float) -> bool:
        self.log.add(a, x, r)
        return super().update(a, x, r)

    def discounted_plays(self, a: Any) -> float:
        return float(self.log.of(a)[0].sum())

    def discounted_sum(self, a: Any) -> float:
        weights, _, r = self.log.of(a)
        return float(weights @ r)


def ducb(params: Params) -> Reference:
    oracle = oracle_of(_DUCB, params)
    oracle.log = Log(params["gamma"], 0)
    reference = by_context(oracle)
    reference.same = lambda: [
        (oracle.discounted_sum(a), oracles.DUCBOracle.discounted_sum(oracle, a)) for a in all_arms()
    ]
    return reference


def swucb(params: Params) -> Reference:
    return by_context(oracle_of(oracles.SWUCBOracle, params))
