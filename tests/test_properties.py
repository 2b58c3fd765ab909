"""Properties that must always hold (Hypothesis), and parameters that must never pass."""

from __future__ import annotations

import inspect
import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whim
from tests import inside
from tests.factories import FACTORIES
from whim.arms import ArmTable, check_id
from whim.errors import InvalidInputError, UnknownArmError

F64 = npt.NDArray[np.float64]

ARMS: list[Any] = ["a", "b", 3, ("d", 4), "e", 6]

seeds = st.integers(0, 2**32 - 1)


def quick(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None)


def made(name: str) -> whim.Policy:
    policy = FACTORIES[name]()
    m = policy.n_item_features
    Y = np.random.default_rng(3).normal(size=(len(ARMS), m)) if m else None
    policy.add_arms(ARMS, features=Y)
    return policy


def cross_rows(policy: whim.Policy, n: int, rng: np.random.Generator) -> F64 | None:
    k = policy.n_cross_features
    return rng.normal(size=(n, k)) if k and not policy.n_item_features else None


def play(policy: whim.Policy, steps: int, seed: int) -> list[Any]:
    """Decisions and events on a stream that depends on the seed alone."""
    rng = np.random.default_rng(seed)
    trace: list[Any] = []
    for t in range(steps):
        x = rng.normal(size=policy.n_features or 2)
        size = int(rng.integers(1, len(ARMS) + 1))
        among = [ARMS[i] for i in rng.permutation(len(ARMS))[:size]]
        Z = cross_rows(policy, size, rng)
        decision = policy.select(x, among, cross=Z)
        place = among.index(decision.arm)
        reward = math.sin(ARMS.index(decision.arm) + t // 50) + 0.1 * float(rng.normal())
        event = policy.update(decision.arm, x, reward, cross=None if Z is None else Z[place])
        trace.append((decision, event))
    return trace


# -- style.md, habit 9 -----------------------------------------------------------------------------


@quick(60)
@given(
    d=st.integers(1, 6),
    window=st.integers(2, 40),
    threshold=st.sampled_from([0.01, 0.3, math.inf]),
    ridge=st.sampled_from([0.1, 1.0, 7.0]),
    first_window=st.sampled_from(["seed", "literal"]),
    hybrid=st.booleans(),
    scale=st.sampled_from([1e-2, 1.0, 1e2]),
    seed=seeds,
)
def test_cum_is_pre_and_the_window(
    d: int, window: int, threshold: float, ridge: float, first_window: str, hybrid: bool,
    scale: float, seed: int,
) -> None:  # fmt: skip
    """A_cum - λI = (A_pre - λI) + (A_cur - λI), and the same for b and B, at any time."""
    parts: dict[str, Any] = {
        "window": window, "threshold": threshold, "ridge": ridge, "first_window": first_window,
    }  # fmt: skip
    rng = np.random.default_rng(seed)
    policy: Any = whim.PSLinUCBDisjoint(n_features=d, **parts)
    if hybrid:
        policy = whim.PSLinUCBHybrid(n_features=d, n_cross_features=2, **parts)
    policy.add_arms([0, 1])
    n = int(rng.integers(1, 150))
    X = scale * rng.normal(size=(n, d))
    Z = rng.normal(size=(n, 2)) if hybrid else None
    policy.update_many(rng.integers(2, size=n), X, rng.normal(size=n), cross=Z)
    for arm in (0, 1):
        cum, pre = inside.cum(policy, arm), inside.pre(policy, arm)
        seen = inside.window(policy, arm)
        for left, right in (
            (cum.A, pre.A + seen.X.T @ seen.X),
            (cum.b, pre.b + seen.X.T @ seen.r),
            (cum.B, pre.B + seen.X.T @ seen.Z),
        ):
            np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9 * scale**2 * n)
        assert np.linalg.eigvalsh(pre.A).min() >= ridge * (1 - 1e-9)
        assert len(seen.r) < window


@pytest.mark.parametrize("name", [n for n, make in FACTORIES.items() if not make().randomised])
def test_a_shuffled_list_has_the_same_winner(name: str) -> None:
    policy = made(name)
    play(policy, 150, seed=1)
    k = policy.n_cross_features

    @quick(25)
    @given(st.permutations(range(len(ARMS))), seeds)
    def check(order: list[int], seed: int) -> None:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=policy.n_features or 2)
        Z = rng.normal(size=(len(ARMS), k)) if k else None
        among = [ARMS[i] for i in order]
        mixed = None if Z is None else Z[order]
        straight = policy.select(x, ARMS, cross=Z)
        scores = policy.scores(x, ARMS, cross=Z)
        found = policy.select(x, among, cross=mixed)
        if np.sum(scores == scores.max()) == 1:
            assert found == straight
        else:
            assert found.score == straight.score
        by_arm = {decision.arm: decision for decision in policy.rank(x, ARMS, cross=Z)}
        again = {decision.arm: decision for decision in policy.rank(x, among, cross=mixed)}
        assert by_arm == again

    check()


@pytest.mark.parametrize("name", FACTORIES)
def test_a_loaded_policy_makes_the_same_next_thousand_decisions(name: str) -> None:
    policy = made(name)
    play(policy, 130, seed=2)
    copy = whim.from_bytes(policy.to_bytes())
    assert type(copy) is type(policy)
    assert play(copy, 1000, seed=3) == play(policy, 1000, seed=3)
    assert copy.to_bytes() == policy.to_bytes()


@pytest.mark.parametrize("name", ["pslinucb-disjoint", "pslinucb-hybrid", "mucb", "swlinucb"])
def test_a_batch_may_be_cut_anywhere(name: str) -> None:
    """update_many of a whole is update_many of its parts, empty ones included."""

    @quick(15)
    @given(seeds, st.lists(st.integers(0, 120), max_size=4))
    def check(seed: int, cuts: list[int]) -> None:
        whole, parts = made(name), made(name)
        rng = np.random.default_rng(seed)
        n = 120
        arms = [ARMS[i] for i in rng.integers(len(ARMS), size=n)]
        X = rng.normal(size=(n, whole.n_features or 2))
        r = np.sin(np.arange(n) // 30) + 0.1 * rng.normal(size=n)
        expected = whole.update_many(arms, X, r)
        events = []
        edges = [0, *sorted(cuts), n]
        for at, end in itertools.pairwise(edges):
            events += parts.update_many(arms[at:end], X[at:end], r[at:end])
        assert events == expected
        assert parts.to_bytes() == whole.to_bytes()

    check()


# -- ties ------------------------------------------------------------------------------------------


def tied(seed: int, ties: str = "random") -> whim.LinUCBDisjoint:
    """Six arms: "e" is worse, 3 is the best for contexts with x[1] > 0, four are equal."""
    policy = whim.LinUCBDisjoint(n_features=2, alpha=0.1, seed=seed, ties=ties)
    policy.add_arms(ARMS)
    policy.update("e", [1.0, 0.0], -5.0)
    policy.update(3, [0.0, 1.0], 5.0)
    return policy


def test_random_ties_draw_among_equals_from_the_seeded_stream() -> None:
    x = np.array([1.0, 0.0])
    equals = [a for a in ARMS if a != "e"]  # 3 knows nothing of x[0] and so is equal too
    policy = tied(seed=7)
    stream = np.random.Generator(np.random.PCG64(7))
    drawn = [policy.select(x).arm for _ in range(600)]
    assert drawn == [equals[stream.integers(len(equals))] for _ in range(600)]
    assert all(drawn.count(arm) > 80 for arm in equals)
    assert drawn == [p.select(x).arm for p in [tied(seed=7)] for _ in range(600)]
    assert drawn != [p.select(x).arm for p in [tied(seed=8)] for _ in range(600)]


def test_a_decision_without_a_tie_draws_nothing() -> None:
    policy = tied(seed=7)
    before = policy.to_bytes()
    assert policy.select([0.0, 1.0]).arm == 3
    assert policy.select([1.0, 0.0], ["e", "a"]).arm == "a"
    assert policy.select([1.0, 0.0], ["e"]).arm == "e"
    assert policy.to_bytes() == before
    assert policy.select([1.0, 0.0], ["e", "a", "b"]).arm in ("a", "b")
    assert policy.to_bytes() != before


def test_looking_at_ties_draws_nothing() -> None:
    policy = tied(seed=7)
    before = policy.to_bytes()
    policy.scores([1.0, 0.0])
    policy.rank([1.0, 0.0])
    policy.scores_many([[1.0, 0.0]])
    assert policy.to_bytes() == before


def test_first_ties_go_to_the_first_candidate_and_draw_nothing() -> None:
    policy = tied(seed=7, ties="first")
    before = policy.to_bytes()
    for order in (["a", "b", 6], [6, "b", "a"], ["e", "b", "a"]):
        assert policy.select([1.0, 0.0], order).arm == next(a for a in order if a != "e")
    assert policy.to_bytes() == before


@pytest.mark.parametrize("name", ["ucb", "mucb", "pslinucb-hybrid", "swlinucb", "linucb-uniform"])
def test_random_ties_of_other_policies_stay_among_equals(name: str) -> None:
    parts = {**GOOD[name], "ties": "random", "seed": 3}
    if name == "mucb":
        parts["gamma"] = 0.0
    policy = whim.policy(name, **parts)
    m = policy.n_item_features
    policy.add_arms(ARMS, features=np.ones((len(ARMS), m)) if m else None)
    x = np.ones(policy.n_features or 2)
    drawn = [policy.select(x).arm for _ in range(120)]
    assert set(drawn) == set(ARMS)
    twin = whim.from_bytes(policy.to_bytes())
    assert [policy.select(x).arm for _ in range(50)] == [twin.select(x).arm for _ in range(50)]


# -- the table of arms -----------------------------------------------------------------------------

some_ids = st.one_of(
    st.text(max_size=3),
    st.integers(-3, 3),
    st.tuples(st.integers(0, 2), st.text(max_size=1)),
    st.sampled_from([0.5, b"x", np.int64(2), np.str_("n"), frozenset({1})]),
)


@quick(200)
@given(st.lists(st.tuples(st.booleans(), st.lists(some_ids, max_size=5)), max_size=20))
def test_the_table_of_arms_is_a_list_with_slots(steps: list[tuple[bool, list[Any]]]) -> None:
    table = ArmTable()
    model: dict[Any, int] = {}  # in the order in which they were added
    size = 0
    for adding, ids in steps:
        if adding:
            new = [a for a in dict.fromkeys(check_id(a) for a in ids) if a not in model]
            assert table.missing(ids) == new
            for arm, slot in table.add(ids):
                assert arm == new.pop(0)
                free = sorted(set(range(size)) - set(model.values()))
                assert slot == (free[0] if free else size), "the lowest free slot"
                size = max(size, slot + 1)
                model[arm] = slot
            assert not new
        elif all(a in model for a in ids):
            freed = table.retire(ids)
            assert freed == [model.pop(a) for a in dict.fromkeys(ids)]
        else:
            with pytest.raises(UnknownArmError):
                table.retire(ids)
        assert list(table.slot_of.items()) == list(model.items())
        assert table.live.tolist() == list(model.values())
        assert len(table) == len(model)
        assert len(set(model.values())) == len(model), "no slot has two arms"
        assert [table.id_of[slot] for slot in model.values()] == list(model)
        assert sum(a is not None for a in table.id_of) == len(model)
        for arm, slot in model.items():
            assert table.slot(arm) == slot
        again = ArmTable()
        again.restore(list(model), list(model.values()), size)
        assert again.add(["next"]) == ArmTable.add(_copy(table), ["next"])
        assert again.live.tolist()[: len(model)] == table.live.tolist()


def _copy(table: ArmTable) -> ArmTable:
    copy = ArmTable()
    copy.slot_of, copy.id_of = dict(table.slot_of), list(table.id_of)
    copy._free = list(table._free)
    return copy


@pytest.mark.parametrize(
    "bad", [True, False, np.True_, None, math.nan, [], {}, set(), ([],)], ids=repr
)
def test_what_cannot_name_an_arm(bad: Any) -> None:
    table = ArmTable()
    table.add([1, 0, "a"])
    for call in (
        lambda: check_id(bad),
        lambda: table.add(["new", bad]),
        lambda: table.missing([bad]),
        lambda: table.retire([1, bad]),
        lambda: table.slot(bad),
        lambda: table.slots([1, bad]),
    ):
        with pytest.raises(InvalidInputError, match="arm id must"):
            call()
    assert list(table.slot_of) == [1, 0, "a"]


def test_unknown_arms_are_all_named() -> None:
    table = ArmTable()
    table.add(["a"])
    with pytest.raises(UnknownArmError, match=r"arms must be live arms, .*: 'x', 7\.$"):
        table.slots(["a", "x", 7])
    with pytest.raises(UnknownArmError, match=r"…\.$"):
        table.slots(list(range(9)))


@pytest.mark.parametrize(
    ("method", "bad"),
    [
        ("update", ["a"]),
        ("update", np.True_),
        ("update", True),
        ("update", None),
        ("retire_arms", ["a"]),
        ("retire_arms", True),
        ("reset_arms", ["a"]),
        ("reset_arms", np.True_),
        ("select", ["a"]),
        ("select", np.True_),
        ("plays", ["a"]),
        ("add_arms", ["a"]),
    ],
)
def test_policies_refuse_what_cannot_name_an_arm(method: str, bad: Any) -> None:
    policy = whim.LinUCBDisjoint(n_features=1)
    policy.add_arms([1, "a"])
    before = policy.to_bytes()
    arguments = {"update": (bad, [1.0], 1.0), "select": ([1.0], [bad]), "plays": (bad,)}
    with pytest.raises(InvalidInputError, match="arm id must"):
        getattr(policy, method)(*arguments.get(method, ([bad],)))
    assert policy.to_bytes() == before


# -- parameters ------------------------------------------------------------------------------------

GOOD: dict[str, dict[str, Any]] = {
    "adaptive-linucb": {"n_features": 2},
    "cusum-ucb": {"threshold": 2.0},
    "denband": {"n_item_features": 2},
    "dlinucb": {"n_features": 2, "n_item_features": 2, "payoff": "cross", "gamma": 0.9},
    "ducb": {"gamma": 0.9},
    "dynamic-linucb": {"n_item_features": 2},
    "lints": {"n_features": 2, "n_item_features": 2, "payoff": "cross"},
    "linucb-disjoint": {"n_features": 2},
    "linucb-hybrid": {"n_features": 2, "n_item_features": 2},
    "linucb-uniform": {"n_item_features": 2},
    "linucb-watched": {"n_features": 2, "settings": {"drift": 0.25}},
    "modified-pslinucb": {"n_features": 2, "b": 0.1, "c": 0.1, "gamma": 0.1},
    "mucb": {"window": 4, "threshold": 1.0, "gamma": 0.1},
    "oracle-restart": {"policy": whim.UCB(), "changes": [3]},
    "pslinucb-disjoint": {"n_features": 2},
    "pslinucb-groups": {"n_features": 2, "groups": 3, "n_item_features": 2},
    "pslinucb-hybrid": {"n_features": 2, "n_item_features": 2},
    "random": {},
    "swlinucb": {"n_features": 2, "n_item_features": 2, "payoff": "cross", "window": 5},
    "swucb": {"window": 5},
    "ucb": {},
}

_NOT_COUNTS = [0, -1, 1.5, 2.0, True, "x", "2", math.nan, math.inf, [2], 1j]
_NOT_NUMBERS = [-0.1, math.nan, -math.inf, "x", "1", True, [1.0], 1j, b"1"]
_NOT_WORDS = ["x", "", 1, None, True]

BAD: dict[str, list[Any]] = {
    "n_features": _NOT_COUNTS,
    "n_item_features": _NOT_COUNTS,
    "n_cross_features": _NOT_COUNTS,
    "window": [*_NOT_COUNTS, None],
    "tau": [*_NOT_COUNTS, None],
    "warmup": [*_NOT_COUNTS, None],
    "gate_window": [*_NOT_COUNTS, None],
    "max_experts": [*_NOT_COUNTS, None],
    "max_models": [*_NOT_COUNTS, None],
    "age_limit": _NOT_COUNTS,
    "seed": [-1, 0.5, 1.0, True, "x", None, math.nan],
    "ties": _NOT_WORDS,
    "payoff": _NOT_WORDS,
    "bonus": _NOT_WORDS,
    "gate": _NOT_WORDS,
    "first_window": _NOT_WORDS,
    "scoring": _NOT_WORDS,
    "g_pre": _NOT_WORDS,
    "groups": [*_NOT_COUNTS, None],
    "detector": _NOT_WORDS,
    "watch": _NOT_WORDS,
    "settings": [5, "x", ["drift"], {"nonsense": 1.0}, {"drift": [1.0]}, {3: 1.0}],
    "alpha": [*_NOT_NUMBERS, math.inf],
    "ridge": [*_NOT_NUMBERS, 0, 0.0, math.inf, None],
    "threshold": [*_NOT_NUMBERS, 0, 0.0, None],
    "false_alarm": [*_NOT_NUMBERS, 0, 0.1, 1, math.inf],
    "revisit": [*_NOT_NUMBERS, 0, 1, -0.1, math.inf],
    "gate_threshold": [*_NOT_NUMBERS, 0, None],
    "b": [*_NOT_NUMBERS, None],
    "c": [*_NOT_NUMBERS, 0, None],
    "gamma": [*_NOT_NUMBERS, 1.1, math.inf, None],
    "xi": [*_NOT_NUMBERS, math.inf, None],
    "bound": [*_NOT_NUMBERS, 0, math.inf, None],
    "drift": [*_NOT_NUMBERS, math.inf, None],
    "explore": [*_NOT_NUMBERS, 1.1, None],
    "sigma": [*_NOT_NUMBERS, math.inf, None],
    "delta": [*_NOT_NUMBERS, 0, 1, None],
    "delta1": [*_NOT_NUMBERS, 0, 1, None],
    "delta2": [*_NOT_NUMBERS, 0, 1, None],
    "delta_l": [*_NOT_NUMBERS, 0, math.inf, None],
    "tdelta1": [*_NOT_NUMBERS, 0.5],
    "eta": _NOT_NUMBERS,
    "kappa": [*_NOT_NUMBERS, math.inf],
    "bound_theta": [*_NOT_NUMBERS, math.inf, None],
    "bound_x": [*_NOT_NUMBERS, math.inf, None],
    "false_events": [*_NOT_NUMBERS, 0, math.inf],
    "optimism": [*_NOT_NUMBERS, math.inf],
    "beginnings": [1, 0, -1, 2.5, "6", True],
    "policy": [None, "ucb", whim.UCB, 5],
    "changes": ["x", [1.5], [-1], [True], {"a": [-1]}, {"a": ["x"]}],
}
EXTRA: dict[tuple[str, str], list[Any]] = {
    ("adaptive-linucb", "n_features"): [None],
    ("mucb", "window"): [1, 3, 7],
    ("modified-pslinucb", "window"): [1, 3, 7],
    ("pslinucb-disjoint", "window"): [1, 7],
    ("pslinucb-hybrid", "window"): [1, 7],
    ("pslinucb-disjoint", "n_features"): [None],
    ("pslinucb-groups", "window"): [1, 7],
    ("pslinucb-groups", "false_alarm"): [None],
    ("linucb-disjoint", "n_features"): [None],
    ("linucb-watched", "n_features"): [None],
    ("linucb-watched", "warmup"): [1],
    ("dlinucb", "gamma"): [0],
    ("ducb", "gamma"): [0],
}
FINE = {  # as None
    (name, parameter)
    for name in ("pslinucb-disjoint", "pslinucb-hybrid")
    for parameter in ("window", "threshold")
}
PARAMETERS = [
    (name, parameter)
    for name, cls in sorted(whim.POLICIES.items())
    for parameter in inspect.signature(cls).parameters
]


def test_every_registered_policy_has_good_parameters() -> None:
    assert set(GOOD) == set(whim.POLICIES)
    for name, params in GOOD.items():
        policy = whim.policy(name, **params)
        assert repr(policy).startswith(type(policy).__name__ + "(")
        assert policy.params.items() >= params.items()


@pytest.mark.parametrize(("name", "parameter"), PARAMETERS)
def test_bad_parameters_are_named(name: str, parameter: str) -> None:
    """A parameter that nobody has listed here fails the test."""
    params = dict(GOOD[name])
    if parameter == "n_cross_features":
        params.pop("n_item_features", None)
        params["payoff"] = "cross"
        if "payoff" not in inspect.signature(whim.POLICIES[name]).parameters:
            del params["payoff"]
    for bad in BAD[parameter] + EXTRA.get((name, parameter), []):
        if bad is None and (name, parameter) in FINE:
            continue
        with pytest.raises(InvalidInputError, match=rf"^{parameter} must .*, got ") as caught:
            whim.policy(name, **{**params, parameter: bad})
        assert str(caught.value).endswith("."), "a sentence"


@pytest.mark.parametrize("bad", [5, None, {"a": 5}, {"a": None}])
def test_changes_of_the_wrong_kind_are_named(bad: Any) -> None:
    with pytest.raises(InvalidInputError, match="changes must"):
        whim.OracleRestart(policy=whim.UCB(), changes=bad)


def test_a_ridge_too_small_to_invert_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="ridge must"):
        whim.LinUCBDisjoint(n_features=2, ridge=5e-324)


def test_features_must_be_given_to_be_set() -> None:
    policy = whim.LinUCBHybrid(n_features=1, n_item_features=1)
    policy.add_arms(["a"], features=[[1.0]])
    with pytest.raises(InvalidInputError, match="features must"):
        policy.set_features(["a"], None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(GOOD))
def test_unknown_and_missing_parameters_are_named(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"parameters of {name} must fit: .*nonsense"):
        whim.policy(name, **GOOD[name], nonsense=1)
    with pytest.raises(TypeError, match="nonsense"):
        whim.POLICIES[name](**GOOD[name], nonsense=1)


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"must be a registered policy \(.*ucb.*got 'x'"):
        whim.policy("x")


@pytest.mark.parametrize("name", sorted(set(GOOD) - {"oracle-restart"}))
def test_numpy_numbers_are_as_good_as_plain_ones(name: str) -> None:
    parts = {
        key: np.int64(value) if isinstance(value, int) else
        np.float64(value) if isinstance(value, float) else value
        for key, value in GOOD[name].items()
    }  # fmt: skip
    policy = whim.policy(name, **parts)
    assert policy.params == whim.policy(name, **GOOD[name]).params
    assert whim.from_bytes(policy.to_bytes()).params == policy.params
