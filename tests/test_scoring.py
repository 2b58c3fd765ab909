"""Decisions from a single-precision copy: close, up to date after every call, never saved."""

from types import SimpleNamespace

import numpy as np
import pytest

import whim
from whim.kernels.linalg import batch
from whim.policies.base import float32 as products

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


def _same(full, single, x):
    """Scores of the copy are those of float32 models, neither exact nor far."""
    exact, found = full.scores(x), float32.scores(x)
    np.testing.assert_allclose(found, exact, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(float32.scores_many([x])[0], found, rtol=1e-9, atol=1e-9)
    best = float32.select(x)
    assert best.score == pytest.approx(found.max(), abs=0)
    assert float32.rank(x, k=1)[0] == best


@pytest.mark.parametrize("name", MAKERS)
def test_the_copy_follows_every_change_of_the_models(name):
    full, single = _twins(name)
    d = full.n_features
    for step in range(120):
        x = RNG.normal(size=d) / np.sqrt(d)
        arm, reward = step % 9, float(RNG.normal() + (step > 60))
        full.update(arm, x, reward)
        float32.update(arm, x, reward)
        _same(full, single, x)
    X, rewards = RNG.normal(size=(200, d)) / np.sqrt(d), RNG.normal(size=200)
    arms = RNG.integers(9, size=200)
    assert full.update_many(arms, X, rewards) == float32.update_many(arms, X, rewards)
    _same(full, single, X[0])
    for policy in (full, single):
        policy.reset_arms([3])
        policy.retire_arms([4])
        policy.add_arms(["new", "newer", *range(100, 140)])
        policy.update("new", X[0], 1.0)
    _same(full, single, X[1])


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_learnt_and_saved_is_double_precision(name, tmp_path):
    full, single = _twins(name)
    d = full.n_features
    X, rewards = RNG.normal(size=(60, d)), RNG.normal(size=60)
    for i in range(60):
        full.update(i % 9, X[i], rewards[i])
        float32.update(i % 9, X[i], rewards[i])
    for arm in range(9):
        np.testing.assert_array_equal(full.coefficients(arm), float32.coefficients(arm))
    float32.save(tmp_path / "p.whim")
    loaded = whim.load(tmp_path / "p.whim")
    np.testing.assert_array_equal(loaded.scores(X[0]), float32.scores(X[0]))
    assert loaded.select(X[1]) == float32.select(X[1])


def test_simulated_by_live_calls_it_finds_what_the_exact_one_finds():
    world = whim.worlds.PiecewiseLinear(n_arms=5, n_features=4, period=300)
    made = {
        kind: whim.PSLinUCBDisjoint(n_features=4, scoring=kind) for kind in ("float64", "float32")
    }
    result = whim.simulate(world, made, horizon=900, runs=1, seed=3)
    exact, single = (result.regret[kind][0, -1] for kind in made)
    assert single == pytest.approx(exact, rel=0.05)


def test_another_precision_is_refused():
    with pytest.raises(whim.errors.InvalidInputError, match="scoring must be one of float64"):
        whim.LinUCBDisjoint(n_features=2, scoring="float16")


# -- many contexts at once ------------------------------------------------------------------------

EPS = float(np.finfo(np.float32).eps)


def _made_of(policy, X):
    """What scores are made of: Σ|x_j θ_j| and the width, which may cancel in the score itself."""
    arms = policy.arms
    theta = np.array([policy.coefficients(a) for a in arms])
    width = [[np.sqrt(max(x @ policy.inverse(a) @ x, 0.0)) for a in arms] for x in X]
    return np.abs(X) @ np.abs(theta).T + policy.params["alpha"] * np.array(width)


def _tolerance(d):
    """Each of d(d+1)/2 + d terms may bring a rounding; they do not add up, so never beyond 1e-5.

    Where the terms of a squared width cancel that would not hold: those are in double precision.
    """
    return min(EPS * (d * (d + 1) // 2 + d), 1e-5)


@pytest.mark.parametrize("name", MAKERS)
def test_a_batch_agrees_with_single_scores(name):
    _, policy = _twins(name)
    d = policy.n_features
    arms, rewards = RNG.integers(9, size=700), RNG.normal(size=700) + np.repeat([0, 2], 350)
    policy.update_many(arms, RNG.normal(size=(700, d)) / np.sqrt(d), rewards)
    X = RNG.normal(size=(200, d)) / np.sqrt(d)
    found = policy.scores_many(X)
    one = np.array([policy.scores(x) for x in X])
    assert found.dtype == np.float64
    assert (found != one).any(), "the product was in single precision"
    # an arm that may have changed is as wide as a new one: its own width is in its score
    scale = _made_of(policy, X) + np.abs(one)
    assert (np.abs(found - one) / scale).max() < _tolerance(d)
    some = policy.scores_many(X, [7, 2])
    assert (np.abs(some - one[:, [7, 2]]) / scale[:, [7, 2]]).max() < _tolerance(d)


def _normal(rng, n, d):
    return rng.normal(size=(n, d))


def _near(share):
    """Contexts that differ from their mean by this share of it."""
    return lambda rng, n, d: (1 + share * rng.normal(size=(n, d))) / np.sqrt(d)


def _flat(rng, n, d):
    """All but in three dimensions."""
    base = np.random.default_rng(7).normal(size=(3, d))
    return rng.normal(size=(n, 3)) @ base + 1e-4 * rng.normal(size=(n, d))


CASES = {
    "short": (_normal, 2, 2000, {}),
    "long": (_normal, 64, 2000, {}),
    "1e5 plays": (_normal, 12, 100_000, {}),
    "near their mean": (_near(0.1), 12, 20_000, {}),
    "nearer": (_near(0.01), 12, 20_000, {}),
    "all the same": (_near(0.0), 12, 100_000, {}),
    "flat": (_flat, 12, 5000, {}),
    "uneven features": (lambda *a: _normal(*a) * np.logspace(-6, 6, 12), 12, 5000, {}),
    "tiny": (lambda *a: 1e-9 * _normal(*a), 12, 2000, {}),
    "huge": (lambda *a: 1e9 * _normal(*a), 12, 2000, {}),
    "one huge": (lambda *a: _normal(*a) * np.r_[1e9, np.ones(11)], 12, 2000, {}),
    "no ridge": (_normal, 12, 30, {"ridge": 1e-30}),
    "all ridge": (_normal, 12, 2000, {"ridge": 1e30}),
    "means alone": (_normal, 12, 2000, {"alpha": 0.0}),
    "widths alone": (_normal, 12, 2000, {"alpha": 1e9}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_batch_is_close_to_double_precision_whatever_the_contexts(name):
    draw, d, plays, params = CASES[name]
    rng = np.random.default_rng(3)
    contexts, arms = draw(rng, plays, d), rng.integers(8, size=plays)
    rewards = rng.normal(size=plays) + arms
    full, single = (
        whim.LinUCBDisjoint(n_features=d, scoring=kind, **params) for kind in ("float64", "float32")
    )
    for policy in (full, single):
        policy.add_arms(range(10))  # two are never played
        policy.update_many(arms, contexts, rewards)
    X = draw(rng, 300, d)
    exact, found = full.scores_many(X), float32.scores_many(X)
    error = np.abs(found - exact)
    scale = np.maximum(_made_of(full, X), np.finfo(float).tiny)
    assert np.isfinite(found).all()
    assert (error / scale).max() < 1e-5


# contexts of 600 that look where the arms which were played are almost certain, and those arms
LOST = {
    "nothing": ([], [3], []),
    "a context": ([5], [3, 4, 7], [(1, 20)]),
    "an arm": (range(600), [3], [(256, 1), (256, 1), (88, 1)]),
    "everything": (range(600), range(20), [(256, 20), (344, 20)]),
}


@pytest.mark.parametrize("case", LOST)
def test_scores_that_lost_digits_are_made_again_and_no_others(case, monkeypatch):
    contexts, arms, again = LOST[case]
    policy = whim.LinUCBDisjoint(n_features=4, scoring="float32")
    policy.add_arms(range(20))
    for arm in arms:
        policy.update_many([arm] * 10_000, np.ones((10_000, 4)), np.ones(10_000))
    X = np.tile([3.0, -1.0, 2.0, 0.5], (600, 1)) * RNG.uniform(0.1, 10, size=(600, 1))
    X[list(contexts)] = 1.0
    done = []

    def bounds(X, T, P, alpha):
        done.append((len(X), len(T)))
        return batch.bounds(X, T, P, alpha)

    double = SimpleNamespace(expand=batch.expand, bounds=bounds)
    monkeypatch.setattr(products, "batch", double)
    monkeypatch.setattr(products, "_BLOCK", 1)  # so blocks of 256 contexts
    found = policy.scores_many(X)
    assert done == again
    one = np.array([policy.scores(x) for x in X])
    assert (np.abs(found - one) / _made_of(policy, X)).max() < _tolerance(4)


def test_few_contexts_none_and_zeros():
    _, policy = _twins("linucb")
    policy.update_many([1, 2], RNG.normal(size=(2, 6)), [1.0, 2.0])
    assert policy.scores_many(np.zeros((0, 6))).shape == (0, 9)
    np.testing.assert_array_equal(policy.scores_many(np.zeros((300, 6))), np.zeros((300, 9)))
    X = RNG.normal(size=(20, 6))
    one = np.array([policy.scores(x) for x in X])
    np.testing.assert_allclose(policy.scores_many(X), one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["linucb-disjoint", "linucb-uniform", "linucb-hybrid", "lints"])
def test_no_contexts_have_no_scores(name: str) -> None:
    more = {} if name in ("linucb-disjoint", "lints") else {"n_item_features": 2}
    policy = whim.policy(name, n_features=3, **more)
    policy.add_arms(["a", "b"], np.zeros((2, 2)) if more else None)
    assert policy.scores_many(np.zeros((0, 3))).shape == (0, 2)
