"""Replay tells the truth: intervals hold it as often as they say, learners earn what they would.

``tests/slow/replay_agrees.py`` is the same with many more logs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import whim
from tests.replay_truth import Fixed, coverage, news_pairs, online_pairs, slower_clock


@pytest.fixture(autouse=True)
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(whim.policies.POLICIES, "fixed", Fixed)


@pytest.mark.parametrize("scheme", ["uniform", "propensity"])
def test_intervals_hold_the_truth_and_estimates_are_unbiased(tmp_path: Path, scheme: str) -> None:
    found = coverage(tmp_path, scheme=scheme, logs=120, events=500)
    names = {"rate", "ips", "snips"} | ({"dr"} if scheme == "propensity" else set())
    assert found.share.keys() == names
    for name in names:
        assert abs(found.share[name] - 0.95) < found.slack, name
        assert found.off(name) < 4, name
    if scheme == "propensity":  # the reward model is linear in what it sees: it must help
        assert found.variance["dr"] < found.variance["ips"]


@pytest.mark.parametrize(
    "policy",
    [
        whim.Random(),
        whim.LinUCBDisjoint(n_features=3),
        whim.PSLinUCBDisjoint(n_features=3, window=50, threshold=0.2),
        whim.LinTS(n_features=3, alpha=0.3),
    ],
    ids=lambda policy: policy.name,
)
def test_a_learner_earns_in_replay_what_it_earns_online(
    tmp_path: Path, policy: whim.Policy
) -> None:
    found = online_pairs(tmp_path, policy, worlds=60, events=2000)
    assert abs(found.difference) < 4 * found.error
    assert found.error < 0.01
    if policy.name != "random":
        assert found.replayed.mean() > 0.3 + 0.05  # it learns: 0.3 is what chance earns


def test_on_a_front_page_that_never_changes(tmp_path: Path) -> None:
    policy = whim.LinUCBHybrid(n_features=6, n_item_features=6, alpha=0.5)
    found = news_pairs(tmp_path, policy, worlds=25, events=3000)
    assert abs(found.difference) < 4 * found.error


def test_a_changing_world_moves_k_times_faster_in_replay(tmp_path: Path) -> None:
    """One event in K is retained: what replay measures is a world that changes K times as often."""
    policy = whim.SWLinUCB(n_features=3, window=200)
    same, scaled = slower_clock(tmp_path, policy, worlds=40, events=10_000, period=100)
    assert same.difference < -4 * same.error
    assert abs(scaled.difference) < 4 * scaled.error
