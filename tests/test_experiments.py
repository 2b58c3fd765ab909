"""The paper's experiments in miniature: every id runs, says what it must, and can be stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from whim import experiments
from whim.cli.app import app
from whim.errors import InvalidInputError
from whim.evaluate import Interval
from whim.experiments import (
    EXPERIMENTS,
    ExperimentResult,
    Options,
    calibration,
    clicks,
    detection,
    formatting,
    groups,
    lastfm,
    lists,
    power,
    revisit,
    rewards,
    run,
    select,
    shops,
    stream_sources,
    synthetic,
    theorem,
    yahoo,
)
from whim.policies import run_lists
from whim.report.conclusion import SENTENCES, sentences
from whim.worlds import Listeners, NewsWorld


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same experiments on worlds and logs that take no time."""
    monkeypatch.setattr(synthetic, "HORIZON", 300)
    monkeypatch.setattr(revisit, "HORIZON", 300)
    monkeypatch.setattr(yahoo, "QUICK_EVENTS", 3000)
    monkeypatch.setattr(lastfm, "Listeners", lambda: Listeners(n_users=150, heard=15))
    monkeypatch.setattr(groups, "QUICK", groups.Size(60, 4, 300))
    monkeypatch.setattr(theorem, "HORIZONS", (400, 800, 1600))
    monkeypatch.setattr(calibration, "PLAYS", 1000)
    monkeypatch.setattr(rewards, "PLAYS", 1000)
    monkeypatch.setattr(shops, "QUICK_VISITS", 500)
    monkeypatch.setattr(detection, "QUICK_HORIZON", 300)
    monkeypatch.setattr(detection, "PERIOD", 100)
    monkeypatch.setattr(power, "HORIZON", 300)
    monkeypatch.setattr(clicks, "QUICK_VISITS", 1000)
    monkeypatch.setattr(stream_sources, "QUICK_STEPS", 300)
    monkeypatch.setattr(lists, "HORIZON", 300)
    monkeypatch.setattr(lists, "PLAYS", 2000)
    monkeypatch.setattr(lists, "VISITS", 400)
    # so few visits are over sooner by live calls than loops over lists are compiled
    monkeypatch.setattr(run_lists, "_compiles", lambda policy, visits: False)


def options(tmp_path: Path, **more: object) -> Options:
    (tmp_path / "logs").mkdir(exist_ok=True)
    return Options(quick=True, runs=2, jobs=1, work=tmp_path / "logs", **more)  # type: ignore[arg-type]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_tells_what_it_found(name: str, tmp_path: Path) -> None:
    stages: list[tuple[str, int, list[int]]] = []

    def stage(title: str, total: int):  # type: ignore[no-untyped-def]
        stages.append((title, total, []))
        return stages[-1][2].append

    found = run(name, options(tmp_path, stage=stage))
    assert found.id == name
    assert 1 <= len(sentences(found.summary)) <= SENTENCES
    assert len({what for what, _ in found.targets}) == len(found.targets)
    assert found.differences
    assert found.tables
    assert found.figures
    assert found.command == f"whim paper {name} --quick --runs 2"
    assert found.settings["seed"] == 0
    for title, total, done in stages:  # progress is told to the end, and never goes back
        assert done == sorted(done), title
        assert done[-1] == total, title
    for table in found.tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
    for figure in found.figures:
        assert all(len(c.x) == len(c.y) > 0 for c in figure.curves)
    stand_in = "stand-in" in found.warning
    needs = name.startswith(("lastfm", "yahoo"))
    needs |= name in ("beyond/clicks", "beyond/streams", "beyond/lastfm")
    assert stand_in == needs
    found.save(tmp_path / "found.json")
    assert ExperimentResult.load(tmp_path / "found.json") == found


@pytest.mark.parametrize("first", [True, False])
def test_loops_are_compiled_ahead(monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    """With an empty cache it is the first thing that ``whim paper`` does."""
    monkeypatch.setattr(experiments, "_OTHER_LOOPS", [("ucb", {}), ("random", {})])
    told: list[int] = []
    stage = lambda title, total: told.append  # noqa: E731
    experiments.compile_loops(Options(jobs=1, stage=stage), first=first)
    assert told[-1] == (2 if first else 4)


@pytest.mark.usefixtures("small")
def test_the_same_seed_gives_the_same_findings_with_any_number_of_jobs(tmp_path: Path) -> None:
    def told(jobs: int, seed: int) -> list[object]:
        how = Options(quick=True, runs=3, jobs=jobs, seed=seed, work=tmp_path)
        found = run("synthetic/disjoint", how)
        return [found.tables, found.figures, found.headline]

    assert told(1, 0) == told(2, 0)
    assert told(1, 0) != told(1, 1)


@pytest.mark.usefixtures("small")
def test_the_user_s_own_log_takes_the_place_of_the_stand_in(tmp_path: Path) -> None:
    data = tmp_path / "mine" / "R6A"
    data.mkdir(parents=True)
    paths = [data / f"ydata-fp-td-clicks-v1_0.2009050{day}.gz" for day in (1, 2)]
    NewsWorld(n_arms=30).write_r6a(paths, events=20_000, seed=3)
    found = run("yahoo/table", options(tmp_path, data=tmp_path / "mine"))
    assert not found.warning
    assert found.settings["log"] == "Yahoo R6A"
    assert found.settings["events"] == 20_000
    assert found.headline[0][0].startswith("Yahoo")
    assert [row[0] for row in found.tables[0].rows] == [*yahoo.PAPER, "Modified PSLinUCB"]
    again = run("yahoo/table", options(tmp_path, data=tmp_path / "mine"))
    assert again.tables == found.tables  # from the columns that were kept


@pytest.mark.usefixtures("small")
def test_the_user_s_own_lastfm_takes_the_place_of_the_stand_in(tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "hetrec2011-lastfm-2k"
    Listeners(n_users=300, n_artists=40, heard=20).write(folder, seed=1)
    how = Options(quick=True, runs=1, jobs=1, work=tmp_path / "logs", data=tmp_path / "mine")
    (tmp_path / "logs").mkdir()
    found = run("lastfm/table", how)
    assert not found.warning
    assert found.settings["paper's protocol"]["log"] == "HetRec 2011 LastFM 2k"


@pytest.mark.usefixtures("small")
def test_one_command_makes_one_page(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["paper", "synthetic/disjoint", "--quick", "--runs", "2", "--jobs", "1"]
    done = CliRunner().invoke(app, [*words, "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    page = Path(told["report"]).read_text("utf-8")
    assert "Regret where interests change" in page
    assert told["headline"][0]["paper"] == "30 %"
    assert (out / "synthetic-disjoint.json").is_file()
    listed = CliRunner().invoke(app, ["paper", "--list"])
    assert listed.stdout.split() == list(EXPERIMENTS)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="experiment must be all or one of"):
        select("yahoo/figure")
    with pytest.raises(InvalidInputError, match="a single one"):
        run("yahoo", Options())
    with pytest.raises(InvalidInputError, match="runs must be an integer >= 1"):
        Options(runs=0)
    broken = tmp_path / "broken.json"
    broken.write_text('{"format": 1, "id": "x"}')
    with pytest.raises(InvalidInputError, match="must be the result of an experiment"):
        ExperimentResult.load(broken)
    missing = CliRunner().invoke(app, ["paper", "all", "--data", str(tmp_path / "nowhere")])
    assert isinstance(missing.exception, InvalidInputError)


def test_numbers_in_words() -> None:
    nan = float("nan")
    assert formatting.whole(Interval(12.3, nan, nan)) == "12"
    assert formatting.percent(Interval(-0.0004, -0.02, 0.03)) == "0 % [−2, 3]"
    assert formatting.percent(Interval(0.027, 0.01, 0.04), 1, signed=True) == "+2.7 % [+1.0, +4.0]"
    assert formatting.percent(Interval(0.01, nan, nan), 1, signed=True) == "+1.0 %"
    assert formatting.rate(Interval(nan, nan, nan)) == "–"
