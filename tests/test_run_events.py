"""Compiled loops against live calls: the same choices, changes and bits, for every policy."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import whim
from tests.factories import FACTORIES
from whim.errors import InvalidInputError
from whim.kernels.loops import EACH, MATCH, ONE, EventBatch
from whim.policies import run_events as running
from whim.policies.base import CompiledPolicy
from whim.policies.run_events import run_events

K, N = 6, 500
NAMES = [name for name in FACTORIES if "given" not in name and name != "pslinucb-hybrid-literal"]


def stretch(mode: int, d: int, seed: int, n: int = N) -> EventBatch:
    """Events over changing pools in changing order; linear rewards with two changes."""
    rng = np.random.default_rng([seed, mode, d])
    pools = [rng.permutation(K)[: rng.integers(1, K + 1)] for _ in range(12)]
    offsets = np.cumsum([0, *map(len, pools)])
    pool_of = rng.integers(len(pools), size=n)
    X = rng.normal(size=(n, d))
    sizes = np.diff(offsets)[pool_of]
    logged = (rng.random(n) * sizes).astype(np.int64)
    theta = rng.normal(size=(3, K, d))
    truth = np.einsum("nd,nkd->nk", X, theta[np.arange(n) * 3 // n])
    rewards = np.zeros((n, K))
    for i in range(n):
        pool = pools[pool_of[i]]
        rewards[i, : len(pool)] = truth[i, pool]
    if mode != EACH:
        rewards = np.abs(rewards[np.arange(n), logged])[:, None]
    return EventBatch(mode, X, pool_of, offsets, np.concatenate(pools), logged, rewards)


def ready(name: str, seed: int = 0) -> whim.Policy:
    policy = FACTORIES[name]()
    m = policy.n_item_features
    Y = np.random.default_rng(seed).normal(size=(K, m)) if m else None
    policy.add_arms(range(K), features=Y)  # slots are the ids
    return policy


def live(
    policy: whim.Policy, s: EventBatch
) -> tuple[list[int], list[tuple[int, whim.ChangeEvent]]]:
    """The literal loop; an event that does not count must leave the random stream alone too."""
    chosen, changes = [], []
    for i, x in enumerate(s.X):
        pool = s.members[s.offsets[s.pool_of[i]] : s.offsets[s.pool_of[i] + 1]].tolist()
        before = whim.policies.from_bytes(policy.to_bytes())
        arm = policy.select(x if policy.n_features else None, pool).arm
        place = pool.index(arm)
        chosen.append(place)
        if s.mode == MATCH and place != s.logged[i]:
            policy = before
            continue
        reward = s.rewards[i, place if s.mode == EACH else 0]
        if s.mode == ONE and place != s.logged[i]:
            reward = 0.0
        event = policy.update(arm, x if policy.n_features else None, float(reward))
        if event is not None:
            changes.append((i, event))
    live.policy = policy  # type: ignore[attr-defined]
    return chosen, changes


@pytest.mark.parametrize("mode", [MATCH, ONE, EACH])
@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_loop_is_the_loop_of_live_calls(name: str, mode: int) -> None:
    policy, twin = ready(name), ready(name)
    s = stretch(mode, policy.n_features or 2, seed=1, n=200 if mode == MATCH else N)
    found = run_events(policy, s)
    chosen, changes = live(twin, s)
    assert found.chosen.tolist() == chosen
    assert found.changes == changes
    assert policy.to_bytes() == live.policy.to_bytes()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_has_a_compiled_loop(name: str) -> None:
    policy = ready(name)
    if policy.params.get("detector") in ("page-hinkley", "adwin"):  # river's own code runs in it
        assert isinstance(policy, CompiledPolicy)
        assert not policy._runs_compiled()
        return
    inner = policy.policy if isinstance(policy, whim.OracleRestart) else policy
    assert isinstance(inner, CompiledPolicy)
    assert inner._runs_compiled()


@pytest.mark.parametrize("name", NAMES)
def test_events_that_do_not_match_change_no_bit(name: str) -> None:
    policy = ready(name)
    s = stretch(MATCH, policy.n_features or 2, seed=2)
    run_events(policy, s)
    before = policy.to_bytes()
    found = run_events(policy, s._replace(logged=np.full(N, -1)))
    assert policy.to_bytes() == before
    assert not found.changes
    assert (found.chosen >= 0).all()


@pytest.mark.parametrize("name", ["pslinucb-disjoint", "lints", "cusum-ucb", "random", "mucb"])
def test_a_stretch_in_pieces_is_the_stretch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, pieces = ready(name), ready(name)
    s = stretch(EACH, whole.n_features or 2, seed=3)
    found = run_events(whole, s)
    monkeypatch.setattr(running, "_NUMBERS", 7)  # so that they run out again and again
    parts = []
    for low in range(0, N, 83):
        cut = slice(low, low + 83)
        part = s._replace(
            X=s.X[cut], pool_of=s.pool_of[cut], logged=s.logged[cut], rewards=s.rewards[cut]
        )
        parts += run_events(pieces, part).chosen.tolist()
    assert parts == found.chosen.tolist()
    assert pieces.to_bytes() == whole.to_bytes()


class Stubborn(whim.LinUCBDisjoint):
    """A user's own policy, which no compiled loop knows."""

    def _score(self, x, slots, cross, noise):  # type: ignore[no-untyped-def]
        super()._score(x, slots, cross, noise)
        return len(slots) - 1


def test_a_policy_of_the_user_s_own_is_walked_by_live_calls() -> None:
    policy = Stubborn(n_features=3)
    policy.add_arms(range(K))
    s = stretch(EACH, 3, seed=4)
    sizes = np.diff(s.offsets)[s.pool_of]
    assert run_events(policy, s).chosen.tolist() == (sizes - 1).tolist()
    assert policy.step == N


@pytest.mark.parametrize("mode", [MATCH, ONE, EACH])
def test_ties_at_random_are_walked_by_live_calls(mode: int) -> None:
    def made() -> whim.Policy:
        policy = whim.LinUCBDisjoint(n_features=3, ties="random", seed=3)
        policy.add_arms(range(K))
        return policy

    policy, twin = made(), made()
    s = stretch(mode, 3, seed=5, n=120)
    found = run_events(policy, s)
    chosen, _ = live(twin, s)
    assert found.chosen.tolist() == chosen
    assert policy.to_bytes() == live.policy.to_bytes()  # type: ignore[attr-defined]


def test_what_cannot_be_walked_is_refused_and_harmless() -> None:
    s = stretch(EACH, 3, seed=6)
    wrong = whim.LinUCBDisjoint(n_features=4)
    wrong.add_arms(range(K))
    given = whim.LinUCBHybrid(n_features=3, n_cross_features=2)
    given.add_arms(range(K))
    bad = copy.deepcopy(s.X)
    bad[0, 0] = np.nan
    fine = whim.LinUCBDisjoint(n_features=3)
    fine.add_arms(range(K))
    before = fine.to_bytes()
    with pytest.raises(InvalidInputError, match="n_features = 3"):
        run_events(wrong, s)
    with pytest.raises(InvalidInputError, match="cross features"):
        run_events(given, s)
    with pytest.raises(InvalidInputError, match="finite"):
        run_events(fine, s._replace(X=bad))
    assert fine.to_bytes() == before


@pytest.mark.parametrize("revisit", [0.02, "off"])
def test_more_candidates_than_a_model_has_numbers(revisit: float | str) -> None:
    """Scores and models share the loop's scratch, whose rows must do for both."""
    arms, n = 300, 400
    rng = np.random.default_rng(5)
    s = EventBatch(
        EACH, rng.normal(size=(n, 1)), np.zeros(n, np.int64), np.array([0, arms]),
        np.arange(arms), np.full(n, -1), rng.normal(size=(n, arms)),
    )  # fmt: skip
    one, other = (whim.PSLinUCBDisjoint(n_features=1, revisit=revisit) for _ in range(2))
    one.add_arms(range(arms))
    other.add_arms(range(arms))
    assert run_events(one, s).chosen.tolist() == live(other, s)[0]
    assert one.to_bytes() == live.policy.to_bytes()  # type: ignore[attr-defined]
