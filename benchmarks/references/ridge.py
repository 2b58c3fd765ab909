"""Ridge models: LinUCB, Thompson sampling, and those that watch residuals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tests import oracles
from tests.oracles.experts import RidgeModel

from benchmarks.references.common import (
    F64,
    Params,
    Reference,
    all_arms,
    by_context,
    length_of,
    oracle_of,
    renew,
    rows_of,
    stream_of,
)
from benchmarks.references.contextfree import Forced


class _RandomTies(Reference):
    """Equal scores are drawn from."""

    def __init__(self, oracle: Any, params: Params) -> None:
        super().__init__(lambda x: oracle.scores(x, all_arms()), oracle.update)
        self.rng = stream_of(params)

    def choose(self, x: F64) -> int:
        scores = self.scores(x)
        equal = np.flatnonzero(scores == scores.max())
        return int(equal[self.rng.integers(len(equal))] if len(equal) > 1 else equal[0])


def linucb(params: Params) -> Reference:
    oracle = oracle_of(oracles.LinUCBDisjointOracle, params, d=params["n_features"])
    return _RandomTies(oracle, params) if params["ties"] == "random" else by_context(oracle)


def uniform(params: Params) -> Reference:
    model, phi = RidgeModel(length_of(params), params["ridge"]), rows_of(params)
    return Reference(
        lambda x: [row @ model.theta() + params["alpha"] * model.norm(row) for row in phi(x)],
        lambda arm, x, r: model.learn(phi(x)[arm], r),
    )


def lints(params: Params) -> Reference:
    """Thompson sampling: one draw per arm, or one of the shared model by A's Cholesky factor."""
    rng, alpha = stream_of(params), params["alpha"]
    if params["payoff"] == "disjoint":
        oracle = oracle_of(oracles.LinUCBDisjointOracle, params, d=params["n_features"])

        def drawn(x: F64) -> F64:
            widths = [np.sqrt(x @ np.linalg.inv(oracle.A[a]) @ x) for a in all_arms()]
            means = [x @ oracle.theta(a) for a in all_arms()]
            return np.array(means) + alpha * np.array(widths) * rng.standard_normal(len(widths))

        return Reference(drawn, oracle.update)
    p, phi = length_of(params), rows_of(params)
    model = RidgeModel(p, params["ridge"])

    def sampled(x: F64) -> F64:
        root = np.linalg.inv(np.linalg.cholesky(model.A)).T
        return phi(x) @ (model.theta() + alpha * root @ rng.standard_normal(p))

    return Reference(sampled, lambda arm, x, r: model.learn(phi(x)[arm], r))


def modified(params: Params) -> Reference:
    d = params["n_features"]
    return Forced(oracle_of(oracles.ModifiedPSLinUCBOracle, params, arms=list(all_arms()), d=d))


class _Residuals:
    """CUSUM of an arm's residuals as ``LinUCBWatched`` defines it, from all of them."""

    def __init__(self, warmup: int, squared: bool, drift: float, threshold: float) -> None:
        self.warmup, self.squared, self.drift, self.threshold = warmup, squared, drift, threshold
        self.count, self.up, self.down = 0, 0.0, 0.0
        self.squares: list[float] = []

    def update(self, residual: float) -> bool:
        self.count += 1
        if 2 * self.count <= self.warmup:
            return False
        if self.count > self.warmup:
            z = residual / float(np.sqrt(np.mean(self.squares)))
            z = (z**2 - 1) / math.sqrt(2) if self.squared else z
            self.up = max(0.0, self.up + z - self.drift)
            self.down = 0.0 if self.squared else max(0.0, self.down - z - self.drift)
            if max(self.up, self.down) > self.threshold:
                return True
        self.squares.append(residual**2)
        return False


class _River:
    """One of river's detectors, fed after the warm-up."""

    def __init__(self, kind: str, settings: Params, warmup: int, squared: bool) -> None:
        from river import drift

        self.made = {"page-hinkley": drift.PageHinkley, "adwin": drift.ADWIN}[kind](**settings)
        self.warmup, self.squared, self.count = warmup, squared, 0

    def update(self, residual: float) -> bool:
        self.count += 1
        if self.count <= self.warmup:
            return False
        self.made.update(residual**2 if self.squared else residual)
        return bool(self.made.drift_detected)


def watched(params: Params) -> Reference:
    oracle = oracle_of(oracles.LinUCBDisjointOracle, params, d=params["n_features"])
    settings, squared = dict(params["settings"] or {}), params["watch"] == "square"

    def detector() -> Any:
        if params["detector"] == "cusum":
            settings.setdefault("drift", 0.5)
            settings.setdefault("threshold", 10.0)
            return _Residuals(params["warmup"], squared, **settings)
        return _River(params["detector"], settings, params["warmup"], squared)

    detectors = [detector() for _ in all_arms()]

    def learn(arm: int, x: F64, r: float) -> bool:
        residual = r - float(x @ oracle.theta(arm))
        oracle.update(arm, x, r)
        if not detectors[arm].update(residual):
            return False
        renew(oracle, arm)
        detectors[arm] = detector()
        return True

    return Reference(lambda x: oracle.scores(x, all_arms()), learn)
