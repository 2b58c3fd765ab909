"""The experiments beyond the paper: rivals get their best settings, on other seeds than shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from whim.evaluate import Interval, simulate
from whim.evaluate.detection import Detection
from whim.experiments import Options, clicks, competitors, detection, formatting, power, run
from whim.policies import Policy


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "QUICK_HORIZON", 400)
    monkeypatch.setattr(detection, "PERIOD", 150)


@pytest.mark.usefixtures("small")
def test_the_best_setting_is_chosen_on_other_seeds() -> None:
    case = detection.cases(quick=True)[0]
    options = Options(quick=True, jobs=1, seed=5)
    done: list[int] = []
    found = competitors.tune([case], options, 2, done.append)[case.title]
    assert done == [1]
    every = competitors.competitors(case)
    assert set(found) == {label for label, rival in every.items() if len(rival.grid) > 1}
    settings, regret, rate = found["CUSUM"][0]
    assert regret == min(tried for _, tried, _ in found["CUSUM"])
    assert len(found["CUSUM"]) == len(every["CUSUM"].grid)
    made = every["CUSUM"].make(case, settings)
    again = simulate(
        case.world, {"": made}, horizon=case.horizon, runs=2, seed=5 + competitors._OTHER_SEEDS
    )
    assert again.regret[""][:, -1].mean() == pytest.approx(regret)
    assert sum(d.false_alarms for d in again.detections[""]) == round(rate * 2 * case.horizon)


def test_every_case_has_settings_and_every_policy_fits_its_world() -> None:
    found = detection.cases(quick=False)
    titles = [case.title for case in found]
    assert len(set(titles)) == len(titles) == 14
    assert {case.title for case in detection.cases(quick=True)} < set(titles)
    makers = (competitors.ORACLE, competitors.FORCED_GLR)
    for case in found:
        assert not case.like or not found[titles.index(case.like)].like
        for label, rival in competitors.competitors(case).items():
            for settings in rival.grid:
                made = rival.make(case, settings)
                fits = isinstance(made, Policy) or label in makers
                assert fits, label
    ours = competitors.competitors(found[0])[competitors.OURS]
    assert ours.grid == [{}]  # nothing is chosen for the score test


def test_what_was_found_in_words() -> None:
    seen = Detection([4, 10, 900], [1, 2, 30], missed=7, false_alarms=2, unplayed=5)
    assert formatting.share(seen) == "30 %"
    assert formatting.share(seen, seen.missed - seen.unplayed) == "20 %"
    assert formatting.share(Detection([], [], 0, 3)) == "–"
    assert detection._two(seen.delays) == "10 / 900"
    assert detection._two([]) == "–"
    cusum = {"detector": "cusum", "watch": "square", "warmup": 20, "settings": {"drift": 1.0}}
    assert detection._say(cusum) == "square, warmup 20, drift 1"
    assert detection._say({}) == ""


def test_bars_are_met_or_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(power, "HORIZON", 3000)
    found = run("beyond/power", Options(quick=True, runs=2, jobs=1, work=tmp_path))
    table = found.tables[0]
    assert [row[2] for row in table.rows] == [
        "≤ 0.22", "≤ 1.5", "≤ 0.35", "≤ 0.85", "≤ 0.85", "≤ 1.1", "≤ 0.4", "≤ 1.5",
    ]  # fmt: skip
    for row in table.rows:
        ratio, bar = float(row[3].split()[0]), float(row[2][2:])
        assert row[4].startswith("yes") == (ratio <= bar)
    met = sum(row[4].startswith("yes") for row in table.rows)
    assert found.summary.endswith(f"{met} of 8 bars are met.")
    assert sum(reached for _, reached in found.targets) == met


def test_verdicts_on_click_rates() -> None:
    assert clicks._verdict(Interval(0.02, 0.01, 0.03)) == "better"
    assert clicks._verdict(Interval(-0.001, -0.01, 0.03)) == "no worse"
    assert clicks._verdict(Interval(-0.02, -0.03, -0.01)) == "worse"
    nan = float("nan")
    assert clicks._verdict(Interval(-0.02, nan, nan)) == "–"  # one run shows nothing
