"""Features of odd tables: what is taken, what is refused and how, and what ``convert`` notices."""

from __future__ import annotations

import gzip
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import whim
import whim.features as wf
import whim.logs
from tests.test_convert_tables import VISITS
from whim.cli.app import app
from whim.errors import InvalidInputError, LogFileError
from whim.logs.encoding import GAP, MARKER, NO_FLAG, NO_NUMBER, UNKNOWN

AGES = [{"age": age} for age in (20.0, 30.0, 40.0)]


# -- fit and partial_fit ---------------------------------------------------------------------------


@pytest.mark.parametrize("skewed", [False, True])
def test_partial_fit_goes_on_from_the_fit(skewed: bool) -> None:
    values = np.random.default_rng(0).normal(3, 1, 400)
    rows = [{"v": v} for v in (np.exp(values) if skewed else values).tolist()]
    features = wf.fit(rows[:300])
    unit = features.fields[0].log
    assert (unit > 0) == skewed
    again = wf.Features.from_dict(features.to_dict())
    for one in (features, again):
        (f,) = one.partial_fit(rows[300:]).fields
        taken = [np.log1p(row["v"] / unit) if skewed else row["v"] for row in rows]
        assert f.mean == pytest.approx(np.mean(taken), rel=1e-12)
        assert f.scale == pytest.approx(np.std(taken), rel=1e-12)
    assert wf.fit(AGES).partial_fit([{"age": 100}]).fields[0].mean == 47.5


def test_partial_fit_leaves_zeros_and_ones_as_fit_does() -> None:
    features = wf.fit([{"new": 0}, {"new": 1}])
    assert features.partial_fit([{"new": 1}]).describe()[0] == "new: number, new as it is"
    assert features.partial_fit([{"new": 6}]).fields[0].mean == 2.0
    declared = wf.Features([wf.number("new")]).partial_fit([{"new": 0}, {"new": 1}])
    assert declared.fields[0].mean == 0.5
    turned = wf.Features([wf.number("v")]).partial_fit([{"v": -1}, {"v": 1}])
    assert turned.partial_fit([{"v": 1}, {"v": 1}]).fields[0].mean == 0.5


# -- cyclic ----------------------------------------------------------------------------------------


def test_cyclic_takes_one_name_and_refuses_text() -> None:
    hours = [{"hour": hour} for hour in range(24)]
    assert wf.fit(hours, cyclic="hour") == wf.fit(hours, cyclic=["hour"])
    assert wf.fit([{"hour": "x"}], cyclic={"hour": 0}).fields[0].kind == "choice"
    clock: list[dict[str, Any]] = [{"hour": None}, {"hour": "09:15"}]
    for asked in ("hour", {"hour": 24}):
        with pytest.raises(InvalidInputError, match=r"got '09:15' at \[1\]: as hours, 9:15 is 9\."):
            wf.fit(clock, cyclic=asked)
    with pytest.raises(InvalidInputError, match="cyclic must name numbers, got 'hour' of kind"):
        wf.fit(hours, cyclic="hour", kinds={"hour": "choice"})
    with pytest.raises(InvalidInputError, match="or --cyclic age=24"):
        wf.fit(AGES, cyclic="age")


# -- odd frames ------------------------------------------------------------------------------------

FITTED = wf.fit(AGES)


def test_columns_of_any_kind_are_taken() -> None:
    want = np.array([FITTED(row) for row in AGES])
    ages = [20.0, 30.0, 40.0]
    for column in (ages, tuple(ages), pd.Series(ages), pl.Series(ages), np.array(ages)):
        assert FITTED.many({"age": column}).tobytes() == want.tobytes()


def test_a_frame_of_one_row_is_a_row() -> None:
    policy = whim.LinUCBDisjoint(n_features=FITTED.size).with_features(FITTED)
    policy.add_arms(["a"])
    for frame in (pd.DataFrame(AGES), pl.DataFrame(AGES)):
        assert FITTED(frame[1:2]).tobytes() == FITTED(AGES[1]).tobytes()
        assert policy.select(frame[1:2]).arm == "a"
        with pytest.raises(InvalidInputError, match="x must be one row, got a data frame of 3"):
            policy.select(frame)


def test_no_rows_give_no_vectors() -> None:
    for none in ([], {}, pd.DataFrame(AGES)[:0], pl.DataFrame(AGES)[:0]):
        assert FITTED.many(none).shape == (0, 2)


DATES = pd.DataFrame({"when": pd.to_datetime(["2026-01-01"])})


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), r"columns of different names, got \['a'\]"),
        ({1: [1], "1": [2]}, r"columns of different names, got \['1'\]"),
        (pl.LazyFrame({"a": [1]}), r"must be a data frame, got a LazyFrame: collect\(\) it"),
        ([{"a": 1}, {"a": 10**400}], r"a must hold numbers of at most 1e\+10 in size, got 1000"),
        (pd.DataFrame({"a": [1, np.inf]}), r"a must hold numbers .*, got inf at \[1\]"),
        ({"a": [1], "b": 3}, "must be columns by name, got int as 'b'"),
        ({"a": [1], "b": np.float64(3)}, "must be columns by name, got float64 as 'b'"),
        ({"a": [1], "b": [1, 2]}, r"columns of the same length, got {'a': 1, 'b': 2}"),
        (DATES, "got Timestamp: make columns such as hour and weekday of it"),
        (pl.DataFrame(DATES.to_dict("list")), "got datetime: make columns such as hour"),
    ],
)
def test_odd_tables_are_refused_in_words(data: Any, word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        wf.fit(data)


def test_features_that_are_not_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(InvalidInputError, match=r"got .*: No such file or directory\.$"):
            wf.load(path)


# -- whim convert ----------------------------------------------------------------------------------


def table(path: Path, columns: dict[str, list[Any]]) -> Path:
    n = len(next(iter(columns.values())))
    shown = {"shown": ["ab"[i % 2] for i in range(n)], "click": [i % 3 // 2 for i in range(n)]}
    pl.DataFrame(shown | columns, strict=False).write_csv(path)
    return path


def run(file: Path, context: str, *more: str) -> Any:
    to = str(file.with_suffix(".whim"))
    words = ["convert", str(file), "--to", to, "--arm", "shown", "--reward", "click"]
    return CliRunner().invoke(app, [*words, "--context", context, "--overwrite", *more])


def test_what_later_rows_have_more_is_counted_by_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whim.logs.encoding.FIT_ROWS", 100)
    columns: dict[str, list[Any]] = {
        "age": [*range(20, 120), *[None] * 7, "x", "?", 5],
        "city": [*["Oslo", "Bergen"] * 50, *["Narvik"] * 6, "", None, "-", "Oslo"],
        "new": [*["true", "false"] * 50, *["true"] * 8, "maybe", ""],
        "hour": [*range(100), *[None] * 4, *range(6)],
    }
    file = table(tmp_path / "t.csv", columns)
    done = run(file, "age,city,new,hour", "--cyclic", "hour")
    assert whim.logs.open(tmp_path / "t.whim").meta["warnings"] == {
        GAP.format("age", "the mean"): 8, NO_NUMBER.format("age"): 1, MARKER.format("age", "?"): 1,
        UNKNOWN.format("city"): 6, GAP.format("city", "0"): 3, MARKER.format("city", "-"): 1,
        NO_FLAG.format("new"): 1, GAP.format("new", "0"): 1, GAP.format("hour", "0"): 4,
    }  # fmt: skip
    assert "6  city: unknown category, all zeros" in done.stdout
    parts = {name: cells[100:] for name, cells in columns.items()}
    table(file, {name: cells[:100] for name, cells in columns.items()})
    both = whim.logs.convert(
        [file, table(tmp_path / "u.csv", parts)], tmp_path / "both.whim", arm="shown",
        reward="click", context=list(columns), cyclic="hour",
    )  # fmt: skip
    assert both.meta["warnings"] == whim.logs.open(tmp_path / "t.whim").meta["warnings"]


def test_usual_markers_of_missing_cells_leave_numbers_numbers(tmp_path: Path) -> None:
    markers = ["?", "-", "None", "NA", "N/A", "null", "NaN", ""]
    file = table(tmp_path / "t.csv", {"age": [*map(str, range(30)), *markers * 2]})
    done = run(file, "age")
    (f,) = wf.load(tmp_path / "t.whim").fields
    assert (f.kind, f.mean, f.missing) == ("number", 14.5, True)
    for marker in markers[:-1]:
        assert f"2  age: {marker!r} taken as missing" in done.stdout


def test_a_marker_that_is_a_known_category_stays_one(tmp_path: Path) -> None:
    file = table(tmp_path / "t.csv", {"pool": ["none", "None", "big", "-"]})
    log = whim.logs.convert(
        file, tmp_path / "t.whim", arm="shown", reward="click", context=["pool"],
        features=wf.Features([wf.choice("pool", ["none", "big"], missing=True)], constant=False),
    )  # fmt: skip
    assert log.context.tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1]]
    assert log.meta["warnings"] == {MARKER.format("pool", one): 1 for one in ("None", "-")}


def test_leading_zeros_make_a_category_but_of_hours(tmp_path: Path) -> None:
    columns = {
        "zip": ["01000", "75001", "13001"] * 16,
        "hour": [f"{i % 24:02}" for i in range(48)],
        "turn": [f"{i % 12:02}" for i in range(48)],
        "dirty": ["007", *map(str, range(1, 48))],
    }
    run(table(tmp_path / "t.csv", columns), "zip,hour,turn", "--cyclic", "turn=12")
    fields = {f.name: f for f in wf.load(tmp_path / "t.whim").fields}
    assert set(fields["zip"].values) == {"01000", "75001", "13001"}
    assert [fields[name].kind for name in ("hour", "turn")] == ["cyclic", "cyclic"]
    many = {"price": ["007", *map(str, range(1, 200))]}
    run(table(tmp_path / "u.csv", many), "price")
    assert wf.load(tmp_path / "u.whim").fields[0].kind == "number"


def test_numbers_that_are_too_large_do_not_end_a_conversion(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"shown": ["a"] * 40, "click": [1] * 40, "v": [*range(39), np.inf]}, strict=False
    )
    frame.write_parquet(tmp_path / "t.parquet")
    log = whim.logs.convert(
        tmp_path / "t.parquet", tmp_path / "t.whim", arm="shown", reward="click", context=["v"]
    )
    assert log.meta["warnings"] == {NO_NUMBER.format("v"): 1}
    assert log.meta["context_names"] == ["v", "v missing", "constant"]


def test_a_value_far_outside_is_named_by_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whim.logs.tables.BATCH", 10)
    file = table(tmp_path / "t.csv", {"rate": [*[1234.567] * 24, 7]})
    (tmp_path / "f.json").write_text('{"fields": [{"name": "rate", "kind": "number", "mean": '
                                     '1234.567, "scale": 1e-11}]}')  # fmt: skip
    error = str(run(file, "rate", "--features", str(tmp_path / "f.json")).exception)
    assert "row 25: x.rate must be at most 1e+10 in size once scaled, got 7.0." in error


def test_convert_speaks_of_its_own_options(tmp_path: Path) -> None:
    file = table(tmp_path / "t.csv", {"age": [*range(20)], "clock": ["09:15"] * 20})
    assert "by the first 20 rows" in run(file, "age").stderr
    again = run(file, "age", "--features", str(file.with_suffix(".whim")))
    assert "context: 1 columns made 2 features, as " in again.stderr
    assert "by the first" not in again.stderr
    for more, word in (
        (["--cyclic", "age"], "--cyclic age=24"),
        (["--cyclic", "clock=24"], "clock must hold numbers, got '09:15'"),
        (["--logging", "propensity", "--category", "clock"], "propensity names their column"),
        (["--features", "none.whim"], "got none.whim: No such file or directory."),
    ):
        assert word in str(run(file, "age,clock", *more).exception)


ROLES = {
    "age": [*range(20)], "seen": [*range(20)], "p": [0.5] * 20, "pool": ["a|b"] * 20,
    "visit": [i // 2 for i in range(20)], "place": [1, 2] * 10, "prefix": [0.5, 0.25] * 10,
}  # fmt: skip


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("raw", [False, True])
def test_a_pattern_leaves_out_what_has_another_role(
    tmp_path: Path, several: bool, raw: bool
) -> None:
    names = {name: ROLES[name] for name in ("age", "seen", "p", "pool")}
    file = table(tmp_path / "t.csv", names)
    how: Any = {"arm": "shown", "reward": "click", "time": "seen", "propensity": "p",
                "candidates": "pool", "raw": raw, "overwrite": True}  # fmt: skip
    sources = [file, table(tmp_path / "u.csv", names)] if several else file
    log = whim.logs.convert(sources, tmp_path / "t.whim", context=["*"], **how)
    assert log.meta["context_names"] == (["age"] if raw else ["age", "constant"])
    for role, name in (("arm", "shown"), ("reward", "click"), ("time", "seen"),
                       ("propensity", "p"), ("candidates", "pool")):  # fmt: skip
        with pytest.raises(InvalidInputError, match=f"'{name}', which is the {role}"):
            whim.logs.convert(sources, tmp_path / "t.whim", context=["age", name], **how)


def test_lists_labels_and_items_leave_out_what_has_another_role(tmp_path: Path) -> None:
    lists = table(tmp_path / "t.csv", {k: v for k, v in ROLES.items() if k not in ("seen", "pool")})
    how: Any = {"list": "visit", "position": "place", "arm": "shown", "reward": "click",
                "propensity": "p", "prefix_propensity": "prefix"}  # fmt: skip
    log = whim.logs.convert(lists, tmp_path / "l.whim", context=["*"], **how)
    assert log.meta["context_names"] == ["age"]
    with pytest.raises(InvalidInputError, match="context must not contain 'place', which is the p"):
        whim.logs.convert(lists, tmp_path / "m.whim", context=["age", "place"], **how)
    labels = whim.logs.convert(lists, tmp_path / "n.whim", label="shown", time="p", context=["*e"])
    assert labels.meta["context_names"] == ["age", "place", "constant"]
    (tmp_path / "items.csv").write_text("id,size\n1,5\n2,6\n")
    (tmp_path / "u.csv").write_text("shown,click,age\n1,0,20\n2,1,30\n")
    items: Any = {"items": tmp_path / "items.csv", "item_id": "id", "arm": "shown",
                  "reward": "click", "context": ["age"]}  # fmt: skip
    log = whim.logs.convert(tmp_path / "u.csv", tmp_path / "u.whim", item_features=["*"], **items)
    assert log.meta["item_names"] == ["size"]
    with pytest.raises(InvalidInputError, match="item_features must not contain 'id', which is"):
        whim.logs.convert(tmp_path / "u.csv", tmp_path / "w.whim", item_features=["id"], **items)


def test_dates_and_times_of_day_are_no_features(tmp_path: Path) -> None:
    days = [datetime(2026, 1, 1 + i, 9, 15, tzinfo=UTC) for i in range(20)]
    columns: dict[str, list[Any]] = {
        "age": [*range(20)],
        "day": [*[str(day) for day in days[:19]], "?"],
        "clock": [f"{i:02}:15" for i in range(20)],
    }
    file = table(tmp_path / "t.csv", columns)
    done = run(file, "*")
    assert "left out: day, clock: dates and times of day" in done.stderr
    log = whim.logs.open(tmp_path / "t.whim")
    assert log.meta["context_names"] == ["age", "constant"]
    assert log.meta["source"]["options"]["left_out"] == ["day", "clock"]
    again = run(file, "*", "--features", str(tmp_path / "t.whim"))
    assert "left out: day, clock: not among the features of" in again.stderr
    for features in (None, log.features):
        both = whim.logs.convert(
            [file, table(tmp_path / "u.csv", columns)], tmp_path / "b.whim", arm="shown",
            reward="click", context=["*"], features=features, overwrite=True,
        )  # fmt: skip
        assert both.meta["context_names"] == ["age", "constant"]
        assert both.meta["source"]["options"]["left_out"] == ["day", "clock"]
    for context, word in (
        ("age,day", "got '2026-01-01 09:15:00+00:00': make columns such as hour and weekday"),
        ("clock", r"got '00:15': as hours, 9:15 is 9.25 .*--category clock"),
        ("*k", "context must have columns that are no dates or times of day, got clock"),
    ):
        assert re.search(word.replace("+", r"\+"), str(run(file, context).exception))
    assert run(file, "clock", "--category", "clock").exit_code == 0
    parquet = tmp_path / "t.parquet"
    pl.DataFrame({"shown": ["a"] * 20, "click": [1] * 20, "age": columns["age"], "day": days}
                 ).write_parquet(parquet)  # fmt: skip
    assert "left out: day: dates" in run(parquet, "*").stderr
    assert "got datetime: make columns such as hour" in str(run(parquet, "day").exception)
    assert run(parquet, "day", "--category", "day").exit_code == 0


@pytest.mark.parametrize("mark", [";", "\t"])
def test_other_separators_than_commas_are_named(tmp_path: Path, mark: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(f"shown{mark}click{mark}age\na{mark}1{mark}2\n")
    for sources in ([file], [file, file]):
        with pytest.raises(LogFileError, match=r"must have commas .*, got '(;|\\t)' in its header"):
            whim.logs.convert(
                sources, tmp_path / "t.whim", arm="shown", reward="click", context=["age"]
            )


# -- odd files -------------------------------------------------------------------------------------

ROW: dict[str, Any] = {"arm": "shown", "reward": "click", "context": ["u1", "u2"]}
ODD_FILES: dict[str, tuple[bytes, str]] = {
    "ragged": (
        VISITS.encode() + b"1,2,1,1,1,1,7,8\n",
        "row 4 must have 7 cells, one for each .* got 8",
    ),
    "repeated": (
        VISITS.replace("p,pool", "u1,pool").encode(),
        "of different names, got .'u1'. twi",
    ),
    "UTF-16": (VISITS.encode("utf-16"), "must be text in UTF-8, got UTF-16: save it as UTF-8"),
    "words": (
        VISITS.replace(",1,", ",liked,").replace(",0,", ",not,").encode(),
        "reward missing or not a number; click must hold numbers, got 'liked'",
    ),
}


@pytest.mark.parametrize("name", list(ODD_FILES))
def test_what_is_wrong_with_a_csv_is_said(tmp_path: Path, name: str) -> None:
    data, word = ODD_FILES[name]
    (tmp_path / "t.csv").write_bytes(data)
    with pytest.raises(LogFileError, match=word):
        whim.logs.convert(tmp_path / "t.csv", tmp_path / "t.whim", **ROW)
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def test_names_that_are_empty_may_repeat_and_a_csv_may_be_packed(tmp_path: Path) -> None:
    text = VISITS.replace("p,pool", ",")
    (tmp_path / "t.csv").write_text(text)
    assert whim.logs.convert(tmp_path / "t.csv", tmp_path / "t.whim", **ROW).n_events == 3
    (tmp_path / "p.csv").write_bytes(gzip.compress(VISITS.encode()))
    assert whim.logs.convert(tmp_path / "p.csv", tmp_path / "p.whim", **ROW).n_events == 3


def test_a_table_is_no_log_yet(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(VISITS)
    with pytest.raises(
        LogFileError, match=r"is no log but a file: whim convert .*t\.csv --to t\.w"
    ):
        whim.logs.open(tmp_path / "t.csv")
