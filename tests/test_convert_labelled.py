"""Labelled rows, from archives and tables, as logs in which every reward is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import whim
import whim.logs
from tests.test_logs import bytes_of
from whim.cli.app import app
from whim.errors import InvalidInputError, LogFileError
from whim.logs import Log, tables
from whim.logs.readers import format_of
from whim.logs.tables import BAD_ROW

ROWS = """\
day,warm,wind,rain,note
3,0.5,1,yes,a
4,-1.5,2,no,7
6,2,0.25,yes,b
"""


def labelled(folder: Path, text: str, **options: Any) -> Log:
    (folder / "t.csv").write_text(text)
    return whim.logs.convert(
        folder / "t.csv",
        folder / "t.whim",
        overwrite=True,
        **{"label": "rain", "raw": True, **options},
    )


def test_an_archive_becomes_a_log_of_all_its_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(9000, 3)).astype(np.float32), rng.integers(4, size=9000)
    np.savez(tmp_path / "s.npz", X=X, y=y)
    assert format_of([tmp_path / "s.npz"]) == "npz"
    log = whim.logs.convert(tmp_path / "s.npz", tmp_path / "s.whim")
    assert (log.n_events, log.n_pools, log.logging, log.arms) == (9000, 1, "full", [0, 1, 2, 3])
    np.testing.assert_array_equal(log.context, X.astype(np.float64))
    np.testing.assert_array_equal(log.logged, y)
    np.testing.assert_array_equal(log.reward, 1.0)
    assert log.time[[0, -1]].tolist() == [0, 8999]
    assert log.meta["source"]["reader"] == "npz"


def test_rewards_of_one_arm_per_row(tmp_path: Path) -> None:
    R = [[0, 0.5, 0], [0, 0, 0], [-2, 0, 0]]
    np.savez(tmp_path / "s.npz", X=np.ones((3, 1)), R=R)
    log = whim.logs.convert(tmp_path / "s.npz", tmp_path / "s.whim", constant=True)
    assert log.reward.tolist() == [0.5, 0.0, -2.0]
    assert log.logged.tolist() == [1, 0, 0]
    assert log.n_features == 2
    np.savez(tmp_path / "s.npz", X=np.ones((2, 1)), R=[[0, 1], [1, 1]])
    with pytest.raises(LogFileError, match=r"R must have at most one reward .* row 1"):
        whim.logs.convert(tmp_path / "s.npz", tmp_path / "s.whim", overwrite=True)
    assert whim.logs.open(tmp_path / "s.whim").n_events == 3  # as it was


def test_replay_counts_every_event_and_matches_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(300, 2)), rng.integers(3, size=300)
    np.savez(tmp_path / "s.npz", X=X, y=y)
    log = whim.logs.convert(tmp_path / "s.npz", tmp_path / "s.whim")
    run = whim.replay(log, {"": whim.LinUCBDisjoint(n_features=2, alpha=0.5)}).runs[""][0]
    policy = whim.LinUCBDisjoint(n_features=2, alpha=0.5)
    policy.add_arms([0, 1, 2])
    right = 0
    for x, label in zip(X, y.tolist(), strict=True):
        arm = policy.select(x).arm
        policy.update(arm, x, float(arm == label))
        right += arm == label
    assert (run.events, run.matched, run.total) == (300, 300, right)


def test_a_table_of_labelled_rows(tmp_path: Path) -> None:
    log = labelled(tmp_path, ROWS)
    assert (log.arms, log.logging) == (["yes", "no"], "full")
    assert log.meta["context_names"] == ["day", "warm", "wind"]
    assert log.context.tolist() == [[3, 0.5, 1], [4, -1.5, 2], [6, 2, 0.25]]
    assert [log.event(i).shown for i in range(3)] == ["yes", "no", "yes"]
    assert log.reward.tolist() == [1, 1, 1]
    assert log.meta["source"]["options"]["left_out"] == ["note"]  # one of three is a number
    timed = labelled(tmp_path, ROWS, time="day", constant=True)
    assert timed.time.tolist() == [3, 4, 6]
    assert timed.meta["context_names"] == ["constant", "warm", "wind"]
    assert timed.context[:, 0].tolist() == [1, 1, 1]
    named = labelled(tmp_path, ROWS, context=["w*"])
    assert named.meta["context_names"] == ["warm", "wind"]


def test_rows_that_cannot_be_used(tmp_path: Path) -> None:
    text = ROWS + "7,,1,yes,\n8,1,1,,\n"
    log = labelled(tmp_path, text)
    assert log.meta["dropped"] == {BAD_ROW["context"]: 1, BAD_ROW["arm"]: 1}
    with pytest.raises(LogFileError, match=r"row 4: context missing"):
        labelled(tmp_path, text, strict=True)


def test_batches_and_parquet_give_the_same_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bytes_of(labelled(tmp_path, ROWS).path)
    monkeypatch.setattr(tables, "BATCH", 2)
    assert bytes_of(labelled(tmp_path, ROWS).path) == whole
    pl.read_csv(tmp_path / "t.csv").write_parquet(tmp_path / "t.parquet")
    log = whim.logs.convert(tmp_path / "t.parquet", tmp_path / "p.whim", label="rain", raw=True)
    assert log.context.tolist() == whim.logs.open(tmp_path / "t.whim").context.tolist()


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"label": "snow"}, LogFileError, "no column 'snow' for label"),
        ({"label": "rain", "context": ["rain"]}, InvalidInputError, "context must not contain"),
        ({"label": "rain", "context": ["x"]}, LogFileError, "no column 'x' for context"),
        ({"label": "rain", "context": []}, InvalidInputError, "context must name at least one"),
        ({"label": "rain", "arm": "note"}, InvalidInputError, "arm is no option of .* with label"),
        ({"label": "rain", "time": "when"}, LogFileError, "no column 'when'"),
    ],
)
def test_bad_options(tmp_path: Path, options: Any, error: Any, word: str) -> None:
    with pytest.raises(error, match=word):
        labelled(tmp_path, ROWS, **options)
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def test_more_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="context must name at least one column"):
        labelled(tmp_path, "rain,note\nyes,a\nno,b\n")
    with pytest.raises(InvalidInputError, match="needs arm, reward, context, or label"):
        whim.logs.convert(tmp_path / "t.csv", tmp_path / "t.whim")
    np.savez(tmp_path / "s.npz", X=np.ones((2, 1)), y=[0, 1])
    with pytest.raises(InvalidInputError, match="label is no option of format npz"):
        whim.logs.convert(tmp_path / "s.npz", tmp_path / "s.whim", label="y")


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(ROWS)
    words = ["convert", str(tmp_path / "t.csv"), "--to", str(tmp_path / "t.whim")]
    done = CliRunner().invoke(app, [*words, "--label", "rain", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["events"], told["arms"], told["logging"]) == (3, 2, "full")
