"""LinTS: its draws have the distribution of the posterior, arm by arm and across arms."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import whim
from tests.streams import stream
from whim.errors import InvalidInputError
from whim.policies.lints import LinTS

F64 = npt.NDArray[np.float64]
ARMS, D, M = 4, 3, 2
Y = np.random.default_rng(7).normal(size=(ARMS, M))
PAYOFFS: dict[str, dict[str, Any]] = {
    "disjoint": {"n_features": D},
    "item": {"payoff": "item", "n_item_features": M},
    "cross": {"payoff": "cross", "n_features": D, "n_item_features": M},
    "given": {"payoff": "cross", "n_features": D, "n_cross_features": D * M},
}
every_payoff = pytest.mark.parametrize("payoff", PAYOFFS)


def made(payoff: str, **params: Any) -> LinTS:
    policy = LinTS(**PAYOFFS[payoff], **params)
    policy.add_arms(range(ARMS), features=Y if payoff in ("item", "cross") else None)
    return policy


def features(payoff: str, x: F64, arms: list[int]) -> F64:
    """φ of each candidate in one long model of all coefficients."""
    if payoff == "disjoint":
        return np.array([np.kron(np.eye(ARMS)[a], x) for a in arms])
    return Y[arms] if payoff == "item" else np.array([np.kron(Y[a], x) for a in arms])


def cross(payoff: str, x: F64, arms: list[int]) -> F64 | None:
    return features(payoff, x, arms) if payoff == "given" else None


def learnt(payoff: str, steps: int = 40, **params: Any) -> tuple[LinTS, F64, F64]:
    """A policy after some plays, with A⁻¹ and θ of the long model."""
    policy = made(payoff, ridge=0.5, **params)
    size = features(payoff, np.zeros(D), [0]).shape[1]
    A, b = 0.5 * np.eye(size), np.zeros(size)
    rng = np.random.default_rng(3)
    for play in stream(steps=steps, arms=ARMS, d=D, seed=8):
        arm = int(rng.integers(ARMS))
        r = float(play.rewards[arm])
        z = cross(payoff, play.x, [arm])
        policy.update(arm, play.x, r, cross=None if z is None else z[0])
        phi = features(payoff, play.x, [arm])[0]
        A += np.outer(phi, phi)
        b += r * phi
    inverse = np.linalg.inv(A)
    return policy, inverse, inverse @ b


@every_payoff
def test_scores_have_the_mean_and_covariance_of_the_posterior(payoff: str) -> None:
    alpha, n = 0.8, 4_000 if payoff == "given" else 20_000
    policy, inverse, theta = learnt(payoff, alpha=alpha)
    x, arms = np.array([0.7, -1.1, 0.4]), [2, 0, 3]
    phi = features(payoff, x, arms)
    mean, covariance = phi @ theta, alpha**2 * phi @ inverse @ phi.T
    z = cross(payoff, x, arms)
    if z is None:
        drawn = policy.scores_many(np.tile(x, (n, 1)), arms)
    else:
        drawn = np.empty((n, len(arms)))
        for i in range(n):
            drawn[i] = policy.scores(x, arms, cross=z)
            policy.select(x, arms, cross=z)  # moves the stream on
    deviation = np.sqrt(np.diag(covariance))
    np.testing.assert_array_less(np.abs(drawn.mean(axis=0) - mean), 4.5 * deviation / np.sqrt(n))
    # a sample covariance of normals has variance (c_ij² + c_ii c_jj) / n
    bound = 4.5 * np.sqrt((covariance**2 + np.outer(deviation**2, deviation**2)) / n)
    np.testing.assert_array_less(np.abs(np.cov(drawn.T) - covariance), bound)
    standard = (drawn - mean) / deviation
    assert abs((standard**3).mean()) < 4.5 * np.sqrt(15 / n)
    assert abs((standard**4).mean() - 3.0) < 4.5 * np.sqrt(96 / n)


@every_payoff
def test_means_and_widths_are_those_of_ridge(payoff: str) -> None:
    policy, inverse, theta = learnt(payoff, alpha=0.8)
    x, arms = np.array([0.7, -1.1, 0.4]), [2, 0, 3]
    ranked = {d.arm: d for d in policy.rank(x, arms, cross=cross(payoff, x, arms))}
    for arm, phi in zip(arms, features(payoff, x, arms), strict=True):
        assert ranked[arm].mean == pytest.approx(phi @ theta, abs=1e-10)
        assert ranked[arm].width == pytest.approx(0.8 * np.sqrt(phi @ inverse @ phi), abs=1e-10)
    found = policy.coefficients(2 if payoff == "disjoint" else None)
    expected = theta[2 * D : 3 * D] if payoff == "disjoint" else theta
    np.testing.assert_allclose(found, expected, atol=1e-10)


@every_payoff
def test_scores_show_the_next_draw_and_do_not_take_it(payoff: str) -> None:
    policy, _, _ = learnt(payoff)
    x, arms = np.array([0.7, -1.1, 0.4]), [1, 3, 0]
    z = cross(payoff, x, arms)
    before = policy.to_bytes()
    first = policy.scores(x, arms, cross=z)
    np.testing.assert_array_equal(policy.scores(x, arms, cross=z), first)
    assert policy.to_bytes() == before
    decision = policy.select(x, arms, cross=z)
    assert decision.arm == arms[int(np.argmax(first))]
    assert decision.score == first.max()
    assert not np.array_equal(policy.scores(x, arms, cross=z), first)


@pytest.mark.parametrize("payoff", ["disjoint", "item", "cross"])
def test_no_width_is_greedy_ridge(payoff: str) -> None:
    policy = made(payoff, alpha=0.0)
    plain: whim.Policy
    if payoff == "disjoint":
        plain = whim.LinUCBDisjoint(n_features=D, alpha=0.0)
        plain.add_arms(range(ARMS))
    else:
        plain = whim.LinUCBUniform(n_features=D, n_item_features=M, payoff=payoff, alpha=0.0)
        plain.add_arms(range(ARMS), features=Y)
    for play in stream(steps=100, arms=ARMS, d=D, seed=1):
        decision = policy.select(play.x, play.candidates)
        assert decision == plain.select(play.x, play.candidates)
        for learner in (policy, plain):
            learner.update(decision.arm, play.x, float(play.rewards[decision.arm]))


@pytest.mark.parametrize("payoff", ["disjoint", "item", "cross"])
def test_scores_many_draws_a_model_a_context(payoff: str) -> None:
    policy, _, _ = learnt(payoff)
    X = np.random.default_rng(1).normal(size=(6, D))
    before = policy.to_bytes()
    found = policy.scores_many(X if payoff != "item" else X[:, :0], [2, 0, 1])
    assert policy.to_bytes() == before
    for x, row in zip(X, found, strict=True):
        np.testing.assert_allclose(row, policy.scores(x, [2, 0, 1]), atol=1e-12)
        policy.select(x, [2, 0, 1])


def plays(payoff: str, n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    arms, X = rng.integers(ARMS, size=n).tolist(), rng.normal(size=(n, D))
    z = None
    if payoff == "given":
        z = np.array([features(payoff, x, [a])[0] for a, x in zip(arms, X, strict=True)])
    return {"arms": arms, "X": X, "rewards": rng.normal(size=n), "cross": z}


@every_payoff
def test_update_many_equals_the_loop(payoff: str) -> None:
    one, many = made(payoff), made(payoff)
    batch = plays(payoff, 200, 0)
    many.update_many(**batch)
    for i in range(200):
        row = None if batch["cross"] is None else batch["cross"][i]
        one.update(batch["arms"][i], batch["X"][i], float(batch["rewards"][i]), cross=row)
    assert many.to_bytes() == one.to_bytes()


@every_payoff
def test_saved_and_loaded_goes_on_bit_for_bit(payoff: str) -> None:
    policy, _, _ = learnt(payoff, seed=5)
    x, arms = np.ones(D), [0, 2, 3]
    policy.retire_arms([1])
    z = cross(payoff, x, arms)
    policy.select(x, arms, cross=z)
    again = LinTS.from_bytes(policy.to_bytes())
    assert repr(again) == repr(policy)
    for _ in range(50):
        decision = policy.select(x, arms, cross=z)
        assert again.select(x, arms, cross=z) == decision
        row = None if z is None else z[arms.index(decision.arm)]
        for learner in (policy, again):
            learner.update(decision.arm, x, 0.5, cross=row)
    assert again.to_bytes() == policy.to_bytes()


def test_reset_and_retire() -> None:
    policy, _, _ = learnt("disjoint")
    kept = policy.coefficients(0)
    policy.reset_arms([1])
    policy.retire_arms([2])
    policy.add_arms([2])
    for arm in (1, 2):
        np.testing.assert_array_equal(policy.coefficients(arm), 0.0)
    np.testing.assert_array_equal(policy.coefficients(0), kept)

    shared, _, _ = learnt("cross")
    kept = shared.coefficients()
    shared.retire_arms([2])
    np.testing.assert_array_equal(shared.coefficients(), kept)
    shared.reset_arms([1])
    np.testing.assert_array_equal(shared.coefficients(0), 0.0)


def test_the_seed_is_the_stream() -> None:
    x = np.ones(D)
    one, same, other = (made("disjoint", seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(one.scores(x), same.scores(x))
    assert not np.array_equal(one.scores(x), other.scores(x))


def test_a_bad_context_leaves_the_stream_where_it_was() -> None:
    policy = made("disjoint")
    before = policy.to_bytes()
    with pytest.raises(InvalidInputError, match="x must be finite"):
        policy.select([np.nan, 0.0, 0.0])
    assert policy.to_bytes() == before
    with pytest.raises(InvalidInputError, match="arm"):
        policy.coefficients()
    with pytest.raises(InvalidInputError, match="features must be None"):
        policy.add_arms(["new"], features=[[1.0, 2.0]])


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@every_payoff
def test_any_scale_is_finite(payoff: str, scale: float) -> None:
    policy = made(payoff)
    batch = plays(payoff, 3000, 1)
    batch["X"] = scale * batch["X"]
    if batch["cross"] is not None:
        batch["cross"] = scale * batch["cross"]
    policy.update_many(**batch)
    arms = list(range(ARMS))
    for x in (scale * np.ones(D), np.ones(D), np.zeros(D)):
        assert np.isfinite(policy.scores(x, arms, cross=cross(payoff, x, arms))).all()
