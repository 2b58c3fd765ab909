"""CSV, Parquet, Open Bandit and MovieLens: what becomes of each row, against plain loops."""

from __future__ import annotations

import csv
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import whim.logs
from tests.test_logs import bytes_of
from whim.errors import InvalidInputError, LogFileError
from whim.logs import Log, movielens, open_bandit, tables
from whim.logs.readers import format_of
from whim.logs.tables import BAD_ROW, LEFT_OUT

PLAIN: dict[str, Any] = {
    "arm": "shown", "reward": "click", "context": ["u1", "u2"], "raw": True,
}  # fmt: skip
VISITS = """\
when,shown,click,u1,u2,p,pool
10,a,1,0.5,1,0.5,a|b
20,b,0,0.25,-2e-3,0.25,b | a|c
20,c,1,1,1,1,c
"""


def converted(folder: Path, text: str, **options: Any) -> Log:
    (folder / "t.csv").write_text(text)
    return whim.logs.convert(folder / "t.csv", folder / "t.whim", overwrite=True, **PLAIN | options)


def rows_of(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text().splitlines()))


def test_named_columns(tmp_path: Path) -> None:
    log = converted(tmp_path, VISITS, time="when", propensity="p", candidates="pool")
    assert log.logging == "propensity"
    assert log.time.tolist() == [10, 20, 20]
    assert log.context.tolist() == [[0.5, 1.0], [0.25, -2e-3], [1.0, 1.0]]
    assert [log.event(i).arms for i in range(3)] == [["a", "b"], ["b", "a", "c"], ["c"]]
    assert [log.event(i).shown for i in range(3)] == ["a", "b", "c"]
    assert log.reward.tolist() == [1.0, 0.0, 1.0]
    assert log.propensity is not None
    assert log.propensity.tolist() == [0.5, 0.25, 1.0]
    assert log.meta["context_names"] == ["u1", "u2"]
    assert log.meta["source"]["reader"] == "csv"
    assert log.meta["read"] == 3


def test_pools_without_a_column(tmp_path: Path) -> None:
    everything = converted(tmp_path, VISITS)
    assert everything.event(0).arms == ["a", "b", "c"]
    assert (everything.n_pools, everything.logging) == (1, None)
    assert everything.time.tolist() == [0, 1, 2]
    seen = converted(tmp_path, VISITS, arms="seen")
    assert [seen.event(i).arms for i in range(3)] == [["a"], ["a", "b"], ["a", "b", "c"]]
    given = converted(tmp_path, VISITS, arms=["b", "a", "z"], logging="uniform")
    assert given.event(0).arms == ["b", "a", "z"]
    assert given.meta["dropped"] == {BAD_ROW["shown"]: 1}
    assert given.logging == "uniform"


def test_patterns_and_numbers_as_ids(tmp_path: Path) -> None:
    text = VISITS.replace(",a,", ",7,").replace(",b,", ",-12,").replace(",c,", ",007,")
    log = converted(tmp_path, text, context=["u*", "p"])
    assert log.arms == [7, -12, "007"]
    assert log.meta["context_names"] == ["u1", "u2", "p"]


BAD_ROWS = {
    "time": "x,a,1,1,1,1,a",
    "arm": "30,,1,1,1,1,a",
    "reward": "30,a,maybe,1,1,1,a",
    "context": "30,a,1,1,,1,a",
    "propensity": "30,a,1,1,1,0,a",
    "candidates": "30,a,1,1,1,1,",
    "repeated": "30,a,1,1,1,1,a|b|a",
    "shown": "30,a,1,1,1,1,b|c",
}


@pytest.mark.parametrize("kind", list(BAD_ROWS))
def test_each_kind_of_bad_row(tmp_path: Path, kind: str) -> None:
    options = {"time": "when", "propensity": "p", "candidates": "pool"}
    text = VISITS + BAD_ROWS[kind] + "\n" + VISITS.splitlines()[1] + "\n"
    log = converted(tmp_path, text, **options)
    assert log.n_events == 4
    assert log.meta["dropped"] == {BAD_ROW[kind]: 1}
    with pytest.raises(LogFileError, match=r"t\.csv, row 4: "):
        converted(tmp_path, text, strict=True, **options)


@pytest.mark.parametrize("value", ["nan", "inf", "1e11", "-1e300"])
def test_numbers_that_no_policy_takes(tmp_path: Path, value: str) -> None:
    log = converted(tmp_path, VISITS + f"1,a,1,{value},1,1,a\n1,a,{value},1,1,1,a\n")
    assert log.n_events == 3
    assert log.meta["dropped"] == {BAD_ROW["context"]: 1, BAD_ROW["reward"]: 1}


def test_batches_give_the_same_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"{i},{arm},{rng.integers(2)},{rng.random()},{rng.random()},0.5,{arm}|{(arm + 1) % 5}"
        for i, arm in enumerate(rng.integers(0, 5, size=500).tolist())
    ]
    text = VISITS.splitlines()[0] + "\n" + "\n".join(rows) + "\n"
    for options in ({"candidates": "pool"}, {"arms": "seen"}, {}):
        whole = bytes_of(converted(tmp_path, text, **options).path)
        with monkeypatch.context() as patch:
            patch.setattr(tables, "BATCH", 37)
            told: list[int] = []
            log = converted(tmp_path, text, progress=told.append, **options)
        assert bytes_of(log.path) == whole
        assert len(told) > 5
        assert sum(told) == len(text)


def test_parquet_with_lists_and_dates(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "when": pl.Series(["2019-11-24 00:00:17.5", "1970-01-01 00:00:01"]).str.to_datetime(),
            "shown": [3, 4],
            "click": [True, False],
            "u1": [1, 2],
            "u2": [0.5, None],
            "pool": [[3, 4], [4]],
        }
    )
    frame.write_parquet(tmp_path / "t.parquet")
    log = whim.logs.convert(
        tmp_path / "t.parquet", tmp_path / "t.whim", **PLAIN, time="when", candidates="pool"
    )
    assert log.time.tolist() == [1574553617]
    assert log.event(0).arms == [3, 4]
    assert log.meta["dropped"] == {BAD_ROW["context"]: 1}


def test_dates_in_text(tmp_path: Path) -> None:
    text = VISITS.replace("\n10,", "\n2019-11-24 00:00:17.004101+00:00,").replace("\n20,", "\n,")
    log = converted(tmp_path, text, time="when")
    assert log.time.tolist() == [1574553617]
    assert log.meta["dropped"] == {BAD_ROW["time"]: 2}


def test_items_of_a_second_file(tmp_path: Path) -> None:
    items = tmp_path / "items.csv"
    items.write_text("id,f1,f2\nb,1,2\na,3,4\nz,5,6\nc,,1\n")
    options = {"items": items, "item_id": "id", "item_features": ["f*"]}
    log = converted(tmp_path, VISITS, candidates="pool", **options)
    assert log.event(0).features.tolist() == [[3, 4], [1, 2]]
    assert log.event(1).arms == ["b", "a"]  # c has no f1
    assert log.meta["dropped"] == {BAD_ROW["features"]: 1}
    assert log.meta["warnings"] == {LEFT_OUT: 1}
    assert log.meta["item_names"] == ["f1", "f2"]
    items.write_text("id,f1,f2\nb,1,2\nb,3,4\n")
    with pytest.raises(LogFileError, match="twice"):
        converted(tmp_path, VISITS, **options)
    with pytest.raises(InvalidInputError, match="item_id"):
        converted(tmp_path, VISITS, items=items)


@pytest.mark.parametrize(
    ("text", "options", "error", "word"),
    [
        (VISITS, {"arm": "nothing"}, LogFileError, "no column 'nothing' for arm;"),
        (VISITS, {"context": ["v*"]}, LogFileError, "no column 'v\\*'"),
        (VISITS, {"context": []}, InvalidInputError, "context"),
        (VISITS, {"arms": "some"}, InvalidInputError, "arms"),
        (VISITS, {"arms": ["a", "a"]}, InvalidInputError, "different"),
        (VISITS, {"logging": "propensity"}, InvalidInputError, "propensities"),
        (VISITS, {"jobs": 2}, InvalidInputError, "jobs is no option of format csv"),
        (VISITS, {"format": "xml"}, InvalidInputError, "format"),
        ("", {}, LogFileError, "cannot be read"),
        ("when,shown,click,u1,u2\n", {}, LogFileError, "no event"),
        (VISITS.replace(",1,", ",x,"), {"context": ["pool"]}, LogFileError, "no event"),
        (VISITS + "1,2,3,4,5,6,7,8,9,10\n", {}, LogFileError, "cannot be read"),
        ("\x00\x01,\x02\n\x03", {}, LogFileError, "no column"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, options: Any, error: Any, word: str) -> None:
    with pytest.raises(error, match=word):
        converted(tmp_path, text, **options)
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def test_what_is_no_parquet(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(LogFileError, match="cannot be read"):
        whim.logs.convert(tmp_path / "t.parquet", tmp_path / "t.whim", **PLAIN)
    with pytest.raises(LogFileError, match="no such file"):
        whim.logs.convert(tmp_path / "none.csv", tmp_path / "t.whim", **PLAIN)
    with pytest.raises(InvalidInputError, match="needs arm, reward"):
        whim.logs.convert(tmp_path / "t.parquet", tmp_path / "t.whim", context=["a"])


# -- Open Bandit -------------------------------------------------------------------------------


def open_bandit_folder(folder: Path, n: int = 40, scores: str = "0.25") -> Path:
    rng = np.random.default_rng(1)
    folder.mkdir()
    with (folder / "men.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["", "timestamp", "item_id", "position", "click", "propensity_score",
                      "user_feature_0", "user_feature_1", "user-item_affinity_0"])  # fmt: skip
        for i in range(n):
            out.writerow([i, f"2019-11-24 00:00:{i % 60:02}.5+00:00", rng.integers(4),
                          rng.integers(1, 4), rng.integers(2), scores, rng.choice(["aa", "bb"]),
                          rng.choice(["cc", "dd", "ee"]), 0.0])  # fmt: skip
    (folder / "item_context.csv").write_text(
        ",item_id,item_feature_0,item_feature_1\n0,0,-0.5,x\n1,1,0.5,y\n2,2,1.5,x\n3,3,0.1,z\n"
    )
    return folder


def test_open_bandit(tmp_path: Path) -> None:
    folder = open_bandit_folder(tmp_path / "men")
    assert format_of([folder]) == format_of([folder / "men.csv"]) == "open-bandit"
    log = whim.logs.convert(folder, tmp_path / "men.whim")
    rows = rows_of(folder / "men.csv")
    names = log.meta["context_names"]
    assert names == [
        "constant", "position=1", "position=2", "position=3", "user_feature_0=aa",
        "user_feature_0=bb", "user_feature_1=cc", "user_feature_1=dd", "user_feature_1=ee",
    ]  # fmt: skip
    assert log.meta["item_names"][:3] == ["constant", "item_feature_0", "item_feature_1=x"]
    assert (log.n_events, log.n_pools, log.logging) == (40, 1, "propensity")
    for i, row in enumerate(rows):
        found = log.event(i)
        assert found.arms == [0, 1, 2, 3]
        assert (found.shown, found.reward) == (int(row["item_id"]), float(row["click"]))
        assert found.propensity == 0.25
        on = {name for name, value in zip(names, found.x, strict=True) if value == 1}
        wanted = {f"{name}={row[name]}" for name in ("position", "user_feature_0")}
        assert on == wanted | {"constant", f"user_feature_1={row['user_feature_1']}"}
        assert found.features[3].tolist() == [1.0, 0.1, 0.0, 0.0, 1.0]
    uniform = open_bandit.convert(folder, tmp_path / "u.whim", logging="uniform")
    assert uniform.logging == "uniform"
    other = open_bandit_folder(tmp_path / "bts", scores="0.3")
    with pytest.raises(LogFileError, match="1/4"):
        open_bandit.convert(other, tmp_path / "b.whim", logging="uniform")


def test_open_bandit_s_bad_folders(tmp_path: Path) -> None:
    folder = open_bandit_folder(tmp_path / "men")
    (folder / "women.csv").write_text("a\n1\n")
    with pytest.raises(LogFileError, match="one campaign"):
        open_bandit.convert(folder, tmp_path / "x.whim")
    with pytest.raises(LogFileError, match="no column 'timestamp'"):
        open_bandit.convert(folder / "women.csv", tmp_path / "x.whim")
    (folder / "item_context.csv").write_text("item_id,item_feature_0\n1,0\n1,1\n")
    with pytest.raises(LogFileError, match="one row"):
        open_bandit.convert(folder / "men.csv", tmp_path / "x.whim")
    (folder / "item_context.csv").unlink()
    with pytest.raises(LogFileError, match="no item_context"):
        open_bandit.convert(folder, tmp_path / "x.whim")


# -- MovieLens ---------------------------------------------------------------------------------

GENRES = ["Comedy", "Drama", "War"]


def movielens_folder(folder: Path) -> Path:
    rng = np.random.default_rng(2)
    folder.mkdir()
    movies = ["movieId,title,genres", '1,"One, the (1990)",Comedy|War', "2,Two,(no genres listed)"]
    for movie in range(3, 41):
        some = rng.permutation(GENRES)[: rng.integers(1, 4)].tolist()
        movies.append(f"{movie},M{movie},{'|'.join(some)}")
    (folder / "movies.csv").write_text("\n".join(movies) + "\n")
    ratings = ["userId,movieId,rating,timestamp"]
    for user in range(1, 6):
        for movie in rng.permutation(np.arange(1, 41))[:15].tolist():
            when = 1000 + int(rng.integers(12))
            ratings.append(f"{user},{movie},{rng.integers(1, 11) / 2},{when}")
    ratings += ["1,999,5.0,1000", "1,x,5.0,1000"]
    (folder / "ratings.csv").write_text("\n".join(ratings) + "\n")
    return folder


def literal_profile(folder: Path, user: str, before: int) -> list[float]:
    """The mean genres of what a user liked before a second, straight from the files."""
    movies = {row["movieId"]: row["genres"] for row in rows_of(folder / "movies.csv")}
    total, n = np.zeros(3), 0
    for row in rows_of(folder / "ratings.csv"):
        liked = float(row["rating"]) >= 4 and row["movieId"] in movies
        if row["userId"] == user and liked and int(row["timestamp"]) < before:
            own = [genre for genre in movies[row["movieId"]].split("|") if genre in GENRES]
            total += np.array([genre in own for genre in GENRES]) / max(len(own), 1)
            n += 1
    return [1.0, *(total / max(n, 1)).tolist()]


def test_movielens(tmp_path: Path) -> None:
    folder = movielens_folder(tmp_path / "ml")
    assert format_of([folder]) == "movielens"
    log = whim.logs.convert(folder, tmp_path / "a.whim", n_others=5, seed=3)
    rows = rows_of(folder / "ratings.csv")
    known = [row for row in rows if row["movieId"] not in ("999", "x")]
    rated: dict[str, set[int]] = {}
    for row in known:
        rated.setdefault(row["userId"], set()).add(int(row["movieId"]))
    liked = [row for row in known if float(row["rating"]) >= 4]
    liked.sort(key=lambda row: (int(row["timestamp"]), int(row["userId"]), int(row["movieId"])))
    assert log.logging == "full"
    assert log.n_events == len(liked)
    assert log.meta["context_names"] == ["constant", *GENRES]
    assert log.meta["dropped"] == {
        "row not readable": 1,
        "movie not in movies.csv": 1,
        "rating below 4": len(known) - len(liked),
    }
    for i, row in enumerate(liked):
        found = log.event(i)
        assert (found.time, found.shown) == (int(row["timestamp"]), int(row["movieId"]))
        assert found.reward == 1.0
        assert len(found.arms) == 6
        assert set(found.arms) & rated[row["userId"]] == {found.shown}
        np.testing.assert_allclose(
            found.x, literal_profile(folder, row["userId"], found.time), atol=1e-12
        )
    places = Counter(log.logged.tolist())
    assert len(places) == 6  # the liked one stands anywhere
    assert set(log.arms) <= {int(row["movieId"]) for row in known}


def test_movielens_is_seeded_and_takes_little_stock(tmp_path: Path) -> None:
    folder = movielens_folder(tmp_path / "ml")
    logs = [
        bytes_of(movielens.convert(folder, tmp_path / f"{i}.whim", n_others=4, seed=seed).path)
        for i, seed in enumerate([1, 1, 2])
    ]
    assert logs[0] == logs[1] != logs[2]
    popular = movielens.convert(folder, tmp_path / "p.whim", n_others=2, min_ratings=2)
    assert popular.n_arms < whim.logs.open(tmp_path / "0.whim").n_arms
    with pytest.raises(LogFileError, match="no event"):
        movielens.convert(folder, tmp_path / "q.whim", n_others=40)
    with pytest.raises(InvalidInputError, match="n_others"):
        movielens.convert(folder, tmp_path / "q.whim", n_others=0)


def test_movielens_s_bad_folders(tmp_path: Path) -> None:
    folder = movielens_folder(tmp_path / "ml")
    (folder / "movies.csv").write_text("id\n1\n")
    with pytest.raises(LogFileError, match="movieId"):
        movielens.convert(folder, tmp_path / "q.whim")
    (folder / "movies.csv").unlink()
    with pytest.raises(LogFileError, match="no such file"):
        movielens.convert(folder, tmp_path / "q.whim")


SHARED = Path(os.environ.get("WHIM_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.mark.skipif(not (SHARED / "ml-latest-small").is_dir(), reason="the data are not here")
def test_movielens_latest_small(tmp_path: Path) -> None:
    log = movielens.convert(SHARED / "ml-latest-small", tmp_path / "ml.whim", min_ratings=20)
    assert log.n_features == 20
    assert log.meta["read"] == 100_836
    assert log.n_events + sum(log.meta["dropped"].values()) == 100_836


@pytest.mark.parametrize(("yes", "no"), [("True", "False"), ("yes", " No "), ("1.0", "0")])
def test_rewards_in_words(tmp_path: Path, yes: str, no: str) -> None:
    rows = [f"{'ab'[i % 2]},{yes if i % 3 else no},{i / 7}" for i in range(12)]
    (tmp_path / "v.csv").write_text("\n".join(["shown,click,age", *rows]) + "\n")
    log = whim.logs.convert(
        tmp_path / "v.csv", tmp_path / "v.whim", arm="shown", reward="click", context=["age"]
    )
    assert log.reward.tolist() == [float(i % 3 > 0) for i in range(12)]
    listed = [f"v{i // 2},{i % 2},{row}" for i, row in enumerate(rows)]
    (tmp_path / "l.csv").write_text("\n".join(["list,rank,shown,click,age", *listed]) + "\n")
    lists = whim.logs.convert(
        tmp_path / "l.csv", tmp_path / "l.whim", list="list", position="rank", arm="shown",
        reward="click", context=["age"], logging="uniform",
    )  # fmt: skip
    assert np.asarray(lists.list_reward).tolist() == log.reward.tolist()
