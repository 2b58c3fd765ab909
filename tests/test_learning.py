"""``whim spaces learn``: what is refused, what was learnt all the same, and nothing sent twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import whim
from tests.crashes import Service
from whim.cli.app import app
from whim.cli.learning import Columns, check
from whim.errors import WhimError

COLUMNS = ("--arm", "shown", "--reward", "click")
NAMED = Columns("shown", "click", None)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Service(tmp_path_factory.mktemp("data")) as made:
        made.wait()
        yield f"http://127.0.0.1:{made.port}"


@pytest.fixture
def space(url: str, request: pytest.FixtureRequest) -> Iterator[whim.Client]:
    """A space in shadow mode, named as the test is."""
    name = request.node.originalname
    fields = [{"name": "age", "kind": "number"}]
    with whim.Client(url, space=name) as client:
        client.create(name, policy="ucb", shadow=True, context={"fields": fields})
        yield client
        client.retire(name)


def table(path: Path, rows: list[str], head: str = "visit,age,shown,click") -> Path:
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def learn(client: whim.Client, file: Path, *more: str) -> Any:
    name, url = str(client._core._default_space), client._core.url
    arguments = ["spaces", "learn", name, str(file), *COLUMNS, "--url", url, "--json", *more]
    return CliRunner().invoke(app, arguments)


def rewards(client: whim.Client, file: Path, *more: str) -> dict[str, int]:
    found = learn(client, file, *more)
    assert found.exit_code == 0, found.output
    told: dict[str, int] = json.loads(found.stdout)["rewards"]
    return told


def counts(client: whim.Client) -> dict[str, int]:
    told: dict[str, int] = client.stats()["counts"]
    return told


def test_ids_that_repeat_are_found_before_anything_is_sent(
    space: whim.Client, tmp_path: Path
) -> None:
    rows = [f"u{i % 700},{i},a,{i % 2}" for i in range(1500)]
    file = table(tmp_path / "visits.csv", rows)
    said = str(learn(space, file, "--id", "visit").exception)
    assert "id must be a column with another value in each row, got 'visit'" in said
    assert "'u0' in rows 1, 701, 1401; 700 such values are in 1,500 rows." in said
    assert "Nothing was sent." in said
    assert counts(space)["decisions"] == 0
    assert rewards(space, file) == {"learnt": 1500}


def test_ids_may_be_missing_and_numbers(tmp_path: Path) -> None:
    named = NAMED._replace(id="visit")
    rows = [",3,a,1", ",4,b,0", "v,5,a,1"]
    assert check(table(tmp_path / "gaps.csv", rows), named) == []
    frame = pl.DataFrame({"visit": [1, 2, 2], "shown": ["a"] * 3, "click": [0, 1, 0]})
    frame.write_parquet(tmp_path / "numbers.parquet")
    with pytest.raises(WhimError, match=r"'2' in rows 2, 3; 1 such values are in 2 rows"):
        check(tmp_path / "numbers.parquet", named)


def test_a_batch_that_is_refused_in_part_says_what_was_learnt(
    space: whim.Client, tmp_path: Path
) -> None:
    rows = [f"v{i},{i},a,{i % 2}" for i in range(1200)]
    for i in (700, 710):
        space.reward(space.decide({"age": 0}, ["b"], decision_id=f"v{i}").decision_id, 1)
    said = str(learn(space, table(tmp_path / "t.csv", rows), "--id", "visit").exception)
    assert "row 701 must be one that" in said
    assert "It was sent before with other content" in said
    assert (
        "Of rows 501 to 1000, 2 are refused (701, 711); the others and all before them are "
        "learnt, none after them is sent." in said
    )
    assert counts(space)["rewards_learnt"] == 1000
    rows[700], rows[710] = "x,1,a,1", "y,1,a,1"
    found = rewards(space, table(tmp_path / "t.csv", rows), "--id", "visit")
    assert found == {"duplicate": 998, "learnt": 202}


def test_a_request_that_is_refused_whole_names_the_row(space: whim.Client, tmp_path: Path) -> None:
    rows = [f"v{i},{i},a,{i % 2}" for i in range(600)]
    rows[550] = "x" * 200 + ",1,a,1"
    said = str(learn(space, table(tmp_path / "t.csv", rows), "--id", "visit").exception)
    assert "row 551 must be one that" in said
    assert "Rows before 501 are learnt; once it is mended or removed, the same command" in said
    assert counts(space)["decisions"] == 500


def test_what_was_learnt_is_not_sent_again(space: whim.Client, tmp_path: Path) -> None:
    file = table(tmp_path / "t.csv", [f"v{i},{i},a,{i % 2}" for i in range(1100)])
    assert rewards(space, file) == {"learnt": 1100}
    before = counts(space)["rewards"]
    assert rewards(space, file) == {"duplicate": 1100}
    assert counts(space)["rewards"] - before == 6  # two of each request
    with file.open("a") as more:
        more.write("new,1,b,1\n")
    assert rewards(space, file) == {"duplicate": 1100, "learnt": 1}


def test_rewards_that_did_not_arrive_are_sent(space: whim.Client, tmp_path: Path) -> None:
    rows = [f"v{i},{i},a,{i % 2}" for i in range(1100)]
    decisions = [
        {"decision_id": f"v{i}", "candidates": ["a"], "context": {"age": float(i)}}
        for i in range(1100)
    ]
    file = table(tmp_path / "t.csv", rows)
    space.decide_many(decisions[:500])
    space.reward_many([{"decision_id": f"v{i}", "reward_id": f"v{i}", "value": i % 2}
                       for i in range(300)])  # fmt: skip
    space.decide_many(decisions[500:1000])
    found = rewards(space, file, "--id", "visit")
    assert sum(found.values()) == 1100
    assert found["learnt"] == 800
    assert counts(space)["rewards_learnt"] == 1100


def test_rewards_as_people_have_them(space: whim.Client, tmp_path: Path) -> None:
    words = ["True", "FALSE", " yes", "No", "y", "n", "T", "f", "0.5", "maybe", "", "nan"]
    rows = [f"v{i},{i},a{i},{word}" for i, word in enumerate(words)]
    found = json.loads(learn(space, table(tmp_path / "t.csv", rows)).stdout)
    assert found["rewards"] == {"learnt": 9}
    assert found["dropped"] == {"no reward": 3}
    means = {one.arm: one.mean for one in space.arms()}
    assert [means[f"a{i}"] for i in range(9)] == [1, 0, 1, 0, 1, 0, 1, 0, 0.5]


@pytest.mark.parametrize(
    ("values", "odd"),
    [
        (["1", "0", "1", "1", ""], []),
        (["1", "0", "1", ""], ["1 of 4 rows have no reward in 'click'"]),
        (["True", "true"], ["all 2 rewards in 'click' are 1, from which"]),
        (["1"], []),
        (["1", "", "yes"], ["1 of 3 rows have no", "all 2 rewards"]),
    ],
)
def test_rewards_that_look_wrong_are_questioned(
    values: list[str], odd: list[str], tmp_path: Path
) -> None:
    said = check(table(tmp_path / "t.csv", [f"v,1,a,{value}" for value in values]), NAMED)
    assert len(said) == len(odd)
    for line, part in zip(said, odd, strict=True):
        assert line.startswith(part)


def test_a_warning_is_loud(space: whim.Client, tmp_path: Path) -> None:
    found = learn(space, table(tmp_path / "t.csv", ["v,1,a,1", "w,1,b,1"]))
    assert found.stderr.startswith("WARNING: all 2 rewards in 'click' are 1")
    assert len(json.loads(found.stdout)["warnings"]) == 1
