"""Whether speed was bought with accuracy: every policy's regret against slow, literal NumPy.

``python -m benchmarks.regret [--json FILE] [policy ...]``. Whim's compiled loop and the references
of ``tests/oracles``, which invert their matrices anew, each play work A of
``benchmarks.peers.works`` by their own choices: one that differed would change all that follows.
Regrets must agree to 1e-9, choices and detected changes step by step; the exit code is 1 if any
does not.

The policies are those of ``tests/factories.py`` with contexts of length 5 and, where they want
item features, a fixed matrix of 10 by 3. Cross rows of the caller's ("given") are left out: the
compiled loops make their own. What draws random numbers has a reference that draws the same. Some
references sum a history by products of arrays, or keep a sum from score to score; such sums are
compared with the oracle's own at the end. About 8 minutes of one core.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import erfinv
from tests import oracles
from tests.factories import FACTORIES
from tests.oracles.experts import Expert, RidgeModel
from tests.oracles.scorehybrid import Stretch as Segment
from threadpoolctl import threadpool_limits

import whim
from benchmarks.measure import progress
from benchmarks.peers.task import Task
from benchmarks.peers.works import make
from whim.policies import walk as walking
from whim.policies.registry import POLICIES
from whim.policies.walk import EACH, Stretch, walk

__all__ = ["TOLERANCE", "main", "rows"]

F64 = npt.NDArray[np.float64]
Params = dict[str, Any]
TOLERANCE = 1e-9
_M = 3

# beside those of the tests
_MORE: dict[str, Callable[[], whim.Policy]] = {
    "linucb-disjoint-ties": lambda: whim.LinUCBDisjoint(n_features=5, ties="random", seed=3),
    "pslinucb-disjoint-default": lambda: whim.PSLinUCBDisjoint(n_features=5),
    "pslinucb-hybrid-default": lambda: whim.PSLinUCBHybrid(n_features=5, n_item_features=_M),
}
# of the work's 20,000 steps, where the reference takes milliseconds a step
_STEPS = {
    "denband": 2000,
    "denband-authors": 3000,
    "swlinucb-cross": 5000,
    "oracle-restart-all": 10_000,
    "pslinucb-hybrid-literal": 10_000,
    "pslinucb-hybrid-default": 8000,
    "pslinucb-hybrid-revisit": 8000,
}
_LONG = ("hybrid", "denband", "groups", "restart-all", "revisit", "default", "cross")  # go first


@cache
def _work() -> Task:
    return make("A")


@cache
def _features() -> F64:
    return np.random.default_rng(0).normal(size=(_work().n_arms, _M))


def _changes() -> dict[int, list[int]]:
    """The true changes of work A, by arm."""
    task = _work()
    made = whim.worlds.PiecewiseLinear().episode(horizon=len(task.X), seed=0)
    assert np.array_equal(made.expected, task.expected)
    return made.changes


# -- references -----------------------------------------------------------------------------------


class _Reference:
    """A literal form: scores of all arms for a context, and whether a reward revealed a change."""

    def __init__(self, scores: Callable[[F64], Any], learn: Callable[[int, F64, float], Any]):
        self.scores, self._learn = scores, learn
        # sums that were kept or made quicker than the oracle makes them, and the oracle's own
        self.same: Callable[[], list[tuple[Any, Any]]] = list

    def choose(self, x: F64) -> int:
        """The best arm, of equal ones the first."""
        return int(np.argmax(self.scores(x)))

    def learn(self, arm: int, x: F64, r: float) -> bool:
        """Take one reward."""
        found = self._learn(arm, x, r)
        return found is not None and found is not False


def _arms() -> range:
    return range(_work().n_arms)


def _crossed(x: F64) -> F64:
    """The cross features kron(y, x) of each arm."""
    return np.array([np.kron(y, x) for y in _features()])


def _oracle(cls: Callable[..., Any], params: Params, **more: Any) -> Any:
    """An oracle with the policy's own parameters, as far as it has them, and all arms."""
    names = inspect.signature(cls).parameters
    made = cls(**{name: value for name, value in params.items() if name in names} | more)
    for arm in _arms():
        made.add(arm)
    return made


def _by_context(oracle: Any) -> _Reference:
    return _Reference(lambda x: oracle.scores(x, _arms()), oracle.update)


def _rows_of(params: Params) -> Callable[[F64], F64]:
    """φ of every arm for a context, of a model that all arms share."""
    return _crossed if params["payoff"] == "cross" else lambda x: _features()


def _by_rows(oracle: Any, params: Params) -> _Reference:
    phi = _rows_of(params)
    return _Reference(
        lambda x: oracle.scores(phi(x), _arms()),
        lambda arm, x, r: oracle.update(arm, phi(x)[arm], r),
    )


def _length(params: Params) -> int:
    return _M * params["n_features"] if params["payoff"] == "cross" else _M


def _stream(params: Params) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(params["seed"]))


# -- without contexts


def _random(params: Params) -> _Reference:
    rng = _stream(params)
    return _Reference(lambda x: rng.random(len(_arms())), lambda arm, x, r: None)


def _ucb(params: Params) -> _Reference:
    return _by_context(_oracle(oracles.UCBOracle, params))


class _Forced(_Reference):
    """A round robin goes before every index, infinite ones too."""

    def __init__(self, oracle: Any) -> None:
        super().__init__(lambda x: oracle.ucb(x, _arms()), oracle.update)
        self.forced = oracle.forced

    def choose(self, x: F64) -> int:
        arm = self.forced()
        return super().choose(x) if arm is None else int(arm)


def _mucb(params: Params) -> _Reference:
    return _Forced(_oracle(oracles.MUCBOracle, params))


class _Explores(_Reference):
    """Two numbers a decision: whether to explore, and which arm."""

    def __init__(self, oracle: Any, params: Params) -> None:
        super().__init__(lambda x: oracle.scores(x, _arms()), oracle.update)
        self.rng, self.explore = _stream(params), params["explore"]

    def choose(self, x: F64) -> int:
        whether, which = self.rng.random(2)
        return int(which * len(_arms())) if whether < self.explore else super().choose(x)


def _cusum_ucb(params: Params) -> _Reference:
    return _Explores(_oracle(oracles.CUSUMUCBOracle, params), params)


class _Log:
    """Plays as arrays, for sums over a whole history that a loop would take hours for."""

    def __init__(self, gamma: float, length: int, least: float = 0.0) -> None:
        steps = len(_work().X)
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

    log: _Log

    def update(self, a: Any, x: Any, r: float) -> bool:
        self.log.add(a, x, r)
        return super().update(a, x, r)

    def discounted_plays(self, a: Any) -> float:
        return float(self.log.of(a)[0].sum())

    def discounted_sum(self, a: Any) -> float:
        weights, _, r = self.log.of(a)
        return float(weights @ r)


def _ducb(params: Params) -> _Reference:
    oracle = _oracle(_DUCB, params)
    oracle.log = _Log(params["gamma"], 0)
    reference = _by_context(oracle)
    reference.same = lambda: [
        (oracle.discounted_sum(a), oracles.DUCBOracle.discounted_sum(oracle, a)) for a in _arms()
    ]
    return reference


def _swucb(params: Params) -> _Reference:
    return _by_context(_oracle(oracles.SWUCBOracle, params))


# -- ridge models


class _RandomTies(_Reference):
    """Equal scores are drawn from."""

    def __init__(self, oracle: Any, params: Params) -> None:
        super().__init__(lambda x: oracle.scores(x, _arms()), oracle.update)
        self.rng = _stream(params)

    def choose(self, x: F64) -> int:
        scores = self.scores(x)
        equal = np.flatnonzero(scores == scores.max())
        return int(equal[self.rng.integers(len(equal))] if len(equal) > 1 else equal[0])


def _linucb(params: Params) -> _Reference:
    oracle = _oracle(oracles.LinUCBDisjointOracle, params, d=params["n_features"])
    return _RandomTies(oracle, params) if params["ties"] == "random" else _by_context(oracle)


def _uniform(params: Params) -> _Reference:
    model, phi = RidgeModel(_length(params), params["ridge"]), _rows_of(params)
    return _Reference(
        lambda x: [row @ model.theta() + params["alpha"] * model.norm(row) for row in phi(x)],
        lambda arm, x, r: model.learn(phi(x)[arm], r),
    )


def _lints(params: Params) -> _Reference:
    """Thompson sampling: a draw an arm, or of the one model by the Cholesky factor of A."""
    rng, alpha = _stream(params), params["alpha"]
    if params["payoff"] == "disjoint":
        oracle = _oracle(oracles.LinUCBDisjointOracle, params, d=params["n_features"])

        def drawn(x: F64) -> F64:
            widths = [np.sqrt(x @ np.linalg.inv(oracle.A[a]) @ x) for a in _arms()]
            means = [x @ oracle.theta(a) for a in _arms()]
            return np.array(means) + alpha * np.array(widths) * rng.standard_normal(len(widths))

        return _Reference(drawn, oracle.update)
    p, phi = _length(params), _rows_of(params)
    model = RidgeModel(p, params["ridge"])

    def sampled(x: F64) -> F64:
        root = np.linalg.inv(np.linalg.cholesky(model.A)).T
        return phi(x) @ (model.theta() + alpha * root @ rng.standard_normal(p))

    return _Reference(sampled, lambda arm, x, r: model.learn(phi(x)[arm], r))


def _modified(params: Params) -> _Reference:
    d = params["n_features"]
    return _Forced(_oracle(oracles.ModifiedPSLinUCBOracle, params, arms=list(_arms()), d=d))


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


def _renew(oracle: Any, arm: int) -> None:
    """An arm's own sums as if it had never been played."""
    for kept in (oracle.A, oracle.b, getattr(oracle, "B", {})):
        kept.pop(arm, None)
    oracle.add(arm)


def _watched(params: Params) -> _Reference:
    oracle = _oracle(oracles.LinUCBDisjointOracle, params, d=params["n_features"])
    settings, squared = dict(params["settings"] or {}), params["watch"] == "square"

    def detector() -> Any:
        if params["detector"] == "cusum":
            settings.setdefault("drift", 0.5)
            settings.setdefault("threshold", 10.0)
            return _Residuals(params["warmup"], squared, **settings)
        return _River(params["detector"], settings, params["warmup"], squared)

    detectors = [detector() for _ in _arms()]

    def learn(arm: int, x: F64, r: float) -> bool:
        residual = r - float(x @ oracle.theta(arm))
        oracle.update(arm, x, r)
        if not detectors[arm].update(residual):
            return False
        _renew(oracle, arm)
        detectors[arm] = detector()
        return True

    return _Reference(lambda x: oracle.scores(x, _arms()), learn)


# -- forgetting


def _weighted(oracle: Any, arm: int | None, p: int) -> tuple[F64, F64, F64]:
    """``discounted_sums`` as products of arrays, for one arm or all."""
    weights, phi, r = oracle.log.of(arm)
    V = oracle.ridge * np.eye(p) + (phi * weights[:, None]).T @ phi
    Vt = oracle.ridge * np.eye(p) + (phi * (weights**2)[:, None]).T @ phi
    return V, Vt, phi.T @ (weights * r)


class _DLinUCB(oracles.DLinUCBOracle):
    """The oracle, with its sums over the history as products of arrays."""

    log: _Log

    def update(self, a: Any, phi_row: F64, r: float) -> bool:
        self.log.add(a, phi_row, r)
        return super().update(a, phi_row, r)

    def sums(self) -> tuple[F64, F64, F64]:
        return _weighted(self, None, self.p)


class _DLinUCBDisjoint(oracles.DLinUCBDisjointOracle):
    """As ``_DLinUCB``, arm by arm."""

    log: _Log

    def update(self, a: Any, phi_row: F64, r: float) -> bool:
        self.log.add(a, phi_row, r)
        return super().update(a, phi_row, r)

    def sums(self, a: Any) -> tuple[F64, F64, F64]:
        return _weighted(self, a, self.d)


def _dlinucb(params: Params) -> _Reference:
    oracle: Any
    if params["payoff"] == "disjoint":
        p, own, literal = params["n_features"], (0,), oracles.DLinUCBDisjointOracle
        oracle = _oracle(_DLinUCBDisjoint, params, d=p)
        reference = _by_context(oracle)
    else:
        p, own, literal = _length(params), (), oracles.DLinUCBOracle
        oracle = _oracle(_DLinUCB, params, p=p)
        reference = _by_rows(oracle, params)
    oracle.log = _Log(params["gamma"], p, least=1e-40)
    reference.same = lambda: list(
        zip(oracle.sums(*own), literal.sums(oracle, *own), strict=True)  # type: ignore[arg-type]
    )
    return reference


def _swlinucb(params: Params) -> _Reference:
    if params["payoff"] == "disjoint":
        return _by_context(_oracle(oracles.SWLinUCBDisjointOracle, params, d=params["n_features"]))
    return _by_rows(_oracle(oracles.SWLinUCBOracle, params, p=_length(params)), params)


# -- experts


class _Expert(Expert):
    """An expert that inverts its matrix once an observation."""

    _inverse: F64 | None = None

    def inverse(self) -> F64:
        if self._inverse is None:
            self._inverse = np.linalg.inv(self.A)
        return self._inverse

    def theta(self) -> F64:
        return np.asarray(self.inverse() @ self.b)

    def norm(self, phi: F64) -> float:
        return float(np.sqrt(phi @ self.inverse() @ phi))

    def learn(self, phi: F64, r: float) -> None:
        super().learn(phi, r)
        self._inverse = None


class _DenBand(oracles.DenBandOracle):
    """The oracle, with an auditor fitted once for each of its expert's observations."""

    def fresh(self) -> Expert:
        return _Expert(self.p, self.ridge, self.gate_window)

    def auditor(self, e: Any) -> tuple[F64, F64]:
        known = getattr(e, "known", None)
        if known is None or known[0] != (e.age, e.n):
            known = e.known = ((e.age, e.n), super().auditor(e))
        return known[1]  # type: ignore[no-any-return]


def _denband(params: Params) -> _Reference:
    return _by_rows(_oracle(_DenBand, params, p=_length(params)), params)


def _dynamic(params: Params) -> _Reference:
    given = dict(params)
    if given["tdelta1"] is None:
        given["tdelta1"] = given["delta1"] / 5
    if given["eta"] is None:
        given["eta"] = math.sqrt(2) * given["sigma"] * float(erfinv(1 - given["delta1"]))
    return _by_rows(_oracle(oracles.DynamicLinUCBOracle, given, p=_length(params)), params)


# -- hybrids, score tests and groups


def _hybrid(oracle: Any) -> _Reference:
    return _Reference(
        lambda x: oracle.scores(x, _crossed(x), _arms()),
        lambda arm, x, r: oracle.update(arm, x, np.kron(_features()[arm], x), r),
    )


def _linucb_hybrid(params: Params) -> _Reference:
    d = params["n_features"]
    return _hybrid(_oracle(oracles.LinUCBHybridOracle, params, d=d, k=d * _M))


def _again(params: Params, own: Any, new: Any, learn: Any) -> _Reference:
    """Looks again at neglected arms, unless told not to."""
    alpha, rate = params["alpha"], params["revisit"]
    if rate == "off":

        def score(x: F64, a: int) -> float:
            mean, square = own(x, a)
            return float(mean + alpha * np.sqrt(square))

        return _Reference(lambda x: [score(x, a) for a in _arms()], learn)
    known = None if rate in (None, "auto") else rate
    oracle = oracles.RevisitOracle(own, new, learn, known, alpha)
    return _Reference(lambda x: [oracle.score(x, a) for a in _arms()], oracle.update)


def _scored(params: Params) -> Params:
    """What the score test has by default."""
    return params | {
        "window": params["window"] or 256, "false_alarm": params["false_alarm"] or 1e-5
    }  # fmt: skip


def _pslinucb(params: Params) -> _Reference:
    d, ridge = params["n_features"], params["ridge"]
    if params["threshold"] is not None:
        window = params["window"] or 100
        return _by_context(_oracle(oracles.PSLinUCBDisjointOracle, params, d=d, window=window))
    oracle = _oracle(oracles.ScoreTestOracle, _scored(params), d=d)

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


def _pslinucb_hybrid(params: Params) -> _Reference:
    d = params["n_features"]
    sizes = {"d": d, "k": d * _M}
    if params["threshold"] is not None:
        window = params["window"] or 100
        return _hybrid(_oracle(oracles.PSLinUCBHybridOracle, params, window=window, **sizes))
    given = _scored(params) | {"rows": False}
    names = ("alpha", "false_alarm", "window", "ridge", "rows")
    oracle = _ScoreTestHybrid(**{name: given[name] for name in names}, **sizes)
    for arm in _arms():
        oracle.add(arm)
    nothing = Segment(np.zeros((0, d)), np.zeros((0, d * _M)), np.zeros(0))
    oracle.live["new"] = nothing

    def bound(x: F64, a: int, as_arm: Any) -> tuple[float, float]:
        return oracle.bound(x, np.kron(_features()[a], x), as_arm)

    reference = _again(
        params,
        lambda x, a: bound(x, a, a),
        lambda x, a: bound(x, a, "new"),
        lambda a, x, r: oracle.update(a, x, np.kron(_features()[a], x), r),
    )
    literal = oracles.ScoreTestHybridOracle
    reference.same = lambda: list(zip(oracle.shared(), literal.shared(oracle), strict=True))
    return reference


class _Grouped(_Reference):
    """The best, of equal ones that with the fewest plays."""

    def __init__(self, oracle: Any) -> None:
        super().__init__(lambda x: [oracle.score(x, a) for a in _arms()], oracle.update)
        self.choose = lambda x: oracle.select(x, list(_arms()))  # type: ignore[method-assign]


def _groups(params: Params) -> _Reference:
    names = ("alpha", "false_alarm", "window", "ridge")
    sizes = {"d": params["n_features"]}
    oracle = oracles.GroupsOracle(**{name: params[name] for name in names}, **sizes)
    for arm, label in enumerate(params["labels"]):
        oracle.add(arm, label)
    return _Grouped(oracle)


def _told(params: Params) -> _Reference:
    """Arms made new at the changes that the policy is told of."""
    inner, changes = params["policy"], params["changes"]
    sizes = {"d": inner.n_features}
    if isinstance(inner, whim.LinUCBHybrid):
        oracle = _oracle(oracles.LinUCBHybridOracle, inner.params, k=inner.n_features * _M, **sizes)
        reference = _hybrid(oracle)
    else:
        oracle = _oracle(oracles.LinUCBDisjointOracle, inner.params, **sizes)
        reference = _by_context(oracle)
    by_arm = changes if isinstance(changes, dict) else dict.fromkeys(_arms(), changes)
    plain = reference._learn

    def learn(arm: int, x: F64, r: float) -> Any:
        found = plain(arm, x, r)
        for other, steps in by_arm.items():
            if oracle.t in steps:
                _renew(oracle, other)
        return found

    reference._learn = learn
    return reference


_REFERENCES: dict[str, Callable[[Params], _Reference]] = {
    "random": _random,
    "ucb": _ucb,
    "mucb": _mucb,
    "ducb": _ducb,
    "swucb": _swucb,
    "cusum-ucb": _cusum_ucb,
    "denband": _denband,
    "dynamic-linucb": _dynamic,
    "dlinucb": _dlinucb,
    "swlinucb": _swlinucb,
    "lints": _lints,
    "linucb-disjoint": _linucb,
    "linucb-uniform": _uniform,
    "linucb-hybrid": _linucb_hybrid,
    "linucb-watched": _watched,
    "modified-pslinucb": _modified,
    "oracle-restart": _told,
    "pslinucb-disjoint": _pslinucb,
    "pslinucb-groups": _groups,
    "pslinucb-hybrid": _pslinucb_hybrid,
}


# -- both sides -----------------------------------------------------------------------------------


def _adapted(made: whim.Policy) -> whim.Policy:
    """The same policy for contexts and item features of the lengths here, without arms."""
    params = made.params
    if isinstance(made, whim.OracleRestart):
        by_arm = isinstance(params["changes"], dict)
        told = _changes() if by_arm else list(range(1000, len(_work().X), 2000))
        return whim.OracleRestart(policy=_adapted(made.policy), changes=told)
    if params.get("n_features") is not None:
        params["n_features"] = _work().d
    if params.get("n_cross_features") is not None:
        params |= {"n_cross_features": None, "n_item_features": _M}
    if params.get("n_item_features") is not None:
        params["n_item_features"] = _M
    return type(made)(**params)


def _names() -> list[str]:
    """One name a row: the tests' policies, ours, and registered ones that neither holds."""
    found = [name for name in FACTORIES if not name.endswith("-given")] + list(_MORE)
    covered = {type(_made(name)).name for name in found}
    return found + sorted(POLICIES.keys() - covered)


def _made(name: str) -> whim.Policy:
    return _adapted(FACTORIES[name]()) if name in FACTORIES else _MORE[name]()


def _ours(policy: whim.Policy, steps: int) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Choices and the steps, from 1, at which changes were found."""
    task = _work()
    none, all_arms = np.zeros(steps, np.int64), np.arange(task.n_arms)
    ends = np.array([0, task.n_arms])
    X, R = np.ascontiguousarray(task.X[:steps]), np.ascontiguousarray(task.R[:steps])
    found = walk(policy, Stretch(EACH, X, none, ends, all_arms, none, R))
    return found.chosen, [at + 1 for at, _ in found.changes]


def _theirs(reference: _Reference, steps: int) -> tuple[npt.NDArray[np.int64], list[int]]:
    """The same of a reference, which goes by its own choices."""
    task = _work()
    chosen, changes = np.empty(steps, np.int64), []
    for t in range(steps):
        x = task.X[t]
        arm = chosen[t] = reference.choose(x)
        if reference.learn(int(arm), x, float(task.R[t, arm])):
            changes.append(t + 1)
    return chosen, changes


def _lost(chosen: npt.NDArray[np.int64]) -> float:
    expected = _work().expected[: len(chosen)]
    return float((expected.max(axis=1) - expected[np.arange(len(chosen)), chosen]).sum())


def _note(params: Params, compiled: bool) -> str:
    words = [] if compiled else ["live calls"]
    if params.get("scoring") == "float32":
        words.append("float32")  # near enough for the same choices, not more
    return ", ".join(words)


def _row(name: str) -> dict[str, Any]:
    """Both sides of one policy."""
    steps = _STEPS.get(name, len(_work().X))
    if name not in FACTORIES and name not in _MORE:
        return {"policy": name, "steps": 0, "note": "no reference", "agrees": None}
    with threadpool_limits(1):
        policy = _made(name)
        policy.add_arms(_arms(), features=_features() if policy.n_item_features else None)
        inner = policy.policy if isinstance(policy, whim.OracleRestart) else policy
        compiled = walking._loop(inner) is not None
        params = policy.params
        if isinstance(policy, whim.PSLinUCBGroups):  # k-means is not what is compared
            params |= {"labels": [policy.group(arm) for arm in _arms()]}
        start = time.thread_time()
        ours, found = _ours(policy, steps)
        took = time.thread_time() - start
        row = {
            "policy": name,
            "steps": steps,
            "regret": _lost(ours),
            "changes": len(found),
            "seconds": took,
            "note": _note(params, compiled),
        }
        build = _REFERENCES.get(type(policy).name)
        if build is None:
            return row | {"note": "no reference", "agrees": None}
        start = time.thread_time()
        reference = build(params)
        theirs, seen = _theirs(reference, steps)
        took = time.thread_time() - start
        for quick, literal in reference.same():
            np.testing.assert_allclose(quick, literal, rtol=1e-9, atol=1e-12)
    difference = row["regret"] - _lost(theirs)
    apart = np.flatnonzero(ours != theirs)
    return row | {
        "reference_regret": _lost(theirs),
        "difference": difference,
        "relative": abs(difference) / max(_lost(theirs), 1e-300),
        "steps_that_differ": len(apart),
        "first_that_differs": int(apart[0]) + 1 if len(apart) else None,
        "reference_changes": len(seen),
        "changes_that_differ": len(set(found) ^ set(seen)),
        "reference_seconds": took,
        "agrees": abs(difference) <= TOLERANCE and not len(apart) and found == seen,
    }


def rows(names: Sequence[str] | None = None, jobs: int | None = None) -> list[dict[str, Any]]:
    """One row a policy (all by default); ``agrees`` is None where there is no reference."""
    wanted = _names() if names is None else list(names)
    order = sorted(wanted, key=lambda name: not any(word in name for word in _LONG))
    context = multiprocessing.get_context("spawn")
    found: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(jobs or min(2, os.cpu_count() or 1), mp_context=context) as pool:
        for row in pool.map(_row, order):
            found[row["policy"]] = row
            progress(f"regret: {row['policy']}: {row.get('reference_seconds', 0):.1f} s")
    return [found[name] for name in wanted]


def _table(found: list[dict[str, Any]]) -> str:
    head = (
        "policy", "steps", "regret", "reference", "difference", "relative", "steps apart",
        "changes", "reference", "apart", "agrees", "",
    )  # fmt: skip
    lines = [head]
    for row in found:
        cells = [row["policy"], f"{row['steps']}"]
        cells.append(f"{row['regret']:.6f}" if "regret" in row else "-")
        if "difference" in row:
            cells += [
                f"{row['reference_regret']:.6f}", f"{row['difference']:.1e}",
                f"{row['relative']:.1e}", f"{row['steps_that_differ']}", f"{row['changes']}",
                f"{row['reference_changes']}", f"{row['changes_that_differ']}",
                "yes" if row["agrees"] else "NO",
            ]  # fmt: skip
        else:
            cells += ["-", "-", "-", "-", f"{row.get('changes', '-')}", "-", "-", "-"]
        first = row.get("first_that_differs")
        lines.append((*cells, f"from step {first}" if first else row["note"]))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    ends = {0, len(head) - 1}
    text = [
        "  ".join(
            cell.ljust(width) if i in ends else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    text.insert(1, "-" * max(map(len, text)))
    return "\n".join(text)


def main() -> int:
    """The exit code: 1 if a policy and its reference differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regret")
    parser.add_argument("policies", nargs="*", help="names of rows; all by default")
    parser.add_argument("--json", metavar="FILE", help="also write the rows here")
    options = parser.parse_args()
    found = rows(options.policies or None)
    print(_table(found))
    compared = [row for row in found if row["agrees"] is not None]
    bad = [row["policy"] for row in compared if not row["agrees"]]
    print(f"\n{len(compared) - len(bad)} of {len(compared)} agree to {TOLERANCE:g}.")
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")
    if bad:
        progress(f"differ: {', '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
