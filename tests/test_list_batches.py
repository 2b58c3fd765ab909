"""Batches of lists are the loop of single calls, with every option and every kind of context."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import whim
from tests.test_lists import ARMS, made, rows
from whim.errors import InvalidInputError, WhimError
from whim.features import Features, choice, number

TOPICS = {"topic": [1, 1, 1, 2, 2, np.nan]}


def named() -> whim.Policy:
    features = Features([number("age", mean=40, scale=10), choice("device", ["phone", "desk"])])
    policy = whim.LinUCBDisjoint(n_features=features.size).with_features(features)
    policy.add_arms(ARMS)
    return policy


FRAME = pd.DataFrame({"age": [20, 30, 60], "device": ["phone", "desk", "phone"]})


def test_options_and_slots_of_a_batch_are_those_of_a_list() -> None:
    policy, rng = made("linucb-disjoint"), np.random.default_rng(0)
    policy.update_many(ARMS, rng.normal(size=(6, 4)), rng.random(6))
    X = rng.normal(size=(5, 4))
    how = {"limits": {"topic": 1}, "groups": TOPICS, "diversity": 0.2, "features": np.eye(6)}
    many = policy.select_list_many(X, ARMS, 3, **how)
    assert many == [policy.select_list(x, ARMS, 3, **how) for x in X]
    slots = rng.normal(size=(5, 3, 4))
    shown = policy.select_list_many(slots, k=3)
    assert shown == [policy.select_list(one, k=3) for one in slots]
    other = made("linucb-disjoint")
    other.update_many(ARMS, np.zeros((6, 4)), np.zeros(6))
    before = other.clone()
    before.add_arms(ARMS)
    before.update_many(ARMS, np.zeros((6, 4)), np.zeros(6))
    other.update_list_many((one.arms for one in shown), slots, ([0, 1, 0] for _ in shown))
    for one, x in zip(shown, slots, strict=True):
        before.update_list(one.arms, x, [0, 1, 0])
    assert other.to_bytes() == before.to_bytes()


@pytest.mark.parametrize("rows_of", [FRAME.copy, lambda: FRAME.to_dict("records")])
def test_rows_by_name(rows_of) -> None:
    policy, loop = named(), named()
    table = rows_of()
    shown = policy.select_list_many(table, k=2)
    one_by_one = [loop.select_list(row, k=2) for row in FRAME.to_dict("records")]
    assert shown == one_by_one
    assert policy.select_list(table, k=3).arms == ARMS[:3]  # one row per slot
    policy.update_list(ARMS[:3], table, [0, 0, 1])
    loop.update_list(ARMS[:3], policy.features.many(table), [0, 0, 1])
    policy.update_list_many([one.arms for one in shown], table, [[0, 1]] * 3)
    for one, row in zip(shown, FRAME.to_dict("records"), strict=True):
        loop.update_list(one.arms, row, [0, 1])
    assert policy.to_bytes() == loop.to_bytes()
    assert named().select_list(FRAME[:1], k=2) == named().select_list(
        FRAME.to_dict("records")[0], k=2
    )


def test_cross_features_of_a_batch() -> None:
    policy, loop = made("linucb-hybrid-given"), made("linucb-hybrid-given")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, policy.n_features))
    Z = [rows(policy, 2, rng) for _ in X]
    policy.update_list_many([["a", "b"]] * 4, X, [[0, 1]] * 4, cross=Z)
    for x, z in zip(X, Z, strict=True):
        loop.update_list(["a", "b"], x, [0, 1], cross=z)
    assert policy.to_bytes() == loop.to_bytes()


def test_policies_without_contexts_take_the_number_of_lists() -> None:
    policy = whim.UCB()
    policy.add_arms(ARMS)
    assert policy.select_list_many(3, k=2) == [policy.select_list(k=2)] * 3
    policy.update_list_many([["a", "b"]] * 3, None, [[0, 0]] * 3)
    assert [policy.plays(arm) for arm in "abc"] == [3, 3, 0]


def test_a_gap_in_groups_is_no_group() -> None:
    policy = made("linucb-disjoint")
    for gap in (None, np.nan, pd.NA, float("nan")):
        groups = {"topic": [gap] * 6}
        shown = policy.select_list(np.ones(4), ARMS, 6, limits={"topic": 1}, groups=groups)
        assert shown.arms == ARMS


@pytest.mark.parametrize(
    ("message", "call"),
    {
        "rewards must have a row for each of 2 lists, got 1": ([["a"], ["b"]], 2, [[1]]),
        "lists must have one row per list, got None": (None, 2, [[1]]),
        "rewards must have one row per list, got 1.0": ([["a"]], 2, 1.0),
        "X must have one entry for each of 1 lists, got 3": ([["a"]], "slots", [[1]]),
        "must be live arms|must be a live arm": ([["a"], ["nobody"]], 2, [[1], [1]]),
    }.items(),
)
def test_a_bad_batch_is_refused_whole(message: str, call: tuple) -> None:
    policy = made("linucb-disjoint")
    before = policy.to_bytes()
    lists, size, rewards = call
    X = np.ones((3, 1, 4)) if size == "slots" else np.ones((size, 4))
    with pytest.raises(WhimError, match=message):
        policy.update_list_many(lists, X, rewards)
    assert policy.to_bytes() == before
    with pytest.raises(InvalidInputError, match="X must"):
        policy.select_list_many([{"age": 3}])
