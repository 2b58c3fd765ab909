"""What ``fit`` makes of odd columns: features that take their table again, or an error in words."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import whim
import whim.checks as checks
import whim.features as wf
from whim.errors import InvalidInputError

NAN = float("nan")
AGES = [{"age": age} for age in (20.0, 30.0, 40.0)]
FITTED = wf.fit(AGES)


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1234.567, 0.1, 1e9 / 7, -3e-7])
def test_what_is_the_same_everywhere_is_not_blown_up(value: float) -> None:
    rows = [{"v": value}] * 3000
    parts = wf.Features([wf.number("v")])
    for end in (700, 1500, 3000):
        parts.partial_fit(rows[end - 700 : end])
    for features in (wf.fit(rows), parts, wf.fit(rows).partial_fit(rows)):
        (f,) = features.fields
        assert f.scale == 1
        assert np.abs(features.many(rows)[:, 0]).max() < 1e-5
        assert features({"v": value + 3})[0] == pytest.approx(3, abs=1e-5)
    nearly = wf.fit([{"v": 1e9}, {"v": 1e9}, {"v": 1e9 + 1e-6}] * 9)
    assert (nearly.fields[0].scale, nearly.fields[0].log) == (1, 0)


def test_numbers_far_from_zero_are_centred() -> None:
    seconds = 1.7e9 + np.arange(60.0)
    features = wf.fit({"t": seconds})
    x = features.many({"t": seconds})[:, 0]
    assert (abs(x.mean()) < 1e-5, x.std()) == (True, pytest.approx(1, abs=1e-5))
    assert features.describe()[0] == "t: number, (t - 1700000029.5) / 17.3181"
    assert wf.Features([wf.number("t")]).partial_fit({"t": seconds}).fields[0].mean == 1700000029.5


@pytest.mark.parametrize("log", [0, 1])
def test_a_value_far_outside_is_named(log: float) -> None:
    features = wf.Features([wf.number("age"), wf.number("rate", scale=1e-11, log=log)])
    with pytest.raises(InvalidInputError, match=r"^row 1: x\.rate must be at most .* got 7\.5\.$"):
        features.many({"age": [1, 2], "rate": np.array([0.0, 7.5])})
    with pytest.raises(InvalidInputError, match=r"^x\.rate must be at most .* got 7\.5\.$"):
        features({"age": 1, "rate": 7.5})


# -- any table -------------------------------------------------------------------------------------

ODD_CELLS: dict[str, list[Any]] = {
    "postcodes": [f"A{i}" for i in range(50)] + [12345, 1.5, True, None],
    "either": [7, "seven", None] * 9,
    "lists of ints": [[1, 2], [], [3, None]],
    "lists or not": [["a", 1.0], "b", 3, None],
    "bits": [0, 1, 1.0],
    "bits and flags": [True, 0, None],
    "sizes": [38.5, 39.0, 40.0, 38.5] * 5,
    "ids": [float(i) for i in range(60)],
    "gaps": [None, NAN, pd.NA, pd.NaT],
    "decimals": [Decimal("1.50"), Decimal("sNaN"), 2],
    "hour": [*range(24), None],
    "far": [1e10, -1e10, 1e-300],
    "dates": ["2026-01-31", "2026-02-01"],
    "clock": ["09:15", "9:30 pm", None],
    "moments": [datetime(2026, 1, 31, tzinfo=UTC)],
    "points": [{"x": 1}],
    "bytes": [b"x", b"y"],
    "deep": [[[1]], [[2]]],
}


@pytest.mark.parametrize("cells", ODD_CELLS.values(), ids=ODD_CELLS)
@pytest.mark.parametrize("kind", [None, "number", "choice", "flag", "hash", "cyclic", "field"])
def test_a_table_is_refused_or_taken_by_the_features_fitted_to_it(
    cells: list[Any], kind: str | None
) -> None:
    columns = {"v": cells}
    rows = [{"v": cell} for cell in cells]
    sparse = [*rows, {}]
    given: Any = wf.number("v") if kind == "field" else kind
    for data in (columns, rows, sparse, pd.DataFrame({"v": pd.Series(cells, dtype=object)})):
        try:
            features = wf.fit(
                data,
                kinds=None if given is None else {"v": given},
                cyclic={"v": 24} if kind == "cyclic" else (),
            )
        except InvalidInputError:
            continue
        X = features.many(data)
        assert np.abs(X).max() <= checks.LARGEST
        if not isinstance(data, pd.DataFrame):
            each = rows if data is columns else data
            assert X.tobytes() == np.array([features(row) for row in each]).tobytes()
        again = wf.Features.from_dict(json.loads(json.dumps(features.to_dict())))
        assert again.many(data).tobytes() == X.tobytes()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("postcodes", "hash"), ("either", "choice"), ("lists of ints", "hash"),
        ("lists or not", "hash"), ("bits", "number"), ("sizes", "number"), ("gaps", "number"),
    ],
)  # fmt: skip
def test_odd_columns_are_taken_as_they_look(name: str, kind: str) -> None:
    assert wf.fit({"v": ODD_CELLS[name]}).fields[0].kind == kind


def test_kinds_that_were_asked_for_are_taken() -> None:
    assert wf.fit({"v": ODD_CELLS["sizes"]}, kinds={"v": "choice"}).fields[0].values == (
        "38.5", "39", "40",
    )  # fmt: skip
    bits = wf.fit({"v": [0, 1, 1]}, kinds={"v": "flag"}, constant=False)
    assert bits.many({"v": [0, 1, True]}).tolist() == [[0], [1], [1]]
    sparse = wf.fit([{"a": 1, "b": "x"}, {"a": 2}])
    assert sparse({"a": 1}).tolist() == [-1, 0, 1, 1]
    with pytest.raises(InvalidInputError, match=r"known features \(a, b\), got 'c'"):
        sparse({"a": 1, "c": "x"})


def test_a_declared_category_is_one() -> None:
    stores = pd.Categorical([101, 205, None, 101], categories=[333, 205, 101])
    for data in (pd.DataFrame({"store": stores}), {"store": stores}):
        features = wf.fit(data, constant=False)
        assert features.names == ["store=333", "store=205", "store=101", "store missing"]
        assert (
            features.many(data).tolist() == features.many({"store": [101, 205, None, 101]}).tolist()
        )
        assert features({"store": 205}).tolist() == [0, 1, 0, 0]
    sizes = pl.DataFrame({"size": pl.Series(["s", "m"], dtype=pl.Enum(["s", "m", "l"]))})
    assert wf.fit(sizes).fields[0].values == ("s", "m", "l")
    many = pd.DataFrame({"id": pd.Categorical(list(range(50)))})
    assert wf.fit(many).fields[0].kind == "hash"
    assert wf.fit(many, most=50).fields[0].kind == "choice"
    assert wf.fit(many, kinds={"id": "number"}).fields[0].mean == 24.5


MISTAKES: list[tuple[Any, str]] = [
    (lambda: wf.fit(AGES, kinds=["age"]), r"^kinds must be a dict of kinds by column, got \['age'"),  # type: ignore[arg-type]
    (lambda: wf.fit(AGES, cyclic=5), "^cyclic must be names of columns, or periods by name, got 5"),  # type: ignore[arg-type]
    (lambda: wf.fit(AGES, kinds={"age": wf.number("b")}), "^kinds must have .* got 'b' for 'age'"),
    (lambda: wf.fit(AGES, kinds={"age": wf.flag("age")}), "age must be true or false, got 20.0"),
    (lambda: wf.fit(AGES, kinds={"age": "flag"}), "^age must hold true and false, or 1 and 0"),
    (
        lambda: wf.fit({"a": [[1]]}, kinds={"a": "choice"}),
        "^kind of a must be hash, as it has lists",
    ),
    (lambda: wf.fit({"a": ["2026-01-31"]}), "got '2026-01-31': make columns .* --category a"),
    (lambda: wf.fit({"a": ["09:15"]}), "got '09:15': as hours, 9:15 is 9.25"),
    (lambda: wf.Features(wf.number("a")), "^fields must be a list of fields, got Field"),  # type: ignore[arg-type]
    (lambda: wf.Features(None), "^fields must be a list of fields, got None"),  # type: ignore[arg-type]
    (lambda: wf.Features.from_dict({"fields": [1]}), "^a field must be a dict, got 1"),
    (lambda: wf.Features.from_dict({"fields": "abc"}), "^features must be a dict with a list of f"),
    (
        lambda: wf.Features.from_dict({"fields": [{"name": "a", "kind": "choice", "values": 5}]}),
        "^values of field a must be a list of texts, got 5",
    ),
    *[
        (
            lambda seen=seen: wf.Features.from_dict({"fields": [], "seen": seen}),  # type: ignore[misc]
            "^seen must have a count, a mean and a sum of squares by name, got",
        )
        for seen in (5, {"a": 1}, {"a": [1, 2]}, {"a": [0, 1, 1]}, {"a": [1, NAN, 1]})
    ],
]


@pytest.mark.parametrize(("make", "word"), MISTAKES)
def test_mistakes_are_no_tracebacks(make: Any, word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        make()


def test_arrays_without_dimensions_are_numbers() -> None:
    assert FITTED({"age": np.array(20.0)}).tobytes() == FITTED(AGES[0]).tobytes()


def test_policies_have_features_of_their_own() -> None:
    features = wf.fit(AGES)
    policy = whim.LinUCBDisjoint(n_features=2).with_features(features)
    clone = policy.clone()
    for one in (policy, clone):
        one.add_arms(["a"])
        one.update("a", AGES[0], 1.0)
    before = policy.scores(AGES[2])
    features.partial_fit([{"age": 500}])
    assert clone.features is not None
    clone.features.partial_fit([{"age": 900}])
    assert policy.scores(AGES[2]).tobytes() == before.tobytes() != clone.scores(AGES[2]).tobytes()


# -- in a policy -----------------------------------------------------------------------------------

PRICES = wf.Features([wf.number("price"), wf.flag("new")], constant=False)


def hybrid() -> whim.LinUCBHybrid:
    policy = whim.LinUCBHybrid(n_features=2, n_item_features=2)
    return policy.with_features(FITTED, items=PRICES)


def test_what_arms_share_has_names() -> None:
    policy = hybrid()
    assert repr(policy).endswith(f".with_features({FITTED!r}, items={PRICES!r})")
    policy.add_arms(["a", "b"], features={"price": [1, 2], "new": [True, False]})
    shared: Any = policy.shared_coefficients()
    both = ["price × age", "price × constant", "new × age", "new × constant"]
    assert list(shared.to_dict()) == both
    uniform = whim.LinUCBUniform(n_item_features=2).with_features(None, items=PRICES)
    assert repr(uniform).endswith(f".with_features(None, items={PRICES!r})")
    theta: Any = uniform.coefficients()
    assert theta.names == ("price", "new")
    how: Any = {"n_features": 2, "n_item_features": 2, "payoff": "cross"}
    for crossed in (whim.LinUCBUniform(**how), whim.DLinUCB(gamma=0.9, **how)):
        theta = crossed.with_features(FITTED, items=PRICES).coefficients()
        assert list(theta.to_dict()) == both
        assert type(crossed.with_features(FITTED).coefficients()) is np.ndarray


def test_policies_take_columns_by_name() -> None:
    columns = {"age": np.array([20.0, 40.0])}
    policy, other = whim.LinUCBDisjoint(n_features=2), whim.LinUCBDisjoint(n_features=2)
    for one, X in ((policy.with_features(FITTED), columns), (other, FITTED.many(columns))):
        one.add_arms(["a", "b"])
        one.update_many(["a", "b"], X, [1.0, 0.0])
        assert len(one.select_many(X)) == 2
    assert (
        policy.scores_many(columns).tobytes() == other.scores_many(FITTED.many(columns)).tobytes()
    )
    assert policy.select_list(AGES[0], k=2).arms == other.select_list(FITTED(AGES[0]), k=2).arms


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (
            lambda p, u: p.add_arms(["c"], features=pd.DataFrame({"cost": [1]})),
            "^features must have",
        ),
        (
            lambda p, u: p.add_arms(["c"], features=[{"price": "x", "new": None}]),
            r"^row 0: features\.price must be a number",
        ),
        (lambda p, u: p.with_features(["a", "a"]), r"^features must have fields .* got \['a'\]"),
        (lambda p, u: p.select_many({"age": 1}), "^X must be columns by name, got int as 'age'"),
        (lambda p, u: u.with_features(FITTED), "^features must be None: UCB was made without n_f"),
        (lambda p, u: u.with_features(None, items=PRICES), "^items must be None: UCB was made w"),
        (lambda p, u: u.select({"age": 1}), "^x must be None: UCB was made without n_features"),
        (lambda p, u: u.select_many([{"age": 1}]), "^X must have no names: UCB was made without n"),
        (lambda p, u: wf.Features([wf.text("a", size=1024)]), "^features must have at most 1024 d"),
    ],
)
def test_errors_name_the_parameter(call: Any, word: str) -> None:
    policy, free = hybrid(), whim.UCB()
    policy.add_arms(["a"], features=[[1.0, 0.0]])
    free.add_arms(["a"])
    with pytest.raises(InvalidInputError, match=word):
        call(policy, free)
    assert (policy.arms, policy.features, free.features) == (["a"], FITTED, None)
