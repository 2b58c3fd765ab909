"""Oracle 18 of section 8: policies under literal replay, on logs whose answer is known by hand."""

from __future__ import annotations

import numpy as np
import pytest

import whim
from tests.factories import FACTORIES
from tests.oracles.replay import Logged, replay

K, D = 4, 3


def visits(n: int, seed: int) -> list[Logged]:
    """Uniform logging over all arms; clicks whose rate depends on the arm and the user."""
    rng = np.random.default_rng(seed)
    theta = rng.random((K, D)) / D
    log = []
    for _ in range(n):
        x = rng.random(D)
        shown = int(rng.integers(K))
        pool = rng.permutation(K).tolist()
        log.append(Logged(x, pool, shown, float(rng.random() < x @ theta[shown])))
    return log


def made(name: str) -> whim.Policy:
    policy = whim.policy(
        name, n_features=D, **({"window": 40, "threshold": 0.3} if "ps" in name else {})
    )
    policy.add_arms(range(K))
    return policy


@pytest.mark.parametrize("name", ["linucb-disjoint", "pslinucb-disjoint"])
def test_oracle_18_a_log_that_always_agrees_keeps_every_visit(name: str) -> None:
    """If the logged arm is always the policy's, the rate is the log's mean reward."""
    policy, judge = made(name), made(name)
    log = []
    for visit in visits(600, seed=1):
        arm = policy.select(visit.x, visit.pool).arm
        assert isinstance(arm, int)
        log.append(visit._replace(shown=arm))
        policy.update(arm, visit.x, visit.reward)
    found = replay(judge, log)
    assert found.kept == len(log)
    assert found.rate == np.mean([visit.reward for visit in log])
    assert judge.to_bytes() == policy.to_bytes()


@pytest.mark.parametrize("constant", range(K))
def test_oracle_18_a_constant_policy_has_its_arm_s_empirical_rate(constant: int) -> None:
    """A policy that never learns and always prefers one arm keeps exactly that arm's visits."""
    policy = whim.UCB(bonus="li", alpha=0.0)
    policy.add_arms(range(K))
    policy.update(constant, None, 1e6)  # no click brings the mean of another arm near this one's
    for other in set(range(K)) - {constant}:
        policy.update(other, None, 0.0)
    log = visits(3000, seed=2)
    found = replay(policy, log)
    own = [visit.reward for visit in log if visit.shown == constant]
    assert found.kept == len(own)
    assert found.rate == np.mean(own)


@pytest.mark.parametrize("name", ["random", "ucb", "linucb-disjoint", "pslinucb-disjoint"])
def test_oracle_18_one_visit_in_k_is_kept(name: str) -> None:
    """Uniform logging agrees with any policy once in K visits: within four standard errors."""
    n = 8000
    found = replay(made(name), visits(n, seed=3))
    error = np.sqrt(1 / K * (1 - 1 / K) / n)
    assert abs(found.kept / n - 1 / K) < 4 * error


@pytest.mark.parametrize("name", FACTORIES)
def test_oracle_18_a_decision_that_does_not_match_leaves_no_trace(name: str) -> None:
    """Only the random stream of a policy that draws may move; nothing learnt does."""
    policy = FACTORIES[name]()
    m, k = policy.n_item_features, policy.n_cross_features
    rng = np.random.default_rng(4)
    policy.add_arms(range(K), features=rng.normal(size=(K, m)) if m else None)
    d = policy.n_features or 2
    Z = rng.normal(size=(K, k)) if k and not m else None
    for t in range(40):
        x = rng.normal(size=d)
        before = policy.to_bytes()
        policy.select(x, cross=Z)
        if not policy.randomised:
            assert policy.to_bytes() == before
        policy.update(t % K, x, float(rng.normal()), cross=None if Z is None else Z[t % K])
