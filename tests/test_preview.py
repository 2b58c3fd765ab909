"""``preview`` is what would be chosen had the arms been added first; and nothing changes by it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from tests.factories import FACTORIES
from whim.errors import InvalidInputError

SERVED = [name for name in FACTORIES if "given" not in name and "oracle" not in name
          and name != "pslinucb-hybrid-literal"]  # fmt: skip


def trained(name: str) -> Any:
    policy: Any = FACTORIES[name]()
    rng = np.random.default_rng(7)
    m, d = policy.n_item_features, policy.n_features
    arms = ["a", "b", "c", "gone"]
    policy.add_arms(arms, rng.normal(size=(4, m)) if m else None)
    for i in range(60):
        x = None if d is None else rng.normal(size=d)
        policy.update(arms[i % 3], x, float(rng.random() < 0.4 + 0.2 * (i > 30)))
    policy.retire_arms(["gone"])
    return policy, rng


def literal(policy: Any, x: Any, ids: list[Any], features: dict[Any, Any], seed: int) -> Any:
    """A copy that really adds the arms, really sets the features, and draws by the seed."""
    twin = copy.deepcopy(policy)
    new = [arm for arm in ids if arm not in twin.arms]
    if new:
        twin.add_arms(new, np.array([features[a] for a in new]) if features else None)
    old = [arm for arm in ids if arm in features and arm not in new]
    if old:
        twin.set_features(old, np.array([features[arm] for arm in old]))
    twin._rng = np.random.Generator(np.random.PCG64(seed))
    if not twin.randomised:
        return *twin.ranked(x, ids), None
    chances = twin.probabilities(x, ids)
    first = twin.select(x, ids)
    numbers = twin._out[: len(ids)].ravel().tolist()
    order = np.argsort(-np.array(numbers[::3]), kind="stable").tolist()
    order.sort(key=lambda i: ids[i] != first.arm)
    return order, numbers, chances


@pytest.mark.parametrize("name", SERVED)
def test_it_ranks_as_if_the_arms_had_been_added(name: str) -> None:
    policy, rng = trained(name)
    m, d = policy.n_item_features, policy.n_features
    lists = [["a", "new", "c"], ["n1", "n2"], ["b", "a"], ["gone"], [f"i{i}" for i in range(30)]]
    before = policy.to_bytes()
    for round_, ids in enumerate(lists * 3):
        x = None if d is None else rng.normal(size=d)
        came = ids if round_ % 2 else [arm for arm in ids if arm not in policy.arms]
        features = {arm: rng.normal(size=m) for arm in came} if m else {}
        found = policy.preview(x, ids, features, seed=round_)
        expected = literal(policy, x, ids, features, round_)
        assert found.order == expected[0]
        assert found.numbers == expected[1]
        if found.chances is None:
            assert expected[2] is None
        else:
            assert found.chances.tolist() == expected[2].tolist()
        assert policy.to_bytes() == before
    # and what follows is what would have followed without
    fresh = type(policy).from_bytes(before)
    for one in (policy, fresh):
        one.add_arms(["n1", "x"], np.ones((2, m)) if m else None)
        one.update("x", None if d is None else np.ones(d), 1.0)
    assert policy.to_bytes() == fresh.to_bytes()


def test_a_policy_without_arms_ranks_new_ones() -> None:
    policy = FACTORIES["linucb-disjoint"]()
    assert policy.preview(np.ones(4), ["p", "q"]).order == [0, 1]
    assert policy.arms == []


@pytest.mark.parametrize("ties", ["first", "random"])
def test_draws_belong_to_the_seed_and_not_to_a_stream(ties: str) -> None:
    import whim

    policy = whim.LinTS(n_features=1, seed=3, ties=ties)
    policy.add_arms(["a", "b"])
    first = [policy.preview([1.0], ["a", "b"], seed=s).order for s in range(50)]
    again = [policy.preview([1.0], ["a", "b"], seed=s).order for s in reversed(range(50))]
    assert first == again[::-1]
    assert 10 < sum(order[0] for order in first) < 40


def test_what_is_missing_is_said() -> None:
    policy, _ = trained("linucb-hybrid")
    with pytest.raises(InvalidInputError, match="arms must not repeat"):
        policy.preview(np.ones(3), ["a", "a"])
    with pytest.raises(InvalidInputError, match=r"features .*'new'"):
        policy.preview(np.ones(3), ["a", "new"])
    with pytest.raises(InvalidInputError, match=r"x must"):
        policy.preview([np.nan, 1.0, 1.0], ["a", "new"], {"new": [1.0, 2.0]})
    assert policy.arms == ["a", "b", "c"]
