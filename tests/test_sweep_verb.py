"""``whim sweep``: the numbers of ``simulate`` and ``replay``; a stopped sweep goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from typer.testing import CliRunner

import whim
from tests.spread_tasks import environment, until
from tests.test_cli import D, refused, said, write_log
from whim.cli import forecast
from whim.cli.app import app
from whim.errors import LogFileError
from whim.evaluate.tasks import log_run, log_settings
from whim.worlds import PiecewiseLinear

POLICY = ["--policy", "pslinucb-disjoint:alpha=0.8"]
GRID = ["--vary", "window=20,40", "--vary", "threshold=0.2,0.35"]
WORLD = [
    "--world", "piecewise", "--set", "n_arms=4", "--set", "n_features=3", "--set", "period=150",
    "--horizon", "600",
]  # fmt: skip


def pslinucb(d: int, window: int, threshold: float) -> whim.Policy:
    return whim.PSLinUCBDisjoint(n_features=d, alpha=0.8, window=window, threshold=threshold)


def rows(*arguments: str) -> list[dict[str, Any]]:
    """A sweep's rows as JSON text, so that equal means equal to the last bit."""
    found: list[dict[str, Any]] = json.loads(said("sweep", *arguments, "--json"))["rows"]
    return found


def told(*arguments: str) -> str:
    """What a sweep says about what was done already."""
    found = CliRunner().invoke(app, ["sweep", *arguments], catch_exceptions=False)
    return found.stderr.splitlines()[0]


# -- the same numbers ------------------------------------------------------------------------------


def test_regret_is_that_of_simulate(tmp_path: Path) -> None:
    table = tmp_path / "runs.parquet"
    where = ["--runs", "3", "--seed", "5", "--store", str(tmp_path / "s"), "--save", str(table)]
    found = rows(*POLICY, *GRID, *WORLD, *where)
    frame = polars.read_parquet(table)
    world = PiecewiseLinear(n_arms=4, n_features=3, period=150, users="fixed")
    assert [(row["window"], row["threshold"]) for row in found] == [
        (20, 0.2), (20, 0.35), (40, 0.2), (40, 0.35),
    ]  # fmt: skip
    assert len({row["regret"] for row in found}) > 1  # the parameters matter
    for row in found:
        policy = pslinucb(3, row["window"], row["threshold"])
        result = whim.simulate(world, {"ps": policy}, horizon=600, runs=3, seed=5)
        (theirs,) = result.rows()
        for name in ("regret", "regret_low", "regret_high", "reward", "found", "false_alarms"):
            assert row[name] == theirs[name]
        ours = frame.filter(window=row["window"], threshold=row["threshold"])
        assert ours["run"].to_list() == [0, 1, 2]
        assert ours["regret"].to_list() == result.regret["ps"][:, -1].tolist()


def test_a_random_policy_has_the_stream_of_each_run(tmp_path: Path) -> None:
    where = ["--runs", "3", "--store", str(tmp_path)]
    found = rows("--policy", "lints", "--vary", "alpha=0.5,1", *WORLD, *where)
    world = PiecewiseLinear(n_arms=4, n_features=3, period=150, users="fixed")
    policies = {str(alpha): whim.LinTS(n_features=3, alpha=alpha) for alpha in (0.5, 1)}
    result = whim.simulate(world, policies, horizon=600, runs=3)
    assert [row["regret"] for row in found] == [row["regret"] for row in result.rows()]


@pytest.mark.parametrize("logging", ["uniform", "propensity"])
@pytest.mark.parametrize("runs", [1, 3])
def test_rates_are_those_of_replay(logging: str, runs: int, tmp_path: Path) -> None:
    path = write_log(tmp_path / "small.whim", logging=logging)
    where = ["--log", str(path), "--store", str(tmp_path / "store"), "--runs", str(runs)]
    how = ["--sample", "0.8", "--first", "0.9", "--seed", "2"]
    for row in rows(*POLICY, "--vary", "window=20,40", "--vary", "threshold=0.3", *where, *how):
        policy = pslinucb(D, row["window"], 0.3)
        result = whim.replay(path, {"ps": policy}, sample=0.8, first=0.9, runs=runs, seed=2)
        (theirs,) = result.rows()
        for name in ("ctr", "ctr_low", "ctr_high", "changes"):
            assert row[name] == theirs[name]
        assert row["matched"] * runs == pytest.approx(theirs["matched"])


def test_the_best_is_marked(tmp_path: Path) -> None:
    where = [*WORLD, "--runs", "2", "--store", str(tmp_path)]
    found = json.loads(said("sweep", *POLICY, *GRID, *where, "--json"))
    assert found["best"] == np.argmin([row["regret"] for row in found["rows"]])
    out = said("sweep", *POLICY, *GRID, *where)
    marked = [line.split()[:2] for line in out.splitlines() if "]  best  " in line]
    best = found["rows"][found["best"]]
    assert marked == [[str(best["window"]), str(best["threshold"])]]
    assert max(map(len, out.splitlines())) <= 80


def test_the_highest_rate_is_best(tmp_path: Path) -> None:
    path = write_log(tmp_path / "small.whim")
    where = ["--log", str(path), "--store", str(tmp_path / "store")]
    found = json.loads(
        said("sweep", "--policy", "linucb-disjoint", "--vary", "alpha=0,0.5,5", *where, "--json")
    )
    rates = [row["ctr"] for row in found["rows"]]
    assert len(set(rates)) > 1
    assert found["best"] == np.argmax(rates)


def test_rates_of_nothing_are_null_and_none_is_best(tmp_path: Path) -> None:
    path = write_log(tmp_path / "small.whim", n=5)
    where = ["--log", str(path), "--store", str(tmp_path / "store"), "--sample", "1e-9"]
    sweep = ["sweep", "--policy", "linucb-disjoint", "--vary", "alpha=0,1", *where]
    for runs in ("1", "2"):
        found = json.loads(said(*sweep, "--runs", runs, "--json"))
        assert found["best"] is None
        assert [row["ctr"] for row in found["rows"]] == [None, None]
        assert "best  " not in said(*sweep, "--runs", runs)


# -- kept results ----------------------------------------------------------------------------------


def test_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    where = [*WORLD, "--store", str(tmp_path)]
    assert told(*POLICY, *GRID, *where) == f"4 runs, 0 of them done already in {tmp_path}"
    assert "4 runs, 4 of them done" in told(*POLICY, *GRID, *where)
    assert "8 runs, 4 of them done" in told(*POLICY, *GRID, *where, "--runs", "2")
    wider = ["--vary", "threshold=0.35,0.5", "--vary", "window=40"]
    assert "2 runs, 1 of them done" in told(*POLICY, *wider, *where)
    assert "4 runs, 0 of them done" in told(*POLICY, *GRID, *where, "--seed", "1")


def test_the_usual_folder_is_in_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "in .whim-sweeps" in told(*POLICY, *GRID, *WORLD)
    assert (tmp_path / ".whim-sweeps" / ".gitignore").read_text() == "*\n"
    assert len(list((tmp_path / ".whim-sweeps").glob("*.json"))) == 4


def test_a_log_made_anew_is_another_one(tmp_path: Path) -> None:
    path, old = tmp_path / "small.whim", tmp_path / "old.whim"
    where = ["--log", str(path), "--store", str(tmp_path / "store")]
    sweep = ["--policy", "linucb-disjoint", "--vary", "alpha=0.1,1", *where]
    write_log(path)
    before = rows(*sweep)
    assert "2 runs, 2 of them done" in told(*sweep)
    path.rename(old)
    write_log(path, worth=0.2)  # just the rewards are others
    for name in ("meta.json", "arms.json"):
        assert (path / name).read_bytes() == (old / name).read_bytes()
    assert "2 runs, 0 of them done" in told(*sweep)
    assert [row["ctr"] for row in rows(*sweep)] != [row["ctr"] for row in before]


def test_a_worker_with_another_log_refuses(tmp_path: Path) -> None:
    path = write_log(tmp_path / "small.whim")
    settings = log_settings(whim.logs.open(path))
    settings |= {"policy": {"name": "random", "params": {}}, "seed": 0, "run": 0}
    assert log_run(settings)["events"] == 400
    path.rename(tmp_path / "old.whim")
    write_log(path, n=300)
    with pytest.raises(LogFileError, match="is not the log that the sweep began with"):
        log_run(settings)


def test_ctrl_c_and_then_the_rest(tmp_path: Path) -> None:
    store = tmp_path / "store"
    command = [
        *("sweep", *POLICY, *GRID, "--world", "rotating", "--horizon", "20000"),
        *("--runs", "8", "--jobs", "1", "--json", "--store"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "whim", *command, str(store)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        until(lambda: len(list(store.glob("*.json"))) >= 2, "two runs are kept", 60)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in errors
    assert f"what is done is in {store}: the same command goes on" in errors
    kept = {path: path.stat().st_mtime_ns for path in store.glob("*.json")}
    assert 2 <= len(kept) < 32
    found = CliRunner().invoke(app, [*command, str(store)], catch_exceptions=False)
    assert re.match(f"32 runs, {len(kept)} of them done already", found.stderr)
    assert kept.items() <= {p: p.stat().st_mtime_ns for p in store.glob("*.json")}.items()
    again = CliRunner().invoke(app, [*command, str(tmp_path / "other")], catch_exceptions=False)
    assert json.loads(found.stdout)["rows"] == json.loads(again.stdout)["rows"]


def test_two_processes_and_a_cluster_give_the_rows_of_one(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    from tests.test_cluster import Cluster

    path = write_log(tmp_path / "small.whim")
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        cluster.grow(2)
        dask = ["--engine", "dask", "--address", cluster.address]
        for what in (WORLD, ["--log", os.path.relpath(path)]):
            found = [
                rows(*POLICY, *GRID, *what, "--runs", "2", "--store", str(tmp_path / name), *how)
                for name, how in (("one", ["--jobs", "1"]), ("two", ["--jobs", "2"]), ("d", dask))
            ]
            assert found[0] == found[1] == found[2]
    finally:
        cluster.stop()


def test_a_long_sweep_says_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "_LONG", 0.0)
    sweep = ["sweep", *POLICY, *GRID, *WORLD, "--jobs", "1", "--store", str(tmp_path)]
    monkeypatch.setattr(forecast, "_MANY", 4 * 600)
    found = CliRunner().invoke(app, sweep, catch_exceptions=False)
    assert "this will take about less than a minute on 1 process" in found.stderr
    assert len(list(tmp_path.glob("**/*.json"))) == 4  # a trial is no result
    again = CliRunner().invoke(app, [*sweep, "--vary", "revisit=off"], catch_exceptions=False)
    assert "this will take" in again.stderr
    once_more = CliRunner().invoke(app, sweep, catch_exceptions=False)
    assert "this will take" not in once_more.stderr  # nothing is left


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([*GRID], "world or log must be given"),
        ([*GRID, *WORLD, "--log", "x.whim"], "world or log must be given"),
        ([*GRID, "--log", "x.whim"], "x.whim is no log"),
        ([*GRID, *WORLD, "--sample", "0.5"], "sample must come with --log"),
        ([*GRID, "--log", "x.whim", "--horizon", "9"], "horizon must come with --world"),
        (["--vary", "alpha=1,2", *WORLD], "alpha must be in --policy or in --vary, got both"),
        (["--vary", "window=20,20", *WORLD], "axis 'window' must have values, each once"),
        (["--vary", "window", *WORLD], "vary must be name=value,value,..., got 'window'"),
        (["--vary", "window=2", "--vary", "window=3", *WORLD], "vary must have each name once"),
        (["--vary", "windw=2", *WORLD], "parameters of pslinucb-disjoint must be among"),
        (["--vary", "window=7", *WORLD], "window must be an integer >= 8"),
        (["--vary", "threshold=0.1,-1", *WORLD], "threshold must be"),
        ([*GRID, *WORLD, "--engine", "moon"], "engine must be one of local, dask, ray"),
        ([*GRID, *WORLD, "--engine", "dask"], "address must be that of a dask scheduler"),
        ([*GRID, *WORLD, "--save", "no-such-folder/x.parquet"], "save must be a file in a folder"),
    ],
)
def test_sweep_refuses(arguments: list[str], line: str, tmp_path: Path) -> None:
    store = ["--store", str(tmp_path / "store")]
    assert line in refused("sweep", *POLICY, *arguments, *store)
    assert not list(tmp_path.glob("store/*.json"))


def test_a_log_knows_no_truth(tmp_path: Path) -> None:
    path = write_log(tmp_path / "small.whim", n=20)
    told = ["--policy", "oracle-restart:policy=ucb", "--vary", "alpha=1,2"]
    assert "small.whim does not know its changes" in refused("sweep", *told, "--log", str(path))
