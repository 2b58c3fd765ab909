"""Lists whose rewards come later: the same as ``update_list`` at once, saved, whole or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whim
from whim.errors import InvalidInputError, StateFileError, UnknownArmError
from whim.features import Features, choice, number
from whim.policies.base import state_file

ARMS = ["a", "b", "c", "d", "e"]
FEATURES = Features([number("age", mean=40, scale=10), choice("device", ["phone", "desk"])])
HOW: list[dict[str, Any]] = [
    {"feedback": "cascade"},
    {"feedback": "semi"},
    {"feedback": "positions", "examine": [1.0, 0.6, 0.3]},
]


def linear(d: int = 2) -> whim.LinUCBDisjoint:
    policy = whim.LinUCBDisjoint(n_features=d)
    policy.add_arms(ARMS)
    return policy


@pytest.mark.parametrize("how", HOW)
def test_lists_are_learnt_as_at_once(how: dict[str, Any], tmp_path: Path) -> None:
    visits, direct = whim.Delayed(linear(), default=0.0, **how), linear()
    rng = np.random.default_rng(0)
    X, clicks = rng.normal(size=(30, 2)), (rng.random((30, 3)) < 0.3).astype(float)
    shown = {}
    for i in range(30):
        shown[i] = visits.select_list(i, X[i], ARMS[: 3 + i % 3], k=3, at=float(i)).arms
        if i == 10:
            visits.save(tmp_path / "visits.whim")
            visits = whim.Delayed.load(tmp_path / "visits.whim")
    visits.select("one", X[0])  # beside a decision for one arm
    for i in rng.permutation(20).tolist():
        assert visits.reward_list(i, clicks[i]) == []
        direct.update_list(shown[i], X[i], clicks[i], **how)
    assert visits.waiting == [*range(20, 30), "one"]
    visits.forget("one")
    visits.expire()
    for i in range(20, 30):
        direct.update_list(shown[i], X[i], [0.0] * 3, **how)
    assert visits.policy.to_bytes() == direct.to_bytes()


def test_rows_per_slot_cross_rows_and_no_context() -> None:
    rows = np.array([[1.0, 1.0], [1.0, 0.0], [0.5, 0.0]])
    visits, direct = whim.Delayed(linear(), feedback="semi"), linear()
    shown = visits.select_list("v", rows, ARMS[:2], k=3)  # shorter than there are slots
    assert len(shown.arms) == 2
    visits = whim.Delayed.from_bytes(visits.to_bytes())
    visits.reward_list("v", [1, 0])
    direct.update_list(shown.arms, rows[:2], [1, 0], feedback="semi")
    assert visits.policy.to_bytes() == direct.to_bytes()

    crossed = whim.LinUCBUniform(n_cross_features=2, payoff="cross")
    crossed.add_arms(["a", "b", "c"])
    Z = np.array([[0.1, 0.0], [3.0, 1.0], [0.5, 2.0]])
    lists = whim.Delayed(crossed)
    shown = lists.select_list("v", arms=["a", "b", "c"], k=2, cross=Z)
    lists = whim.Delayed.from_bytes(lists.to_bytes())
    lists.reward_list("v", [0, 1])
    crossed.update_list(shown.arms, None, [0, 1], cross=Z[["abc".index(a) for a in shown.arms]])
    assert lists.policy.to_bytes() == crossed.to_bytes()

    free = whim.Delayed(whim.UCB())
    free.policy.add_arms(ARMS)
    free.select_list("v", k=2)
    whim.Delayed.from_bytes(free.to_bytes()).reward_list("v", [0, 1])


def test_rows_by_name_limits_and_the_copy_of_a_context() -> None:
    policy = whim.LinUCBDisjoint(n_features=FEATURES.size).with_features(FEATURES)
    policy.add_arms(ARMS)
    visits = whim.Delayed(policy)
    topic = dict(zip(ARMS, "xxyyz", strict=True))
    row = {"age": 30, "device": "phone"}
    shown = visits.select_list("v", row, k=3, limits={"topic": 1}, groups={"topic": topic})
    assert shown.arms == ["a", "c", "e"]
    row["age"] = 99
    direct = whim.LinUCBDisjoint(n_features=FEATURES.size).with_features(FEATURES)
    direct.add_arms(ARMS)
    visits.reward_list("v", [0, 0, 1])
    direct.update_list(shown.arms, {"age": 30, "device": "phone"}, [0, 0, 1])
    assert policy.to_bytes() == direct.to_bytes()


def test_what_is_refused_leaves_all_as_it_was() -> None:
    visits = whim.Delayed(linear(), default=0.0, feedback="positions", examine=[1.0, 0.5])
    x = [1.0, 0.0]
    visits.select_list("list", x, k=2)
    visits.select("one", x)
    before = visits.to_bytes()
    wrong: list[tuple[Any, str]] = [
        (lambda: visits.reward("list", 1.0), "must be of one arm, got 'list', .*use reward_list"),
        (lambda: visits.reward_list("one", [1.0]), "must be of a list, got 'one', .*use reward"),
        (lambda: visits.reward_list("list", [1.0]), "rewards must be"),
        (lambda: visits.reward_list("list", [1.0, float("nan")]), "rewards must be finite"),
        (lambda: visits.reward_list("nobody", [1.0]), "key must be of a decision that waits"),
        (lambda: visits.select_list("list", x), "key must be new, got 'list'"),
        (lambda: visits.select_list("v", x, k=0), "k must be"),
        (lambda: visits.select_list("v", x, k=3), "examine must have a chance for each of 3"),
        (lambda: whim.Delayed(linear(), feedback="all"), "feedback must be one of"),
        (lambda: whim.Delayed(linear(), examine=[1.0]), "examine must be None"),
        (lambda: whim.Delayed(linear(), feedback="positions"), "examine must be given"),
        (lambda: whim.Delayed(linear(), feedback="positions", examine=[2.0]), "from 0 to 1"),
    ]
    for call, said in wrong:
        with pytest.raises(InvalidInputError, match=said):
            call()
        assert visits.to_bytes() == before
    free = whim.Delayed(whim.UCB(), feedback="positions", examine=[1.0] * 5)
    free.policy.add_arms(ARMS)
    with pytest.raises(InvalidInputError, match="feedback must be 'semi' or 'cascade'"):
        free.select_list("v")
    assert len(free) == 0


def test_a_list_with_an_arm_that_was_retired() -> None:
    visits = whim.Delayed(linear(), default=0.0, capacity=2)
    for key in ("v", "w"):
        visits.select_list(key, [1.0, 0.0], k=3)
    visits.policy.retire_arms(["b"])
    with pytest.raises(UnknownArmError):
        visits.reward_list("v", [1, 0, 0])
    assert visits.policy.step == 0
    visits.select_list("x", [1.0, 0.0], k=2)  # "v" makes room, and teaches nothing
    assert (visits.waiting, visits.policy.step) == (["w", "x"], 0)
    assert visits.drop("x") is None
    assert visits.policy.step == 2


def test_changes_in_lists_are_returned() -> None:
    policy = whim.PSLinUCBDisjoint(n_features=1, window=50, threshold=0.3)
    policy.add_arms(["a", "b"])
    visits = whim.Delayed(policy, default=-1.0, feedback="semi")
    for i in range(200):
        visits.select_list(i, [1.0], k=2)
        visits.reward_list(i, [1.0, 1.0])
    for i in range(100):
        visits.select_list(i, [1.0], k=2)
    events = visits.expire()
    assert {event.arm for event in events} == {"a", "b"}
    assert events == policy.history


def test_files_without_lists_are_read_as_before() -> None:
    """What an earlier whim wrote: no feedback, and one arm per decision."""
    visits = whim.Delayed(linear(), default=0.0)
    visits.select("v", [1.0, 0.5], at=3.0)
    header, arrays = state_file.unpack(visits.to_bytes(), "here", delayed=True)
    assert header["arms"] == [["s", "a"]]
    old = {k: v for k, v in header.items() if k not in ("feedback", "examine")}
    again = whim.Delayed.from_bytes(state_file.pack(old, arrays))
    assert again.to_bytes() == visits.to_bytes()
    visits.select_list("list", [1.0, 0.5], k=2)
    header, arrays = state_file.unpack(visits.to_bytes(), "here", delayed=True)
    assert header["arms"][1] == ["list", [["s", "a"], ["s", "b"]]]
    lies: list[dict[str, Any]] = [
        {"arms": [header["arms"][0], ["list", []]]},
        {"arms": [["list", [["s", "a"]] * 3], header["arms"][1]], "feedback": "positions"},
        {"feedback": "all"},
        {"arms": header["arms"][:1]},
    ]
    for lie in lies:
        with pytest.raises(StateFileError, match="must hold whole decisions"):
            whim.Delayed.from_bytes(state_file.pack(header | lie, arrays))
    cut = arrays | {"sizes": np.array([[1, 0], [3, 0]])}
    with pytest.raises(StateFileError, match="must hold whole decisions"):
        whim.Delayed.from_bytes(state_file.pack(header, cut))
