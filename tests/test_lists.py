"""Lists: ``update_list`` is the loop of ``update``, ``select_list`` of one item is ``select``."""

from __future__ import annotations

import numpy as np
import pytest

from tests.factories import FACTORIES
from whim import Policy

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


@pytest.mark.parametrize("feedback", ["semi", "cascade"])
@pytest.mark.parametrize("name", FACTORIES)
def test_update_list_is_the_loop_of_update(name: str, feedback: str) -> None:
    whole, loop = made(name), made(name)
    for x, clicks, Z in visits(whole, 60):
        shown = whole.select_list(x, k=4, cross=Z)
        again = loop.select_list(x, k=4, cross=Z)
        assert shown == again
        places = [ARMS.index(arm) for arm in shown.arms]
        z = None if Z is None else Z[places]
        events = whole.update_list(shown.arms, x, clicks[places], feedback=feedback, cross=z)
        expected = []
        for i, place in enumerate(places):
            row = None if z is None else z[i]
            expected.append(loop.update(ARMS[place], x, float(clicks[place]), cross=row))
            if feedback == "cascade" and clicks[place]:
                break
        assert events == [event for event in expected if event is not None]
    assert whole.to_bytes() == loop.to_bytes()


@pytest.mark.parametrize("ties", ["first", "random"])
@pytest.mark.parametrize("name", FACTORIES)
def test_a_list_of_one_is_a_decision(name: str, ties: str) -> None:
    if name.startswith("oracle"):
        pytest.skip("it has no ties of its own")
    lists, single = made(name, ties=ties), made(name, ties=ties)
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
