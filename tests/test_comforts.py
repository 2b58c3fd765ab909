"""What helps people to see what a policy does: names, history, explanations, clones, delays."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn.base

import whim
from tests.factories import FACTORIES
from whim.errors import InvalidInputError, StateFileError, UnknownArmError
from whim.features import Features, NamedVector, choice, cyclic, number
from whim.policies.base.explaining import Explanation

FEATURES = Features([number("age", mean=40, scale=10), choice("device", ["phone", "desk"])])
ROWS = [{"age": 30.0 + i % 20, "device": ["phone", "desk"][i % 2]} for i in range(60)]


def named(**params: Any) -> whim.PSLinUCBDisjoint:
    policy = whim.PSLinUCBDisjoint(n_features=FEATURES.size, alpha=0.3, **params)
    policy.with_features(FEATURES).add_arms(["a", "b", "c"])
    return policy


def rewards(n: int) -> list[float]:
    return np.random.default_rng(0).random(n).round(3).tolist()


# -- rows by name ----------------------------------------------------------------------------------


def test_rows_by_name_are_the_vectors_that_they_become() -> None:
    by_name, by_vector = named(), named()
    for i, (row, reward) in enumerate(zip(ROWS, rewards(60), strict=True)):
        arm = "abc"[i % 3]
        x = FEATURES(row)
        assert by_name.select(row) == by_vector.select(x)
        assert by_name.rank(row, ["b", "a"]) == by_vector.rank(x, ["b", "a"])
        assert by_name.update(arm, row, reward) == by_vector.update(arm, x, reward)
    assert by_name.to_bytes() == by_vector.to_bytes()
    frame = pd.DataFrame(ROWS)
    for table in (frame, pl.DataFrame(ROWS), ROWS, frame.to_dict("list")):
        if isinstance(table, dict):
            table = pl.DataFrame(table)
        np.testing.assert_array_equal(
            by_name.scores_many(table), by_vector.scores_many(FEATURES.many(ROWS))
        )
    arms = ["a", "b"] * 30
    assert by_name.update_many(arms, frame, rewards(60)) == by_vector.update_many(
        arms, FEATURES.many(ROWS), rewards(60)
    )
    assert by_name.to_bytes() == by_vector.to_bytes()
    series = frame.iloc[3]
    assert by_name.select(series) == by_name.select(ROWS[3])
    assert by_name.select(next(iter(frame.itertuples(index=False)))) == by_name.select(ROWS[0])


def test_wrong_names_are_refused_and_harmless() -> None:
    policy = named()
    before = policy.to_bytes()
    for row, said in (
        ({"age": 3}, r"x must have 'device' \(None where it is not known\), got 'age'"),
        ({"age": 3, "device": "desk", "agee": 3}, r"known features \(age, device\), got 'agee'"),
        ({"age": "old", "device": None}, r"x\.age must be a number"),
        ({"age": 1, "device": "desk", 7: 1}, "known features"),
    ):
        for call in (
            lambda row=row: policy.select(row),
            lambda row=row: policy.update("a", row, 1.0),
            lambda row=row: policy.scores_many([row]),
            lambda row=row: policy.update_many(["a"], [row], [1.0]),
        ):
            with pytest.raises(InvalidInputError, match=said):
                call()
    with pytest.raises(InvalidInputError, match="known features"):
        policy.scores_many(pd.DataFrame(ROWS).rename(columns={"device": "devise"}).assign(device=1))
    assert policy.to_bytes() == before
    plain = whim.LinUCBDisjoint(n_features=2)
    plain.add_arms(["a"])
    with pytest.raises(InvalidInputError, match="got a dict: with_features lets LinUCBDisjoint"):
        plain.select({"age": 1})
    with pytest.raises(InvalidInputError, match="X must be a matrix with 2 columns, got dicts"):
        plain.scores_many([{"age": 1}])
    assert plain.scores_many(pd.DataFrame({"u": [1.0], "v": [2.0]})).shape == (1, 1)
    with pytest.raises(InvalidInputError, match="features must have 2 dimensions, which"):
        plain.with_features(FEATURES)


def test_sparse_vectors_are_taken() -> None:
    policy = whim.LinUCBDisjoint(n_features=3)
    policy.add_arms(["a", "b"])
    X = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    thin = scipy.sparse.csr_array(X)
    policy.update_many(["a", "b"], thin, [1.0, 0.5])
    np.testing.assert_array_equal(policy.scores_many(thin), policy.scores_many(X))
    assert policy.select(thin[[0]]) == policy.select(X[0])


def test_names_are_shown_and_saved(tmp_path: Path) -> None:
    policy = named()
    X = FEATURES.many(ROWS)
    policy.update_many(["a"] * 60, X, np.where(X[:, 0] > 0, 1.0, 0.0) + 0.01 * X[:, 0])
    theta = policy.coefficients("a")
    assert isinstance(theta, NamedVector)
    assert theta.names == ("age", "device=phone", "device=desk", "constant")
    assert theta["age"] == theta[0] == theta.to_dict()["age"]
    assert "constant=" in repr(theta)
    assert type(theta[:2]) is np.ndarray
    assert repr(theta * 2).startswith("NamedVector(age=")
    assert copy.deepcopy(theta).names == theta.names
    with pytest.raises(InvalidInputError, match="the name must be one of age"):
        theta["wage"]
    policy.save(tmp_path / "p.whim")
    again = whim.PSLinUCBDisjoint.load(tmp_path / "p.whim")
    assert type(again) is whim.PSLinUCBDisjoint
    assert again.features == FEATURES
    assert again.select(ROWS[0]) == policy.select(ROWS[0])
    assert again.to_bytes() == policy.to_bytes()
    assert "with_features(<Features age: number, device: choice, constant; 4 dimensions>)" in repr(
        again
    )
    bare = whim.PSLinUCBDisjoint(n_features=4)
    assert b'"features"' not in bare.to_bytes().split(b'"arrays"')[0]


def test_item_features_by_name(tmp_path: Path) -> None:
    items = Features([number("price", scale=2.0)])
    policy = whim.LinUCBHybrid(n_features=4, n_item_features=2).with_features(FEATURES, items=items)
    policy.add_arms(["a", "b"], [{"price": 4.0}, {"price": 1.0}])
    plain = whim.LinUCBHybrid(n_features=4, n_item_features=2)
    plain.add_arms(["a", "b"], [[2.0, 1.0], [0.5, 1.0]])
    assert policy.select(ROWS[0]) == plain.select(FEATURES(ROWS[0]))
    policy.set_features(["a"], pd.DataFrame([{"price": 6.0}]))
    policy.save(tmp_path / "p.whim")
    again = whim.load(tmp_path / "p.whim", whim.LinUCBHybrid)
    with pytest.raises(InvalidInputError, match="known features"):
        again.add_arms(["c"], [{"cost": 1.0, "price": 2.0}])
    with pytest.raises(StateFileError, match="must hold a UCB, got a LinUCBHybrid"):
        whim.load(tmp_path / "p.whim", whim.UCB)


def test_policies_by_name_take_features() -> None:
    policy = whim.policy("linucb-disjoint", features=FEATURES, alpha=0.2)
    assert (policy.n_features, policy.feature_names) == (4, FEATURES.names)


# -- history, explanations, clones -----------------------------------------------------------------


def changed(policy: Any, *, many: bool) -> list[whim.ChangeEvent]:
    """The events of an arm whose interest is lost."""
    X, r = FEATURES.many(ROWS * 4), [1.0, 0.8] * 60 + [0.0, 0.1] * 60
    if many:
        return list(policy.update_many(["a"] * 240, X, r))
    told = [policy.update("a", x, reward) for x, reward in zip(X, r, strict=True)]
    return [event for event in told if event is not None]


def test_history_has_the_events_with_names() -> None:
    one, two = named(), named()
    events = changed(one, many=False)
    assert events == changed(two, many=True) == one.history == two.history
    assert events[0].features == tuple(FEATURES.names)
    assert copy.deepcopy(one).history == events
    for i in range(1200):
        one._noted(events[0])
        assert len(one.history) == min(len(events) + i + 1, 1000)
    assert whim.PSLinUCBDisjoint.from_bytes(two.to_bytes()).history == []


def test_history_of_a_simulated_policy_and_its_figure() -> None:
    pytest.importorskip("matplotlib")
    policy = named()
    with pytest.raises(InvalidInputError, match="history must hold at least one change"):
        policy.plot_changes()
    changed(policy, many=True)
    figure = policy.plot_changes()
    left, right = figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["a"]
    assert right.texts[0].get_text() in FEATURES.names


@pytest.mark.parametrize("name", list(FACTORIES))
def test_every_policy_explains_itself_and_can_be_cloned(name: str) -> None:
    policy = FACTORIES[name]()
    fresh = policy.clone()
    assert repr(fresh) == repr(policy)
    assert fresh.to_bytes() == policy.to_bytes()
    assert repr(sklearn.base.clone(policy)) == repr(policy)
    m, d, k = policy.n_item_features, policy.n_features, policy.n_cross_features
    rng = np.random.default_rng(0)
    more = {"groups": ["g", "g"]} if policy.params.get("groups") == "given" else {}
    policy.add_arms(["a", "b"], rng.normal(size=(2, m)) if m else None, **more)
    x = None if d is None else rng.normal(size=d)
    given = {} if m or not k else {"cross": rng.normal(size=k)}
    for reward in (1.0, 0.0, 0.5):
        policy.update("a", x, reward, **given)
    before = policy.to_bytes()
    told = policy.explain(x, "a", **given)
    assert policy.to_bytes() == before
    [ranked] = policy.rank(x, ["a"], cross=[given["cross"]] if given else None)
    assert (told.arm, told.score, told.mean, told.width) == tuple(ranked)
    assert (told.unit, told.total) == ("reward", told.mean)
    assert np.isclose(float(np.sum(told.adds)) + told.rest, told.mean) or np.isinf(told.mean)
    with pytest.raises(UnknownArmError, match=r"^arm must be .* got unknown or retired: 'nobody'"):
        policy.explain(x, "nobody", **given)
    assert str(told).startswith("'a'\n")
    if not given:
        X = rng.normal(size=(4, d)) if d is not None else 4
        one, two = copy.deepcopy(policy), copy.deepcopy(policy)
        contexts = [None] * 4 if d is None else X
        assert one.select_many(X, ["b", "a"]) == [two.select(c, ["b", "a"]) for c in contexts]


def test_linear_policies_explain_all_of_the_mean() -> None:
    for policy in (
        whim.LinUCBDisjoint(n_features=3),
        whim.LinUCBHybrid(n_features=3, n_item_features=2),
        whim.LinUCBUniform(n_features=3, n_item_features=2, payoff="cross"),
    ):
        rng = np.random.default_rng(1)
        Y = rng.normal(size=(2, 2)) if policy.n_item_features else None
        policy.add_arms(["a", "b"], Y)
        X = rng.normal(size=(50, 3))
        policy.update_many(["a", "b"] * 25, X, X @ [1.0, -1.0, 0.5])
        told = policy.explain(X[0], "b")
        assert abs(told.rest) < 1e-9
        for j in range(3):  # the mean without a feature lacks what the feature adds
            without = X[0].copy()
            without[j] = 0.0
            [ranked] = policy.rank(without, ["b"])
            assert np.isclose(told.mean - ranked.mean, told.adds[j])


def test_clicks_are_explained_in_log_odds() -> None:
    """Coefficients of clicks are log-odds, which do not add up to the probability of a click."""
    policy = whim.AdaptiveLinUCB(n_features=2).with_features(["phone", "one"])
    policy.add_arms(["a", "new"])
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.random(400) < 0.5, np.ones(400)]).astype(float)
    clicks = rng.random(400) < 1 / (1 + np.exp(2.5 - 4 * X[:, 0]))
    policy.update_many(["a"] * 400, X, clicks.astype(float))
    assert policy.unit == "log-odds"
    for arm, x in (("a", [1.0, 1.0]), ("a", [0.0, 1.0]), ("new", [1.0, 1.0])):
        told = policy.explain(x, arm)
        assert told.unit == "log-odds"
        assert np.isclose(told.total, np.log(told.mean / (1 - told.mean)))
        assert np.isclose(float(np.sum(told.adds)) + told.rest, told.total)
        np.testing.assert_array_equal(told.adds, policy.coefficients(arm) * x)
    likely = policy.explain([1.0, 1.0], "a")
    assert abs(likely.rest) < 0.1  # what is left is the uncertainty about the coefficients
    lines = [line.split() for line in str(likely).splitlines()[1:]]
    assert [line[0] for line in lines] == [
        "phone", "one", "rest", "log-odds", "mean", "width", "score",
    ]  # fmt: skip
    policy.update("a", [1.0, 1.0], 0.5)  # a third value: they are numbers
    told = policy.explain([1.0, 1.0], "a")
    assert (policy.unit, told.unit, told.total) == ("reward", "reward", told.mean)
    assert np.isclose(float(np.sum(told.adds)) + told.rest, told.mean)


def test_log_odds_of_certainty_are_finite() -> None:
    told = Explanation("a", 1.0, 1.0, 0.0, np.zeros(1), 0.0, "log-odds")
    assert 36 < told.total < 37
    assert told._replace(mean=0.0).total == -told.total


def test_policies_are_saved_not_pickled() -> None:
    policy = named()
    for _ in range(2):  # also where no kernel is bound yet
        with pytest.raises(TypeError, match=r"PSLinUCBDisjoint cannot be pickled\. Use save.*to_b"):
            pickle.dumps(policy)
        policy.update(policy.select(ROWS[0]).arm, ROWS[0], 1.0)
    again = copy.deepcopy({"one": policy, "two": [policy]})
    assert again["one"] is again["two"][0] is not policy
    before = policy.to_bytes()
    assert again["one"].to_bytes() == before
    again["one"].update("a", ROWS[1], 0.5)
    assert policy.to_bytes() == before != again["one"].to_bytes()
    assert copy.copy(policy).select(ROWS[2]) == policy.select(ROWS[2])
    told = whim.OracleRestart(policy=policy.clone(), changes={"a": [1]})
    assert copy.deepcopy(told).to_bytes() == told.to_bytes()


def test_clone_changes_what_it_is_asked_to() -> None:
    policy = named(window=64)
    changed(policy, many=True)
    fresh = policy.clone(alpha=0.7)
    assert (fresh.params["alpha"], fresh.params["window"], fresh.arms) == (0.7, 64, [])
    assert fresh.features == FEATURES
    assert policy.get_params() == policy.params
    with pytest.raises(InvalidInputError, match=r"parameters of PSLinUCBDisjoint .*got 'beta'"):
        policy.clone(beta=1)


def test_repr_shows_the_settings_in_force() -> None:
    text = repr(whim.PSLinUCBDisjoint(n_features=2))
    assert "window=256, threshold=None, false_alarm=1e-05, revisit='auto'" in text
    assert eval(text, vars(whim)).clone().to_bytes() != b""
    paper = repr(whim.PSLinUCBDisjoint(n_features=2, threshold=0.3))
    assert "window=100, threshold=0.3, false_alarm=None, revisit='off'" in paper
    assert "eta=None" not in repr(whim.DynamicLinUCB(n_item_features=2))


# -- delayed rewards -------------------------------------------------------------------------------


def test_delayed_rewards_are_those_of_updates_in_their_order(tmp_path: Path) -> None:
    visits, direct = whim.Delayed(named(), default=0.0), named()
    decisions = {}
    for i, row in enumerate(ROWS):
        decisions[i] = visits.select(f"v{i}", row, at=float(i))
        if i == 30:
            visits.save(tmp_path / "visits.whim")
            visits = whim.Delayed.load(tmp_path / "visits.whim")
    order = np.random.default_rng(3).permutation(50)
    for i in order.tolist():
        event = visits.reward(f"v{i}", float(i % 2))
        assert event == direct.update(decisions[i].arm, ROWS[i], float(i % 2))
    assert visits.waiting == [f"v{i}" for i in range(50, 60)]
    visits.expire(before=55.0)
    for i in range(50, 55):
        direct.update(decisions[i].arm, ROWS[i], 0.0)
    assert len(visits) == 5
    visits.forget("v55")
    visits.expire()
    for i in range(56, 60):
        direct.update(decisions[i].arm, ROWS[i], 0.0)
    assert visits.policy.to_bytes() == direct.to_bytes()
    assert len(visits) == 0


def test_delayed_is_bounded_and_refuses_what_it_does_not_know() -> None:
    policy = named()
    visits = whim.Delayed(policy, capacity=3)
    for i in range(10):
        visits.select(i, ROWS[i])
        assert len(visits) == min(i + 1, 3)
    assert visits.waiting == [7, 8, 9]
    assert policy.step == 0  # without a default nothing is learnt from those given up
    for key in (6, "x"):
        with pytest.raises(InvalidInputError, match="key must be of a decision that waits"):
            visits.reward(key, 1.0)
    with pytest.raises(InvalidInputError, match="key must be new, got 7"):
        visits.select(7, ROWS[0])
    with pytest.raises(InvalidInputError, match="x must have 'device'"):
        visits.select(11, {"age": 1})
    with pytest.raises(InvalidInputError, match="reward must be"):
        visits.reward(7, float("nan"))
    assert visits.waiting == [7, 8, 9]
    policy.retire_arms(policy.arms)
    with pytest.raises(UnknownArmError):
        visits.reward(7, 1.0)
    visits.drop(7)
    assert visits.waiting == [8, 9]
    with pytest.raises(InvalidInputError, match="policy must be a Policy"):
        whim.Delayed("ucb")  # type: ignore[type-var]
    with pytest.raises(StateFileError, match="must hold decisions that wait"):
        whim.Delayed.from_bytes(policy.to_bytes())
    for read in (whim.from_bytes, whim.UCB.from_bytes):
        with pytest.raises(StateFileError, match=r"a policy, got .* with whim\.Delayed\.load"):
            read(visits.to_bytes())


def test_delayed_keeps_the_cross_row_of_the_arm_and_no_context() -> None:
    policy = whim.LinUCBUniform(n_cross_features=2, payoff="cross")
    policy.add_arms(["a", "b"])
    visits = whim.Delayed(policy)
    Z = np.array([[0.1, 0.0], [3.0, 1.0]])
    assert visits.select(1, arms=["a", "b"], cross=Z).arm == "b"
    again = whim.Delayed.from_bytes(visits.to_bytes())
    again.reward(1, 1.0)
    policy.update("b", None, 1.0, cross=Z[1])
    assert again.policy.to_bytes() == policy.to_bytes()


# -- errors in the house's words -------------------------------------------------------------------


def test_common_mistakes_are_explained() -> None:
    policy = whim.LinUCBDisjoint(n_features=2)
    world = whim.worlds.PiecewiseLinear(n_arms=3, n_features=2)
    for given in ([policy], policy, "LinUCB"):
        with pytest.raises(
            InvalidInputError, match=r"policies must be a dict .* by label, such as"
        ):
            whim.simulate(world, given)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="world must be one of"):
        whim.simulate("news", {"a": policy})  # type: ignore[arg-type]
    piecewise: Any = whim.worlds.PiecewiseLinear
    with pytest.raises(InvalidInputError, match=r"world must be .* got the class PiecewiseLinear"):
        whim.simulate(piecewise, {"a": policy})
    made: Any = whim.LinUCBDisjoint
    with pytest.raises(InvalidInputError, match=r"LinUCBDisjoint\(\.\.\.\), .* class .* for 'a'"):
        whim.simulate(world, {"a": made})
    odd: Any = lambda episode: "policy"  # noqa: E731
    with pytest.raises(InvalidInputError, match="must return a policy, got 'policy' for 'odd'"):
        whim.simulate(world, {"odd": odd}, horizon=10, runs=1)
    policy.add_arms(["a"])
    for call in (policy.select, policy.rank, policy.scores):
        with pytest.raises(InvalidInputError, match="the context that LinUCBDisjoint needs, got"):
            call()
    assert whim.UCB().clone().add_arms(["a"]) == ["a"]


def test_dir_is_whole() -> None:
    listed = dir(whim)
    assert listed == sorted(set(listed))
    for name in ("Client", "AsyncClient", "Delayed", "features", "policies", "types", "simulate"):
        assert name in listed
        assert getattr(whim, name) is not None


def test_cyclic_contexts_reach_a_policy() -> None:
    hours = Features([cyclic("hour", 24)])
    policy = whim.LinUCBDisjoint(n_features=3).with_features(hours)
    policy.add_arms(["a"])
    assert policy.select({"hour": 0}).score == policy.select({"hour": 24}).score
