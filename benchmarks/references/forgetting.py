"""Models that forget, and ensembles of experts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import erfinv
from tests import oracles
from tests.oracles.experts import Expert

from benchmarks.references.common import (
    F64,
    Params,
    Reference,
    by_context,
    by_rows,
    length_of,
    oracle_of,
)
from benchmarks.references.contextfree import Log


def _weighted(oracle: Any, arm: int | None, p: int) -> tuple[F64, F64, F64]:
    """``discounted_sums`` as products of arrays, for one arm or all."""
    weights, phi, r = oracle.log.of(arm)
    V = oracle.ridge * np.eye(p) + (phi * weights[:, None]).T @ phi
    Vt = oracle.ridge * np.eye(p) + (phi * (weights**2)[:, None]).T @ phi
    return V, Vt, phi.T @ (weights * r)


class _DLinUCB(oracles.DLinUCBOracle):
    """The oracle, with its sums over the history as products of arrays."""

    log: Log

    def update(self, a: Any, phi_row: F64, r: float) -> bool:
        self.log.add(a, phi_row, r)
        return super().update(a, phi_row, r)

    def sums(self) -> tuple[F64, F64, F64]:
        return _weighted(self, None, self.p)


class _DLinUCBDisjoint(oracles.DLinUCBDisjointOracle):
    """As ``_DLinUCB``, arm by arm."""

    log: Log

    def update(self, a: Any, phi_row: F64, r: float) -> bool:
        self.log.add(a, phi_row, r)
        return super().update(a, phi_row, r)

    def sums(self, a: Any) -> tuple[F64, F64, F64]:
        return _weighted(self, a, self.d)


def dlinucb(params: Params) -> Reference:
    oracle: Any
    if params["payoff"] == "disjoint":
        p, own, literal = params["n_features"], (0,), oracles.DLinUCBDisjointOracle
        oracle = oracle_of(_DLinUCBDisjoint, params, d=p)
        reference = by_context(oracle)
    else:
        p, own, literal = length_of(params), (), oracles.DLinUCBOracle
        oracle = oracle_of(_DLinUCB, params, p=p)
        reference = by_rows(oracle, params)
    oracle.log = Log(params["gamma"], p, least=1e-40)
    reference.same = lambda: list(
        zip(oracle.sums(*own), literal.sums(oracle, *own), strict=True)  # type: ignore[arg-type]
    )
    return reference


def swlinucb(params: Params) -> Reference:
    if params["payoff"] == "disjoint":
        return by_context(oracle_of(oracles.SWLinUCBDisjointOracle, params, d=params["n_features"]))
    return by_rows(oracle_of(oracles.SWLinUCBOracle, params, p=length_of(params)), params)


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


def denband(params: Params) -> Reference:
    return by_rows(oracle_of(_DenBand, params, p=length_of(params)), params)


def dynamic(params: Params) -> Reference:
    given = dict(params)
    if given["tdelta1"] is None:
        given["tdelta1"] = given["delta1"] / 5
    if given["eta"] is None:
        given["eta"] = math.sqrt(2) * given["sigma"] * float(erfinv(1 - given["delta1"]))
    return by_rows(oracle_of(oracles.DynamicLinUCBOracle, given, p=length_of(params)), params)
