"""Looking again at neglected arms: against the literal rule, and what it is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import whim
from tests.oracles import RevisitOracle, ScoreTestHybridOracle, ScoreTestOracle
from tests.oracles.scorehybrid import Stretch
from tests.streams import stream
from whim.errors import InvalidInputError, StateFileError
from whim.policies.base import state_file
from whim.worlds import PiecewiseLinear


class Pair:
    """A policy and its slow twin; hybrid payoffs if there are item features."""

    def __init__(self, d: int, m: int, revisit: float | str, arms: int) -> None:
        parts: dict[str, Any] = {"alpha": 0.6, "window": 40, "ridge": 0.5, "false_alarm": 1e-3}
        Y = np.random.default_rng(d).normal(size=(arms, m))
        own: Any
        if m:
            self.fast: Any = whim.PSLinUCBHybrid(
                n_features=d, n_item_features=m, revisit=revisit, **parts
            )
            hybrid = ScoreTestHybridOracle(d=d, k=d * m, **parts)
            inner: Any = hybrid
            own = lambda x, a: hybrid.bound(x, np.kron(Y[a], x), a)  # noqa: E731
            hybrid.live["new"] = hybrid_nothing(d, m)
            new = lambda x, a: hybrid.bound(x, np.kron(Y[a], x), "new")  # noqa: E731
            learn = lambda a, x, r: hybrid.update(a, x, np.kron(Y[a], x), r)  # noqa: E731
        else:
            self.fast = whim.PSLinUCBDisjoint(n_features=d, revisit=revisit, **parts)
            inner = disjoint = ScoreTestOracle(d=d, **parts)
            own = lambda x, a: (  # noqa: E731
                float(x @ disjoint.theta(a)), float(x @ np.linalg.solve(disjoint.matrix(a), x))
            )  # fmt: skip
            new = lambda x, a: (0.0, float(x @ x) / 0.5)  # noqa: E731
            learn = disjoint.update
        self.fast.add_arms(range(arms), features=Y if m else None)
        for arm in range(arms):
            inner.add(arm)
        rate = None if isinstance(revisit, str) else revisit
        self.slow = RevisitOracle(own, new, learn, rate, parts["alpha"])


def hybrid_nothing(d: int, m: int) -> Stretch:
    """An arm that has seen nothing."""
    return Stretch(np.zeros((0, d)), np.zeros((0, d * m)), np.zeros(0))


@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize("m", [0, 2])
@pytest.mark.parametrize("revisit", ["auto", 0.003])
def test_equals_the_literal_rule(d: int, m: int, revisit: float | str) -> None:
    arms = 4
    pair = Pair(d, m, revisit, arms)
    fast, slow = pair.fast, pair.slow
    changes, doubted = 0, 0.0
    steps = 240 if m else 800  # the hybrid's literal form solves for everything at every score
    for play in stream(steps=steps, arms=arms, d=d, seed=d, period=steps // 4, repeated=True):
        expected = [slow.score(play.x, a) for a in play.candidates]
        np.testing.assert_allclose(fast.scores(play.x, play.candidates), expected, atol=1e-8)
        chosen = fast.select(play.x, play.candidates)
        assert (chosen.mean, chosen.width) == pytest.approx(slow.mixed(play.x, chosen.arm))
        np.testing.assert_allclose(fast.scores_many([play.x], play.candidates)[0], expected)
        doubted = max(doubted, slow.q(chosen.arm))
        r = float(play.rewards[chosen.arm])
        event = fast.update(chosen.arm, play.x, r)
        assert (event is None) == (not slow.update(chosen.arm, play.x, r))
        changes += event is not None
    assert changes >= 2
    assert doubted > 0.02


def test_a_number_is_the_rate_and_auto_counts_it() -> None:
    rng = np.random.default_rng(1)
    policy = whim.PSLinUCBDisjoint(n_features=1, revisit="auto")
    policy.add_arms(["a", "b"])
    ones = np.ones((1, 1))
    policy.update("b", ones[0], 0.1)
    for _ in range(5):  # a change of "a" every 200 steps; "b" is never played
        for level in (0.0, 1.0):
            r = level + 0.1 * rng.normal(size=200)
            policy.update_many(["a"] * 200, ones.repeat(200, 0), r)
    changes, watched = policy._tally[:2]
    assert (changes, watched) == (9, 1999)
    rate = changes / watched
    known = whim.PSLinUCBDisjoint(n_features=1, revisit=rate)
    known.add_arms(["b"])
    known.update("b", ones[0], 0.1)
    known._step = policy.step
    assert policy.scores(ones[0], ["b"]) == pytest.approx(known.scores(ones[0], ["b"]))


def test_nothing_differs_until_a_change_is_found() -> None:
    world = PiecewiseLinear(n_arms=5, n_features=3, period=None, law="sphere", noise=0.3)
    made = {
        name: whim.PSLinUCBDisjoint(n_features=3, revisit=asked)
        for name, asked in (("off", "off"), ("auto", None))
    }
    result = whim.simulate(world, made, horizon=5000, runs=3, seed=3)
    assert sum(len(d.delays) + d.false_alarms for d in result.detections["off"]) == 0
    np.testing.assert_array_equal(result.regret["off"], result.regret["auto"])


def test_an_arm_that_became_good_is_found_again() -> None:
    """One user: "a" earns 0.5 and then 0.6, which is noticed; "b" earned 0 and by then earns 1."""
    rng = np.random.default_rng(2)
    found = {}
    for asked in ("off", "auto", 1e-3):
        policy = whim.PSLinUCBDisjoint(n_features=1, alpha=1.0, revisit=asked)
        policy.add_arms(["a", "b"])
        chosen = []
        for step in range(6000):
            arm = policy.select([1.0]).arm
            chosen.append(arm)
            mean = {"a": 0.5 + 0.1 * (step > 1000), "b": 1.0 * (step > 1000)}[arm]
            policy.update(arm, [1.0], mean + 0.1 * rng.normal())
        found[asked] = chosen[-1]
    assert found == {"off": "a", "auto": "b", 1e-3: "b"}


def test_doubt_grows_with_time_and_falls_with_plays() -> None:
    rng = np.random.default_rng(3)
    policy = whim.PSLinUCBDisjoint(n_features=1, revisit=1e-3)
    policy.add_arms(["a", "b"])
    x, many = np.ones(1), np.ones((500, 1))
    policy.update_many(["b"] * 500, many, 0.3 * rng.normal(size=500))
    widths = []
    for _ in range(4):
        policy.update_many(["a"] * 500, many, 0.5 + 0.3 * rng.normal(size=500))
        widths.append(next(d.width for d in policy.rank(x) if d.arm == "b"))
    assert np.all(np.diff(widths) > 0)
    quiet = policy.from_bytes(policy.to_bytes())
    fell = []
    for _ in range(12):
        quiet.update("b", x, 0.3 * rng.normal())
        fell.append(next(d.width for d in quiet.rank(x) if d.arm == "b"))
    assert fell[0] < widths[-1]
    assert fell[-1] < 0.1
    surprised = []
    for _ in range(3):  # what the old model cannot explain is no reason to look away
        policy.update("b", x, 1.0)
        surprised.append(next(d.width for d in policy.rank(x) if d.arm == "b"))
    assert min(surprised) > 0.9 * widths[-1]


def test_a_long_absence_can_be_made_up_for() -> None:
    policy = whim.PSLinUCBDisjoint(n_features=1, revisit=0.5)
    policy.add_arms(["a", "b"])
    rng = np.random.default_rng(4)
    policy.update_many(["b"] * 50, np.ones((50, 1)), 1 + 0.1 * rng.normal(size=50))
    policy.update_many(["a"] * 200, np.ones((200, 1)), 0.1 * rng.normal(size=200))
    assert policy.rank([1.0])[-1].mean < 0.02
    policy.update_many(["b"] * 8, np.ones((8, 1)), 1 + 0.1 * rng.normal(size=8))
    assert next(d.mean for d in policy.rank([1.0]) if d.arm == "b") > 0.9


def test_without_alpha_nothing_is_looked_at_again() -> None:
    rng = np.random.default_rng(5)
    plays = ["a"] * 300 + ["b"] * 300
    X, r = np.ones((600, 1)), np.repeat([0.2, 0.5], 300) + 0.1 * rng.normal(size=600)
    scores = []
    for asked in ("off", 0.01):
        policy = whim.PSLinUCBDisjoint(n_features=1, alpha=0.0, revisit=asked)
        policy.add_arms(["a", "b"])
        policy.update_many(plays, X, r)
        scores.append(policy.scores([1.0]))
    np.testing.assert_array_equal(*scores)


def test_many_updates_equal_single_ones() -> None:
    rng = np.random.default_rng(6)
    made = []
    for _ in range(2):
        policy = whim.PSLinUCBDisjoint(n_features=2, window=30, revisit="auto")
        policy.add_arms(range(3))
        made.append(policy)
    X, arms = rng.normal(size=(1500, 2)), rng.integers(3, size=1500).tolist()
    r = X @ [0.5, -0.2] + 0.1 * rng.normal(size=1500) + 2.0 * (np.arange(1500) > 700)
    single = [made[0].update(a, x, float(v)) for a, x, v in zip(arms, X, r, strict=True)]
    assert made[1].update_many(arms, X, r) == [event for event in single if event is not None]
    assert any(single)
    assert made[0].to_bytes() == made[1].to_bytes()


def test_a_new_or_reset_arm_is_in_no_doubt() -> None:
    policy = whim.PSLinUCBDisjoint(n_features=1, revisit=0.01)
    policy.add_arms(["a", "b"])
    policy.update_many(["a", "b"] * 50, np.ones((100, 1)), [1.0, 0.0] * 50)
    policy.update_many(["a"] * 100, np.ones((100, 1)), [1.0] * 100)
    policy.reset_arms(["b"])
    policy.add_arms(["c"])
    assert policy.scores([2.0]).tolist()[1:] == [2.0, 2.0]
    policy.update("b", [1.0], 1.0)
    assert policy._doubts[1].tolist() == [0.0, 201.0]


@pytest.mark.parametrize("bad", [0, 1, -0.1, 2.0, True, "yes", float("nan"), [0.1]])
def test_bad_values_are_refused(bad: Any) -> None:
    with pytest.raises(InvalidInputError, match="revisit must"):
        whim.PSLinUCBDisjoint(n_features=1, revisit=bad)


def test_only_for_the_score_test() -> None:
    with pytest.raises(InvalidInputError, match="revisit must be None or 'off' where"):
        whim.PSLinUCBDisjoint(n_features=1, threshold=0.3, revisit="auto")
    with pytest.raises(InvalidInputError, match="revisit must be None or 'off' where"):
        whim.PSLinUCBHybrid(n_features=1, n_item_features=1, threshold=0.3, revisit=0.1)


@pytest.mark.parametrize("tally", [np.zeros(0), np.full(4, np.nan), np.full(4, -1.0)])
def test_a_file_with_other_tallies_is_refused(tally: Any) -> None:
    policy = whim.PSLinUCBDisjoint(n_features=2)
    policy.add_arms(["a"])
    header, arrays = state_file.unpack(policy.to_bytes(), "here")
    with pytest.raises(StateFileError):
        whim.from_bytes(state_file.pack(header, {**arrays, "tally": tally}))
    with pytest.raises(StateFileError):
        whim.from_bytes(state_file.pack(header, {**arrays, "pool": arrays["pool"][:, :, :1]}))


# -- what a decision's mean is ------------------------------------------------------------------


@pytest.mark.parametrize("revisit", ["auto", 0.002, "off"])
def test_the_mean_of_a_ranking_is_that_of_the_coefficients_but_for_the_chance_of_a_change(
    revisit: Any,
) -> None:
    policy = whim.PSLinUCBDisjoint(n_features=3, alpha=0.3, false_alarm=1e-3, revisit=revisit)
    policy.add_arms(range(4))
    rng = np.random.default_rng(6)
    theta = rng.normal(size=(2, 4, 3))
    for t in range(600):
        x = rng.normal(size=3)
        arm = policy.select(x).arm
        policy.update(arm, x, float(x @ theta[t // 300, arm] + 0.1 * rng.normal()))
    x, gap = np.array([0.5, -1.0, 0.8]), 0.0
    for decision in policy.rank(x):
        own, q = float(x @ policy.coefficients(decision.arm)), policy.chance_changed(decision.arm)
        assert decision.mean == pytest.approx((1 - q) * own, abs=1e-12)
        gap = max(gap, abs(decision.mean - own))
    assert (gap == pytest.approx(0, abs=1e-12)) == (revisit == "off")


def test_the_same_of_hybrid_payoffs() -> None:
    policy = whim.PSLinUCBHybrid(n_features=2, n_item_features=2, alpha=0.3, revisit=0.01)
    rng = np.random.default_rng(7)
    Y = rng.normal(size=(4, 2))
    policy.add_arms(range(4), Y)
    X = rng.normal(size=(200, 2))
    policy.update_many(np.arange(200) // 50, X, X[:, 0] + 0.1 * rng.normal(size=200))
    x = np.array([0.5, -1.0])
    for decision in policy.rank(x):
        shared = float(np.kron(Y[decision.arm], x) @ policy.shared_coefficients())
        own, q = float(x @ policy.coefficients(decision.arm)), policy.chance_changed(decision.arm)
        assert decision.mean == pytest.approx((1 - q) * (own + shared) + q * shared, abs=1e-9)
    assert policy.chance_changed(0) > 0.5 > policy.chance_changed(3)
