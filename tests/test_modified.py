"""The appendix's algorithm against its literal, repaired pseudo-code and its lemmas' quantities."""

from __future__ import annotations

import math

import numpy as np
import pytest

import whim
from tests.oracles import ModifiedPSLinUCBOracle, MUCBOracle
from tests.streams import stream
from whim.errors import InvalidInputError
from whim.kernels.models import two_halves


@pytest.mark.parametrize("d", [1, 3, 8])
@pytest.mark.parametrize(("window", "repeated"), [(2, False), (8, True), (40, False)])
def test_equals_algorithm_3(d: int, window: int, repeated: bool) -> None:
    arms = 3
    parts = {"alpha": 0.6, "window": window, "b": 0.3, "c": 0.3, "gamma": 0.2}
    if window == 40:
        parts["b"] = 0.0
    fast = whim.ModifiedPSLinUCB(n_features=d, **parts)
    slow = ModifiedPSLinUCBOracle(arms=list(range(arms)), d=d, **parts)
    fast.add_arms(range(arms))
    changes = 0
    for play in stream(steps=900, arms=arms, d=d, seed=window, repeated=repeated):
        expected = slow.scores(play.x, play.candidates)
        np.testing.assert_allclose(fast.scores(play.x, play.candidates), expected, atol=1e-9)
        arm = fast.select(play.x, play.candidates).arm
        assert arm == play.candidates[int(np.argmax(expected))]
        changed = slow.update(arm, play.x, float(play.rewards[arm]))
        event = fast.update(arm, play.x, float(play.rewards[arm]))
        assert (event is not None) == changed
        if event is not None:
            changes += 1
            assert event.statistic == pytest.approx(slow.last_statistic, rel=1e-6, abs=1e-9)
    assert changes >= 5


def test_constant_context_equals_mucb() -> None:
    """Oracle 14: with one context the statistic times ω/2 is M-UCB's, at the same times."""
    window, b, c = 20, 0.2, 0.15
    rng = np.random.default_rng(5)
    x = np.array([0.6, -0.3, 0.2])
    fast = whim.ModifiedPSLinUCB(n_features=3, window=window, b=b, c=c, gamma=0.0)
    fast.add_arms([0])
    slow = MUCBOracle(window=window, threshold=(window / 2) * (b + c), gamma=0.0)
    slow.add(0)
    changes = 0
    for t in range(3000):
        r = float(rng.normal(0.5 * (t // 300 % 2), 0.2))
        changed = slow.update(0, None, r)
        event = fast.update(0, x, r)
        assert (event is not None) == changed
        if event is not None:
            changes += 1
            assert event.statistic * window / 2 == pytest.approx(slow.last_statistic)
    assert changes >= 8


@pytest.mark.parametrize(("arms", "gamma"), [(4, 0.3), (5, 1.0), (3, 0.05), (1, 0.5)])
def test_round_robin_forces_each_arm_once(arms: int, gamma: float) -> None:
    """Oracle 15: in every N steps after a restart each arm is forced exactly once, in order."""
    policy = whim.ModifiedPSLinUCB(
        n_features=2, window=10, b=math.inf, c=1.0, gamma=gamma, alpha=0.1
    )
    policy.add_arms(range(arms))
    period = max(arms, math.floor(arms / gamma))
    x = np.array([1.0, 0.5])
    for step in range(3 * period):
        turn = step % period
        decision = policy.select(x)
        if turn < arms:
            assert decision.arm == turn
            assert decision.score == math.inf
        else:
            assert math.isfinite(decision.score)
        policy.update(decision.arm, x, 0.1)


@pytest.mark.parametrize(("rows", "d"), [(1, 4), (3, 4), (10, 4), (30, 20), (5, 1)])
def test_least_norm_is_the_pseudo_inverse(rows: int, d: int) -> None:
    rng = np.random.default_rng(rows * d)
    X = rng.normal(size=(rows, d))
    A, b = X.T @ X, X.T @ rng.normal(size=rows)
    theta = np.empty(d)
    two_halves.least_norm(A.copy(), b, theta)
    np.testing.assert_allclose(theta, np.linalg.pinv(A, rcond=1e-10) @ b, atol=1e-8)


def test_theory_parameters() -> None:
    found = whim.ModifiedPSLinUCB.theory(horizon=20_000, arms=10, segments=10, d=5, sigma=1.0)
    assert found.alpha == pytest.approx(math.sqrt(2 * 5 * math.log(10 * 20_000**2)))
    assert found.gamma == pytest.approx(math.sqrt(10 * 10 * found.window / 20_000))
    assert found.c == pytest.approx(math.sqrt(8 / found.window * math.log(40_000)))
    delay = found.window * math.ceil(10 / found.gamma)
    assert delay <= 20_000 / 10 / 2
    seen = whim.ModifiedPSLinUCB.theory(
        horizon=20_000, arms=10, segments=10, d=5, sigma=0.2, smallest_change=0.8
    )
    assert seen.smallest_change <= 0.8
    assert seen.window % 2 == 0


def test_false_alarms_stay_within_lemma_2() -> None:
    """With the repaired c, a stationary stream of T plays fires with probability at most K/T."""
    T = 4000
    found = whim.ModifiedPSLinUCB.theory(horizon=T, arms=1, segments=2, d=3, sigma=0.5)
    rng = np.random.default_rng(11)
    for _ in range(20):
        policy = whim.ModifiedPSLinUCB(
            n_features=3, window=found.window, b=found.b, c=found.c, gamma=found.gamma
        )
        policy.add_arms([0])
        X = rng.normal(size=(T, 3)) / np.sqrt(3)
        rewards = X @ np.array([0.3, -0.2, 0.5]) + 0.5 * rng.normal(size=T)
        assert policy.update_many([0] * T, X, rewards) == []


@pytest.mark.parametrize("cls", [whim.ModifiedPSLinUCB, whim.MUCB])
def test_odd_windows_are_refused(cls: type[whim.Policy]) -> None:
    parts = {"b": 0.1, "c": 0.1, "n_features": 2} if cls is whim.ModifiedPSLinUCB else {}
    parts |= {} if parts else {"threshold": 1.0}
    with pytest.raises(InvalidInputError, match="window must be even, got 7"):
        cls(window=7, gamma=0.1, **parts)  # type: ignore[call-arg]


def test_a_full_reset_restarts_the_round_robin() -> None:
    policy = whim.ModifiedPSLinUCB(n_features=1, window=4, b=1.0, c=1.0, gamma=0.5)
    policy.add_arms(["a", "b", "c"])
    for _ in range(4):
        policy.update("a", [1.0], 0.5)
    assert policy.select([1.0]).score < math.inf
    policy.reset_arms()
    assert policy.select([1.0]) == whim.Decision("a", math.inf, 0.0, 1.0)
