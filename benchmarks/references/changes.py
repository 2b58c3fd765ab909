"""Hybrids, score tests, groups, and the policy that is told."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests import oracles
from tests.oracles.scorehybrid import Stretch as Segment

import whim
from benchmarks.references.common import (
    F64,
    ITEM,
    Params,
    Reference,
    all_arms,
    by_context,
    crossed,
    item_features,
    oracle_of,
    renew,
)


def hybrid(oracle: Any) -> Reference:
    return Reference(
        lambda x: oracle.scores(x, crossed(x), all_arms()),
        lambda arm, x, r: oracle.update(arm, x, np.kron(item_features()[arm], x), r),
    )


def linucb_hybrid(params: Params) -> Reference:
    d = params["n_features"]
    return hybrid(oracle_of(oracles.LinUCBHybridOracle, params, d=d, k=d * ITEM))


def _again(params: Params, own: Any, new: Any, learn: Any) -> Reference:
    """Looks again at neglected arms, unless told not to."""
    alpha, rate = params["alpha"], params["revisit"]
    if rate == "off":

        def score(x: F64, a: int) -> float:
            mean, square = own(x, a)
            return float(mean + alpha * np.sqrt(square))

        return Reference(lambda x: [score(x, a) for a in all_arms()], learn)
    known = None if rate in (None, "auto") else rate
    oracle = oracles.RevisitOracle(own, new, learn, known, alpha)
    return Reference(lambda x: [oracle.score(x, a) for a in all_arms()], oracle.update)


def _scored(params: Params) -> Params:
    """What the score test has by default."""
    return params | {
        "window": params["window"] or 256, "false_alarm": params["false_alarm"] or 1e-5
    }  # fmt: skip


def pslinucb(params: Params) -> Reference:
    d, ridge = params["n_features"], params["ridge"]
    if params["threshold"] is not None:
        window = params["window"] or 100
        return by_context(oracle_of(oracles.PSLinUCBDisjointOracle, params, d=d, window=window))
    oracle = oracle_of(oracles.ScoreTestOracle, _scored(params), d=d)

    def own(x: F64, a: int) -> tuple[float, float]:
        return float(x @ oracle.theta(a)), float(x @ np.linalg.inv(oracle.matrix(a)) @ x)

    return _again(params, own, lambda x, a: (0.0, float(x @ x) / ridge), oracle.update)


class _ScoreTestHybrid(oracles.ScoreTestHybridOracle):
    """The oracle, with a stretch of plays summed once, and not at every score."""

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self.sums: dict[int, tuple[Any, ...]] = {}
        self.total: tuple[F64, F64] | None = None
        self.solved: tuple[Any, F64] | None = None

    def own(self, s: Segment) -> tuple[F64, F64, F64]:
        known = self.sums.get(id(s))
        return super().own(s) if known is None else known[1]

    def shared(self) -> tuple[F64, F64]:
        now = [*self.frozen, *self.live.values()]
        if self.total is None or any(id(s) not in self.sums for s in now):
            self.sums = {id(s): self.sums.get(id(s)) or self._sum(s) for s in now}
            parts = list(self.sums.values())
            A0 = self.ridge * np.eye(self.k) + sum(part[2] for part in parts)
            self.total = np.asarray(A0), np.asarray(sum(part[3] for part in parts))
        return self.total

    def beta(self) -> F64:
        total = self.shared()
        if self.solved is None or self.solved[0] is not total:
            self.solved = total, super().beta()
        return self.solved[1]

    def _sum(self, s: Segment) -> tuple[Any, ...]:
        A, B, b = found = super().own(s)
        C = np.linalg.inv(A) @ B
        return s, found, s.Z.T @ s.Z - B.T @ C, s.Z.T @ s.r - C.T @ b


def pslinucb_hybrid(params: Params) -> Reference:
    d = params["n_features"]
    sizes = {"d": d, "k": d * ITEM}
    if params["threshold"] is not None:
        window = params["window"] or 100
        return hybrid(oracle_of(oracles.PSLinUCBHybridOracle, params, window=window, **sizes))
    given = _scored(params) | {"rows": False}
    names = ("alpha", "false_alarm", "window", "ridge", "rows")
    oracle = _ScoreTestHybrid(**{name: given[name] for name in names}, **sizes)
    for arm in all_arms():
        oracle.add(arm)
    nothing = Segment(np.zeros((0, d)), np.zeros((0, d * ITEM)), np.zeros(0))
    oracle.live["new"] = nothing

    def bound(x: F64, a: int, as_arm: Any) -> tuple[float, float]:
        return oracle.bound(x, np.kron(item_features()[a], x), as_arm)

    reference = _again(
        params,
        lambda x, a: bound(x, a, a),
        lambda x, a: bound(x, a, "new"),
        lambda a, x, r: oracle.update(a, x, np.kron(item_features()[a], x), r),
    )
    literal = oracles.ScoreTestHybridOracle
    reference.same = lambda: list(zip(oracle.shared(), literal.shared(oracle), strict=True))
    return reference


class _Grouped(Reference):
    """The best, of equal ones that with the fewest plays."""

    def __init__(self, oracle: Any) -> None:
        super().__init__(lambda x: [oracle.score(x, a) for a in all_arms()], oracle.update)
        self.choose = lambda x: oracle.select(x, list(all_arms()))  # type: ignore[method-assign]


def groups(params: Params) -> Reference:
    names = ("alpha", "false_alarm", "window", "ridge")
    sizes = {"d": params["n_features"]}
    oracle = oracles.GroupsOracle(**{name: params[name] for name in names}, **sizes)
    for arm, label in enumerate(params["labels"]):
        oracle.add(arm, label)
    return _Grouped(oracle)


def told(params: Params) -> Reference:
    """Arms made new at the changes that the policy is told of."""
    inner, changes = params["policy"], params["changes"]
    sizes = {"d": inner.n_features}
    if isinstance(inner, whim.LinUCBHybrid):
        oracle = oracle_of(
            oracles.LinUCBHybridOracle, inner.params, k=inner.n_features * ITEM, **sizes
        )
        reference = hybrid(oracle)
    else:
        oracle = oracle_of(oracles.LinUCBDisjointOracle, inner.params, **sizes)
        reference = by_context(oracle)
    by_arm = changes if isinstance(changes, dict) else dict.fromkeys(all_arms(), changes)
    plain = reference._learn

    def learn(arm: int, x: F64, r: float) -> Any:
        found = plain(arm, x, r)
        for other, steps in by_arm.items():
            if oracle.t in steps:
                renew(oracle, other)
        return found

    reference._learn = learn
    return reference
