"""Lists: literal algorithms, limits, diversity, slots, batches, and what is refused.

That ``update_list`` is the loop of ``update`` is a rule of the contract: see ``whim.testing``.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import whim
from tests.factories import FACTORIES
from tests.oracles.list_policies import C2UCB, CascadeLinUCB
from whim import Policy
from whim.errors import InvalidInputError, WhimError
from whim.kernels import lists as kernels
from whim.kernels.jit import bind
from whim.policies.base import listing

ARMS = ["a", "b", "c", "d", "e", "f"]


def made(name: str, **params: object) -> Policy:
    policy = FACTORIES[name]()
    if params:
        policy = type(policy)(**{**policy.params, **params})
    m = policy.n_item_features
    rng = np.random.default_rng(3)
    policy.add_arms(ARMS, features=rng.normal(size=(6, m)) if m else None)
    return policy


def rows(policy: Policy, n: int, rng: np.random.Generator) -> np.ndarray | None:
    k = policy.n_cross_features
    return rng.normal(size=(n, k)) if k and not policy.n_item_features else None


def visits(policy: Policy, n: int, seed: int = 0):
    """Contexts, rewards of every arm, and cross features where the caller gives them."""
    rng = np.random.default_rng(seed)
    d = policy.n_features or 2
    for t in range(n):
        level = np.sin(np.arange(6) + t // 25)
        clicks = (rng.random(6) < 0.5 + 0.4 * level).astype(float)
        yield rng.normal(size=d), clicks, rows(policy, 6, rng)


# the contract (``check_policy``) has this of every policy with ties that go to the first
@pytest.mark.parametrize("name", ["random", "ucb1", "ucb-li", "linucb-disjoint", "lints", "swucb"])
def test_a_list_of_one_is_a_decision_where_ties_are_drawn(name: str) -> None:
    lists, single = made(name, ties="random"), made(name, ties="random")
    for x, clicks, Z in visits(single, 60):
        one = single.select(x, cross=Z)
        assert lists.select_list(x, k=1, cross=Z) == (
            [one.arm],
            [one.score],
            [one.mean],
            [one.width],
        )
        place = ARMS.index(one.arm)
        z = None if Z is None else Z[[place]]
        single.update(one.arm, x, float(clicks[place]), cross=None if z is None else z[0])
        lists.update_list([one.arm], x, clicks[[place]], cross=z)
    assert lists.to_bytes() == single.to_bytes()


@pytest.mark.parametrize("oracle", [C2UCB, CascadeLinUCB])
def test_lists_equal_the_literal_algorithms(oracle: type[C2UCB]) -> None:
    feedback = "semi" if oracle is C2UCB else "cascade"
    rng = np.random.default_rng(8)
    policy, literal = whim.LinUCBDisjoint(n_features=4, alpha=0.7), oracle(12, 4, 0.7)
    policy.add_arms(range(12))
    theta = rng.normal(size=(12, 4))
    for _ in range(300):
        x = rng.normal(size=4)
        shown = policy.select_list(x, k=5)
        assert shown.arms == literal.select(x, 5)
        assert np.allclose(shown.scores, np.sort(literal.bounds(x))[::-1][:5], rtol=0, atol=1e-9)
        rewards = [float(rng.random() < 1 / (1 + np.exp(2 - x @ theta[a]))) for a in shown.arms]
        policy.update_list(shown.arms, x, rewards, feedback=feedback)
        literal.update(shown.arms, x, rewards)


@pytest.mark.parametrize("name", ["linucb-disjoint", "pslinucb-hybrid", "lints-item"])
def test_by_position_the_features_are_scaled(name: str) -> None:
    whole, loop = made(name), made(name)
    for x, clicks, _ in visits(whole, 40):
        whole.update_list(ARMS[:3], x, clicks[:3], feedback="positions", examine=[1.0, 0.5, 0.0])
        for i, e in enumerate((1.0, 0.5, 0.0)):
            z = [e * loop._features[i]] if name == "lints-item" else None
            loop.update_many(ARMS[i : i + 1], [e * x], clicks[i : i + 1], cross=z)
    assert whole.to_bytes() == loop.to_bytes()


def test_limits_hold_and_no_list_within_them_is_better() -> None:
    from itertools import permutations

    policy = made("linucb-disjoint")
    for x, clicks, _ in visits(policy, 30):
        policy.update_list(ARMS, x, clicks, feedback="semi")
        topics = ["s", "s", "s", "n", "n", None]
        shown = policy.select_list(x, ARMS, 4, limits={"topic": 1}, groups={"topic": topics})
        score = dict(zip(ARMS, policy.scores(x, ARMS), strict=True))
        topic = dict(zip(ARMS, topics, strict=True))
        assert len(shown.arms) == 3  # one of each topic, and the arm without one
        for other in permutations(ARMS, 3):
            named = [topic[a] for a in other if topic[a] is not None]
            if len(set(named)) == len(named):
                assert sum(shown.scores) >= sum(score[a] for a in other) - 1e-12
        one = policy.select_list(x, k=6, limits={"topic": {"s": 1}}, groups={"topic": topic})
        assert sum(topic[a] == "s" for a in one.arms) == 1
        assert len(one.arms) == 4


def test_diversity_is_relevance_minus_likeness() -> None:
    policy = made("linucb-disjoint")
    x = np.ones(4)
    policy.update_list(ARMS, x, [0.9, 0.8, 0.7, 0.6, 0.5, 0.4], feedback="semi")
    Y = np.array([[1, 0], [1, 0], [0, 2], [1, 1], [0, 0], [-1, 0]], float)
    score, unit = policy.scores(x, ARMS), Y / np.maximum(np.linalg.norm(Y, axis=1), 1e-9)[:, None]
    shown: list[int] = []
    while len(shown) < 4:
        like = [
            max([max(0.0, float(unit[a] @ unit[b])) for b in shown], default=0.0) for a in range(6)
        ]
        left = [a for a in range(6) if a not in shown]
        shown.append(max(left, key=lambda a: score[a] - 0.3 * like[a]))
    chosen = policy.select_list(x, ARMS, 4, diversity=0.3, features=Y)
    assert chosen.arms == [ARMS[a] for a in shown] != policy.select_list(x, ARMS, 4).arms
    mapped = dict(zip(ARMS, Y, strict=True))
    assert policy.select_list(x, ARMS, 4, diversity=0.3, features=mapped) == chosen


def test_diversity_among_arms_that_were_never_played() -> None:
    """Their scores are infinite, from which no likeness takes anything."""
    policy = whim.UCB()
    policy.add_arms(["a", "b", "c", "d"])
    looks = {"a": [1.0, 0.0], "b": [1.0, 0.1], "c": [0.0, 1.0], "d": [0.0, 1.0]}
    assert policy.select_list(k=3, diversity=0.1, features=looks).arms == ["a", "c", "b"]


def test_slots_with_features_are_filled_one_after_another() -> None:
    policy = made("linucb-disjoint")
    rng = np.random.default_rng(5)
    for x, clicks, _ in visits(policy, 30):
        policy.update_list(ARMS, x, clicks, feedback="semi")
    X = rng.normal(size=(3, 4))
    shown, left = policy.select_list(X, k=3), list(ARMS)
    for i, x in enumerate(X):
        assert shown.arms[i] == policy.select(x, left).arm
        left.remove(shown.arms[i])
    other = made("linucb-disjoint")
    other.update_list(shown.arms, X, [0, 0, 1])
    assert [other.plays(a) for a in shown.arms] == [1, 1, 1]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 20, 300])
def test_the_best_of_candidates_in_order(n: int) -> None:
    """Many or few, with equal and infinite scores, of which a model may prefer the later."""
    rng, kinds = np.random.default_rng(n), (-np.inf, np.inf, 0.0, -0.0, 1e300)
    slots = rng.permutation(n)
    for k in (1, 3, 8, 60):
        for draw in range(8):
            scores = rng.integers(-2, 3, size=n).astype(float) if draw % 2 else rng.normal(size=n)
            if draw > 3:
                scores[rng.integers(n, size=2)] = rng.choice(kinds, size=2)
            before = scores.copy()
            for first in (kernels.prefers, lambda state, a, b: a < b):
                insert = bind(kernels.insert, "insert", prefers=first)
                top = bind(kernels.top, "top", prefers=first, fill_by_insertion=insert)
                ties = np.arange(n) if first is kernels.prefers else slots
                places, room = np.full(k, -1), np.zeros(k)
                found = top(None, slots, scores, places, room)
                assert found == min(k, n)
                assert places[:found].tolist() == np.lexsort((ties, -scores))[:found].tolist()
                assert np.array_equal(scores, before)


def test_batches_are_the_loop() -> None:
    one, many = made("pslinucb-disjoint"), made("pslinucb-disjoint")
    X = np.random.default_rng(1).normal(size=(50, 3))
    clicks = (np.random.default_rng(2).random((50, 3)) < 0.4).astype(float)
    shown = many.select_list_many(X, k=3)
    assert shown == [one.select_list(x, k=3) for x in X]
    events = many.update_list_many([s.arms for s in shown], X, clicks)
    assert events == [
        e for s, x, r in zip(shown, X, clicks, strict=True) for e in one.update_list(s.arms, x, r)
    ]
    assert one.to_bytes() == many.to_bytes()


BAD = {
    "arms must not repeat": {"arms": ["a", "a"]},
    "rewards must be": {"rewards": [0.0, np.nan]},
    "a vector of length 2": {"rewards": [1.0]},
    "x must be": {"x": [np.inf] * 4},
    "at least one item": {"arms": [], "rewards": []},
    "feedback must be one of": {"feedback": "unclicked"},
    "examine must be given": {"feedback": "positions"},
    "examine must be None": {"examine": [1.0, 0.5]},
    "examine must have a chance": {"feedback": "positions", "examine": [1.0]},
    "examine must be chances": {"feedback": "positions", "examine": [1.0, 1.5]},
    "must be live arms": {"arms": ["a", "nobody"]},
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_list_is_refused_whole(message: str) -> None:
    policy = made("linucb-disjoint")
    x = np.full(4, 0.5)
    policy.select_list(x, k=2)
    before = policy.to_bytes()
    call = {"arms": ["a", "b"], "x": x, "rewards": [0.0, 1.0]} | BAD[message]
    with pytest.raises(WhimError, match=message):
        policy.update_list(call.pop("arms"), call.pop("x"), call.pop("rewards"), **call)
    assert policy.to_bytes() == before


@pytest.mark.parametrize("bound", [False, True])
def test_what_cannot_be_a_list_is_refused(bound: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_rooms", rooms := [])  # as before the first list of all
    monkeypatch.setattr(listing, "_take", rooms.pop)
    policy = made("linucb-disjoint")
    x = np.full(4, 0.5)
    if bound:  # the kernel of live calls is there
        policy.select(x)
    for message, call in {
        "k must be an integer >= 1, got 0": {"k": 0},
        "groups must have 'topic'": {"limits": {"topic": 2}},
        "groups must come with limits": {"groups": {"topic": {}}},
        "must have every candidate": {"limits": {"topic": 2}, "groups": {"topic": {}}},
        "one value for each of 6": {"limits": {"topic": 2}, "groups": {"topic": [1]}},
        "got a Series": {"limits": {"topic": 2}, "groups": {"topic": pd.Series([1] * 6)}},
        "limits\\['topic'\\] must be": {"limits": {"topic": 0}, "groups": {"topic": [1] * 6}},
        "features must be given for diversity": {"diversity": 0.1},
        "diversity must be": {"diversity": -1},
        "diversity must be a finite number >= 0, got None": {"diversity": None},
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            policy.select_list(x, **call)
    with pytest.raises(InvalidInputError, match="one row for each of k = 3"):
        policy.select_list(np.ones((2, 4)), k=3)
    with pytest.raises(InvalidInputError, match="learns from rewards alone"):
        made("ucb-li").update_list(["a"], np.ones(3), [1], feedback="positions", examine=[1])
