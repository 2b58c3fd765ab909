"""The oracles on cases that can be worked out by hand or by a second definition."""

from __future__ import annotations

import math
import pickle
from collections.abc import Hashable, Sequence
from typing import Protocol

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import ArrayLike, NDArray

from .contextfree import CUSUMUCBOracle, DUCBOracle, MUCBOracle, SWUCBOracle, UCBOracle
from .disjoint import FirstWindow, LinUCBDisjointOracle, PSLinUCBDisjointOracle
from .experts import DenBandOracle, DynamicLinUCBOracle, Slave
from .forgetting import (
    DLinUCBDisjointOracle,
    DLinUCBOracle,
    SWLinUCBDisjointOracle,
    SWLinUCBOracle,
)
from .hybrid import (
    GPre,
    LinUCBHybridOracle,
    Observation,
    PSLinUCBHybridOracle,
    big_ridge,
    schur,
)
from .modified import ModifiedPSLinUCBOracle

Vector = NDArray[np.float64]


class Oracle(Protocol):
    t: int
    last_statistic: float | None

    def add(self, a: Hashable) -> None: ...
    def scores(self, x: Vector, arms: Sequence[Hashable]) -> Vector: ...
    def update(self, a: Hashable, x: Vector, r: float) -> bool: ...


ONE = np.ones(1)
ARMS = ["a", "b", "c"]


def close(left: ArrayLike, right: ArrayLike) -> None:
    """Equal to 1e-9, absolutely."""
    assert_allclose(np.asarray(left), np.asarray(right), rtol=0.0, atol=1e-9)


def pick(scores: Vector) -> int:
    return int(np.argmax(scores))


# --- disjoint ------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_window", ["literal", "seed"])
def test_ps_disjoint_that_never_fires_is_linucb(first_window: FirstWindow) -> None:
    rng = np.random.default_rng(0)
    plain = LinUCBDisjointOracle(d=3, alpha=0.7, ridge=0.5)
    ps = PSLinUCBDisjointOracle(
        d=3, alpha=0.7, window=5, threshold=math.inf, ridge=0.5, first_window=first_window
    )
    for a in ARMS:
        plain.add(a)
        ps.add(a)
    for _ in range(120):
        x = rng.normal(size=3)
        expected = plain.scores(x, ARMS)
        close(ps.scores(x, ARMS), expected)
        a, r = ARMS[pick(expected)], float(rng.normal())
        plain.update(a, x, r)
        assert ps.update(a, x, r) is False


def test_ps_disjoint_one_dimension_by_hand() -> None:
    o = PSLinUCBDisjointOracle(d=1, alpha=0.0, window=2, threshold=0.5)
    o.add("a")
    assert o.update("a", ONE, 1.0) is False
    assert o.last_statistic is None
    assert o.update("a", ONE, 0.8) is True  # first window: |mean r| = 0.9
    assert o.last_statistic == pytest.approx(0.9)
    assert o.A_pre["a"][0, 0] == 3.0
    assert o.theta_pre("a")[0] == pytest.approx(0.6)
    assert o.update("a", ONE, 0.6) is False
    assert o.update("a", ONE, 0.2) is False  # |0.6 - 0.4|
    assert o.last_statistic == pytest.approx(0.2)
    assert o.theta_pre("a")[0] == pytest.approx(2.4 / 4)
    assert o.theta_cum("a")[0] == pytest.approx(2.6 / 5)
    assert o.update("a", ONE, -0.2) is True  # |0.6 - 0.0|
    assert o.last_statistic == pytest.approx(0.6)
    assert o.theta_cum("a")[0] == pytest.approx(0.0)
    assert o.A_cum["a"][0, 0] == pytest.approx(3.0)
    assert len(o.SW["a"]) == 0


def test_first_full_window_tests_the_mean_reward_and_seed_leaves_the_same_state() -> None:
    rng = np.random.default_rng(1)
    low = PSLinUCBDisjointOracle(d=2, alpha=1.0, window=6, threshold=1e-12)
    high = PSLinUCBDisjointOracle(d=2, alpha=1.0, window=6, threshold=10.0)
    seed = PSLinUCBDisjointOracle(d=2, alpha=1.0, window=6, threshold=10.0, first_window="seed")
    rewards = rng.normal(size=6)
    for o in (low, high, seed):
        o.add("a")
    events = []
    for r in rewards:
        x = rng.normal(size=2)
        events.append([o.update("a", x, float(r)) for o in (low, high, seed)])
    assert events == [[False] * 3] * 5 + [[True, False, False]]
    for o in (low, high):
        assert o.last_statistic == pytest.approx(abs(rewards.mean()))
    assert seed.last_statistic is None
    assert len(high.SW["a"]) == 5
    assert len(seed.SW["a"]) == 0
    for left, right in (
        (low.A_pre, seed.A_pre),
        (low.A_cum, seed.A_cum),
        (low.b_pre, seed.b_pre),
        (low.b_cum, seed.b_cum),
        (low.A_cur, seed.A_cur),
        (high.A_cum, seed.A_cum),
        (high.b_cum, seed.b_cum),
    ):
        close(left["a"], right["a"])


@pytest.mark.parametrize("first_window", ["literal", "seed"])
def test_ps_disjoint_models_are_sums_over_their_observations(first_window: FirstWindow) -> None:
    rng = np.random.default_rng(2)
    window, ridge = 8, 2.0
    o = PSLinUCBDisjointOracle(
        d=2, alpha=1.0, window=window, threshold=0.4, ridge=ridge, first_window=first_window
    )
    o.add("a")
    since: list[tuple[Vector, float]] = []
    fired = 0
    for t in range(200):
        x = rng.normal(size=2)
        r = float(x @ np.array([1.0, 0.5]) * (-1 if (t // 50) % 2 else 1) + 0.7 * (t // 50 % 2))
        since.append((x, r))
        if o.update("a", x, r):
            fired += 1
            since = since[-window:]
        X = np.array([x for x, _ in since])
        close(o.A_cum["a"], ridge * np.eye(2) + X.T @ X)
        batch = np.linalg.solve(o.A_cum["a"], X.T @ np.array([r for _, r in since]))
        close(o.theta_cum("a"), batch)
        excess = (o.A_pre["a"] - ridge * np.eye(2)) + (o.A_cur["a"] - ridge * np.eye(2))
        close(o.A_cum["a"] - ridge * np.eye(2), excess)
        close(o.b_cum["a"], o.b_pre["a"] + o.b_cur["a"])
        in_window = sum((np.outer(x, x) for x, _ in o.SW["a"]), ridge * np.eye(2))
        close(o.A_cur["a"], in_window)
        assert len(o.SW["a"]) <= window - 1
    assert fired >= 2


# --- hybrid --------------------------------------------------------------------------------------


def hybrid_stream(seed: int, n: int) -> list[tuple[int, Vector, Vector, float]]:
    """Arm, x, z, r with one shift of every arm's coefficients every 60 steps."""
    rng = np.random.default_rng(seed)
    Y = rng.normal(size=(3, 2))
    beta = rng.normal(size=4)
    theta = rng.normal(size=(3, 2))
    plays = []
    for t in range(n):
        if t % 60 == 59:
            theta = rng.normal(size=(3, 2)) * 2
        i = int(rng.integers(3))
        x = rng.normal(size=2) + 0.5
        z = np.kron(Y[i], x)
        plays.append((i, x, z, float(x @ theta[i] + z @ beta + 0.1 * rng.normal())))
    return plays


def test_hybrid_without_cross_features_is_disjoint() -> None:
    rng = np.random.default_rng(3)
    flat = PSLinUCBDisjointOracle(d=2, alpha=0.5, window=6, threshold=0.6)
    mixed = PSLinUCBHybridOracle(d=2, k=3, alpha=0.5, window=6, threshold=0.6)
    for a in ARMS:
        flat.add(a)
        mixed.add(a)
    zero = np.zeros((3, 3))
    fired = 0
    for t in range(150):
        x = rng.normal(size=2)
        expected = flat.scores(x, ARMS)
        close(mixed.scores(x, zero, ARMS), expected)
        a = ARMS[pick(expected)]
        r = float(x[0] * (1 if t < 75 else -1) + 0.5)
        event = flat.update(a, x, r)
        assert mixed.update(a, x, zero[0], r) is event
        fired += event
        if flat.last_statistic is not None:
            assert mixed.last_statistic == pytest.approx(flat.last_statistic, abs=1e-9)
    assert fired > 0


@pytest.mark.parametrize("first_window", ["literal", "seed"])
@pytest.mark.parametrize("g_pre", ["literal", "exact"])
def test_ps_hybrid_that_never_fires_is_linucb(first_window: FirstWindow, g_pre: GPre) -> None:
    plain = LinUCBHybridOracle(d=2, k=4, alpha=0.7, ridge=0.5)
    ps = PSLinUCBHybridOracle(
        d=2,
        k=4,
        alpha=0.7,
        window=5,
        threshold=math.inf,
        ridge=0.5,
        first_window=first_window,
        g_pre=g_pre,
    )
    for i in range(3):
        plain.add(i)
        ps.add(i)
    for i, x, z, r in hybrid_stream(4, 80):
        Z = np.array([z, 2 * z, -z])
        close(ps.scores(x, Z, [0, 1, 2]), plain.scores(x, Z, [0, 1, 2]))
        plain.update(i, x, z, r)
        assert ps.update(i, x, z, r) is False


def test_linucb_hybrid_is_one_big_ridge() -> None:
    o = LinUCBHybridOracle(d=2, k=4, alpha=1.3, ridge=0.5)
    segments: list[list[Observation]] = [[], [], []]
    for i in range(3):
        o.add(i)
    for i, x, z, r in hybrid_stream(5, 40):
        o.update(i, x, z, r)
        segments[i].append((x, z, r))
    thetas, beta, M_inv = big_ridge(segments, 0.5)
    close(o.beta(), beta)
    x, z = np.array([0.3, -0.8]), np.array([0.1, 0.2, -0.4, 1.0])
    for i in range(3):
        close(o.theta(i), thetas[i])
        phi = np.zeros(10)
        phi[2 * i : 2 * i + 2], phi[6:] = x, z
        leverage = phi @ M_inv @ phi
        assert o.confidence(i, x, z) == pytest.approx(leverage, abs=1e-9)
        score = o.scores(x, z[None, :], [i])[0]
        assert score == pytest.approx(x @ thetas[i] + z @ beta + 1.3 * math.sqrt(leverage))


@pytest.mark.parametrize("first_window", ["literal", "seed"])
@pytest.mark.parametrize("g_pre", ["literal", "exact"])
def test_ps_hybrid_is_one_big_ridge_over_segments(first_window: FirstWindow, g_pre: GPre) -> None:
    d, k, window, ridge = 2, 4, 7, 1.5
    o = PSLinUCBHybridOracle(
        d=d,
        k=k,
        alpha=1.0,
        window=window,
        threshold=1.0,
        ridge=ridge,
        first_window=first_window,
        g_pre=g_pre,
    )
    for i in range(3):
        o.add(i)
    live: list[list[Observation]] = [[], [], []]
    frozen: list[list[Observation]] = []
    E = np.zeros((k, k))
    e = np.zeros(k)
    fired = 0
    for i, x, z, r in hybrid_stream(6, 240):
        live[i].append((x, z, r))
        was_seeded = o.seeded[i]
        event = o.update(i, x, z, r)
        fired += event
        if event or (o.seeded[i] and not was_seeded):
            frozen.append(live[i][:-window])
            live[i] = live[i][-window:]
            E, e = np.zeros((k, k)), np.zeros(k)
            for j in range(3):
                if j != i:
                    whole = schur(live[j], d, k, ridge)
                    pre = schur(live[j][: len(live[j]) - len(o.SW[j])], d, k, ridge)
                    E, e = E + whole[0] - pre[0], e + whole[1] - pre[1]
        # cum: every segment, frozen or live
        if o.t % 10 == 0:
            thetas, beta, _ = big_ridge([*frozen, *live], ridge)
            close(o.beta_cum(), beta)
            for j in range(3):
                close(o.theta_cum(j), thetas[len(frozen) + j])
            parts = [schur(s, d, k, ridge) for s in [*frozen, *live]]
            close(o.A0_cum, sum((S for S, _ in parts), ridge * np.eye(k)))
            close(o.b0_cum, sum((c for _, c in parts), np.zeros(k)))
        # pre: frozen segments and what is before each window
        before = [live[j][: len(live[j]) - len(o.SW[j])] for j in range(3)]
        parts = [schur(s, d, k, ridge) for s in [*frozen, *before]]
        A0_pre = sum((S for S, _ in parts), ridge * np.eye(k))
        b0_pre = sum((c for _, c in parts), np.zeros(k))
        if g_pre == "literal":
            A0_pre, b0_pre = A0_pre + E, b0_pre + e
        close(o.A0_pre, A0_pre)
        close(o.b0_pre, b0_pre)
    assert fired >= 3
    assert np.linalg.eigvalsh(E).min() > -1e-9
    assert np.abs(E).max() > 0.1  # the double count is there to be told apart


# --- round robin, modified PSLinUCB, M-UCB -------------------------------------------------------


def test_round_robin_order_and_restart() -> None:
    mucb = MUCBOracle(window=2, threshold=0.5, gamma=0.5)
    modified = ModifiedPSLinUCBOracle(arms=ARMS, d=1, alpha=1.0, window=2, b=0.5, c=0.0, gamma=0.5)
    for a in ARMS:
        mucb.add(a)
    cycle = ["a", "b", "c", None, None, None]
    for o in (mucb, modified):
        seen = []
        for _ in range(12):
            forced = o.forced()
            seen.append(forced)
            assert forced is None or o.scores(ONE, ARMS)[ARMS.index(str(forced))] == np.inf
            assert o.update("b", ONE, 0.0) is False
        assert seen == cycle * 2
        o.update("b", ONE, 0.0)
        assert o.forced() == "b"
        assert o.update("b", ONE, 1.0) is True
        assert o.tau == 14
        assert o.forced() == "a"  # the round robin starts over


@pytest.mark.parametrize("gamma", [1.0, 0.9, 5.0])
def test_round_robin_reaches_every_arm_when_gamma_is_large(gamma: float) -> None:
    o = MUCBOracle(window=2, threshold=math.inf, gamma=gamma)
    for a in ARMS:
        o.add(a)
    seen = []
    for _ in range(6):
        seen.append(o.forced())
        o.update("a", None, 0.0)
    assert seen == ARMS * 2


def test_mucb_detection_time_by_hand() -> None:
    o = MUCBOracle(window=4, threshold=1.0, gamma=0.0)
    o.add("a")
    o.add("b")
    o.update("b", None, 1.0)
    for _ in range(10):
        assert o.update("a", None, 0.0) is False
    assert o.scores(None, ["b", "a"]) == pytest.approx(
        [1.0 + math.sqrt(2 * math.log(12)), math.sqrt(2 * math.log(12) / 10)]
    )
    assert o.update("a", None, 1.0) is False  # 0 0 | 0 1: 1 is not above the threshold
    assert o.last_statistic == 1.0
    assert o.update("a", None, 1.0) is True  # 0 0 | 1 1
    assert o.tau == 13
    assert o.Z == {"a": [], "b": []}
    assert o.forced() is None
    assert_allclose(o.scores(None, ["a", "b"]), [np.inf, np.inf])


def test_modified_on_a_constant_context_is_mucb() -> None:
    rng = np.random.default_rng(7)
    x = np.array([0.6, -0.3, 0.2])
    modified = ModifiedPSLinUCBOracle(
        arms=[0, 1], d=3, alpha=1.0, window=20, b=0.3, c=0.2, gamma=0.2
    )
    mucb = MUCBOracle(window=20, threshold=10 * 0.5, gamma=0.2)
    mucb.add(0)
    mucb.add(1)
    fired = 0
    for t in range(600):
        assert modified.forced() == mucb.forced()
        i = int(rng.integers(2))
        r = float((t // 150 + i) % 2 + 0.3 * rng.normal())
        event = mucb.update(i, None, r)
        assert modified.update(i, x, r) is event
        fired += event
        if mucb.last_statistic is not None:
            assert modified.last_statistic == pytest.approx(mucb.last_statistic / 10, abs=1e-9)
    assert fired >= 3


# --- context-free --------------------------------------------------------------------------------


def test_ucb_by_hand() -> None:
    ucb1, li = UCBOracle(), UCBOracle(bonus="li", alpha=0.4)
    for o in (ucb1, li):
        for a in ARMS:
            o.add(a)
        for a, r in (("a", 1.0), ("a", 0.0), ("b", 1.0)):
            o.update(a, None, r)
    ln3 = math.log(3)
    assert_allclose(
        ucb1.scores(None, ["c", "b", "a"]), [np.inf, 1 + math.sqrt(2 * ln3), 0.5 + math.sqrt(ln3)]
    )
    assert_allclose(li.scores(None, ["b", "a"]), [1.4, 0.5 + 0.4 / math.sqrt(2)])


def test_ducb_is_its_recursion() -> None:
    rng = np.random.default_rng(8)
    o = DUCBOracle(gamma=0.9, xi=0.6, bound=0.5)
    for i in range(3):
        o.add(i)
    N, X = np.zeros(3), np.zeros(3)
    for _ in range(40):
        i, r = int(rng.integers(2)), float(rng.random())
        o.update(i, None, r)
        N, X = 0.9 * N, 0.9 * X
        N[i] += 1
        X[i] += r
    expected = X[:2] / N[:2] + 2 * 0.5 * np.sqrt(0.6 * math.log(N.sum()) / N[:2])
    assert_allclose(o.scores(None, [0, 1, 2]), [*expected, np.inf])


def test_swucb_forgets_steps_of_all_arms() -> None:
    o = SWUCBOracle(window=3, xi=0.5, bound=2.0)
    for a in ARMS:
        o.add(a)
    for a, r in (("a", 1.0), ("b", 1.0), ("b", 0.0), ("c", 1.0), ("b", 0.5)):
        o.update(a, None, r)
    ln3 = math.log(3)
    b = 0.25 + 2 * math.sqrt(0.5 * ln3 / 2)
    c = 1.0 + 2 * math.sqrt(0.5 * ln3)
    assert_allclose(o.scores(None, ["a", "b", "c"]), [np.inf, b, c])


def test_cusum_resets_one_arm_by_hand() -> None:
    o = CUSUMUCBOracle(warmup=2, drift=0.1, threshold=1.0)
    o.add("a")
    o.add("b")
    o.update("b", None, 1.0)
    assert o.update("a", None, 0.0) is False
    assert o.update("a", None, 0.5) is False
    assert o.u0("a") == 0.25
    assert o.last_statistic is None
    assert o.update("a", None, 1.0) is False
    assert o.last_statistic == pytest.approx(0.65)
    assert o.g("a") == pytest.approx((0.65, 0.0))
    assert o.update("a", None, 1.0) is True  # 1.3
    assert o.last_statistic == pytest.approx(1.3)
    assert o.Z == {"a": [], "b": [1.0]}
    assert_allclose(o.scores(None, ["a", "b"]), [np.inf, 1.0])


# --- forgetting ----------------------------------------------------------------------------------


def test_dlinucb_is_its_recursion() -> None:
    rng = np.random.default_rng(9)
    g, lam, I2 = 0.8, 0.5, np.eye(2)
    shared = DLinUCBOracle(p=2, gamma=g, ridge=lam, sigma=0.3, delta=0.1, bound_theta=2.0)
    single = DLinUCBDisjointOracle(d=2, gamma=g, ridge=lam, sigma=0.3, delta=0.1, bound_theta=2.0)
    for o in (shared, single):
        o.add("a")
        o.add("b")
    V, Vt, b = lam * I2, lam * I2, np.zeros(2)
    for _ in range(30):
        x, r = rng.normal(size=2), float(rng.normal())
        shared.update("a", x, r)
        single.update("a", x, r)
        V = g * V + np.outer(x, x) + (1 - g) * lam * I2
        Vt = g**2 * Vt + np.outer(x, x) + (1 - g**2) * lam * I2
        b = g * b + r * x
    for left, right in zip(shared.sums(), (V, Vt, b), strict=True):
        close(left, right)
    mass = sum(g ** (2 * s) for s in range(30))
    log_term = 2 * math.log(10) + 2 * math.log(1 + mass / (lam * 2))
    assert shared.beta_t() == pytest.approx(math.sqrt(lam) * 2 + 0.3 * math.sqrt(log_term))
    x = rng.normal(size=2)
    close(shared.scores(x[None, :], ["a"]), single.scores(x, ["a"]))
    fresh = single.beta_t() * math.sqrt(x @ x / lam)
    close(single.scores(x, ["b"]), [fresh])
    # an arm that is not played still ages
    before = single.sums("a")[0]
    single.update("b", x, 1.0)
    close(single.sums("a")[0], g * before + (1 - g) * lam * I2)


def test_nothing_forgotten_is_linucb() -> None:
    rng = np.random.default_rng(10)
    plain = LinUCBDisjointOracle(d=2, alpha=0.6, ridge=0.7)
    discounted = DLinUCBDisjointOracle(d=2, gamma=1.0, alpha=0.6, ridge=0.7)
    windowed = SWLinUCBDisjointOracle(d=2, window=1000, alpha=0.6, ridge=0.7)
    shared = SWLinUCBOracle(p=2, window=10, alpha=0.6, ridge=0.7)
    last = LinUCBDisjointOracle(d=2, alpha=0.6, ridge=0.7)
    last.add("all")
    for a in ARMS:
        for o in (plain, discounted, windowed, shared):
            o.add(a)
    for t in range(60):
        x, r = rng.normal(size=2), float(rng.normal())
        expected = plain.scores(x, ARMS)
        # Vt == V when nothing is discounted with ridge on both, so the widths agree
        close(discounted.scores(x, ARMS), expected)
        close(windowed.scores(x, ARMS), expected)
        a = ARMS[pick(expected)]
        for o in (plain, discounted, windowed, shared):
            o.update(a, x, r)
        if t >= 50:
            last.update("all", x, r)
    X = rng.normal(size=(3, 2))
    expected = np.array([last.scores(x, ["all"])[0] for x in X])
    close(shared.scores(X, ARMS), expected)
    assert DLinUCBOracle(p=2, gamma=1.0).beta_t() == pytest.approx(1 + math.sqrt(2 * math.log(20)))


def test_swlinucb_disjoint_counts_steps_of_all_arms() -> None:
    o = SWLinUCBDisjointOracle(d=1, window=3, alpha=0.5, ridge=1.0)
    for a in ARMS:
        o.add(a)
    for a, r in (("a", 1.0), ("b", 1.0), ("b", 0.0), ("c", 1.0), ("b", 0.5)):
        o.update(a, ONE, r)
    expected = [0.5, 0.5 / 3 + 0.5 / math.sqrt(3), 0.5 + 0.5 / math.sqrt(2)]
    close(o.scores(ONE, ["a", "b", "c"]), expected)


# --- experts -------------------------------------------------------------------------------------


def test_dynamic_linucb_by_hand() -> None:
    o = DynamicLinUCBOracle(
        p=1,
        alpha=0.5,
        ridge=1.0,
        tau=10,
        delta1=0.2,
        delta2=0.1,
        tdelta1=0.1,
        sigma=0.0,
        eta=0.0,
        max_models=5,
    )
    o.add("a")
    assert_allclose(o.scores(np.array([[2.0]]), ["a"]), [1.0])
    first = o.slaves[0]
    assert o.update("a", ONE, 5.0) is False  # 1 failure of 1: CB = 1.07
    assert o.slaves == [first]
    assert first.n == 0
    close(first.CB, math.sqrt(math.log(10) / 2))
    assert o.update("a", ONE, 5.0) is True  # 2 of 2: CB = 0.76, 1 > 0.96
    assert o.last_statistic == pytest.approx(1 - math.sqrt(math.log(10) / 4))
    assert len(o.slaves) == 1
    assert o.slaves[0] is not first
    assert (o.slaves[0].n, o.slaves[0].e, o.slaves[0].CB) == (0, 0.0, 0.5)
    assert o.update("a", ONE, 1.0) is False  # exactly on the bound: ok, so it learns
    assert o.slaves[0].F == [0]
    assert o.slaves[0].theta()[0] == 0.5


def dynamic_linucb(delta1: float, tau: int, max_models: int) -> DynamicLinUCBOracle:
    return DynamicLinUCBOracle(
        p=1,
        alpha=0.5,
        ridge=1.0,
        tau=tau,
        delta1=delta1,
        delta2=0.1,
        tdelta1=0.1,
        sigma=0.3,
        eta=0.0,
        max_models=max_models,
    )


def test_dynamic_linucb_drops_the_oldest() -> None:
    for max_models, kept in ((2, 2), (1, 1)):
        o = dynamic_linucb(delta1=10.0, tau=10, max_models=max_models)
        old = o.slaves[0]
        assert [o.update("a", ONE, 50.0) for _ in range(2)] == [False, True]
        assert len(o.slaves) == kept
        assert (o.slaves[0] is old) == (max_models == 2)
        assert o.slaves[-1].F == []


def test_dynamic_linucb_slaves_are_ranked_by_recent_failures() -> None:
    o = dynamic_linucb(delta1=0.2, tau=10, max_models=5)
    o.slaves = [Slave(1, 1.0) for _ in range(3)]
    for s, e, CB in zip(o.slaves, (0.5, 0.6, 0.6), (0.5, 0.9, 0.9), strict=True):
        s.e, s.CB = e, CB
    assert o.chosen() is o.slaves[1]  # -0.26, -0.77, -0.77: the oldest of equals
    o.slaves[0].n = 7
    assert o.radius(o.slaves[0]) == pytest.approx(0.3 * math.sqrt(math.log(800)) + 1.0)
    o = dynamic_linucb(delta1=0.2, tau=2, max_models=5)
    s = o.slaves[0]
    s.F = [1, 1, 0]
    assert o.update("a", ONE, 0.0) is False
    assert s.e == 0.0
    close(s.CB, math.sqrt(math.log(10) / 4))


def test_dynamic_linucb_with_a_generous_bound_is_linucb() -> None:
    rng = np.random.default_rng(11)
    o = DynamicLinUCBOracle(
        p=2,
        alpha=0.5,
        ridge=0.3,
        tau=10,
        delta1=0.01,
        delta2=0.1,
        tdelta1=0.002,
        sigma=0.1,
        eta=math.inf,
        max_models=5,
    )
    plain = LinUCBDisjointOracle(d=2, alpha=0.5, ridge=0.3)
    plain.add("all")
    for _ in range(50):
        phi = rng.normal(size=(3, 2))
        expected = np.array([plain.scores(row, ["all"])[0] for row in phi])
        close(o.scores(phi, ARMS), expected)
        r = float(rng.normal())
        assert o.update("a", phi[0], r) is False
        plain.update("all", phi[0], r)
    assert len(o.slaves) == 1


def denband_by_hand(max_experts: int = 5) -> DenBandOracle:
    return DenBandOracle(
        p=1,
        ridge=1.0,
        tau=2,
        delta1=0.1,
        delta_l=0.1,
        sigma=1.0,
        gate="single",
        max_experts=max_experts,
        alpha=0.0,
        kappa=0.0,
    )


def test_denband_creates_an_expert_by_hand() -> None:
    o = denband_by_hand()
    e = o.experts[0]
    assert o.update("a", ONE, 0.05) is False
    assert e.theta()[0] == pytest.approx(0.025)
    assert o.auditor(e)[1][0] == pytest.approx(0.0125)
    assert_allclose(o.scores(ONE[None, :], ["a"]), [0.025])
    assert o.update("a", ONE, 1.0) is False  # admissible, but the gate refuses 0.975
    assert e.n == 1
    assert o.auditor(e)[1][0] == pytest.approx(1 / 3)
    assert_allclose(o.scores(ONE[None, :], ["a"]), [0.0])  # a fresh expert stands in
    assert len(o.experts) == 1
    assert o.update("a", ONE, 1.0) is True
    assert o.last_statistic == pytest.approx(1 / 3 - 0.1)
    assert len(o.experts) == 2
    assert o.auditor(e)[1][0] == pytest.approx(2 * 0.975 / 3)
    new = o.experts[1]
    assert (new.n, new.age, len(new.audit)) == (0, 1, 1)
    assert o.auditor(new)[1][0] == pytest.approx(0.5)


def test_denband_drops_the_oldest() -> None:
    o = denband_by_hand(max_experts=1)
    old = o.experts[0]
    o.update("a", ONE, 1.0)
    assert o.update("a", ONE, 1.0) is True
    assert len(o.experts) == 1
    assert o.experts[0] is not old


def test_denband_prefers_the_lowest_lower_bound() -> None:
    o = DenBandOracle(
        p=1,
        ridge=1.0,
        tau=100,
        delta1=0.1,
        delta_l=100.0,
        sigma=1.0,
        gate="single",
        max_experts=5,
        alpha=1.0,
        kappa=1.0,
    )
    o.experts.append(o.fresh())
    long, short = o.experts
    long.audit = [(ONE, 0.4)] * 3  # beta 0.3, width 0.5
    short.audit = [(ONE, 1.0)]  # beta 0.5, width 0.71
    long.A = np.array([[4.0]])
    assert [o.badness(e, ONE)[1] for e in (long, short)] == pytest.approx([-0.2, 0.5 - 0.5**0.5])
    close(o.scores(ONE[None, :], ["a"]), [1.0])
    short.audit = short.audit * 3  # beta 0.75, width 0.5
    close(o.scores(ONE[None, :], ["a"]), [0.5])


def test_denband_window_gate_and_age() -> None:
    o = DenBandOracle(
        p=1,
        ridge=1.0,
        tau=5,
        delta1=0.1,
        delta_l=100.0,
        sigma=1.0,
        gate="window",
        max_experts=5,
        alpha=0.0,
        kappa=0.0,
        age_limit=6,
        gate_window=2,
        gate_threshold=0.4,
    )
    e = o.experts[0]
    o.update("a", ONE, 0.0)  # window not full: learnt, theta = 0
    o.update("a", ONE, 0.8)  # residuals 0, 0.8: |mean| = 0.4 stops it
    assert (e.n, list(e.gate)) == (1, [0.0, 0.8])
    o.update("a", ONE, -0.3)  # 0.8, -0.3: learnt
    assert e.n == 2
    assert e.theta()[0] == pytest.approx(-0.1)
    for _ in range(4):
        o.update("a", ONE, -0.1)
    assert e.age == 7
    assert e.n == 4  # ages 4 and 5; age 6 is the limit
    assert len(o.experts) == 1


def test_denband_on_stationary_data_is_one_linucb() -> None:
    rng = np.random.default_rng(12)
    o = DenBandOracle(
        p=2,
        ridge=0.5,
        tau=10,
        delta1=0.1,
        delta_l=0.5,
        sigma=0.1,
        gate="window",
        max_experts=5,
        alpha=0.3,
        kappa=3.0,
        gate_window=20,
        gate_threshold=0.5,
    )
    plain = LinUCBDisjointOracle(d=2, alpha=0.3, ridge=0.5)
    plain.add("all")
    for _ in range(40):
        phi = rng.normal(size=(3, 2)) / 2
        expected = np.array([plain.scores(row, ["all"])[0] for row in phi])
        close(o.scores(phi, ARMS), expected)
        r = float(phi[0] @ np.array([0.4, -0.2]) + 0.02 * rng.normal())
        assert o.update("a", phi[0], r) is False
        plain.update("all", phi[0], r)
    assert len(o.experts) == 1


def test_denband_radii_follow_the_formulas() -> None:
    o = DenBandOracle(
        p=2,
        ridge=0.1,
        tau=20,
        delta1=0.1,
        delta_l=0.1,
        sigma=0.1,
        gate="single",
        max_experts=5,
    )
    e = o.experts[0]
    e.n = 7
    e.audit = [(np.ones(2), 0.0)] * 30
    inside = 2 * math.log(1 + 7 / 0.2) + 2 * math.log(10)
    assert o.alpha_th(e) == pytest.approx(0.1 * math.sqrt(inside) + math.sqrt(0.1))
    width = 0.1 * math.sqrt(2 * math.log(20.001 / 0.0005)) + math.sqrt(0.001)
    assert o.alpha_b(e) == pytest.approx(0.002 * width)


# --- every oracle --------------------------------------------------------------------------------


def every_oracle() -> list[Oracle]:
    oracles: list[Oracle] = [
        LinUCBDisjointOracle(d=2, alpha=1.0),
        PSLinUCBDisjointOracle(d=2, alpha=1.0, window=4, threshold=0.5),
        ModifiedPSLinUCBOracle(arms=[], d=2, alpha=1.0, window=4, b=0.3, c=0.3, gamma=0.3),
        UCBOracle(),
        MUCBOracle(window=4, threshold=1.0, gamma=0.3),
        DUCBOracle(gamma=0.9, xi=0.6, bound=1.0),
        SWUCBOracle(window=10, xi=0.6, bound=1.0),
        CUSUMUCBOracle(warmup=3, drift=0.1, threshold=1.0),
        DLinUCBDisjointOracle(d=2, gamma=0.9),
        SWLinUCBDisjointOracle(d=2, window=10, alpha=1.0),
    ]
    return oracles


@pytest.mark.parametrize("o", every_oracle(), ids=lambda o: type(o).__name__)
def test_scores_change_nothing_and_follow_the_candidates(o: Oracle) -> None:
    rng = np.random.default_rng(13)
    for a in ARMS:
        o.add(a)
    for _ in range(30):
        x, r = rng.normal(size=2), float(rng.integers(2))
        o.add("a")  # a known arm is left as it is
        before = pickle.dumps(o)
        scores = o.scores(x, ["a", "b", "c"])
        assert_allclose(o.scores(x, ["c", "a"]), scores[[2, 0]])
        assert pickle.dumps(o) == before
        o.update(ARMS[int(rng.integers(3))], x, r)
    assert o.t == 30


def test_denband_scores_change_nothing() -> None:
    o = denband_by_hand()
    o.update("a", ONE, 0.05)
    o.update("a", ONE, 1.0)
    assert o.admissible(ONE) == []
    before = pickle.dumps(o)
    o.scores(np.ones((1, 1)), ["a"])
    assert pickle.dumps(o) == before
