"""Disjoint payoffs: the fast policies against the literal pseudo-code."""

from __future__ import annotations

import numpy as np
import pytest

import whim
from tests.oracles import LinUCBDisjointOracle, PSLinUCBDisjointOracle
from tests.streams import stream


@pytest.mark.parametrize("d", [1, 2, 5, 20])
@pytest.mark.parametrize("first_window", ["literal", "seed"])
@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("window", [2, 7, 40])
def test_pslinucb_equals_algorithm_1(
    d: int, first_window: str, repeated: bool, window: int
) -> None:
    threshold = {2: 0.3, 7: 0.2, 40: 0.06}[window]
    parts = {"alpha": 0.6, "window": window, "threshold": threshold, "first_window": first_window}
    parts["ridge"] = 0.3 if window == 7 else 1.0
    fast = whim.PSLinUCBDisjoint(n_features=d, **parts)
    slow = PSLinUCBDisjointOracle(d=d, **parts)
    arms = 4
    fast.add_arms(range(arms))
    for a in range(arms):
        slow.add(a)
    changes = 0
    for play in stream(steps=1200, arms=arms, d=d, seed=window, repeated=repeated):
        expected = slow.scores(play.x, play.candidates)
        np.testing.assert_allclose(fast.scores(play.x, play.candidates), expected, atol=1e-9)
        decision = fast.select(play.x, play.candidates)
        assert decision.arm == play.candidates[int(np.argmax(expected))]
        r = float(play.rewards[decision.arm])
        changed = slow.update(decision.arm, play.x, r)
        event = fast.update(decision.arm, play.x, r)
        assert (event is not None) == changed
        if event is not None:
            changes += 1
            assert event.arm == decision.arm
            assert event.statistic == pytest.approx(slow.last_statistic, abs=1e-9)
            np.testing.assert_allclose(event.theta_after, slow.theta_cum(decision.arm), atol=1e-9)
    assert changes >= 8


@pytest.mark.parametrize("d", [1, 5, 20])
def test_linucb_equals_literal(d: int) -> None:
    fast = whim.LinUCBDisjoint(n_features=d, alpha=0.8, ridge=0.5)
    slow = LinUCBDisjointOracle(d=d, alpha=0.8, ridge=0.5)
    fast.add_arms(range(5))
    for a in range(5):
        slow.add(a)
    for play in stream(steps=600, arms=5, d=d, seed=3):
        expected = slow.scores(play.x, play.candidates)
        np.testing.assert_allclose(fast.scores(play.x, play.candidates), expected, atol=1e-9)
        arm = fast.select(play.x, play.candidates).arm
        assert arm == play.candidates[int(np.argmax(expected))]
        slow.update(arm, play.x, float(play.rewards[arm]))
        fast.update(arm, play.x, float(play.rewards[arm]))
