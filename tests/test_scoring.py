"""Decisions from a single-precision copy: close, up to date after every call, never saved."""

import numpy as np
import pytest

import whim

RNG = np.random.default_rng(0)
MAKERS = {
    "linucb": lambda **more: whim.LinUCBDisjoint(n_features=6, alpha=0.5, **more),
    "linucb long": lambda **more: whim.LinUCBDisjoint(n_features=40, alpha=0.5, **more),
    "paper's test": lambda **more: whim.PSLinUCBDisjoint(
        n_features=6, alpha=0.5, window=10, threshold=0.3, **more
    ),
    "score test": lambda **more: whim.PSLinUCBDisjoint(n_features=6, alpha=0.5, **more),
    "always looking": lambda **more: whim.PSLinUCBDisjoint(
        n_features=6, alpha=0.5, revisit=0.01, **more
    ),
}


def _twins(name, arms=9):
    pair = [MAKERS[name](), MAKERS[name](scoring="float32")]
    for policy in pair:
        policy.add_arms(range(arms))
    return pair


def _same(full, light, x):
    """Scores of the copy are those of float32 models, neither exact nor far."""
    exact, found = full.scores(x), light.scores(x)
    np.testing.assert_allclose(found, exact, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(light.scores_many([x])[0], found, rtol=1e-9, atol=1e-9)
    best = light.select(x)
    assert best.score == pytest.approx(found.max(), abs=0)
    assert light.rank(x, k=1)[0] == best


@pytest.mark.parametrize("name", MAKERS)
def test_the_copy_follows_every_change_of_the_models(name):
    full, light = _twins(name)
    d = full.n_features
    for step in range(120):
        x = RNG.normal(size=d) / np.sqrt(d)
        arm, reward = step % 9, float(RNG.normal() + (step > 60))
        full.update(arm, x, reward)
        light.update(arm, x, reward)
        _same(full, light, x)
    X, rewards = RNG.normal(size=(200, d)) / np.sqrt(d), RNG.normal(size=200)
    arms = RNG.integers(9, size=200)
    assert full.update_many(arms, X, rewards) == light.update_many(arms, X, rewards)
    _same(full, light, X[0])
    for policy in (full, light):
        policy.reset_arms([3])
        policy.retire_arms([4])
        policy.add_arms(["new", "newer", *range(100, 140)])
        policy.update("new", X[0], 1.0)
    _same(full, light, X[1])


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_learnt_and_saved_is_double_precision(name, tmp_path):
    full, light = _twins(name)
    d = full.n_features
    X, rewards = RNG.normal(size=(60, d)), RNG.normal(size=60)
    for i in range(60):
        full.update(i % 9, X[i], rewards[i])
        light.update(i % 9, X[i], rewards[i])
    for arm in range(9):
        np.testing.assert_array_equal(full.coefficients(arm), light.coefficients(arm))
    light.save(tmp_path / "p.whim")
    loaded = whim.load(tmp_path / "p.whim")
    np.testing.assert_array_equal(loaded.scores(X[0]), light.scores(X[0]))
    assert loaded.select(X[1]) == light.select(X[1])


def test_simulated_by_live_calls_it_finds_what_the_exact_one_finds():
    world = whim.worlds.PiecewiseLinear(n_arms=5, n_features=4, period=300)
    made = {
        kind: whim.PSLinUCBDisjoint(n_features=4, scoring=kind) for kind in ("float64", "float32")
    }
    result = whim.simulate(world, made, horizon=900, runs=1, seed=3)
    exact, light = (result.regret[kind][0, -1] for kind in made)
    assert light == pytest.approx(exact, rel=0.05)


def test_another_precision_is_refused():
    with pytest.raises(whim.errors.InvalidInputError, match="scoring must be one of float64"):
        whim.LinUCBDisjoint(n_features=2, scoring="float16")
