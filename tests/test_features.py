"""Data as people have it: fitted or declared features, and what ``whim convert`` makes of a CSV."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pytest
from benchmarks import features as claim
from typer.testing import CliRunner

import whim
import whim.features as wf
import whim.logs
from tests.made_visits import COLUMNS, visits, write_csv
from whim.cli.app import app
from whim.errors import InvalidInputError
from whim.features.encoder import Encoder
from whim.logs.encoding import MARKER, NO_NUMBER
from whim.serve import wire

NAN = float("nan")
ALL = wf.Features(
    [
        wf.number("age", mean=40.0, scale=10.0, missing=True),
        wf.number("price", mean=1.0, scale=2.0, log=5.0),
        wf.choice("device", ["phone", "desk"], other=True, missing=True),
        wf.flag("member"),
        wf.text("query", size=8),
        wf.cyclic("hour", 24, harmonics=2, missing=True),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"age": 50, "price": 5.0, "device": "desk", "member": True, "query": "Red shoes", "hour": 6},
    {"age": None, "price": 0, "device": "fridge", "member": None, "query": None, "hour": None},
    {"age": NAN, "price": -5.0, "device": None, "member": False, "query": "red", "hour": 30},
    {"age": 7.25, "price": 1e9, "device": "phone", "member": True, "query": "", "hour": 23.5},
]


def literal(row: dict[str, Any]) -> list[float]:
    """What ``ALL`` means, written out; the hashed words are left out."""
    gone = {name: v is None or v != v for name, v in row.items()}
    price = row["price"]
    waves = [0.0] * 4
    if not gone["hour"]:
        a = 2 * math.pi * (row["hour"] % 24) / 24
        waves = [math.sin(a), math.cos(a), math.sin(2 * a), math.cos(2 * a)]
    return [
        0.0 if gone["age"] else (row["age"] - 40) / 10, float(gone["age"]),
        (math.copysign(math.log(1 + abs(price) / 5), price) - 1) / 2,
        float(row["device"] == "phone"), float(row["device"] == "desk"),
        float(row["device"] == "fridge"), float(gone["device"]),
        float(row["member"] is True), *waves, float(gone["hour"]), 1.0,
    ]  # fmt: skip


def test_rows_are_what_the_fields_say() -> None:
    assert [name for name in ALL.names if "query" not in name] == [
        "age", "age missing", "price", "device=phone", "device=desk", "device other",
        "device missing", "member", "hour sin", "hour cos", "hour sin 2", "hour cos 2",
        "hour missing", "constant",
    ]  # fmt: skip
    for row in ROWS:
        x = ALL(row)
        kept = [v for v, name in zip(x, ALL.names, strict=True) if "query" not in name]
        np.testing.assert_allclose(kept, literal(row), rtol=1e-14, atol=1e-15)
    words = [i for i, name in enumerate(ALL.names) if "query" in name]
    two, one = ALL(ROWS[0])[words], ALL(ROWS[2])[words]
    assert np.abs(one).sum() == 1.0  # "red", however it is written
    assert np.abs(two - one).sum() == 1.0  # and "shoes"


def test_tables_of_every_kind_are_their_rows_to_the_bit() -> None:
    expected = np.array([ALL(row) for row in ROWS])
    tables = (ROWS, pd.DataFrame(ROWS), pl.DataFrame(ROWS, strict=False),
              {name: [row[name] for row in ROWS] for name in ROWS[0]})  # fmt: skip
    for table in tables:
        assert ALL.many(table).tobytes() == expected.tobytes()
    ints = pd.DataFrame({"store": [3, None, 4]})  # which pandas has as floats
    stores = wf.Features([wf.choice("store", ["3", "4"])], constant=False)
    assert stores.many(ints).tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    missing = pd.DataFrame({"store": pd.array([3, None, 4], dtype="Int64")})
    assert stores.many(missing).tolist() == stores.many(ints).tolist()


def test_the_service_encodes_the_same() -> None:
    config = msgspec.convert(ALL.config(), wire.Features)
    served = Encoder(config, "$.context")
    assert served.names == ALL.names
    for row in ROWS:
        sent = {name: v for name, v in row.items() if v is not None and v == v}
        assert served(json.loads(json.dumps(sent))).tobytes() == ALL(row).tobytes()
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=wire.Features)
    assert again == config
    with pytest.raises(InvalidInputError, match="period of field hour must be"):
        Encoder(wire.Features(fields=[wire.Field(name="hour", kind="cyclic")]), "$.context")


def test_stored_and_made_again(tmp_path: Path) -> None:
    again = wf.Features.from_dict(json.loads(json.dumps(ALL.to_dict())))
    assert again == ALL
    assert again(ROWS[0]).tobytes() == ALL(ROWS[0]).tobytes()
    (tmp_path / "f.json").write_text(json.dumps(ALL.to_dict()))
    assert wf.load(tmp_path / "f.json") == ALL
    with pytest.raises(InvalidInputError, match="path must be a log or a JSON file"):
        wf.load(tmp_path / "none")
    with pytest.raises(InvalidInputError, match="a field must be made of"):
        wf.Features.from_dict({"fields": [{"name": "a", "kind": "flag", "colour": 1}]})


def test_fitted_from_a_frame() -> None:
    rng = np.random.default_rng(0)
    n = 2000
    frame = pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, NAN, rng.normal(40, 10, n)),
            "price": np.exp(rng.normal(3, 1.5, n)),
            "device": rng.choice(["phone", "desk", "watch"], n, p=[0.7, 0.299, 0.001]),
            "member": rng.random(n) < 0.5,
            "clicked": rng.integers(0, 2, n),
            "note": [f"order {i} of {rng.integers(5)} things" for i in range(n)],
            "visit_hour": rng.integers(0, 24, n),
            "hours": rng.integers(0, 24, n),
            "store": rng.integers(100, 104, n),
        }
    )
    features = wf.fit(frame, kinds={"store": "choice"})
    kinds = {f.name: f for f in features.fields}
    assert {name: f.kind for name, f in kinds.items()} == {
        "age": "number", "price": "number", "device": "choice", "member": "flag",
        "clicked": "number", "note": "hash", "visit_hour": "cyclic", "hours": "number",
        "store": "choice",
    }  # fmt: skip
    assert kinds["age"].missing
    assert not kinds["age"].log
    assert kinds["price"].log > 0
    assert kinds["device"].values == ("phone", "desk")
    assert kinds["device"].other
    assert sorted(kinds["store"].values) == ["100", "101", "102", "103"]
    assert (kinds["clicked"].mean, kinds["clicked"].scale) == (0.0, 1.0)
    X = features.many(frame)
    at = [features.names.index(name) for name in ("price", "hours")]
    np.testing.assert_allclose(X[:, at].mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(X[:, at].std(0), 1, atol=1e-4)
    whole = frame.drop(columns="age")
    assert wf.fit(pl.DataFrame(whole.to_dict("list"))) == wf.fit(whole)
    asked = wf.fit(frame[["hours", "visit_hour"]], cyclic={"hours": 12, "visit_hour": 0})
    assert [f.kind for f in asked.fields] == ["cyclic", "number"]
    for given, word in (
        ({"cyclic": ["age"]}, "cyclic must give the period of age"),
        ({"cyclic": {"wage": 3}}, "data must have the column 'wage'"),
        ({"kinds": {"age": "colour"}}, "kind of age must be one of"),
    ):
        with pytest.raises(InvalidInputError, match=word):
            wf.fit(frame, **given)
    with pytest.raises(InvalidInputError, match="must have at least one row"):
        wf.fit([])
    with pytest.raises(InvalidInputError, match="when must hold numbers, texts or true and false"):
        wf.fit(pd.DataFrame({"when": pd.to_datetime(["2026-01-01"])}))


def test_numbers_scaled_as_they_come() -> None:
    values = np.random.default_rng(1).normal(100, 7, 500)
    features = wf.Features([wf.number("v"), wf.flag("f")])
    for part in np.array_split(values, 7):
        features.partial_fit([{"v": v, "f": True} for v in part])
    assert math.isclose(features.fields[0].mean, values.mean(), rel_tol=1e-12)
    assert math.isclose(features.fields[0].scale, values.std(), rel_tol=1e-12)
    again = wf.Features.from_dict(json.loads(json.dumps(features.to_dict())))
    again.partial_fit([{"v": 3.0, "f": None}])
    assert again.fields == features.partial_fit([{"v": 3.0, "f": None}]).fields
    before = features.to_dict()
    for row, word in (
        ({"v": "x", "f": True}, r"v must hold numbers, got 'x' at \[0\]"),
        ({"w": 1.0, "f": True}, "data must have 'v'"),
        ({"v": 1.0, "f": True, "w": 1.0}, r"data must be made of known features \(f, v\), got 'w'"),
    ):
        with pytest.raises(InvalidInputError, match=word):
            features.partial_fit([row])
    assert features.partial_fit([]).to_dict() == before


def test_sparse_rows_have_only_what_is_there() -> None:
    features = wf.Features([wf.number("tea"), wf.number("jazz", missing=True)], sparse=True)
    assert features({"tea": 2.0}).tolist() == [2.0, 0.0, 1.0, 1.0]
    assert features.many([{}, {"jazz": 1.0}]).tolist() == [[0, 0, 1, 1], [0, 1, 0, 1]]
    hashed = wf.Features([], rest=8, sparse=True)
    rows = [{"likes": ["tea", "jazz"], "n": 2.5}, {"new": True}]
    assert hashed.many(rows).tobytes() == np.array([hashed(row) for row in rows]).tobytes()
    with pytest.raises(InvalidInputError, match="known features"):
        features({"coffee": 1.0})


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: wf.Features(["age"]), "fields must be made by number, choice"),  # type: ignore[list-item]
        (lambda: wf.Features([wf.flag("a"), wf.flag("a")]), "fields of different names"),
        (
            lambda: wf.Features([wf.choice("a", ["b"]), wf.flag("a=b")]),
            "dimensions of different names",
        ),
        (lambda: wf.number("a", scale=0), "scale of field a must be"),
        (lambda: wf.choice("a", "xy"), "values of field a must be a list of texts"),
        (lambda: wf.Features([wf.choice("a", [])]), "values of field a must be different texts"),
        (lambda: wf.text("a", size=5000), "size of field a must be at most 1024"),
        (lambda: wf.Field("a", "colour"), "kind of field a must be one of"),
        (lambda: ALL([1.0]), "x must be a dict of age, price"),
        (lambda: ALL.many([ROWS[0], [1.0]]), r"X\[1\] must be a dict by name, got list"),
        (lambda: ALL.many([ROWS[0] | {"age": "x"}]), r"row 0: x\.age must be a number"),
        (lambda: ALL.many(3), "X must be a data frame, columns by name or a list of dicts"),
        (lambda: ALL.many({"age": [1, 2], "price": [1]}), "columns of the same length"),
    ],
)
def test_mistakes_are_named(make: Any, word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        make()


# -- whim convert ----------------------------------------------------------------------------------


def test_convert_says_what_it_did_and_keeps_it(tmp_path: Path) -> None:
    seen = visits(800, 0)
    write_csv(tmp_path / "v.csv", seen, 0)
    words = ["convert", str(tmp_path / "v.csv"), "--to", str(tmp_path / "v.whim"), "--arm", "shown",
             "--reward", "click", "--context", COLUMNS, "--logging", "uniform"]  # fmt: skip
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for said in ("context: 6 columns made 17 features, by the first 800 rows", "hour: cyclic with",
                 "device: one of 3 (phone, desk, tablet)", "; a dimension of its own where it is",
                 "price: number, (log(1 +", "constant: 1", "--raw"):  # fmt: skip
        assert said in done.stderr
        assert said not in done.stdout
    log = whim.logs.open(tmp_path / "v.whim")
    features = wf.load(tmp_path / "v.whim")
    assert log.features == features
    assert log.meta["context_names"] == features.names
    assert len(log) == 800  # no row is lost for a gap
    assert features.many(seen.columns).tobytes() == np.array(log.context).tobytes()
    row = {name: values[0] for name, values in seen.columns.items()}
    policy = whim.policy("pslinucb-disjoint", features=features)
    policy.add_arms(log.arms)
    assert policy.select(row) == policy.select(np.array(log.context[0]))
    # the next month's file by the same encoding, and by columns that are named
    write_csv(tmp_path / "w.csv", visits(50, 1), 1)
    more = [*words[:1], str(tmp_path / "w.csv"), "--to", str(tmp_path / "w.whim"), *words[4:]]
    CliRunner().invoke(app, [*more, "--features", str(tmp_path / "v.whim")], catch_exceptions=False)
    assert whim.logs.open(tmp_path / "w.whim").features == features
    own = [*more, "--overwrite", "--category", "hour", "--cyclic", "age=100"]
    CliRunner().invoke(app, own, catch_exceptions=False)
    other = wf.load(tmp_path / "w.whim")
    assert {f.name: f.kind for f in other.fields}["hour"] in ("choice", "hash")
    assert {f.name: f.period for f in other.fields}["age"] == 100
    raw = CliRunner().invoke(app, [*more, "--overwrite", "--raw"], catch_exceptions=True)
    assert "no event could be read" in str(raw.exception)  # a device is no number
    with pytest.raises(InvalidInputError, match="must be left out where raw"):
        whim.logs.convert(
            tmp_path / "v.csv", tmp_path / "x.whim", arm="shown", reward="click", context=["age"],
            raw=True, categories=["age"],
        )  # fmt: skip


def test_odd_cells_are_missing_and_counted(tmp_path: Path) -> None:
    cells = ["1.5", " 2 ", "NA", "", "nan", "oops", "1e300", *map(str, range(40))]
    rows = "".join(f'a,1,"{cell}",{"true" if i % 2 else "false"}\n' for i, cell in enumerate(cells))
    (tmp_path / "t.csv").write_text("arm,reward,v,f\n" + rows)
    log = whim.logs.convert(
        tmp_path / "t.csv", tmp_path / "t.whim", arm="arm", reward="reward", context=["v", "f"]
    )
    assert len(log) == len(cells)
    assert log.meta["warnings"] == {
        NO_NUMBER.format("v"): 2, MARKER.format("v", "NA"): 1, MARKER.format("v", "nan"): 1,
    }  # fmt: skip
    assert log.meta["context_names"] == ["v", "v missing", "f", "constant"]
    assert log.context[:7, 1].tolist() == [0, 0, 1, 1, 1, 1, 1]
    assert log.context[:4, 2].tolist() == [0, 1, 0, 1]


def test_labelled_rows_are_encoded_too(tmp_path: Path) -> None:
    text = "rain,warm,wind\n" + "".join(f"{'yn'[i % 2]},{i},{'NS'[i % 3 > 1]}\n" for i in range(30))
    (tmp_path / "t.csv").write_text(text)
    log = whim.logs.convert(tmp_path / "t.csv", tmp_path / "a.whim", label="rain")
    assert log.meta["context_names"] == ["warm", "constant"]
    both = whim.logs.convert(
        tmp_path / "t.csv", tmp_path / "b.whim", label="rain", context=["warm", "wind"]
    )
    assert both.meta["context_names"] == ["warm", "wind=N", "wind=S", "constant"]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_csv_as_it_is_earns_what_features_by_hand_earn(seed: int) -> None:
    """In short what ``python -m benchmarks.features`` shows over twenty runs."""
    reward = claim.run(seed, logged=3_000, served=4_000)
    assert reward["whim convert"] > 0.97 * reward["by hand"]
    assert reward["old recipe"] < 0.92 * reward["by hand"]
    assert reward["by hand"] > 1.3 * reward["at random"]
