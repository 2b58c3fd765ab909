"""Arms in groups: against least squares of whole lists, at their rate, and what leaves."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2  # type: ignore[import-untyped]

import whim
from tests.oracles import GroupsOracle
from whim.errors import InvalidInputError


def given(labels: list[Any], **params: Any) -> whim.PSLinUCBGroups:
    """A policy with arms 0, 1, … of these groups."""
    policy = whim.PSLinUCBGroups(groups="given", **params)
    policy.add_arms(range(len(labels)), groups=labels)
    return policy


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("clicks", [False, True])
def test_equals_least_squares(d: int, repeated: bool, clicks: bool) -> None:
    """Strays from the start, an arm that turns later, and groups that change."""
    parts = {"alpha": 0.6, "false_alarm": 2e-3, "window": 40, "ridge": 0.5}
    labels = [i % 2 for i in range(12)]
    fast = given(labels, n_features=d, **parts)
    slow = GroupsOracle(d=d, **parts)
    for arm, label in enumerate(labels):
        slow.add(arm, label)
    rng = np.random.default_rng([d, repeated, clicks])
    shared = rng.normal(size=(2, d)) + 1
    theta = shared[labels]
    theta[3] = -theta[3]
    few = rng.normal(size=(3, d))
    kinds = []
    for t in range(600):
        if t == 250:
            theta[0] = -theta[0]
        if t == 400:
            theta[1::2] = -theta[1]
        x = few[rng.integers(3)] if repeated else rng.normal(size=d)
        among = rng.permutation(12)[: rng.integers(1, 9)].tolist()
        decision = fast.select(x, among)
        assert decision.score == pytest.approx(max(slow.score(x, a) for a in among), abs=1e-8)
        assert fast.coefficients(decision.arm) == pytest.approx(
            slow.model(decision.arm)[1], abs=1e-7
        )
        arm = int(rng.choice(among))
        r = float(theta[arm] @ x + 0.3 * rng.normal())
        if clicks:
            r = float(r > 0.5)
        group = fast.group(arm)
        event, found = fast.update(arm, x, r), slow.update(arm, x, r)
        assert (event is None) == (found is None)
        if event is None or found is None:
            continue
        kind, change = found
        kinds.append(kind)
        assert event.arm == arm
        assert event.group == (group if kind == "group" else None)
        assert (fast.group(arm) is None) == (kind != "group")
        assert event.statistic == pytest.approx(change.statistic, rel=1e-3)
        assert event.threshold == pytest.approx(change.bound, rel=1e-9)
        assert event.window == change.kept
        assert event.p_value == pytest.approx(chi2.sf(event.statistic, change.freedom), rel=1e-6)
        assert event.began == event.plays - change.kept + 1
        if kind != "group":
            assert event.plays == fast.plays(arm)
        np.testing.assert_allclose(event.theta_after, slow.model(arm)[1], atol=1e-7)
    assert "left" in kinds
    assert clicks or repeated or "group" in kinds


@pytest.mark.parametrize("clicks", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("d", [1, 5])
def test_false_alarms_come_at_the_rate_asked_for(d: int, clicks: float) -> None:
    """60 are expected of the group's test and that of the arms together."""
    plays, arms = 60_000, 20
    rng = np.random.default_rng([d, int(100 * clicks)])
    policy = given([0] * arms, n_features=d, false_alarm=1e-3)
    X = rng.normal(size=(plays, d))
    X[:, 0] = 1.0
    noisy = (rng.random(plays) < clicks).astype(float) if clicks else X.sum(1)
    r = noisy if clicks else noisy + 0.3 * rng.normal(size=plays)
    alarms, left = 0, 0
    for start in range(0, plays, 500):
        cut = slice(start, start + 500)
        which = rng.integers(arms, size=500).tolist()
        alarms += len(policy.update_many(which, X[cut], r[cut]))
        left += len(policy.left)
        policy.reset_arms(policy.left)  # back into the group, so that all are watched
    assert 6 <= alarms <= 120
    assert clicks or left >= 2


def strays(policy: whim.PSLinUCBGroups, seed: int, stray: int, n: int = 400) -> list[Any]:
    """Four arms of one group, one of them with an opposite θ; the events."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    arms = rng.integers(4, size=n)
    r = X @ [1.0, -0.5, 0.2] * np.where(arms == stray, -1, 1) + 0.1 * rng.normal(size=n)
    return policy.update_many(arms.tolist(), X, r)


def test_the_group_forgets_the_arm_that_left() -> None:
    policy = given(["g"] * 4, n_features=3)
    events = strays(policy, 1, stray=2)
    assert [(event.arm, event.group) for event in events] == [(2, None)]
    assert events[0].began == 1
    assert policy.left == [2]
    assert policy.coefficients(2) == pytest.approx([-1.0, 0.5, -0.2], abs=0.05)
    rng = np.random.default_rng(1)
    X, arms = rng.normal(size=(400, 3)), rng.integers(4, size=400)
    r = X @ [1.0, -0.5, 0.2] * np.where(arms == 2, -1, 1) + 0.1 * rng.normal(size=400)
    others = whim.LinUCBDisjoint(n_features=3)
    others.add_arms(["all"])
    others.update_many(["all"] * int((arms != 2).sum()), X[arms != 2], r[arms != 2])
    assert policy.coefficients(0) == pytest.approx(others.coefficients("all"), abs=1e-10)
    assert policy.inverse(3) == pytest.approx(others.inverse("all"), abs=1e-10)


def test_a_direction_that_only_the_arm_knows_stays_known() -> None:
    """The third comes up with arm 2 alone: taking all its plays out would lose every digit."""
    rng = np.random.default_rng(3)
    policy = given(["g"] * 4, n_features=3)
    arms = np.r_[3 * rng.integers(2, size=200), rng.integers(4, size=200)]
    X = rng.normal(size=(400, 3)) * np.where(arms[:, None] == 2, 1.0, [1.0, 1.0, 0.0])
    r = X @ [1.0, -0.5, 0.2] * np.where(arms == 2, -1, 1) + 0.1 * rng.normal(size=400)
    events = policy.update_many(arms.tolist(), X, r)
    assert [event.arm for event in events] == [2]
    assert np.isfinite(policy.inverse(0)).all()
    assert policy.inverse(0)[2, 2] < 0.9


def test_a_group_that_changes_restarts_whole() -> None:
    rng = np.random.default_rng(4)
    policy = given(["g", "h"] * 4, n_features=2)
    arms = 2 * rng.integers(4, size=600)
    X = rng.normal(size=(600, 2))
    r = X @ [1.0, 0.5] * np.where(np.arange(600) < 300, 1, -1) + 0.1 * rng.normal(size=600)
    [event] = policy.update_many(arms.tolist(), X, r)
    assert event.group == "g"
    assert event.arm == arms[event.step - 1]
    assert 300 < event.plays <= 308
    assert event.began == 301
    assert policy.left == []
    assert policy.coefficients(6) == pytest.approx([-1.0, -0.5], abs=0.05)


def test_equal_scores_go_to_the_arm_played_least() -> None:
    policy = given(["g", "g", "g", "h"], n_features=1, alpha=0.0)
    policy.update_many([0, 0, 1, 2, 2, 3], np.ones((6, 1)), [1, 1, 1, 1, 1, 0])
    assert policy.select([1.0]).arm == 1
    assert policy.select([1.0], [2, 0, 3]).arm == 2
    assert [d.arm for d in policy.rank([1.0], [3, 2, 0, 1])] == [1, 2, 0, 3]
    assert policy.scores([1.0])[0] == policy.scores([1.0])[2]
    drawn = whim.PSLinUCBGroups(n_features=1, groups="given", ties="random", seed=1)
    drawn.add_arms(range(4), groups=["g"] * 4)
    assert {drawn.select([1.0]).arm for _ in range(60)} == {0, 1, 2, 3}


def test_an_arm_that_is_reset_is_back_in_its_group() -> None:
    policy = given(["g"] * 4, n_features=3)
    strays(policy, 1, stray=2)
    models = (policy._kind >= 0).sum()
    group = policy.coefficients(0)
    policy.reset_arms([2])
    assert (policy._kind >= 0).sum() == models - 1
    assert policy.group(2) == "g"
    assert policy.coefficients(2) == pytest.approx(group)
    assert policy.plays(2) > 0
    policy.reset_arms()
    assert policy.coefficients(0) == pytest.approx([0, 0, 0])
    assert [event.arm for event in strays(policy, 1, stray=2)] == [2]


def test_a_retired_arm_gives_its_model_back() -> None:
    policy = given(["g"] * 4, n_features=3)
    strays(policy, 1, stray=2)
    group = policy.coefficients(0)
    policy.retire_arms([2])
    assert policy.left == []
    assert (policy._kind >= 0).sum() == 1
    policy.add_arms(["new"], groups=["g"])
    assert policy.coefficients("new") == pytest.approx(group)
    policy.retire_arms(policy.arms)
    policy.add_arms(["later"], groups=["g"])
    assert policy.coefficients("later") == pytest.approx(group), "a group outlives its arms"


def test_saved_groups_go_on_as_they_were() -> None:
    labels = ["text", 3, ("a", 1), b"raw"]
    policy = given(labels * 3, n_features=3)
    strays(policy, 5, stray=0)
    copy = whim.from_bytes(policy.to_bytes())
    assert isinstance(copy, whim.PSLinUCBGroups)
    assert [copy.group(a) for a in copy.arms] == [policy.group(a) for a in policy.arms]
    assert strays(copy, 6, stray=1) == strays(policy, 6, stray=1)
    copy.add_arms(["z"], groups=[3])
    assert copy.group("z") == 3


def test_memory_is_for_arms_that_were_played() -> None:
    policy = given([i % 100 for i in range(20_000)], n_features=32)
    rng = np.random.default_rng(0)
    arms = rng.integers(50, size=2000).tolist()
    policy.update_many(arms, rng.normal(size=(2000, 32)), rng.normal(size=2000))
    assert len(policy.to_bytes()) < 20_000 * 150 + 10e6
    assert len(policy.to_bytes()) < 20_000 * 32 * 33 / 2 * 8 / 10


# -- groups that are found -------------------------------------------------------------------------


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Items around four corners, and which corner."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(4, size=n)
    return np.array([[0, 0], [5, 0], [0, 5], [5, 5]])[corner] + 0.3 * rng.normal(
        size=(n, 2)
    ), corner


def test_groups_are_found_in_features() -> None:
    policy = whim.PSLinUCBGroups(n_features=1, groups=4, n_item_features=2, seed=3)
    Y, corner = blobs(200, 1)
    policy.add_arms(range(200), features=Y)
    more, where = blobs(50, 2)
    policy.add_arms(range(200, 250), features=more)
    found = [policy.group(a) for a in policy.arms]
    pairs = set(zip(found, [*corner, *where], strict=True))
    assert len(pairs) == 4
    assert {group for group, _ in pairs} == {0, 1, 2, 3}
    twin = whim.PSLinUCBGroups(n_features=1, groups=4, n_item_features=2, seed=3)
    twin.add_arms(range(200), features=Y)
    assert [twin.group(a) for a in twin.arms] == found[:200]


def test_fewer_items_than_groups_are_groups_of_their_own() -> None:
    policy = whim.PSLinUCBGroups(n_features=1, groups=9, n_item_features=1)
    policy.add_arms(["a", "b", "c"], features=[[0.0], [1.0], [0.0]])
    assert policy.group("a") == policy.group("c") != policy.group("b")


def test_without_scikit_learn_groups_must_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.cluster", None)
    policy = whim.PSLinUCBGroups(n_features=1, groups=2, n_item_features=1)
    with pytest.raises(InvalidInputError, match=r"scikit-learn.*whim-bandits\[features\]"):
        policy.add_arms(range(5), features=np.arange(5.0)[:, None])
    assert policy.arms == []


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arms", "more", "message"),
    [
        (["x"], {}, "groups must be given"),
        (["x"], {"groups": []}, "groups must be one label per arm, 1 in all, got 0"),
        (["x"], {"groups": "g"}, "groups must be a list"),
        (["x"], {"groups": [None]}, "groups must be labels"),
        (["x"], {"groups": [True]}, "groups must be labels"),
        (["x"], {"groups": [["g"]]}, "groups must be labels"),
        (["x"], {"groups": [object()]}, "groups must be labels"),
        (["x"], {"groups": ["new"], "features": [[1.0]]}, "features must be None"),
        ([True], {"groups": ["new"]}, "arm id must"),
    ],
)
def test_bad_groups_are_refused(arms: list[Any], more: dict[str, Any], message: str) -> None:
    policy = given(["g"] * 4, n_features=3)
    before = policy.to_bytes()
    with pytest.raises(InvalidInputError, match=message):
        policy.add_arms(arms, **more)
    assert policy.to_bytes() == before


def test_labels_are_for_groups_that_are_given() -> None:
    policy = whim.PSLinUCBGroups(n_features=1, groups=2, n_item_features=1)
    with pytest.raises(InvalidInputError, match="groups must be None"):
        policy.add_arms(["a"], features=[[1.0]], groups=["g"])
    with pytest.raises(InvalidInputError, match="n_item_features must be None"):
        whim.PSLinUCBGroups(n_features=1, groups="given", n_item_features=1)
    with pytest.raises(InvalidInputError, match="n_item_features must be an integer"):
        whim.PSLinUCBGroups(n_features=1, groups=2)


def test_live_arms_need_no_label() -> None:
    policy = given(["g", "h"], n_features=1)
    assert policy.add_arms([0, 1]) == []
    assert policy.add_arms([0, "a"], groups=["other", "h"]) == ["a"]
    assert policy.group(0) == "g"


def test_too_few_arms_leave_groups_for_later_ones() -> None:
    rng = np.random.default_rng(3)
    policy = whim.PSLinUCBGroups(n_features=1, groups=5, n_item_features=2, seed=2**40)
    policy.add_arms(["a", "b", "c"], features=[[0.0, 0.0], [9.0, 9.0], [0.0, 0.0]])
    assert policy.group("a") == policy.group("c") != policy.group("b")
    policy.add_arms(["d"], features=[[9.0, 9.0]])
    assert policy.group("d") == policy.group("b")
    policy.add_arms(range(40), features=rng.normal(size=(40, 2)))
    assert len({policy.group(arm) for arm in range(40)}) >= 3
    assert len(policy._centres) == 5


def test_a_group_s_report_is_of_all_its_arms() -> None:
    world = whim.worlds.GroupedLinear(n_arms=20, n_groups=2, period=1500, strays=0.0, pool=10)
    policy = whim.PSLinUCBGroups(n_features=5, groups=2, n_item_features=5)
    [seen] = whim.simulate(world, {"groups": policy}, horizon=4000, runs=1).detections["groups"]
    assert (seen.found, seen.missed, seen.false_alarms) == (50, 0, 0)


def test_no_alarm_without_a_value() -> None:
    """Contexts over six orders of magnitude and rare clicks once gave a statistic of NaN."""
    for seed in range(210, 225):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1500, 2)) * 10 ** rng.uniform(-3, 3, size=(1500, 1))
        clicks = (rng.random(1500) < 0.01).astype(float)
        policy = given(["g"], n_features=2)
        events = policy.update_many([0] * 1500, X, clicks)
        assert all(np.isfinite(event.statistic) for event in events)


def test_told_the_truth_of_groups() -> None:
    inner = whim.PSLinUCBGroups(n_features=1, groups="given")
    told = whim.OracleRestart(policy=inner, changes=[3])
    assert told.add_arms(["a"], groups=["g"]) == ["a"]
