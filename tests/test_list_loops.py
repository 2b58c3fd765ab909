"""Compiled loops over lists equal live calls; a list of one equals the loop over decisions."""

from __future__ import annotations

from pathlib import Path

import numba
import numpy as np
import pytest

import whim
from tests.factories import FACTORIES
from whim import Policy
from whim.evaluate.lists import follow_lists
from whim.evaluate.replay_lists import plan_lists, replay_lists_once
from whim.evaluate.simulate import follow
from whim.logs import ListWriter
from whim.policies import run_lists
from whim.policies.base.contextfree import ContextFreePolicy
from whim.worlds import ListWorld, PiecewiseLinear, RotatingLinear

# compiled: those that are quick to compile; without the compiler (test_without_jit.py): one of
# each other model. All of them, compiled: ``make slow``
NAMES = ("linucb-disjoint", "lints", "ucb1", "random", "linucb-uniform", "pslinucb-disjoint")
if numba.config.DISABLE_JIT:
    NAMES = (
        "adaptive-linucb", "pslinucb-groups", "pslinucb-hybrid", "pslinucb-hybrid-score",
        "pslinucb-disjoint-revisit", "linucb-watched", "denband", "dynamic-linucb", "dlinucb",
        "swlinucb", "cusum-ucb", "mucb", "oracle-restart",
    )  # fmt: skip
HORIZON = 60 if numba.config.DISABLE_JIT else 250


def list_world(name: str, users: str, k: int) -> ListWorld:
    policy = FACTORIES[name]()
    kind = RotatingLinear(
        n_arms=9, n_features=policy.n_features or 3, n_item_features=policy.n_item_features,
        pool_size=6, life=60, rewards="bernoulli", rate=0.3,
    )  # fmt: skip
    return ListWorld(world=kind, k=k, users=users)


def learns_features(policy: Policy) -> bool:
    return not isinstance(policy, ContextFreePolicy)


def compare(name: str, users: str, patch: pytest.MonkeyPatch, horizon: int) -> None:
    """A policy in the loop and by live calls: the same lists, changes and state."""
    episode = list_world(name, users, 3).episode(horizon=horizon, seed=1)
    fast, slow = FACTORIES[name](), FACTORIES[name]()
    one = follow_lists(fast, episode)
    with patch.context() as patched:
        patched.setattr(run_lists, "_compiles", lambda policy, lists: False)
        other = follow_lists(slow, episode)
    assert np.array_equal(one.arms, other.arms)
    assert np.array_equal(one.outcome.learnt, other.outcome.learnt)
    assert one.outcome.changes == other.outcome.changes
    assert fast.history == slow.history == [event for _, event in one.outcome.changes]
    assert fast.to_bytes() == slow.to_bytes()


def logged_lists(name: str, folder: Path, horizon: int) -> whim.logs.Log:
    """Uniform lists of one to three items, of pools of two to six, whose arms come and go."""
    policy = FACTORIES[name]()
    d, m, rng = policy.n_features or 2, policy.n_item_features, np.random.default_rng(3)
    features = rng.normal(size=(9, m))
    with ListWriter(
        folder / "log.whim", n_features=d, n_item_features=m, logging="uniform"
    ) as writer:
        for i in range(horizon):
            low = 3 * i // horizon
            pool = list(range(low, low + 2 + (i // 20) % 5))
            k = min(1 + i // 7 % 3, len(pool))
            given = {"features": features[pool]} if m else {}
            writer.add_list(
                time=i, x=rng.normal(size=d), arms=pool, rewards=rng.random(k) < 0.3,
                shown=rng.permutation(pool)[:k].tolist(), **given,
            )  # fmt: skip
    return whim.logs.open(folder / "log.whim")


def compare_replay(name: str, match: str, patch: pytest.MonkeyPatch, log: whim.logs.Log) -> None:
    """A policy replayed over a log of lists, in the loop and by live calls: the same bits."""
    how = plan_lists(
        log, k=None, match=match, feedback="cascade", examine=None, logging=None, sample=1.0,
        seed=0, bins=5, first=1.0, floor=None,
    )  # fmt: skip
    data = FACTORIES[name]().to_bytes()
    one = replay_lists_once(log, data, how, 0)
    with patch.context() as patched:
        patched.setattr(run_lists, "_compiles", lambda policy, lists: False)
        other = replay_lists_once(log, data, how, 0)
    assert one.learnt == other.learnt > 0
    assert one.changes == other.changes
    assert np.array_equal(one.moments, other.moments)
    assert repr(one.listed) == repr(other.listed)


@pytest.mark.parametrize("users", ["semi", "cascade", "positions"])
@pytest.mark.parametrize("name", NAMES)
def test_the_loop_is_the_live_calls(name: str, users: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if users == "positions" and not learns_features(FACTORIES[name]()):
        pytest.skip("a policy without features has nothing to scale")
    compare(name, users, monkeypatch, HORIZON)


@pytest.mark.parametrize("name", NAMES)
def test_a_list_of_one_is_the_loop_over_decisions(name: str) -> None:
    world = list_world(name, "cascade", 1)
    episode = world.episode(horizon=HORIZON, seed=2)
    lists, single = FACTORIES[name](), FACTORIES[name]()
    shown = follow_lists(lists, episode)
    followed, lost = follow(single, episode.items)
    assert np.array_equal(shown.outcome.chosen[:, 0], followed.chosen)
    assert shown.outcome.changes == followed.changes
    assert np.allclose(shown.lost, lost)
    assert lists.to_bytes() == single.to_bytes()


@pytest.mark.parametrize("users", ["semi", "cascade", "positions"])
def test_no_list_is_better_than_the_best(users: str) -> None:
    from itertools import permutations

    inner = PiecewiseLinear(n_arms=4, n_features=2, rewards="bernoulli", rate=0.4)
    examine = [[0.3, 0.9], [1.0, 0.5]] if users == "positions" else None
    episode = ListWorld(world=inner, k=2, users=users, examine=examine).episode(horizon=20, seed=0)
    values = np.array([episode.values(np.tile(p, (20, 1))) for p in permutations(range(4), 2)])
    assert np.allclose(values.max(axis=0), episode.best)
    assert episode.examine_changes == ([10] if users == "positions" else [])


def test_a_place_that_a_small_pool_leaves_empty_is_worth_nothing() -> None:
    inner = RotatingLinear(
        n_arms=6, n_features=3, pool_size=2, life=20, rewards="bernoulli", rate=0.3
    )
    world = ListWorld(world=inner, k=3, users="positions", examine=[0.2, 0.5, 1.0])
    episode = world.episode(horizon=30, seed=0)
    values = [episode.values(np.tile(list_, (30, 1))) for list_ in ([0, 1, -1], [1, 0, -1])]
    assert np.allclose(np.max(values, axis=0), episode.best)


@pytest.mark.parametrize("match", ["prefix", "list"])
@pytest.mark.parametrize("name", NAMES)
def test_the_loop_over_a_log_is_the_live_calls(
    name: str, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare_replay(name, match, monkeypatch, logged_lists(name, tmp_path, HORIZON))
