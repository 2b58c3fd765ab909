"""Candidates and ids that were looked up before, or all at once, mean what a look-up would."""

import numpy as np
import pytest

import whim
from whim.errors import InvalidInputError, UnknownArmError


def _policy(arms):
    policy = whim.LinUCBDisjoint(n_features=2)
    policy.add_arms(arms)
    return policy


def test_the_same_candidates_again_are_checked_as_the_first_time():
    policy, x = _policy([0, 1, 2, "a"]), np.array([1.0, 2.0])
    assert policy.select(x, [1, 2]).arm == policy.select(x, [1, 2]).arm == 1
    with pytest.raises(InvalidInputError, match="bool"):
        policy.select(x, [True, 2])  # equal to the list before, and still refused
    policy.retire_arms([1])
    with pytest.raises(UnknownArmError, match="1"):
        policy.select(x, [1, 2])
    policy.add_arms(["b", 1])  # 1 has another slot by now
    policy.update(1, x, 5.0)
    assert policy.select(x, [2, 1]).arm == 1
    assert policy.select(x, [1, 2]).arm == 1


def test_a_list_that_its_owner_changes_is_looked_at_anew():
    policy, x, pool = _policy([0, 1, 2]), np.array([1.0, 0.0]), [0, 1]
    policy.update(2, x, 9.0)
    assert policy.select(x, pool).arm == 0
    pool[1] = 2
    assert policy.select(x, pool).arm == 2


def test_ids_that_cannot_be_compared_get_the_usual_error():
    policy, x = _policy([0, 1]), np.array([1.0, 0.0])
    policy.select(x, [0, 1])
    with pytest.raises(InvalidInputError):
        policy.select(x, [np.zeros(2), np.ones(2)])


@pytest.mark.parametrize("ids", [[0, 1, 2], [5, 3, 70_000_000], [-4, 2, 7], ["a", 3, 4]])
def test_an_array_of_ids_learns_as_a_list_does(ids):
    numbers = [a for a in ids if isinstance(a, int)]
    rng = np.random.default_rng(0)
    arms = np.array(numbers)[rng.integers(len(numbers), size=50)]
    X, rewards = rng.normal(size=(50, 2)), rng.normal(size=50)
    one, other = _policy(ids), _policy(ids)
    one.update_many(arms, X, rewards)
    other.update_many(arms.tolist(), X, rewards)
    for arm in numbers:
        np.testing.assert_array_equal(one.coefficients(arm), other.coefficients(arm))
        assert one.plays(arm) == other.plays(arm)


@pytest.mark.parametrize("arms", [[0, 9], [-1, 0], [0, 10**9]])
def test_unknown_numbers_in_an_array_are_named_and_nothing_is_learnt(arms):
    policy = _policy([0, 1])
    before = policy.to_bytes()
    unknown = next(a for a in arms if a)
    with pytest.raises(UnknownArmError, match=str(unknown)):
        policy.update_many(np.array(arms), np.zeros((2, 2)), [0.0, 0.0])
    assert policy.to_bytes() == before
    with pytest.raises(InvalidInputError, match="bool"):
        policy.update_many(np.array([True, False]), np.zeros((2, 2)), [0.0, 0.0])


def test_numbers_are_looked_up_as_arms_come_and_go():
    policy = _policy([0, 1])
    x = np.ones((1, 2))
    policy.update_many(np.array([1]), x, [1.0])
    policy.retire_arms([1])
    with pytest.raises(UnknownArmError):
        policy.update_many(np.array([1]), x, [1.0])
    policy.add_arms([7, 1])
    policy.update_many(np.array([1, 7]), np.ones((2, 2)), [1.0, 2.0])
    assert (policy.plays(1), policy.plays(7)) == (1, 1)
    policy = whim.policies.from_bytes(policy.to_bytes())
    policy.update_many(np.array([7], np.uint8), x, [1.0])
    assert policy.plays(7) == 2
