"""Hybrid payoffs: the fast policies against the literal pseudo-code and against one big ridge."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

import whim
from tests.oracles import LinUCBHybridOracle, PSLinUCBHybridOracle
from tests.streams import stream
from whim.kernels import factors


def crossed(x: npt.NDArray[np.float64], Y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.array([np.kron(y, x) for y in Y])


def shared_matrix(policy: whim.PSLinUCBHybrid, which: int) -> npt.NDArray[np.float64]:
    """A0 of G_cum (0) or G_pre (1), out of the kept factors."""
    A = np.empty((policy._k, policy._k))
    factors.invert_back(policy._shared_rows, which, A)
    return A


@pytest.mark.parametrize("g_pre", ["literal", "exact"])
@pytest.mark.parametrize("first_window", ["literal", "seed"])
@pytest.mark.parametrize(("d", "m"), [(1, 1), (2, 3), (5, 2), (20, 1)])
@pytest.mark.parametrize(("window", "repeated"), [(2, False), (9, True), (30, False)])
def test_pslinucb_equals_algorithm_2(
    g_pre: str, first_window: str, d: int, m: int, window: int, repeated: bool
) -> None:
    threshold = {2: 0.4, 9: 0.15, 30: 0.08}[window]
    arms = 4
    Y = np.random.default_rng(d).normal(size=(arms, m)) / np.sqrt(m)
    fast = whim.PSLinUCBHybrid(
        n_features=d,
        n_item_features=m,
        alpha=0.7,
        window=window,
        threshold=threshold,
        first_window=first_window,
        g_pre=g_pre,
    )
    slow = PSLinUCBHybridOracle(
        d=d,
        k=d * m,
        alpha=0.7,
        window=window,
        threshold=threshold,
        first_window=first_window,
        g_pre=g_pre,
    )
    fast.add_arms(range(arms), features=Y)
    for a in range(arms):
        slow.add(a)
    changes = 0
    for play in stream(steps=700, arms=arms, d=d, seed=window, repeated=repeated):
        Z = crossed(play.x, Y[play.candidates])
        expected = slow.scores(play.x, Z, play.candidates)
        np.testing.assert_allclose(fast.scores(play.x, play.candidates), expected, atol=1e-9)
        decision = fast.select(play.x, play.candidates, cross=Z)
        place = int(np.argmax(expected))
        assert decision.arm == play.candidates[place]
        r = float(play.rewards[decision.arm])
        changed = slow.update(decision.arm, play.x, Z[place], r)
        event = fast.update(decision.arm, play.x, r)
        assert (event is not None) == changed
        if event is not None:
            changes += 1
            assert event.statistic == pytest.approx(slow.last_statistic, abs=1e-9)
            np.testing.assert_allclose(event.theta_after, slow.theta_cum(decision.arm), atol=1e-9)
    assert changes >= 8
    np.testing.assert_allclose(shared_matrix(fast, 0), slow.A0_cum, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(shared_matrix(fast, 1), slow.A0_pre, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("d", "m"), [(1, 2), (4, 3)])
def test_linucb_equals_literal(d: int, m: int) -> None:
    arms = 5
    Y = np.random.default_rng(d).normal(size=(arms, m))
    fast = whim.LinUCBHybrid(n_features=d, n_item_features=m, alpha=0.8, ridge=0.5)
    slow = LinUCBHybridOracle(d=d, k=d * m, alpha=0.8, ridge=0.5)
    fast.add_arms(range(arms), features=Y)
    for a in range(arms):
        slow.add(a)
    for play in stream(steps=500, arms=arms, d=d, seed=3):
        Z = crossed(play.x, Y[play.candidates])
        expected = slow.scores(play.x, Z, play.candidates)
        np.testing.assert_allclose(fast.scores(play.x, play.candidates), expected, atol=1e-9)
        np.testing.assert_allclose(
            fast.scores_many(play.x[None], play.candidates)[0], expected, atol=1e-9
        )
        place = int(np.argmax(expected))
        arm = fast.select(play.x, play.candidates).arm
        assert arm == play.candidates[place]
        slow.update(arm, play.x, Z[place], float(play.rewards[arm]))
        fast.update(arm, play.x, float(play.rewards[arm]))
