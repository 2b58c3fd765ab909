"""DLinUCB and SWLinUCB: the fast forms against the sums and windows written out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import whim
from tests.callable_kernels import ldl_add, ldl_quad, ldl_solve
from tests.oracles import (
    DLinUCBDisjointOracle,
    DLinUCBOracle,
    SWLinUCBDisjointOracle,
    SWLinUCBOracle,
)
from tests.oracles.forgetting import discounted_sums
from tests.streams import Play, stream
from whim.errors import InvalidInputError
from whim.kernels.models import sliding
from whim.policies.dlinucb import DLinUCB
from whim.policies.swlinucb import SWLinUCB

F64 = npt.NDArray[np.float64]
ARMS = 4
PAYOFFS = ["disjoint", "item", "cross", "given"]
KINDS = [(DLinUCB, {"gamma": 0.93, "alpha": 0.7}), (SWLinUCB, {"window": 15, "alpha": 0.7})]
both = pytest.mark.parametrize(("cls", "params"), KINDS, ids=["dlinucb", "swlinucb"])
every_payoff = pytest.mark.parametrize("payoff", PAYOFFS)


@dataclass
class Case:
    """A policy of one payoff, the features φ of its candidates, and how to talk to it."""

    policy: DLinUCB | SWLinUCB
    payoff: str
    Y: F64

    def phi(self, x: F64, arms: list[int]) -> F64:
        if self.payoff == "item":
            return self.Y[arms]
        return np.array([np.kron(self.Y[a], x) for a in arms])

    def cross(self, x: F64, arms: list[int]) -> F64 | None:
        return self.phi(x, arms) if self.payoff == "given" else None

    def update(self, arm: int, x: F64, r: float) -> None:
        z = self.cross(x, [arm])
        assert self.policy.update(arm, x, r, cross=None if z is None else z[0]) is None

    def add(self, arms: list[int]) -> None:
        shared = self.payoff in ("item", "cross")
        self.policy.add_arms(arms, features=self.Y[arms] if shared else None)


def case(cls: type[Any], payoff: str, d: int, m: int = 2, **params: Any) -> Case:
    sizes = {
        "disjoint": {"n_features": d},
        "item": {"n_item_features": m},
        "cross": {"n_features": d, "n_item_features": m},
        "given": {"n_features": d, "n_cross_features": d * m},
    }[payoff]
    word = "cross" if payoff == "given" else payoff
    Y = np.random.default_rng(d).normal(size=(ARMS, m))
    made = Case(cls(payoff=word, **sizes, **params), payoff, Y)
    made.add(list(range(ARMS)))
    return made


def size(payoff: str, d: int, m: int = 2) -> int:
    return {"disjoint": d, "item": m}.get(payoff, d * m)


def compare(fast: Case, slow: Any, plays: Iterator[Play]) -> None:
    for a in range(ARMS):
        slow.add(a)
    disjoint = fast.payoff == "disjoint"
    for play in plays:
        arms = play.candidates
        phi = None if disjoint else fast.phi(play.x, arms)
        expected = slow.scores(play.x if phi is None else phi, arms)
        z = fast.cross(play.x, arms)
        found = fast.policy.scores(play.x, arms, cross=z)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        decision = fast.policy.select(play.x, arms, cross=z)
        place = arms.index(decision.arm)
        assert expected[place] >= expected.max() - 1e-9
        assert decision.score == pytest.approx(decision.mean + decision.width, abs=1e-12)
        r = float(play.rewards[decision.arm])
        slow.update(decision.arm, play.x if phi is None else phi[place], r)
        fast.update(decision.arm, play.x, r)


# -- oracles ---------------------------------------------------------------------------------------


@every_payoff
@pytest.mark.parametrize(("d", "m"), [(1, 1), (2, 3), (5, 2), (10, 1)])
@pytest.mark.parametrize(("gamma", "alpha"), [(1.0, 0.6), (1.0, None), (0.95, None), (0.4, 0.6)])
def test_dlinucb_equals_weighted_sums(
    payoff: str, d: int, m: int, gamma: float, alpha: float | None
) -> None:
    params = {
        "gamma": gamma, "alpha": alpha, "ridge": 0.4, "sigma": 0.3, "delta": 0.1,
        "bound_theta": 2.0, "bound_x": 1.5,
    }  # fmt: skip
    p = size(payoff, d, m)
    slow = (
        DLinUCBDisjointOracle(d=d, **params)
        if payoff == "disjoint"
        else DLinUCBOracle(p=p, **params)
    )
    compare(case(DLinUCB, payoff, d, m, **params), slow, stream(steps=50, arms=ARMS, d=d, seed=1))


@every_payoff
@pytest.mark.parametrize(("d", "m"), [(1, 1), (2, 3), (5, 2), (10, 1)])
@pytest.mark.parametrize("window", [1, 2, 9, 40, 1000])
def test_swlinucb_equals_ridge_on_the_window(payoff: str, d: int, m: int, window: int) -> None:
    params = {"window": window, "alpha": 0.6, "ridge": 0.4}
    p = size(payoff, d, m)
    slow = (
        SWLinUCBDisjointOracle(d=d, **params)
        if payoff == "disjoint"
        else SWLinUCBOracle(p=p, **params)
    )
    compare(case(SWLinUCB, payoff, d, m, **params), slow, stream(steps=90, arms=ARMS, d=d, seed=2))


def unpacked(sums: F64, row: int, at: int, p: int) -> F64:
    L = np.eye(p)
    columns = iter(sums[row, at + p : at + p * (p + 1) // 2])
    for j in range(p):
        for i in range(j + 1, p):
            L[i, j] = next(columns)
    return np.asarray(L * sums[row, at : at + p] @ L.T)


@pytest.mark.parametrize("p", [1, 2, 7])
@pytest.mark.parametrize("gamma", [1.0, 0.97, 0.5])
def test_sums_of_v_and_vt_are_the_weighted_ones(p: int, gamma: float) -> None:
    policy = DLinUCB(n_features=p, gamma=gamma, alpha=1.0)
    policy.add_arms(["a", "b"])
    rng = np.random.default_rng(p)
    seen: dict[str, list[tuple[int, F64, float]]] = {"a": [], "b": []}
    for t in range(1, 41):
        arm, x, r = "ab"[rng.integers(2)], rng.normal(size=p), float(rng.normal())
        policy.update(arm, x, r)
        seen[arm].append((t, x, r))
    second = (p + 1) * (p + 2) // 2
    for row, arm in enumerate("ab"):
        fade = gamma ** (40 - policy._touched[row])
        V, Vt, b = discounted_sums(seen[arm], 40, p, gamma, 0.0)
        bordered = fade * unpacked(policy._sums, row, 0, p + 1)
        np.testing.assert_allclose(bordered[:p, :p], V, atol=1e-12)
        np.testing.assert_allclose(bordered[:p, p], b, atol=1e-12)
        found = fade**2 * unpacked(policy._sums, row, second, p)
        np.testing.assert_allclose(found, Vt, atol=1e-12)
        V += np.eye(p)
        np.testing.assert_allclose(policy.coefficients(arm), np.linalg.solve(V, b), atol=1e-12)


def test_radius_starts_again_when_nothing_learnt_is_left() -> None:
    policy = DLinUCB(n_features=2, gamma=0.9)
    policy.add_arms(["a", "b"])
    fresh = policy.scores([1.0, 2.0]).copy()
    policy.update_many(["a", "b"] * 5, np.ones((10, 2)), np.ones(10))
    policy.reset_arms(["a"])
    grown = policy.scores([1.0, 2.0], ["a"])
    assert grown[0] > fresh[0]
    policy.reset_arms()
    np.testing.assert_array_equal(policy.scores([1.0, 2.0]), fresh)


# -- limits ----------------------------------------------------------------------------------------


def linucb(payoff: str, d: int, m: int, Y: F64) -> whim.Policy:
    plain: whim.Policy
    if payoff == "disjoint":
        plain = whim.LinUCBDisjoint(n_features=d, alpha=0.7, ridge=0.3)
        plain.add_arms(range(ARMS))
    else:
        plain = whim.LinUCBUniform(
            n_features=d, n_item_features=m, payoff=payoff, alpha=0.7, ridge=0.3
        )
        plain.add_arms(range(ARMS), features=Y)
    return plain


@pytest.mark.parametrize("payoff", ["disjoint", "item", "cross"])
@pytest.mark.parametrize(
    ("cls", "params"), [(DLinUCB, {"gamma": 1.0}), (SWLinUCB, {"window": 300})]
)
def test_forgetting_nothing_is_linucb(cls: type[Any], params: dict[str, Any], payoff: str) -> None:
    fast = case(cls, payoff, 3, alpha=0.7, ridge=0.3, **params)
    plain = linucb(payoff, 3, 2, fast.Y)
    for play in stream(steps=300, arms=ARMS, d=3, seed=5):
        found = fast.policy.scores(play.x, play.candidates)
        expected = plain.scores(play.x, play.candidates)
        if cls is SWLinUCB:
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        arm = fast.policy.select(play.x, play.candidates).arm
        assert expected[play.candidates.index(arm)] >= expected.max() - 1e-9
        r = float(play.rewards[arm])
        fast.update(arm, play.x, r)
        plain.update(arm, play.x, r)


@pytest.mark.parametrize("gamma", [0.5, 0.999])
def test_an_arm_left_alone_for_very_long_is_as_good_as_new(gamma: float) -> None:
    policy = DLinUCB(n_features=3, gamma=gamma, alpha=0.5)
    policy.add_arms(["old", "busy", "new"])
    rng = np.random.default_rng(0)
    policy.update_many(["old"] * 9, rng.normal(size=(9, 3)), rng.normal(size=9))
    n = 1_000_000
    policy.update_many(["busy"] * n, rng.normal(size=(n, 3)), np.ones(n))
    old, busy, new = policy.scores([1.0, -1.0, 0.5])
    assert old == new
    assert np.isfinite(busy)
    policy.update("old", [1.0, 0.0, 0.0], 1.0)
    np.testing.assert_allclose(policy.coefficients("old"), [0.5, 0.0, 0.0], atol=1e-12)


# -- arithmetic under strain -----------------------------------------------------------------------


def exact(
    A: list[list[Fraction]], right: list[list[Fraction]]
) -> list[list[Fraction]]:  # Gauss, in rationals
    n = len(A)
    rows = [list(a) + list(r) for a, r in zip(A, right, strict=True)]
    for j in range(n):
        rows[j] = [v / rows[j][j] for v in rows[j]]
        for i in range(n):
            if i != j:
                rows[i] = [v - rows[i][j] * w for v, w in zip(rows[i], rows[j], strict=True)]
    return [r[n:] for r in rows]


def rational(
    plays: list[tuple[int, F64, float]], t: int, x: F64, gamma: float, ridge: float
) -> tuple[float, float]:
    """Mean and squared width of D-LinUCB (of plain ridge for gamma = 1) without rounding."""
    d = len(x)
    g = Fraction(gamma)
    V = [[Fraction(ridge) * (i == j) for j in range(d)] for i in range(d)]
    Vt = [row[:] for row in V]
    b = [Fraction(0)] * d
    for s, phi, r in plays:
        f = [Fraction(float(v)) for v in phi]
        for i in range(d):
            b[i] += g ** (t - s) * Fraction(r) * f[i]
            for j in range(d):
                V[i][j] += g ** (t - s) * f[i] * f[j]
                Vt[i][j] += g ** (2 * (t - s)) * f[i] * f[j]
    u = [row[0] for row in exact(V, [[Fraction(float(v))] for v in x])]
    mean = sum((b[i] * u[i] for i in range(d)), Fraction(0))
    square = sum((u[i] * Vt[i][j] * u[j] for i in range(d) for j in range(d)), Fraction(0))
    return float(mean), float(square)


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(("cls", "params", "gamma", "window"), [
    (DLinUCB, {"gamma": 0.9375}, 0.9375, 1000),
    (DLinUCB, {"gamma": 1.0}, 1.0, 1000),
    (SWLinUCB, {"window": 1}, 1.0, 1),
    (SWLinUCB, {"window": 2}, 1.0, 2),
    (SWLinUCB, {"window": 12}, 1.0, 12),
])  # fmt: skip
def test_digits_are_kept_at_any_scale(
    cls: type[Any], params: dict[str, Any], gamma: float, window: int, scale: float, repeated: bool
) -> None:
    """Against rational arithmetic: contexts scaled 1e6 leave numpy's inverse with few digits."""
    d, steps = 3, 40
    policy = cls(n_features=d, alpha=1.0, ridge=1.0, **params)
    policy.add_arms(["a"])
    plays = []
    rng = np.random.default_rng(9)
    for t, play in enumerate(
        stream(steps=steps, arms=1, d=d, seed=4, scale=scale, repeated=repeated), start=1
    ):
        plays.append((t, play.x, float(play.rewards[0])))
        policy.update("a", play.x, float(play.rewards[0]))
        if t % 13 == 0:
            for x in (play.x, rng.normal(size=d), scale * rng.normal(size=d)):
                mean, square = rational(plays[-window:], t, x, gamma, 1.0)
                found = policy.select(x)
                assert found.width == pytest.approx(np.sqrt(square), rel=1e-9)
                # θ is known to a fraction of the width; a mean far outside the data no better
                assert abs(found.mean - mean) <= 1e-9 * (1.0 + found.width)


def test_dlinucb_keeps_digits_when_a_tiny_pivot_fades() -> None:
    policy = DLinUCB(n_features=2, gamma=0.5, alpha=1.0)
    policy.add_arms(["a"])
    plays = []
    contexts = [[1e-9, 1.0], [1e-9, 1.0], [1.0, 1.0], [1.0, 1.0 + 1e-9], [1e-9, 3.0], [2.0, 1.0]]
    for t, context in enumerate(contexts * 3, start=1):
        x = np.array(context)
        plays.append((t, x, 1.0))
        policy.update("a", x, 1.0)
        y = np.array([1.0, -1.0])
        mean, square = rational(plays, t, y, 0.5, 1.0)
        found = policy.select(y)
        assert found.mean == pytest.approx(mean, rel=1e-12, abs=1e-12)
        assert found.width == pytest.approx(np.sqrt(square), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@both
@every_payoff
def test_constant_contexts_stay_finite(
    cls: type[Any], params: dict[str, Any], payoff: str, scale: float
) -> None:
    fast = case(cls, payoff, 3, **params | {"ridge": 1e-3})
    x = scale * np.array([1.0, -2.0, 0.5])
    n = 20_000
    arms = np.arange(n) % ARMS
    z = None if payoff != "given" else fast.phi(x, arms.tolist())
    fast.policy.update_many(arms.tolist(), np.tile(x, (n, 1)), np.ones(n), cross=z)
    four = list(range(ARMS))
    for y in (x, np.array([2.0, 1.0, 0.0]), np.zeros(3)):
        ranked = fast.policy.rank(y, four, cross=fast.cross(y, four))
        assert np.isfinite([d[1:] for d in ranked]).all()
        assert all(d.width >= 0.0 for d in ranked)
    means = [d.mean for d in fast.policy.rank(x, four, cross=fast.cross(x, four))]
    if payoff == "disjoint" and scale >= 1.0:
        np.testing.assert_allclose(means, 1.0, atol=0.02)


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("ridge", [1.0, 1e-6])
def test_a_million_updates_stay_within_1e_8_of_a_fresh_ridge(repeated: bool, ridge: float) -> None:
    n, d, window = 1_000_000, 4, 257
    rng = np.random.default_rng(11)
    X = rng.normal(size=(n, d))
    if repeated:
        X = X[:3][rng.integers(3, size=n)]
    arms, rewards = rng.integers(3, size=n), rng.normal(size=n)
    policy = SWLinUCB(n_features=d, window=window, alpha=1.0, ridge=ridge)
    policy.add_arms(range(3))
    policy.update_many(arms.tolist(), X, rewards)
    fresh = whim.LinUCBDisjoint(n_features=d, alpha=1.0, ridge=ridge)
    fresh.add_arms(range(3))
    fresh.update_many(arms[-window:].tolist(), X[-window:], rewards[-window:])
    for x in X[:20]:
        np.testing.assert_allclose(policy.scores(x), fresh.scores(x), rtol=1e-8, atol=1e-8)
    for arm in range(3):
        found, expected = policy.coefficients(arm), fresh.coefficients(arm)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("fall", [0.5, 0.03, 1.0])
def test_contexts_that_shrink_within_the_window(fall: float) -> None:
    """No single leverage is near one, but their product is: old plays were far larger."""
    window, d = 30, 3
    rng = np.random.default_rng(3)
    policy = SWLinUCB(n_features=d, window=window, alpha=1.0, ridge=1e-3)
    policy.add_arms(["a"])
    plays = []
    for t in range(1, 150):
        x = 1e4 * fall ** (t % 37) * rng.normal(size=d)
        plays.append((t, x, float(rng.normal())))
        policy.update("a", x, plays[-1][2])
        if t % 10 == 0:
            y = rng.normal(size=d)
            mean, square = rational(plays[-window:], t, y, 1.0, 1e-3)
            found = policy.select(y)
            assert found.width == pytest.approx(np.sqrt(square), rel=1e-9)
            assert abs(found.mean - mean) <= 1e-9 * (1.0 + found.width)


@pytest.mark.parametrize("p", [1, 2, 5, 9])
def test_ldl_adds_and_solves(p: int) -> None:
    rng = np.random.default_rng(p)
    q = p + 1
    F = np.zeros((2, 3 + q * (q + 1) // 2))
    M = np.zeros((q, q))
    for weight in rng.uniform(0.1, 2.0, size=p + 3):
        v = rng.normal(size=q)
        v[rng.integers(p)] = 0.0
        M += weight * np.outer(v, v)
        ldl_add(F[1], 3, q, 0, weight, v)
    for j in range(p):
        unit = np.eye(q)[j]
        M += 0.5 * np.outer(unit, unit)
        ldl_add(F[1], 3, q, j, 0.5, unit)
    np.testing.assert_allclose(unpacked(F, 1, 3, q), M, atol=1e-12)
    x, u = rng.normal(size=q), np.zeros(p)
    assert ldl_quad(F[1], 3, x) == pytest.approx(x @ M @ x)
    mean = ldl_solve(F[1], 3, x[:p], u)
    np.testing.assert_allclose(u, np.linalg.solve(M[:p, :p], x[:p]), atol=1e-10)
    assert mean == pytest.approx(M[p, :p] @ u)
    np.testing.assert_array_equal(F[0], 0.0)
    np.testing.assert_array_equal(F[1, :3], 0.0)


# -- the contract ----------------------------------------------------------------------------------


def batch(fast: Case, n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    arms = rng.integers(ARMS, size=n).tolist()
    X = rng.normal(size=(n, 3))
    z = None
    if fast.payoff == "given":
        z = np.array([fast.phi(x, [a])[0] for a, x in zip(arms, X, strict=True)])
    return {"arms": arms, "X": X, "rewards": rng.normal(size=n), "cross": z}


@both
@every_payoff
def test_update_many_equals_the_loop(cls: type[Any], params: dict[str, Any], payoff: str) -> None:
    one, many = (case(cls, payoff, 3, **params) for _ in range(2))
    for seed in range(3):
        plays = batch(many, 150, seed)
        assert many.policy.update_many(**plays) == []
        for a, x, r in zip(plays["arms"], plays["X"], plays["rewards"], strict=True):
            one.update(a, x, float(r))
        assert many.policy.to_bytes() == one.policy.to_bytes()


@both
@every_payoff
def test_scores_many_equals_scores(cls: type[Any], params: dict[str, Any], payoff: str) -> None:
    fast = case(cls, payoff, 3, **params)
    fast.policy.update_many(**batch(fast, 80, 0))
    X = np.random.default_rng(1).normal(size=(7, 3))
    if payoff == "given":
        with pytest.raises(InvalidInputError, match="cross must be given"):
            fast.policy.scores_many(X)
        return
    found = fast.policy.scores_many(X if payoff != "item" else X[:, :0], [2, 0])
    for x, row in zip(X, found, strict=True):
        np.testing.assert_allclose(row, fast.policy.scores(x, [2, 0]), atol=1e-12)


@both
@every_payoff
def test_saved_and_loaded_goes_on_bit_for_bit(
    cls: type[Any], params: dict[str, Any], payoff: str
) -> None:
    fast = case(cls, payoff, 3, **params)
    fast.policy.update_many(**batch(fast, 50, 0))
    fast.policy.retire_arms([1])
    fast.policy.reset_arms([2] if payoff == "disjoint" else [])
    again = Case(cls.from_bytes(fast.policy.to_bytes()), payoff, fast.Y)
    assert repr(again.policy) == repr(fast.policy)
    for made in (fast, again):
        made.add([1])
        made.policy.update_many(**batch(made, 50, 1))
    assert again.policy.to_bytes() == fast.policy.to_bytes()
    x, four = np.ones(3), list(range(ARMS))
    found = again.policy.scores(x, four, cross=again.cross(x, four))
    np.testing.assert_array_equal(found, fast.policy.scores(x, four, cross=fast.cross(x, four)))


@both
@pytest.mark.parametrize("gone", [True, False])
def test_a_forgotten_arm_leaves_nothing_in_its_slot(
    cls: type[Any], params: dict[str, Any], gone: bool
) -> None:
    """As if the arm's plays had been of another arm: steps pass, its model is that of a new one."""
    policy, other = (cls(n_features=2, **params) for _ in range(2))
    for made in (policy, other):
        made.add_arms(["a", "b", "ghost"])
    rng = np.random.default_rng(2)
    for t in range(80):
        if t == 20:
            if gone:
                policy.retire_arms(["a"])
                policy.add_arms(["c"])
                assert policy._table.slot("c") == 0
            else:
                policy.reset_arms(["a"])
        x, r = rng.normal(size=2), float(rng.normal())
        renamed = "c" if gone and t >= 20 else "a"
        arm = ["a", "b"][rng.integers(2)]
        policy.update(renamed if arm == "a" else "b", x, r)
        other.update("ghost" if arm == "a" and t < 20 else arm, x, r)
        if t >= 20:
            found = policy.scores(x, [renamed, "b"])
            np.testing.assert_allclose(found, other.scores(x, ["a", "b"]), atol=1e-10)
    if cls is SWLinUCB:
        assert policy._chain[:, 0].sum() == 15


@both
@pytest.mark.parametrize("payoff", ["item", "cross", "given"])
def test_a_shared_model_survives_retirement_and_resets_whole(
    cls: type[Any], params: dict[str, Any], payoff: str
) -> None:
    fast, fresh = (case(cls, payoff, 3, **params) for _ in range(2))
    fast.policy.update_many(**batch(fast, 60, 0))
    x = np.array([1.0, 2.0, -1.0])
    before = fast.policy.scores(x, [1, 2], cross=fast.cross(x, [1, 2]))
    fast.policy.retire_arms([0, 3])
    np.testing.assert_array_equal(
        fast.policy.scores(x, [1, 2], cross=fast.cross(x, [1, 2])), before
    )
    fast.add([0, 3])
    fast.policy.reset_arms([1])
    four = list(range(ARMS))
    for seed in (1, 2):
        found = fast.policy.scores(x, four, cross=fast.cross(x, four))
        expected = fresh.policy.scores(x, four, cross=fresh.cross(x, four))
        np.testing.assert_allclose(found, expected, atol=1e-12)
        for made in (fast, fresh):
            made.policy.update_many(**batch(made, 30, seed))


def test_windows_hold_what_was_observed_and_no_more() -> None:
    policy = SWLinUCB(n_features=2, window=1_000_000)
    policy.add_arms(range(100))
    assert policy._pool.nbytes < 10_000
    policy.update_many([0] * 5000, np.ones((5000, 2)), np.ones(5000))
    assert policy._pool.nbytes < 2 * 5000 * 8 * sliding.record_size(2)


@both
def test_a_bad_context_touches_nothing(cls: type[Any], params: dict[str, Any]) -> None:
    fast = case(cls, "disjoint", 3, **params)
    fast.policy.update_many(**batch(fast, 40, 0))
    before = fast.policy.to_bytes()
    bad = np.array([1.0, np.nan, 0.0])
    for call in (lambda: fast.policy.update(0, bad, 1.0), lambda: fast.policy.select(bad)):
        with pytest.raises(InvalidInputError, match="x must be finite"):
            call()
    assert fast.policy.to_bytes() == before


@pytest.mark.parametrize(("cls", "params", "message"), [
    (DLinUCB, {"n_features": 2, "gamma": 0.0}, "gamma must be"),
    (DLinUCB, {"n_features": 2, "gamma": 1.1}, "gamma must be"),
    (DLinUCB, {"n_features": 2, "gamma": 0.9, "alpha": -1.0}, "alpha must be"),
    (DLinUCB, {"n_features": 2, "gamma": 0.9, "delta": 1.0}, "delta must be"),
    (SWLinUCB, {"n_features": 2, "window": 0}, "window must be an integer >= 1, got 0"),
    (SWLinUCB, {"window": 5}, "n_features must be"),
    (SWLinUCB, {"n_features": 2, "window": 5, "ridge": 0.0}, "ridge must be"),
    (SWLinUCB, {"n_features": 2, "n_item_features": 2, "window": 5}, "n_item_features and"),
    (SWLinUCB, {"n_features": 2, "payoff": "item", "window": 5}, "n_item_features must be"),
    (SWLinUCB, {"n_item_features": 2, "payoff": "cross", "window": 5}, "n_features must be given"),
    (SWLinUCB, {"n_cross_features": 2, "payoff": "item", "window": 5}, "must come alone"),
    (SWLinUCB, {"n_features": 2, "payoff": "hybrid", "window": 5}, "payoff must be one of"),
])  # fmt: skip
def test_parameters_are_checked(cls: type[Any], params: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        cls(**params)


def test_theory() -> None:
    assert DLinUCB.theory(1000, 0.0, 3) == {"gamma": 1.0}
    assert DLinUCB.theory(1000, 3.0, 3)["gamma"] == pytest.approx(0.99)
    assert SWLinUCB.theory(1000, 0.0, 3) == {"window": 1000}
    assert SWLinUCB.theory(1000, 3000.0, 3) == {"window": 1}
    with pytest.raises(InvalidInputError, match="variation must be < dim"):
        DLinUCB.theory(10, 30.0, 3)
    DLinUCB(n_features=3, **DLinUCB.theory(1000, 3.0, 3))
    SWLinUCB(n_features=3, **SWLinUCB.theory(1000, 3.0, 3))
