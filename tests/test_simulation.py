"""The world knows its truth; ``simulate`` is reproducible and pairs policies."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

import whim
from whim.errors import InvalidInputError
from whim.evaluate import Detection, gain, mean_interval, score_detection
from whim.evaluate.tasks import OracleMaker
from whim.worlds import DriftingLinear, NewsWorld, PiecewiseLinear, RotatingLinear


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
    seen = result.detections["ps"]
    assert np.mean([run.found for run in seen]) > 1
    assert np.mean([run.false_alarms for run in seen]) < 1
    for run, there_were in zip(seen, result.changes, strict=True):
        assert run.found + run.missed == there_were
        assert len(run.delays) == len(run.plays) == run.found
        assert all(0 < p <= d for p, d in zip(run.plays, run.delays, strict=True))
    assert all(run.found == run.false_alarms == 0 for run in result.detections["lin"])


def test_one_job_and_two_give_the_same_bits() -> None:
    world = PiecewiseLinear(n_arms=4, n_features=3, period=100, n_item_features=2)
    policies = {
        "ps": whim.PSLinUCBDisjoint(n_features=3, window=20, threshold=0.2),
        "hybrid": whim.PSLinUCBHybrid(n_features=3, n_item_features=2, window=20, threshold=0.2),
        "random": whim.Random(),
        "told": OracleMaker("linucb-disjoint", {"n_features": 3}),
    }
    told: list[int] = []
    one = whim.simulate(world, policies, horizon=500, runs=5, seed=1, jobs=1)
    two = whim.simulate(world, policies, horizon=500, runs=5, seed=1, jobs=2, progress=told.append)
    assert told == [1, 2, 3, 4, 5]
    for label in policies:
        assert one.regret[label].tobytes() == two.regret[label].tobytes()
        assert one.reward[label].tobytes() == two.reward[label].tobytes()
        assert one.detections[label] == two.detections[label]
    assert one.rows() == two.rows()
    assert one.settings == two.settings
    final = one.regret["random"][:, -1]
    assert len(set(final.tolist())) == 5  # each run has users and draws of its own


@pytest.mark.parametrize(
    "world",
    [
        DriftingLinear(n_arms=4, n_features=3, turn=400),
        RotatingLinear(n_arms=9, n_features=3, pool_size=4, life=80, returns="new"),
        NewsWorld(n_arms=20, pool_size=5, rate=0.2),
        PiecewiseLinear(n_arms=4, n_features=3, n_item_features=2, period=150),
        RotatingLinear(n_arms=9, n_features=3, pool_size=4, life=80, n_item_features=2),
    ],
    ids=lambda world: f"{type(world).__name__}-{world.n_item_features}",
)
def test_every_world_can_be_played(world: Any) -> None:
    d, m = world.n_features, world.n_item_features
    alone: dict[str, Any] = {"ps": whim.PSLinUCBDisjoint(n_features=d, window=20, threshold=0.2)}
    more = {"random": whim.Random(), **alone, "ucb": whim.UCB()}
    if m:
        more["hybrid"] = whim.LinUCBHybrid(n_features=d, n_item_features=m)
        more["items"] = whim.LinUCBUniform(n_item_features=m)
    result = whim.simulate(world, more, horizon=600, runs=3, seed=4)
    (row,) = whim.simulate(world, alone, horizon=600, runs=3, seed=4).rows()
    assert result.rows(baseline="ps")[1] == row  # the others changed nothing
    best = np.mean([world.episode(horizon=600, seed=4, run=r).best.sum() for r in range(3)])
    for label in more:
        lost = result.regret[label][:, -1]
        assert (np.diff(result.regret[label], axis=1) >= -1e-12).all()
        # what was lost and what was earned make up the best, but for the noise
        earned = 600 * result.reward[label].mean()
        assert earned + lost.mean() == pytest.approx(best, abs=25)
    there_were = [
        sum(map(len, world.episode(horizon=600, seed=4, run=r).changes.values())) for r in range(3)
    ]
    assert result.changes.tolist() == there_were


def test_results_as_table_figure_and_files(tmp_path: Path) -> None:
    world = PiecewiseLinear(n_arms=3, n_features=2, period=100)
    policies = {"a": whim.UCB(), "b": whim.LinUCBDisjoint(n_features=2)}
    result = whim.simulate(world, policies, horizon=300, runs=2, points=10)
    frame = result.table(baseline="b")
    assert frame["policy"].to_list() == ["a", "b"]
    assert frame["saved"].to_list()[1] == 0
    result.save(tmp_path)
    stored = json.loads((tmp_path / "result.json").read_text())
    assert stored["policies"] == result.rows()
    curves = polars.read_parquet(tmp_path / "curves.parquet")
    assert curves.height == 2 * 2 * 10
    last = curves.filter(policy="b", step=300)["regret"]
    assert last.to_list() == result.regret["b"][:, -1].tolist()
    with pytest.raises(InvalidInputError, match="baseline must be one of a, b"):
        result.rows("c")


# -- how changes were found ------------------------------------------------------------------------


def test_a_change_is_found_by_the_first_report_after_it() -> None:
    changes = {0: [100, 200], 1: [150], 2: []}
    reports: list[tuple[Any, int]] = [(0, 90), (0, 130), (0, 140), (2, 145), (1, 151), (0, 220)]
    found = score_detection(reports, changes)
    assert found == Detection(delays=[30, 1, 20], plays=[], missed=0, false_alarms=3)
    assert found.found == 3


def test_a_report_at_the_change_itself_is_too_early() -> None:
    """Interests are new from the step after it."""
    assert score_detection([(0, 100)], {0: [100]}) == Detection([], [], 1, 1)
    assert score_detection([(0, 101)], {0: [100]}) == Detection([1], [], 0, 0)


def test_a_change_that_the_next_one_overtakes_is_missed() -> None:
    assert score_detection([(0, 250)], {0: [100, 200]}) == Detection([50], [], 1, 0)
    assert score_detection([], {0: [100, 200], 1: [5]}) == Detection([], [], 3, 0)


def test_delays_in_plays_count_the_arm_s_own() -> None:
    played = {0: np.array([99, 100, 101, 120, 130, 131]), 1: np.array([160, 170])}
    found = score_detection([(0, 130), (1, 170)], {0: [100], 1: [150]}, played)
    assert found == Detection(delays=[30, 20], plays=[3, 2], missed=0, false_alarms=0)


def test_a_report_of_all_arms_is_compared_with_all_changes() -> None:
    changes = {0: [100, 300], 1: [100], 2: [200]}
    found = score_detection([(None, 110), (None, 120), (None, 320)], changes, {}, shared=True)
    assert found == Detection(delays=[10, 20], plays=[], missed=1, false_alarms=1)
    silent = score_detection([], changes, {}, shared=True)
    assert silent.missed == 3  # arms that change together are one change to find


def test_a_change_that_no_play_follows_could_not_be_found() -> None:
    changes = {0: [100, 200], 1: [150], 2: [150]}
    played = {0: np.array([50, 100, 200, 220]), 1: np.array([150])}
    found = score_detection([(0, 220)], changes, played)
    # arm 0 is played at 200, the last step before a change; arms 1 and 2 never after theirs
    assert found == Detection([20], [1], missed=3, false_alarms=0, unplayed=2)
    together = score_detection([], changes, {0: np.array([250]), 1: np.array([151])}, shared=True)
    assert (together.missed, together.unplayed) == (3, 1)  # that of step 100


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
    with pytest.raises(InvalidInputError, match="policies must hold at least one policy"):
        whim.simulate(PiecewiseLinear(), {})
    with pytest.raises(InvalidInputError, match="must have n_features = 5, as the contexts here"):
        whim.simulate(PiecewiseLinear(), {"two": whim.LinUCBDisjoint(n_features=2)}, horizon=9)
