"""AdaptiveLinUCB: equal to its literal form, right at the edges, and honest about what it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import whim
from tests.oracles import AdaptiveOracle
from whim.errors import InvalidInputError, StateFileError
from whim.kernels.loops import EACH, EventBatch
from whim.policies.base.state_file import unpack
from whim.policies.run_events import run_events

Rng = np.random.Generator


def _click(m: float, rng: Rng) -> float:
    return float(rng.random() < 1 / (1 + np.exp(-2 * m)))


KINDS: dict[str, Callable[[float, Rng], float]] = {
    "numbers": lambda m, rng: m + 0.3 * rng.normal(),
    "clicks": _click,
    "minus and plus": lambda m, rng: 2 * _click(m, rng) - 1,
    "two and five": lambda m, rng: 5.0 - 3 * _click(m, rng),
    "revenue": lambda m, rng: (rng.random() < 0.1) * round(rng.gamma(2, 5), 2),
    "counts": lambda m, rng: float(rng.poisson(0.5)),
    "one value": lambda m, rng: 0.7,
}


def both(kind: str, *, d: int, arms: int, steps: int, keep: int, paths: bool = False) -> int:
    """Run the policy beside its literal form; how many changes were reported."""
    rng = np.random.default_rng([steps, d, keep])
    fast = whim.AdaptiveLinUCB(n_features=d, beginnings=keep, false_events=2.0)
    slow = AdaptiveOracle(
        d=d, least_gain=fast._least_gain, beginnings=None if keep > steps else keep, paths=paths
    )
    fast.add_arms(range(arms))
    for a in range(arms):
        slow.add(a)
    theta, events = rng.normal(size=(arms, d)), 0
    for t in range(steps):
        if t == steps // 2:
            theta = -2 * theta
        x = rng.normal(size=d)
        if d == 3:
            x[0] = 1.0  # the context has a constant of its own
        candidates = [int(a) for a in rng.permutation(arms)[: 1 + int(rng.integers(arms))]]
        if paths:  # there are three times as many after each play of an arm
            candidates = [t % arms]
        expected = slow.scores(x, candidates)
        np.testing.assert_allclose(fast.scores(x, candidates), expected, rtol=1e-9, atol=1e-9)
        arm = fast.select(x, candidates).arm
        assert expected[candidates.index(arm)] == pytest.approx(expected.max(), abs=1e-9)
        r = float(KINDS[kind](float(theta[arm] @ x), rng))
        changed, event = slow.update(arm, x, r), fast.update(arm, x, r)
        assert (event is not None) == changed
        if event is not None:
            events += 1
            assert event.statistic == pytest.approx(slow.last_statistic, rel=1e-6)
    return events


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [2, 3])
def test_equals_the_literal_form(kind: str, d: int) -> None:
    events = both(kind, d=d, arms=3, steps=240, keep=5)
    assert events > 0 or kind != "numbers"


@pytest.mark.parametrize("kind", ["numbers", "clicks", "revenue"])
def test_with_every_beginning_kept(kind: str) -> None:
    both(kind, d=2, arms=2, steps=40, keep=60)


@pytest.mark.parametrize("kind", ["numbers", "clicks"])
def test_weights_are_sums_over_every_history_of_jumps(kind: str) -> None:
    both(kind, d=1, arms=6, steps=36, keep=40, paths=True)


@pytest.mark.parametrize("kind", ["numbers", "clicks"])
def test_long_contexts(kind: str) -> None:
    both(kind, d=26, arms=2, steps=30, keep=4)


def walk(policy: Any, X: Any, R: Any) -> Any:
    n, arms = R.shape
    policy.add_arms(range(arms))
    pools = np.zeros(n, np.int64), np.array([0, arms]), np.arange(arms)
    return run_events(policy, EventBatch(EACH, X, *pools, np.full(n, -1), R))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [2.0**-20, 2.0**20])
def test_the_unit_of_rewards_does_not_matter(kind: str, scale: float) -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(1500, 4))
    means = X @ rng.normal(size=(4, 3))
    R = np.array([[KINDS[kind](m, rng) for m in row] for row in means])
    one = walk(whim.AdaptiveLinUCB(n_features=4), X, R)
    other = walk(whim.AdaptiveLinUCB(n_features=4), X, R * scale)
    np.testing.assert_array_equal(one.chosen, other.chosen)
    assert [i for i, _ in one.changes] == [i for i, _ in other.changes]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_no_size_of_rewards_or_contexts_breaks_it(scale: float, size: float) -> None:
    rng = np.random.default_rng(6)
    for kind in KINDS:
        X = size * rng.normal(size=(400, 3))
        X[:20] = 0.0
        R = scale * np.array([[KINDS[kind](0.3, rng) for _ in range(2)] for _ in X])
        policy = whim.AdaptiveLinUCB(n_features=3)
        walk(policy, X, R)
        for x in (X[5], X[200], 10 * X[200]):
            assert np.isfinite(policy.rank(x)[0][1:]).all()
        whim.from_bytes(policy.to_bytes())  # which refuses what is not finite


def test_exact_after_many_plays() -> None:
    """The model of all plays against least squares over all of them."""
    rng = np.random.default_rng(7)
    n, d = 200_000, 4
    X = rng.normal(size=(n, d))
    r = X @ [1.0, -2.0, 0.5, 0.0] + 0.5 * rng.normal(size=n)
    policy = whim.AdaptiveLinUCB(n_features=d)
    policy.add_arms(["a"])
    assert policy.update_many(["a"] * n, X, r) == []
    at = policy._models.shape[1] - d - 1
    phi = np.column_stack([X, np.zeros(n)])
    precision, centre = policy._anchor[0, 2], policy._anchor[0, 1]
    A = np.diag(precision) + phi.T @ phi
    exact = np.linalg.solve(A, precision * centre + phi.T @ r)
    np.testing.assert_allclose(policy._models[0, at:, 0], exact, atol=1e-9)


def test_a_third_value_is_learnt_from_the_kept_plays() -> None:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(700, 2))
    r = (rng.random(700) < 0.3).astype(float)
    r[650] = 2.0
    late = whim.AdaptiveLinUCB(n_features=2)
    late.add_arms(["a", "b"])
    arms = ["a", "b"] * 350
    late.update_many(arms[:650], X[:650], r[:650])
    assert late.beliefs().rewards == "clicks"
    late.update_many(arms[650:], X[650:], r[650:])
    assert late.beliefs().rewards == "numbers"
    assert late.beliefs().arms["a"].began >= 1
    assert late.plays("a") == 350


def test_a_change_is_reported_with_its_beginning() -> None:
    rng = np.random.default_rng(9)
    X = rng.normal(size=(600, 3))
    theta = np.where(np.arange(600)[:, None] < 300, [1.0, 0.0, 0.0], [-1.0, 1.0, 0.0])
    r = (X * theta).sum(axis=1) + 0.2 * rng.normal(size=600)
    policy = whim.AdaptiveLinUCB(n_features=3)
    policy.add_arms(["a"])
    [event] = policy.update_many(["a"] * 600, X, r)
    assert event.began is not None
    assert abs(event.began - 301) <= 3
    assert event.plays <= 320
    assert event.kind == "jump"
    assert event.probability is not None
    assert event.probability > 0.95
    np.testing.assert_allclose(event.theta_before, [1, 0, 0], atol=0.1)
    np.testing.assert_allclose(policy.coefficients("a"), [-1, 1, 0], atol=0.1)
    beliefs = policy.beliefs()
    assert abs(beliefs.arms["a"].began - 301) <= 3
    assert beliefs.arms["a"].changed < 0.1
    assert beliefs.noise == pytest.approx(0.2, abs=0.15)  # the plays around the change count
    assert beliefs.nothing + beliefs.jumps + beliefs.drift == pytest.approx(1.0)


def test_beliefs_tell_drift_from_nothing() -> None:
    rng = np.random.default_rng(10)
    n = 6000
    angle = np.linspace(0, 12, n)
    turning = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    X = rng.normal(size=(n, 2))
    for theta, name in ((turning, "drift"), (turning[:1], "nothing")):
        policy = whim.AdaptiveLinUCB(n_features=2)
        policy.add_arms(["a", "b"])
        r = (X * theta).sum(axis=1) + 0.2 * rng.normal(size=n)
        events = policy.update_many(["a", "b"] * (n // 2), X, r)
        assert getattr(policy.beliefs(), name) > 0.8
        assert len(events) <= (0 if name == "nothing" else 2)


@pytest.mark.parametrize("kind", ["numbers", "clicks", "revenue", "counts"])
def test_nothing_changes_and_nothing_is_reported(kind: str) -> None:
    rng = np.random.default_rng(11)
    X = rng.normal(size=(20_000, 3)) / 2
    r = np.array([KINDS[kind](m, rng) for m in X @ [0.5, -0.5, 0.0]])
    policy = whim.AdaptiveLinUCB(n_features=3)
    policy.add_arms(range(2))
    assert len(policy.update_many(np.arange(20_000) % 2, X, r)) <= 2


def test_contexts_that_sum_to_one_get_no_constant_beside_them() -> None:
    """On LastFM, whose contexts are memberships, a constant cost a sixth of the clicks."""
    rng = np.random.default_rng(16)
    for X, constant in ((rng.dirichlet(np.ones(3), 50), 0.0), (rng.random((50, 3)), 1.0)):
        policy = whim.AdaptiveLinUCB(n_features=3)
        policy.add_arms(range(2))
        policy.update_many(np.arange(50) % 2, X, rng.integers(2, size=50).astype(float))
        policy.scores(X[0])
        assert policy._scratch.phi[3] == constant


def test_coefficients_of_clicks_are_never_expected_beyond_all_bounds() -> None:
    """Seen with optimism 0.5 on classes that swap places: a variance of 1e9, then NaN for ever."""
    rng = np.random.default_rng(15)
    X = rng.normal(size=(400, 3))
    policy = whim.AdaptiveLinUCB(n_features=3)
    policy.add_arms(range(3))
    for t, x in enumerate(X):
        policy._totals[2] = 4.0 ** min(t, 60)  # squares of coefficients that grow without end
        policy.update(t % 3, x, float(x[t % 3] > 0))
        assert np.isfinite(policy.scores(x)).all()
    bound = 1000 * 4 / np.mean(np.sum(X**2, axis=1) + 1)
    assert policy._prior[1].max() == pytest.approx(bound, rel=0.02)
    assert policy.coefficients(0) @ X[0] * X[0, 0] > 0


def test_arms_that_leave_take_their_plays_along_but_not_what_they_taught() -> None:
    rng = np.random.default_rng(12)
    policy = whim.AdaptiveLinUCB(n_features=2)
    policy.add_arms(["a", "b"])
    for _ in range(50):
        policy.update("a", rng.normal(size=2), float(rng.random() < 0.5))
    taught = policy._totals.copy()
    policy.retire_arms(["a"])
    policy.add_arms(["c"])
    assert policy.coefficients("c").tolist() == [0.0, 0.0]
    np.testing.assert_array_equal(policy._totals, taught)
    policy.update("c", rng.normal(size=2), 0.25)  # a third value: plays of "a" are not replayed
    assert policy._clock[policy._table.slot("c"), 0] == 1
    assert policy.beliefs().arms.keys() == {"c"}


@pytest.mark.parametrize(
    ("parameter", "value"), [("false_events", 0.0), ("optimism", -1.0), ("beginnings", 1)]
)
def test_bad_parameters_are_named(parameter: str, value: float) -> None:
    with pytest.raises(InvalidInputError, match=parameter):
        whim.AdaptiveLinUCB(n_features=2, **{parameter: value})  # type: ignore[arg-type]


def test_a_damaged_state_is_refused() -> None:
    policy = whim.AdaptiveLinUCB(n_features=2)
    policy.add_arms(["a"])
    policy.update("a", [1.0, 0.0], 1.0)
    for name, value in (("_clock", 99), ("_ring_place", 7), ("_models", np.nan)):
        copy = whim.AdaptiveLinUCB.from_bytes(policy.to_bytes())
        getattr(copy, name)[...] = value
        with pytest.raises(StateFileError):
            whim.AdaptiveLinUCB.from_bytes(copy.to_bytes())


@pytest.mark.parametrize("kind", ["numbers", "clicks"])
@pytest.mark.parametrize("beginnings", [2, 6, 9])
def test_a_file_has_one_model_after_another(kind: str, beginnings: int) -> None:
    rng = np.random.default_rng(13)
    d, n = 3, 400
    X = rng.normal(size=(n, d))
    r = np.array([KINDS[kind](m, rng) for m in X @ [0.5, -0.5, 0.0]])
    policy = whim.AdaptiveLinUCB(n_features=d, beginnings=beginnings)
    policy.add_arms(range(3))
    policy.update_many(np.arange(n) % 3, X, r)
    _, arrays = unpack(policy.to_bytes(), "data")
    places, p = beginnings + 2, d + 1
    assert arrays["models"].shape == (3, places, p * (p + 1) // 2 + p)
    assert arrays["drifts"].shape == (3, 3, p * p + p)
    assert arrays["weights"].shape == (3, places, 14)
    assert arrays["worlds"].shape == (2, 17)
    assert arrays["worlds"][1].sum() == pytest.approx(1.0)
    np.testing.assert_allclose(arrays["weights"].sum(axis=1), 1.0)
    count = arrays["clock"][:, 2]
    assert (arrays["born"][range(3), count - 1, 0] <= arrays["clock"][:, 0]).all()
    full = arrays["drifts"][..., : p * p].reshape(3, 3, p, p)
    np.testing.assert_array_equal(full, full.swapaxes(2, 3))
    copy = whim.from_bytes(policy.to_bytes())
    assert copy.to_bytes() == policy.to_bytes()
    for x in X[:20]:
        assert copy.rank(x) == policy.rank(x)


@pytest.mark.parametrize("kind", ["numbers", "clicks"])
def test_the_best_alone_is_that_of_all_scores(kind: str) -> None:
    """``select`` computes less of the others than ``rank`` does."""
    rng = np.random.default_rng(14)
    X = rng.normal(size=(600, 3))
    policy = whim.AdaptiveLinUCB(n_features=3)
    policy.add_arms(range(5))
    for x in X:
        choice = policy.select(x)
        assert choice == policy.rank(x)[0]
        policy.update(choice.arm, x, KINDS[kind](float(x[0]) * (-1) ** choice.arm, rng))


def test_a_prior_that_falls_by_orders_of_magnitude_keeps_its_digits() -> None:
    """An arm is played again when its prior is another: its models are those of all its plays."""
    rng = np.random.default_rng(15)
    policy = whim.AdaptiveLinUCB(n_features=2)
    policy.add_arms(["a", "b"])
    X = rng.normal(size=(3003, 2))
    r = np.concatenate([[1e6, -1e6, 3e5], X[3:] @ [1.0, -1.0] + 0.01 * rng.normal(size=3000)])
    policy.update_many(["a", "b", "a"], X[:3], r[:3])
    policy.update_many(["b"] * 2999, X[3:-1], r[3:-1])
    policy.update("a", X[-1], float(r[-1]))
    mine = np.array([0, 2, 3002])
    phi = np.column_stack([X[mine], np.zeros(3)])
    precision, centre = policy._anchor[0, 2], policy._anchor[0, 1]
    A = np.diag(precision) + phi.T @ phi
    exact = np.linalg.solve(A, precision * centre + phi.T @ r[mine])
    np.testing.assert_allclose(policy._models[0, -3:, 0], exact, rtol=1e-9, atol=1e-9)
