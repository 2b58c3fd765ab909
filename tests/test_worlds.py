"""Worlds: the truth that they hand out is the truth, and each random stream minds its own part."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from whim.errors import InvalidInputError
from whim.worlds import (
    DriftingLinear,
    Episode,
    NewsWorld,
    PiecewiseLinear,
    RotatingLinear,
)
from whim.worlds.draws import joint_rewards, vectors

WORLDS: dict[str, Any] = {
    "disjoint": PiecewiseLinear(n_arms=4, n_features=3, period=150),
    "hybrid": PiecewiseLinear(n_arms=4, n_features=3, n_item_features=2, period=150),
    "synchronous": PiecewiseLinear(n_arms=4, period=150, asynchronous=False, law="sphere"),
    "fixed user": PiecewiseLinear(n_arms=4, period=150, users="fixed", law="nonnegative"),
    "stationary": PiecewiseLinear(n_arms=4, period=None),
    "recurring": PiecewiseLinear(n_arms=4, period=100, states=2),
    "clicks": PiecewiseLinear(n_arms=4, period=150, rewards="bernoulli", rate=0.3),
    "drifting": DriftingLinear(n_arms=4, n_features=3, turn=300),
    "rotating": RotatingLinear(n_arms=9, pool_size=3, life=100, returns="new"),
    "rotating hybrid": RotatingLinear(n_arms=9, n_item_features=2, pool_size=3, life=100),
    "news": NewsWorld(n_arms=20, pool_size=4),
}
every_world = pytest.mark.parametrize("world", WORLDS.values(), ids=list(WORLDS))


def by_arm(episode: Episode, n_arms: int, values: np.ndarray) -> np.ndarray:
    """(T, K): values of places as values of arms; nan where an arm is not in the pool."""
    out = np.full((len(values), n_arms), np.nan)
    for t in range(len(values)):
        out[t, episode.pool(t)] = values[t]
    return out


@every_world
def test_every_world_keeps_the_contract(world: Any) -> None:
    episode = world.episode(horizon=500, seed=3)
    width = len(episode.pool(0))
    assert episode.contexts.shape == (500, world.n_features)
    assert episode.expected.shape == episode.rewards.shape == (500, width)
    assert episode.features.shape == (world.n_arms, world.n_item_features)
    assert sorted(episode.changes) == list(range(world.n_arms))
    for steps in episode.changes.values():
        assert steps == sorted(set(steps))
        assert all(0 < step < 500 for step in steps)
    for t in range(500):
        pool = episode.pool(t)
        assert len(set(pool.tolist())) == width
        assert pool.min() >= 0
        assert pool.max() < world.n_arms
    np.testing.assert_array_equal(episode.best, episode.expected.max(axis=1))


@every_world
def test_same_seed_same_bits_and_runs_differ(world: Any) -> None:
    one, same, run, seed = (
        world.episode(horizon=400, seed=s, run=r) for s, r in ((1, 0), (1, 0), (1, 1), (2, 0))
    )
    for name in ("contexts", "expected", "rewards", "features", "pool_of", "offsets", "members"):
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
    assert one.changes == same.changes
    for other in (run, seed):
        assert not np.array_equal(one.expected, other.expected)
        assert not np.array_equal(one.contexts, other.contexts)


@every_world
def test_describe_is_plain_data(world: Any) -> None:
    said = world.describe()
    assert json.loads(json.dumps(said)) == said
    assert said["kind"] == type(world).__name__
    assert said["what"].endswith(".")
    assert {"n_arms", "n_features", "n_item_features"} <= said.keys()
    for field in fields(world):
        assert said[field.name] == getattr(world, field.name)


@every_world
def test_rewards_have_the_expected_mean(world: Any) -> None:
    """Over many steps, the rewards' errors are as small as their variance allows."""
    episode = world.episode(horizon=20_000, seed=5)
    error = episode.rewards - episode.expected
    if set(np.unique(episode.rewards)) == {0.0, 1.0}:
        variance = episode.expected * (1 - episode.expected)
    else:
        variance = np.full(error.shape, world.noise**2)
    bound = 4.5 * np.sqrt(variance.sum(axis=0)) / len(error)
    assert (np.abs(error.mean(axis=0)) < bound).all()
    assert np.mean(error**2) == pytest.approx(variance.mean(), rel=0.05)
    # and where much is expected, much comes: not only the overall mean is right
    lift = (error * (episode.expected - episode.expected.mean())).mean()
    spread = np.sqrt((variance * (episode.expected - episode.expected.mean()) ** 2).sum())
    assert abs(lift) < 4.5 * spread / error.size


@pytest.mark.parametrize("kind", [PiecewiseLinear, DriftingLinear, RotatingLinear])
def test_streams_do_not_touch_each_other(kind: Any) -> None:
    plain = kind(n_item_features=3).episode(horizon=300, seed=1)
    silent = kind(n_item_features=3, noise=0.0).episode(horizon=300, seed=1)
    np.testing.assert_array_equal(plain.expected, silent.expected)
    np.testing.assert_array_equal(silent.rewards, silent.expected)
    mute = kind(n_item_features=3, joint=0.0).episode(horizon=300, seed=1)
    disjoint = kind().episode(horizon=300, seed=1)
    np.testing.assert_array_equal(mute.expected, disjoint.expected)
    np.testing.assert_array_equal(plain.contexts, disjoint.contexts)
    clicks = kind(rewards="bernoulli", rate=0.2).episode(horizon=300, seed=1)
    np.testing.assert_allclose(clicks.expected, 0.2 * (1 + disjoint.expected), atol=1e-12)
    fixed = kind(users="fixed", n_item_features=3).episode(horizon=300, seed=1)
    np.testing.assert_array_equal(fixed.features, plain.features)
    np.testing.assert_array_equal(fixed.members, plain.members)


def test_items_and_users_do_not_depend_on_how_interests_move() -> None:
    slow, fast = (
        PiecewiseLinear(n_item_features=3, period=p).episode(horizon=300, seed=1) for p in (200, 20)
    )
    np.testing.assert_array_equal(slow.features, fast.features)
    np.testing.assert_array_equal(slow.contexts, fast.contexts)
    noise = [episode.rewards - episode.expected for episode in (slow, fast)]
    np.testing.assert_allclose(noise[0], noise[1], atol=1e-12)


def test_a_change_may_be_as_late_as_the_last_step() -> None:
    world = PiecewiseLinear(period=100, asynchronous=False)
    assert world.episode(horizon=101, seed=0).changes[0] == [100]
    assert world.episode(horizon=100, seed=0).changes[0] == []


@pytest.mark.parametrize("law", ["ball", "sphere", "nonnegative"])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_laws(law: str, d: int) -> None:
    v = vectors(np.random.default_rng(0), 20_000, d, law)
    norms = np.linalg.norm(v, axis=1)
    if law == "sphere":
        np.testing.assert_allclose(norms, 1)
    else:  # uniform in the ball: P(norm <= r) = r^d
        assert norms.max() <= 1
        for r in (0.3, 0.6, 0.9):
            assert np.mean(norms <= r) == pytest.approx(r**d, abs=4.5 * 0.5 / np.sqrt(20_000))
    if law == "nonnegative":
        assert v.min() >= 0
    else:
        np.testing.assert_array_less(np.abs(v.mean(axis=0)), 4.5 * v.std(axis=0) / 141)


def test_the_joint_part_is_kron_of_item_and_user() -> None:
    rng = np.random.default_rng(0)
    X, Y, beta = rng.normal(size=(7, 3)), rng.normal(size=(4, 2)), rng.normal(size=6)
    found = joint_rewards(X, Y, beta)
    W = np.column_stack([beta[:3], beta[3:]])  # vec(x yᵀ) stacks columns: β = vec(W)
    for t, x in enumerate(X):
        for a, y in enumerate(Y):
            assert found[t, a] == pytest.approx(np.kron(y, x) @ beta, abs=1e-12)
            assert found[t, a] == pytest.approx(np.outer(x, y).ravel("F") @ beta, abs=1e-12)
            assert found[t, a] == pytest.approx(x @ W @ y, abs=1e-12)


@pytest.mark.parametrize("joint", [0.5, 1.0])
def test_hybrid_rewards_are_disjoint_ones_plus_one_joint_vector(joint: float) -> None:
    sizes: dict[str, Any] = {"n_arms": 8, "n_features": 3, "law": "sphere"}
    hybrid = PiecewiseLinear(**sizes, n_item_features=2, joint=joint).episode(horizon=200, seed=4)
    disjoint = PiecewiseLinear(**sizes).episode(horizon=200, seed=4)
    Z = np.array([np.kron(y, x) for x in hybrid.contexts for y in hybrid.features])
    beta, _, rank, _ = np.linalg.lstsq(Z, (hybrid.expected - disjoint.expected).ravel())
    assert rank == 6
    np.testing.assert_allclose(
        hybrid.expected - disjoint.expected, (Z @ beta).reshape(200, 8), atol=1e-9
    )
    assert np.linalg.norm(beta) == pytest.approx(joint)
    np.testing.assert_allclose(np.linalg.norm(hybrid.features, axis=1), 1)


CHANGING: dict[str, Any] = {
    "own times": PiecewiseLinear(n_arms=3, period=130, users="fixed"),
    "together": PiecewiseLinear(n_arms=3, period=130, users="fixed", asynchronous=False),
    "hybrid": PiecewiseLinear(n_arms=3, period=130, users="fixed", n_item_features=2),
    "recurring": PiecewiseLinear(n_arms=3, period=130, users="fixed", states=3),
    "never": PiecewiseLinear(n_arms=3, period=None, users="fixed"),
    "back as new": RotatingLinear(n_arms=8, pool_size=3, life=90, users="fixed", returns="new"),
    "back as before": RotatingLinear(n_arms=8, pool_size=3, life=90, users="fixed"),
    "clicks": PiecewiseLinear(n_arms=3, period=130, users="fixed", rewards="bernoulli"),
}


@pytest.mark.parametrize("world", CHANGING.values(), ids=list(CHANGING))
def test_changes_are_where_a_fixed_user_s_rewards_jump_and_nowhere_else(world: Any) -> None:
    episode = world.episode(horizon=1000, seed=2)
    truth = by_arm(episode, world.n_arms, episode.expected)
    for arm, steps in episode.changes.items():
        seen = np.flatnonzero(~np.isnan(truth[:, arm]))
        jumps = np.flatnonzero(np.abs(np.diff(truth[seen, arm])) > 1e-12) + 1
        assert seen[jumps].tolist() == steps
    if getattr(world, "period", 0) is None or getattr(world, "returns", "") == "same":
        assert not any(episode.changes.values())
    else:
        assert sum(map(len, episode.changes.values())) > 10


def test_recurring_interests_recur() -> None:
    world = PiecewiseLinear(n_arms=2, period=100, users="fixed", states=3, asynchronous=False)
    truth = world.episode(horizon=1000, seed=0).expected
    np.testing.assert_array_equal(truth[300:], truth[:-300])
    assert len(np.unique(truth[:, 0])) == 3


@pytest.mark.parametrize("law", ["ball", "sphere", "nonnegative"])
def test_drift_is_slow_returns_after_a_turn_and_keeps_its_length(law: str) -> None:
    world = DriftingLinear(n_arms=2, n_features=4, turn=500, law=law, noise=0.0)
    theta, changes = world._interests(np.random.default_rng(0), 1001, None)
    assert changes == {0: [], 1: []}
    norms = np.linalg.norm(theta, axis=2)
    np.testing.assert_allclose(norms, norms[:1].repeat(1001, axis=0))
    steps = np.linalg.norm(np.diff(theta, axis=0), axis=2)
    assert (steps <= norms[1:] * 2 * np.pi / 500 + 1e-12).all()
    assert steps.sum() > 5  # it does move
    np.testing.assert_allclose(theta[500:], theta[:501], atol=1e-9)
    assert law != "nonnegative" or theta.min() >= 0


def test_rotating_pools() -> None:
    world = RotatingLinear(n_arms=12, pool_size=4, life=200)
    episode = world.episode(horizon=4000, seed=6)
    places = np.array([episode.pool(t) for t in range(4000)])
    moved = (np.diff(places, axis=0) != 0).sum(axis=1)
    assert moved.max() == 1  # one leaves, one comes, in its place
    assert moved.sum() == pytest.approx(4000 * 4 / 200, rel=0.05)
    assert set(places.ravel().tolist()) == set(range(12))
    stays = np.diff(np.flatnonzero(np.concatenate([[1], moved])))
    assert len(set(stays.tolist())) > 20  # not in step
    away = [t for t in range(1, 4000) if 0 in places[t] and 0 not in places[t - 1]]
    assert len(away) > 2  # arms return


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_clicks_come_at_the_stated_rate(rate: float) -> None:
    world = PiecewiseLinear(n_arms=20, rewards="bernoulli", rate=rate, period=50)
    episode = world.episode(horizon=5000, seed=0)
    assert set(np.unique(episode.rewards)) == {0.0, 1.0}
    assert episode.rewards.mean() == pytest.approx(rate, rel=0.03)
    assert episode.expected.min() >= 0
    high = episode.expected > 1.3 * rate
    assert episode.rewards[high].mean() > 1.25 * rate


@pytest.mark.parametrize(
    ("kind", "bad", "says"),
    [
        (PiecewiseLinear, {"n_arms": 0}, "n_arms must be an integer >= 1, got 0"),
        (PiecewiseLinear, {"n_item_features": -1}, "n_item_features must be an integer >= 0"),
        (PiecewiseLinear, {"period": 0}, "period must be an integer >= 1"),
        (PiecewiseLinear, {"states": 1}, "states must be an integer >= 2"),
        (PiecewiseLinear, {"law": "cube"}, "law must be one of ball, sphere, nonnegative"),
        (PiecewiseLinear, {"rewards": "poisson"}, "rewards must be one of gaussian, bernoulli"),
        (PiecewiseLinear, {"joint": -1.0}, "joint must be a finite number >= 0"),
        (PiecewiseLinear, {"noise": float("nan")}, "noise must be a finite number >= 0"),
        (PiecewiseLinear, {"rate": 1.0}, "rate must be a finite number > 0 and < 1"),
        (DriftingLinear, {"turn": 1}, "turn must be an integer >= 2"),
        (DriftingLinear, {"n_features": 1}, "n_features must be 2 or more"),
        (RotatingLinear, {"pool_size": 50}, r"pool_size must be less than n_arms \(50\), got 50"),
        (RotatingLinear, {"life": 0}, "life must be an integer >= 1"),
        (RotatingLinear, {"returns": "never"}, "returns must be one of same, new"),
        (NewsWorld, {"pool_size": 272}, "pool_size must be at most 271, got 272"),
        (NewsWorld, {"n_arms": 10**6}, "n_arms must be at most 890583"),
        (NewsWorld, {"rate": 0.5}, "rate must be a finite number > 0 and <= 0.25"),
        (NewsWorld, {"own": 1.5}, "own must be a finite number >= 0 and <= 1"),
        (NewsWorld, {"changes_per_life": -1}, "changes_per_life must be a finite number >= 0"),
    ],
)
def test_bad_parameters(kind: Any, bad: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        kind(**bad)


@every_world
def test_bad_calls(world: Any) -> None:
    for name, least in (("horizon", 1), ("seed", 0), ("run", 0)):
        call = {"horizon": 10, "seed": 0, "run": 0, name: least - 1}
        with pytest.raises(InvalidInputError, match=f"{name} must be an integer >= {least}"):
            world.episode(**call)


@every_world
def test_one_step_is_an_episode(world: Any) -> None:
    assert world.episode(horizon=1, seed=0).expected.shape[0] == 1


def test_the_random_streams_of_the_first_version_are_kept() -> None:
    """Published figures come from these draws; new parameters must not shift them."""
    episode = PiecewiseLinear().episode(horizon=2500, seed=0)
    found = [episode.rewards[t, a] for t, a in ((0, 0), (1999, 3), (2499, 9))]
    kept = [-0.8166970000776704, 0.34749362557221014, 0.04604656752851649]
    np.testing.assert_allclose(found, kept, rtol=1e-12)
    assert episode.changes[0] == [1702]
    world = PiecewiseLinear(
        n_arms=2, n_features=3, period=20, asynchronous=False, law="nonnegative", users="fixed"
    )
    episode = world.episode(horizon=50, seed=3, run=2)
    kept = [0.7638760170716997, 0.26078140837369296, 0.37629297621914565]
    np.testing.assert_allclose(episode.contexts[49], kept, rtol=1e-12)
    np.testing.assert_allclose(episode.rewards[49], [0.7748918340757037, 0.677828665880301])
