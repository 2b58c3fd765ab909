"""The world knows its truth; ``simulate`` is reproducible and pairs policies."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import whim
from whim.errors import InvalidInputError
from whim.evaluate import gain, mean_interval
from whim.worlds import PiecewiseLinear


@pytest.mark.parametrize("law", ["ball", "sphere", "nonnegative"])
@pytest.mark.parametrize("users", ["fixed", "random"])
def test_worlds_are_what_they_say(law: str, users: str) -> None:
    world = PiecewiseLinear(n_arms=3, n_features=4, period=200, law=law, users=users, noise=0.3)
    episode = world.episode(horizon=1000, seed=1)
    norms = np.linalg.norm(episode.contexts, axis=1)
    assert (norms <= 1 + 1e-12).all()
    assert law != "sphere" or np.allclose(norms, 1)
    assert law != "nonnegative" or (episode.contexts >= 0).all()
    assert (len(np.unique(episode.contexts, axis=0)) == 1) == (users == "fixed")
    assert np.std(episode.rewards - episode.expected) == pytest.approx(0.3, rel=0.05)
    for arm, steps in episode.changes.items():
        assert len(steps) in (4, 5)
        bounds = [0, *steps, 1000]
        for low, high in pairwise(bounds):
            rows = episode.contexts[low:high]
            fit = np.linalg.lstsq(rows, episode.expected[low:high, arm])[0]
            np.testing.assert_allclose(rows @ fit, episode.expected[low:high, arm], atol=1e-9)
        if users == "fixed":
            jumps = np.flatnonzero(np.diff(episode.expected[:, arm])) + 1
            assert jumps.tolist() == steps


def test_adding_a_policy_changes_no_other_and_seeds_decide() -> None:
    world = PiecewiseLinear(n_arms=4, n_features=3, period=150)
    lin, random = whim.LinUCBDisjoint(n_features=3), whim.Random(seed=1)
    alone = whim.simulate(world, {"lin": lin}, horizon=400, runs=3, seed=5)
    both = whim.simulate(world, {"random": random, "lin": lin}, horizon=400, runs=3, seed=5)
    assert np.array_equal(alone.regret["lin"], both.regret["lin"])
    other = whim.simulate(world, {"lin": lin}, horizon=400, runs=3, seed=6)
    assert not np.array_equal(alone.regret["lin"], other.regret["lin"])
    assert (np.diff(both.regret["random"], axis=1) >= 0).all()
    assert both.regret["lin"][:, -1].mean() < both.regret["random"][:, -1].mean()


def test_the_paper_s_order_of_policies() -> None:
    """LinUCB loses most, PSLinUCB less, the one that is told the truth least."""
    world = PiecewiseLinear(n_arms=5, n_features=3, period=1000, users="fixed")
    result = whim.simulate(
        world,
        {
            "lin": whim.LinUCBDisjoint(n_features=3),
            "ps": whim.PSLinUCBDisjoint(n_features=3, window=50, threshold=0.3),
            "told": lambda episode: whim.OracleRestart(
                policy=whim.LinUCBDisjoint(n_features=3), changes=episode.changes
            ),
        },
        horizon=8000,
        runs=12,
        seed=2,
    )
    lin, ps, told = (result.regret[label][:, -1] for label in ("lin", "ps", "told"))
    assert gain(ps, lin).low > 0
    assert told.mean() < ps.mean() / 2
    assert result.found["ps"].mean() > 1
    assert result.false_alarms["ps"].mean() < 1
    assert result.found["lin"].sum() == 0


def test_intervals() -> None:
    values = np.random.default_rng(0).normal(3.0, 1.0, size=400)
    found = mean_interval(values)
    assert found.low < found.value < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 / 20, rel=0.15)


def test_refusals() -> None:
    with pytest.raises(InvalidInputError, match="law must be one of"):
        PiecewiseLinear(law="cube")
    used = whim.UCB()
    used.add_arms([0])
    with pytest.raises(InvalidInputError, match="policies must have no arms yet"):
        whim.simulate(PiecewiseLinear(), {"used": used})
    with pytest.raises(InvalidInputError, match="runs must be an integer >= 1"):
        whim.simulate(PiecewiseLinear(), {}, runs=0)
