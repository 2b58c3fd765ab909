"""Logs of lists: written, opened, checked, merged; logs of single items stay what they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whim
from whim.errors import InvalidInputError, LogFileError
from whim.logs import ListWriter, Log

ROWS: list[dict[str, Any]] = [
    {
        "time": 5, "x": [1.0, 0.5], "arms": ["a", "b", "c"], "shown": ["c", "a"], "rewards": [0, 1],
        "probabilities": [0.5, 0.4], "prefix_probabilities": [0.5, 0.25], "wanted": ["a", "b"],
        "explore": 0.2,
    },
    {
        "time": 6, "x": [0.0, 1.0], "arms": ["b", 7], "shown": [7], "rewards": [2.5],
        "probabilities": [1.0], "prefix_probabilities": [1.0], "wanted": [7], "explore": 0.0,
    },
    {
        "time": 7, "x": [0.0, 2.0], "arms": ["a", "b", "c"], "shown": ["a", "b", "c"],
        "rewards": None, "reward": 4.0, "probabilities": [0.3, 0.3, 0.3],
        "prefix_probabilities": [0.3, 0.2, 0.2], "wanted": ["c", "b", "a"], "explore": 0.5,
    },
]  # fmt: skip


def written(path: Path, rows: list[dict[str, Any]] = ROWS) -> Log:
    with ListWriter(
        path, n_features=2, logging="propensity", propensities=True, wanted=True
    ) as writer:
        for row in rows:
            writer.add_list(**row)
    return whim.logs.open(path)


def test_lists_come_back(tmp_path: Path) -> None:
    log = written(tmp_path / "lists.whim")
    assert log.has_lists
    assert log.meta["lists"] is True
    assert log.meta["format"] == 2
    assert log.reward.tolist() == [1.0, 2.5, 4.0]
    for i, row in enumerate(ROWS):
        shown = log.shown_list(i)
        assert (shown.arms, shown.shown) == (row["arms"], row["shown"])
        assert shown.x.tolist() == row["x"]
        assert shown.time == row["time"]
        assert shown.probabilities == row["probabilities"]
        assert shown.prefix_probabilities == row["prefix_probabilities"]
        assert (shown.wanted, shown.explore) == (row["wanted"], row["explore"])
        if row["rewards"] is None:
            assert np.isnan(shown.rewards).all()
        else:
            assert shown.rewards == row["rewards"]
    with pytest.raises(InvalidInputError, match="shown_list"):
        log.event(0)
    digests = json.loads((log.path / "digest.json").read_text())
    assert {f"{name}.bin" for name in ("list_offsets", "list_place", "explore")} <= set(digests)


def test_probabilities_of_items_may_be_unknown(tmp_path: Path) -> None:
    row = ROWS[0] | {"probabilities": [0.5, None]}
    log = written(tmp_path / "x.whim", [row, ROWS[1]])
    assert np.array_equal(log.list_probability, [0.5, np.nan, 1.0], equal_nan=True)
    assert log.shown_list(0).prefix_probabilities == [0.5, 0.25]


def test_a_log_of_single_items_says_nothing_of_lists(tmp_path: Path) -> None:
    with whim.logs.Writer(tmp_path / "one.whim", n_features=1) as writer:
        writer.event(time=0, x=[1.0], arms=["a"], shown="a", reward=1.0)
    log = whim.logs.open(tmp_path / "one.whim")
    assert not log.has_lists
    assert log.meta["format"] == 1
    assert not {"lists", "n_shown", "wanted"} & set(log.meta)
    with pytest.raises(InvalidInputError, match="event is"):
        log.shown_list(0)


def test_blocks_equal_lists(tmp_path: Path) -> None:
    one = written(tmp_path / "one.whim")
    with ListWriter(
        tmp_path / "two.whim", n_features=2, logging="propensity", propensities=True, wanted=True
    ) as writer:
        writer.block(
            time=one.time, context=one.context, pool=one.pool, reward=one.reward,
            list_offsets=one.list_offsets, list_place=one.list_place, list_reward=one.list_reward,
            list_probability=one.list_probability, list_wanted=one.list_wanted,
            list_prefix_probability=one.list_prefix_probability, explore=one.explore,
            pool_offsets=one.pool_offsets, pool_items=one.pool_items,
            item_arm=[one.arms[a] for a in one.item_arm],
        )  # fmt: skip
    assert (tmp_path / "one.whim/digest.json").read_text() == (
        tmp_path / "two.whim/digest.json"
    ).read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shown": ["c", "c"]}, "shown must be different"),
        ({"shown": ["c", "z"]}, "shown must be different"),
        ({"shown": []}, "shown must be different"),
        ({"rewards": [1]}, "rewards"),
        ({"rewards": [1, np.inf]}, "rewards"),
        ({"rewards": None}, "rewards or reward"),
        ({"probabilities": [0.5, 0.0]}, "probabilities must lie"),
        ({"probabilities": [0.4, 0.4]}, "at most the probabilities"),
        ({"prefix_probabilities": [0.2, 0.25]}, "must not rise"),
        ({"probabilities": None}, "probabilities must be given"),
        ({"probabilities": [None, 2.0]}, "probabilities must lie"),
        ({"probabilities": [None, np.nan]}, "probabilities"),
        ({"prefix_probabilities": None}, "prefix_probabilities must be given"),
        ({"wanted": ["a"]}, "wanted must be 2"),
        ({"explore": 1.5}, "explore must lie"),
    ],
)
def test_bad_lists_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with ListWriter(
        tmp_path / "x.whim", n_features=2, logging="propensity", propensities=True, wanted=True
    ) as writer:
        with pytest.raises(InvalidInputError, match=message):
            writer.add_list(**(ROWS[0] | change))
        writer.add_list(**ROWS[0])
    assert whim.logs.open(tmp_path / "x.whim").n_events == 1


@pytest.mark.parametrize("name", ["list_place", "list_wanted", "list_offsets"])
def test_damage_is_found(tmp_path: Path, name: str) -> None:
    log = written(tmp_path / "x.whim")
    column = np.array(getattr(log, name))
    column[1] = 99
    column.tofile(log.path / f"{name}.bin")
    with pytest.raises(LogFileError, match=name):
        whim.logs.open(log.path)


def test_meta_must_fit(tmp_path: Path) -> None:
    log = written(tmp_path / "x.whim")
    for change in ({"format": 1}, {"lists": False}, {"n_shown": -1}, {"wanted": None}):
        (log.path / "meta.json").write_text(json.dumps(log.meta | change))
        with pytest.raises(LogFileError):
            whim.logs.open(log.path)


CSV = """list,rank,arm,click,age,p,prefix
7,2,a,1,0.5,0.4,0.25
7,1,c,0,0.5,0.5,0.5
8,1,b,0,0.7,0.2,0.2
9,1,b,x,0.7,0.2,0.2
10,1,a,0,0.1,0.9,0.9
10,2,a,0,0.1,0.9,0.9
11,1,c,1,0.2,1,1
"""
OPTIONS: dict[str, Any] = {
    "list": "list", "position": "rank", "arm": "arm", "reward": "click", "context": ["age"],
    "propensity": "p", "prefix_propensity": "prefix",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_of_items_becomes_lists(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import polars as pl

    monkeypatch.setattr("whim.logs.tables.BATCH", 2)  # so that lists are cut by batches
    file = tmp_path / f"visits.{kind}"
    file.write_text(CSV)
    if kind == "parquet":
        pl.read_csv(CSV.encode()).write_parquet(file)
    log = whim.logs.convert(file, tmp_path / "lists.whim", **OPTIONS)
    assert log.n_events == 3
    first = log.shown_list(0)
    assert (first.arms, first.shown, first.rewards) == (["a", "c", "b"], ["c", "a"], [0.0, 1.0])
    assert first.prefix_probabilities == [0.5, 0.25]
    assert log.logging == "propensity"
    assert sum(log.meta["dropped"].values()) == 3
    assert log.meta["read"] == 7
    with pytest.raises(LogFileError, match="row 4"):
        whim.logs.convert(file, tmp_path / "strict.whim", strict=True, **OPTIONS)


def test_tables_of_items_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "visits.csv"
    file.write_text(CSV + "7,3,b,0,0.5,0.4,0.2\n")
    with pytest.raises(LogFileError, match="stand together"):
        whim.logs.convert(file, tmp_path / "x.whim", **OPTIONS)
    with pytest.raises(InvalidInputError, match="both or neither"):
        whim.logs.convert(file, tmp_path / "x.whim", **(OPTIONS | {"propensity": None}))
    with pytest.raises(InvalidInputError, match="one file"):
        whim.logs.convert([file, file], tmp_path / "x.whim", **OPTIONS)
