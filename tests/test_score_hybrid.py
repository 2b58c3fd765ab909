"""The score test for hybrid payoffs: against stretches fitted apart, at its rate, what it sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2  # type: ignore[import-untyped]

import whim
from tests import inside
from tests.oracles import ScoreTestHybridOracle
from tests.streams import stream
from whim.errors import InvalidInputError, UnknownArmError
from whim.kernels.detection import windows

F64 = npt.NDArray[np.float64]
ARMS = 3
PARTS: dict[str, Any] = {"alpha": 0.6, "false_alarm": 1e-3, "window": 40, "ridge": 0.5}


class Both:
    """A policy and its slow twin, taught the same plays. ``k`` cross features are the caller's."""

    def __init__(self, d: int, m: int, k: int = 0) -> None:
        self.rng = np.random.default_rng([d, m, k])
        self.Y = self.rng.normal(size=(ARMS, m))
        self.k, self.given = k or d * m, k > 0
        self.beta = self.rng.normal(size=self.k)
        sizes = {"n_cross_features": k} if k else {"n_item_features": m}
        self.fast = whim.PSLinUCBHybrid(n_features=d, revisit="off", **sizes, **PARTS)
        self.slow = ScoreTestHybridOracle(d=d, k=self.k, rows=self.given, **PARTS)
        self.add(range(ARMS))
        self.changes = 0

    def add(self, arms: Any) -> None:
        self.fast.add_arms(arms, features=None if self.given else self.Y[list(arms)])
        for arm in arms:
            self.slow.add(arm)

    def play(self, t: int, x: F64, arm: int, r: float, clicks: bool) -> None:
        z = np.kron(self.Y[arm], x) if self.Y.size else self.rng.normal(size=self.k)
        r += float(z @ self.beta)
        r = float(r > 0.3) if clicks else r
        if t % 5 == 0:
            score = self.fast.scores(x, [arm], cross=z[None] if self.given else None)
            assert score[0] == pytest.approx(self.slow.score(x, z, arm), abs=1e-9)
        event = self.fast.update(arm, x, r, cross=z if self.given else None)
        found = self.slow.update(arm, x, z, r)
        assert (event is None) == (found is None)
        if event is None or found is None:
            return
        self.changes += 1
        assert event.statistic == pytest.approx(found.statistic, rel=1e-3)
        assert event.threshold == pytest.approx(found.bound, rel=1e-9)
        assert event.window == found.kept
        assert event.began == event.plays - found.kept + 1
        assert event.p_value == pytest.approx(chi2.sf(event.statistic, found.freedom), rel=1e-6)
        np.testing.assert_allclose(event.theta_before, self.slow.theta_before, atol=1e-8)
        np.testing.assert_allclose(event.theta_after, self.slow.theta(arm), atol=1e-8)
        moved = np.subtract(event.theta_after, event.theta_before)
        np.testing.assert_allclose(event.direction, moved / np.linalg.norm(moved))

    def run(self, steps: int, clicks: bool = False, between: Any = None) -> None:
        d = self.slow.d
        for t, play in enumerate(stream(steps=steps, arms=ARMS, d=d, seed=d + 3, period=150)):
            arm = int(self.rng.integers(ARMS))
            if between is not None:
                between(t)
            self.play(t, play.x, arm, float(play.rewards[arm]), clicks)
        A0, b0 = self.slow.shared()
        kept = inside.shared(self.fast)
        np.testing.assert_allclose(kept.A0, A0, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(kept.b0, b0, rtol=1e-9, atol=1e-8)
        np.testing.assert_allclose(kept.beta, self.slow.beta(), atol=1e-8)
        for arm in range(ARMS):
            np.testing.assert_allclose(self.fast.coefficients(arm), self.slow.theta(arm), atol=1e-8)


@pytest.mark.parametrize(("d", "m"), [(1, 1), (1, 3), (2, 3), (5, 2)])
@pytest.mark.parametrize("clicks", [False, True])
def test_equals_stretches_fitted_apart(d: int, m: int, clicks: bool) -> None:
    both = Both(d, m)
    both.run(700, clicks)
    assert both.changes >= (1 if clicks else 5)


@pytest.mark.parametrize(("d", "m", "k"), [(1, 0, 1), (2, 0, 3), (2, 2, 4), (3, 1, 3)])
def test_equals_stretches_fitted_apart_with_rows_of_the_caller_s(d: int, m: int, k: int) -> None:
    """For m > 0 the rows are kron(y, x), so that x and z have rank d only."""
    both = Both(d, m, k)
    both.run(700)
    assert both.changes >= 4


def test_arms_that_go_come_back_and_are_described_anew() -> None:
    both = Both(2, 2)

    def between(t: int) -> None:
        arm = t // 100 % ARMS
        if t % 300 == 120:
            both.fast.reset_arms([arm])
            both.slow.add(arm)
        elif t % 300 == 180:
            both.fast.retire_arms([arm])
            both.add([arm])
        elif t % 300 == 250:
            both.Y[arm] = both.rng.normal(size=2)
            both.fast.set_features([arm], both.Y[[arm]])
            both.slow.new_features(arm)
        elif t % 300 == 40:  # the same features: nothing is new
            both.fast.set_features([arm], both.Y[[arm]])

    both.run(1200, between=between)
    assert both.changes >= 5


def test_the_test_is_that_of_disjoint_payoffs() -> None:
    """With item features, whatever β is: the same changes, the same numbers to the last bit."""
    rng = np.random.default_rng(7)
    parts: dict[str, Any] = {"n_features": 3, "window": 64, "false_alarm": 1e-3}
    own, both = whim.PSLinUCBDisjoint(**parts), whim.PSLinUCBHybrid(**parts, n_item_features=2)
    own.add_arms(range(4))
    both.add_arms(range(4), features=rng.normal(size=(4, 2)))
    slots, X = rng.integers(4, size=4000), rng.normal(size=(4000, 3))
    theta = rng.normal(size=(8, 4, 3))[np.arange(4000) // 500, slots]
    r = (X * theta).sum(1) + 0.3 * rng.normal(size=4000)
    seen = [
        [(e.arm, e.step, e.statistic, e.threshold, e.p_value, e.began, e.window) for e in events]
        for events in (own.update_many(slots, X, r), both.update_many(slots, X, r))
    ]
    assert seen[0] == seen[1]
    assert len(seen[0]) >= 28


def test_the_arm_s_model_is_that_before_the_window_and_the_window() -> None:
    rng = np.random.default_rng(8)
    policy = whim.PSLinUCBHybrid(n_features=3, n_item_features=2, window=20, ridge=0.7)
    Y = rng.normal(size=(2, 2))
    policy.add_arms([0, 1], features=Y)
    policy.update_many(rng.integers(2, size=300), rng.normal(size=(300, 3)), rng.normal(size=300))
    for arm in (0, 1):
        cum, pre, pool = inside.cum(policy, arm), inside.pre(policy, arm), policy._pool
        row = policy._table_rows[arm]
        chunk, place = int(row[windows.HEAD]), int(row[windows.HEAD_AT])
        A, b, B = pre.A, pre.b, pre.B
        for _ in range(int(row[windows.COUNT])):
            x, r, z = pool[chunk, place, :3], pool[chunk, place, 3], pool[chunk, place, 5:]
            np.testing.assert_array_equal(z, np.kron(Y[arm], x))
            A, b, B = A + np.outer(x, x), b + r * x, B + np.outer(x, z)
            place += 1
            if place == pool.shape[1]:
                chunk, place = int(policy._links[chunk]), 0
        np.testing.assert_allclose(cum.A, A, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(cum.b, b, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(cum.B, B, rtol=1e-9, atol=1e-9)
        assert row[windows.COUNT] == 16


def test_features_set_anew_are_no_change_of_interest() -> None:
    rng = np.random.default_rng(9)
    beta = rng.normal(size=6)
    policy = whim.PSLinUCBHybrid(n_features=3, n_item_features=2)
    policy.add_arms(["a"], features=[[1.0, 0.0]])
    for y in ([1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]):
        policy.set_features(["a"], [y])
        X = rng.normal(size=(300, 3))
        r = X @ np.ones(3) + np.kron([y], X) @ beta + 0.1 * rng.normal(size=300)
        assert policy.update_many(["a"] * 300, X, r) == []
    X = rng.normal(size=(50, 3))
    r = X @ -np.ones(3) + np.kron([y], X) @ beta + 0.1 * rng.normal(size=50)
    event = policy.update_many(["a"] * 50, X, r)[0]
    assert event.began == 901


def test_refused_features_leave_the_test_alone() -> None:
    rng = np.random.default_rng(10)
    policy = whim.PSLinUCBHybrid(n_features=2, n_item_features=2)
    policy.add_arms(["a", "b"], features=np.eye(2))
    policy.update_many(["a"] * 30, rng.normal(size=(30, 2)), rng.normal(size=30))
    before = policy.to_bytes()
    for arms, features in ((["a"], [[np.nan, 0.0]]), (["a", "c"], np.eye(2)), (["a"], None)):
        with pytest.raises((InvalidInputError, UnknownArmError)):
            policy.set_features(arms, features)  # type: ignore[arg-type]
    assert policy.to_bytes() == before


def quiet(rate: float, given: bool, clicks: bool, seed: int, plays: int) -> int:
    """Alarms in a world of five arms where nothing changes."""
    rng = np.random.default_rng([seed, given, clicks])
    d, m, arms = 3, 2, 5
    Y, beta, theta = rng.normal(size=(arms, m)), rng.normal(size=d * m), rng.normal(size=(arms, d))
    slots = rng.integers(arms, size=plays)
    X = rng.normal(size=(plays, d))
    Z = np.einsum("nm,nd->nmd", Y[slots], X).reshape(plays, -1)
    if given:
        Z = Z[:, :2] + rng.normal(size=(plays, 2))
        beta = beta[:2]
    mean = np.einsum("nd,nd->n", X, theta[slots]) + Z @ beta
    r = (rng.random(plays) < 0.1 + 0.02 * np.tanh(mean)).astype(float)
    r = r if clicks else mean + 0.3 * rng.normal(size=plays)
    sizes = {"n_cross_features": 2} if given else {"n_item_features": m}
    policy = whim.PSLinUCBHybrid(n_features=d, **sizes, false_alarm=rate)
    policy.add_arms(range(arms), features=None if given else Y)
    return len(policy.update_many(slots, X, r, cross=Z if given else None))


@pytest.mark.parametrize("clicks", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_false_alarms_come_at_the_rate_asked_for(given: bool, clicks: bool) -> None:
    """100 are expected."""
    assert 10 <= quiet(1e-3, given, clicks, 1, 100_000) <= 200


def test_few_false_alarms_by_default() -> None:
    assert quiet(1e-5, False, False, 2, 200_000) <= 8


def test_a_change_that_leaves_the_mean_alone_is_found() -> None:
    rng = np.random.default_rng(5)
    X = np.tile([[1.0, 1.0], [1.0, -1.0]], (200, 1))
    r = np.r_[X[:200] @ [0.5, 0.4], X[200:] @ [0.5, -0.4]] + 0.05 * rng.normal(size=400)
    sizes = {"n_features": 2, "n_item_features": 1}
    policy = whim.PSLinUCBHybrid(**sizes)
    blind = whim.PSLinUCBHybrid(**sizes, window=20, threshold=0.1)
    for each in (policy, blind):
        each.add_arms(["a"], features=[[1.0]])
    [event] = policy.update_many(["a"] * 400, X, r)
    assert 200 < event.plays <= 208
    assert event.began == 201
    assert blind.update_many(["a"] * 400, X, r) == []


@pytest.mark.parametrize(("value", "found"), [(1e10, 2), (1e5, 2), (1e-300, 0), (0.0, 0)])
@pytest.mark.parametrize("given", [False, True])
def test_the_largest_and_smallest_contexts(given: bool, value: float, found: int) -> None:
    sizes = {"n_cross_features": 2} if given else {"n_item_features": 2}
    policy = whim.PSLinUCBHybrid(n_features=2, **sizes, window=16)
    policy.add_arms(["a", "b"], features=None if given else [[1.0, 0.5], [0.0, -1.0]])
    rng = np.random.default_rng(9)
    changes = 0
    for t in range(200):
        x = rng.normal(size=2).clip(-1, 1)
        r = float(x[0] * (-1) ** (t // 100) + 0.01 * rng.normal())
        rows = value * rng.normal(size=(2, 2)).clip(-1, 1) if given else None
        event = policy.update("ab"[t % 2], value * x, r, cross=rows[t % 2] if given else None)
        changes += event is not None
        for seen in policy.rank(value * x, cross=rows) + policy.rank(np.ones(2), cross=rows):
            assert np.isfinite(seen[1:]).all()
    assert changes == found


def test_regret_where_interests_change() -> None:
    """A short run of the paper's hybrid world; docs/math.md has long ones."""
    world = whim.worlds.PiecewiseLinear(
        n_arms=5, n_features=3, n_item_features=3, period=800, asynchronous=True, law="sphere",
        users="random", noise=0.2,
    )  # fmt: skip
    parts: dict[str, Any] = {"n_features": 3, "n_item_features": 3, "alpha": 1.5}
    policies = {
        "paper": whim.PSLinUCBHybrid(**parts, window=100, threshold=0.4),
        "score": whim.PSLinUCBHybrid(**parts),
    }
    result = whim.simulate(world, policies, horizon=6000, runs=3, seed=0)
    last = {name: regret[:, -1].mean() for name, regret in result.regret.items()}
    assert last["score"] < 0.5 * last["paper"]


def test_a_rate_and_a_threshold_exclude_each_other() -> None:
    with pytest.raises(InvalidInputError, match="false_alarm must be None"):
        whim.PSLinUCBHybrid(n_features=1, n_item_features=1, threshold=0.1, false_alarm=1e-5)
