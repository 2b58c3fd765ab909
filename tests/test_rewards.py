"""``beyond/rewards``: what it draws and counts, and that the unit of rewards does not matter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import whim
from whim.experiments import Options, rewards, run, shops, stationary

PLAYS = 3000


def alarms(policy: whim.Policy, X: np.ndarray, r: np.ndarray) -> list[tuple[int, int]]:
    policy.add_arms([0])
    return [(event.plays, event.began) for event in policy.update_many([0] * len(r), X, r)]


@pytest.mark.parametrize("name", stationary.MAKERS)
def test_the_unit_of_rewards_does_not_matter(name: str) -> None:
    """With a change half-way, so that there is something to find."""
    rng = np.random.default_rng(3)
    (X, r), (Y, s) = (stationary.MAKERS[name][1](rng, PLAYS // 2) for _ in range(2))
    X, r = np.r_[X, Y], np.r_[r, s.max() - s]
    for scale in (2.0**-20, 2.0**20):
        for make in (whim.PSLinUCBDisjoint, whim.AdaptiveLinUCB):
            one, other = (make(n_features=X.shape[1]) for _ in range(2))
            assert alarms(one, X, r) == alarms(other, X, r * scale)
    for scale in (1e-6, 1e6):
        policy = whim.PSLinUCBDisjoint(n_features=X.shape[1])
        assert alarms(policy, X, r * scale)
        assert np.isfinite(policy.coefficients(0)).all()


def test_a_stream_is_played_in_random_order_again_and_again(tmp_path: Path) -> None:
    X, y = np.arange(20.0).reshape(10, 2), np.arange(10) % 3
    np.savez(tmp_path / "small.npz", X=X, y=y)
    (case,) = (c for c in stationary.cases(tmp_path, quick=True) if c.mean == stationary.STREAM)
    assert case.name == "small"
    drawn, r = case.draw(np.random.default_rng(0), 25)
    assert drawn.shape == (25, 2)
    for part in (slice(0, 10), slice(10, 20)):
        assert sorted(drawn[part, 0]) == sorted(X[:, 0])
    wins = {int(row[0]) // 2 % 3 for row, reward in zip(drawn, r, strict=True) if reward}
    assert len(wins) == 1  # one class of the three


@pytest.mark.parametrize("goods", shops.GOODS)
def test_a_shop_earns_what_is_expected_of_it(goods: str) -> None:
    episode = shops._episode(shops.Task(goods, 40_000, (1, 2)))
    assert episode.rewards.mean() == pytest.approx(episode.expected.mean(), rel=0.05)
    assert episode.expected.min() > 0
    fitted = episode.contexts @ np.linalg.lstsq(episode.contexts, episode.expected)[0]
    np.testing.assert_allclose(fitted, episode.expected, atol=1e-9)  # linear


def test_what_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rewards, "PLAYS", 1000)
    monkeypatch.setattr(shops, "QUICK_VISITS", 500)
    found = run("beyond/rewards", Options(quick=True, runs=2, jobs=1, seed=4, work=tmp_path))
    alarmed, events, shop = found.tables
    assert [row[0] for row in alarmed.rows] == [row[0] for row in events.rows]
    assert len(alarmed.rows) == len(stationary.QUICK) + 1
    assert [row[:2] for row in shop.rows[:3]] == [
        ["clicks", "LinUCB"], ["clicks", "PSLinUCB"], ["clicks", "AdaptiveLinUCB"],
    ]  # fmt: skip
    assert "accepted 1" in events.columns
    assert "In a shop with revenue" in found.summary
