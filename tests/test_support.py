"""Estimates come with their support; without it they are unknown, wherever they are shown."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import whim
from tests.served_truth import CONFIGS, held
from whim.cli.app import app
from whim.evaluate.intervals import proportion
from whim.evaluate.tasks import log_run, log_settings
from whim.logs import Log
from whim.report import read_folder
from whim.report.page import report_page
from whim.serve import wire
from whim.serve.state.policy import SERVED
from whim.serve.state.space_state import SpaceState


def logged(
    path: Path,
    chances: Any,
    n: int = 2000,
    rates: tuple[float, ...] = (0.4, 0.4, 0.4),
    seed: int = 0,
) -> Log:
    """A log of three arms, shown with ``chances``, or with chances of a row each."""
    rng = np.random.default_rng(seed)
    p = np.broadcast_to(np.array(chances, float), (n, 3))
    with whim.logs.Writer(path, n_features=1, logging="propensity", propensities=True) as w:
        for i in range(n):
            shown = int(rng.choice(3, p=p[i]))
            reward = float(rng.random() < rates[shown])
            chance = float(p[i, shown])
            w.event(time=i, x=[1.0], arms=[0, 1, 2], shown=shown, reward=reward, propensity=chance)
    return whim.logs.open(path)


class Always(whim.Policy):
    """One arm for ever."""

    name = "always"

    def __init__(self, *, arm: int = 0, seed: int = 0, ties: str = "first") -> None:
        super().__init__(n_features=None, seed=seed, ties=ties)

    def _score(self, x: Any, slots: Any, cross: Any, noise: Any) -> int:
        ids = [self._table.id_of[slot] for slot in slots]
        return ids.index(self._params["arm"])

    def _observe(self, slot: int, x: Any, cross: Any, reward: float) -> int:
        return 0


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(whim.policies.POLICIES, "always", Always)


def test_a_log_that_never_explores_says_nothing_of_other_choices(tmp_path: Path) -> None:
    log = logged(tmp_path / "sure.whim", (1.0, 0.0, 0.0))
    result = whim.replay(log, {"other": Always(arm=1), "same": Always(arm=0)})
    [run] = result.runs["other"]
    assert run.estimates() == {}
    assert (run.support.effective, run.support.share) == (0.0, 0.0)
    other, same = result.rows("same")
    assert not {"ips", "snips", "dr"} & other.keys()
    assert "no event shows" in other["unknown"]
    assert math.isnan(other["ctr"])
    assert math.isnan(other["relative"])
    assert (same["support"], same["effective"], same["unknown"]) == (1.0, 2000.0, None)
    assert same["ips_low"] < 0.4 < same["ips_high"]


def test_choices_without_support_now_and_then(tmp_path: Path) -> None:
    chances = np.where(np.arange(2000)[:, None] < 100, [[1.0, 0.0, 0.0]], [[0.5, 0.25, 0.25]])
    log = logged(tmp_path / "some.whim", chances)
    [run] = whim.replay(log, {"other": Always(arm=1)}).runs["other"]
    assert run.support.share == 1900 / 2000
    assert run.support.problem == "in 5 % of the events the choice could not have been shown"
    assert run.estimates() == {}


def test_arms_that_are_never_shown_though_no_propensity_is_one(tmp_path: Path) -> None:
    """A holdback that shows the first: what is neither the first nor wanted has no chance."""
    log = logged(tmp_path / "first.whim", (0.1, 0.9, 0.0))
    result = whim.replay(log, {"c": Always(arm=2), "mixed": whim.Random(), "a": Always(arm=0)})
    for label in ("c", "mixed"):
        [run] = result.runs[label]
        assert run.estimates() == {}, label
        assert run.support.problem
        assert run.support.share < 0.8
    [run] = result.runs["a"]
    assert run.support.problem is None
    assert run.estimates()["ips"].low < 0.4 < run.estimates()["ips"].high


def test_propensities_that_are_too_small_are_noticed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with whim.logs.Writer(
        tmp_path / "a.whim", n_features=1, logging="propensity", propensities=True
    ) as w:
        for i in range(1000):
            shown = int(rng.integers(2))
            w.event(time=i, x=[1.0], arms=[0, 1], shown=shown, reward=1.0, propensity=0.25)
    [run] = whim.replay(tmp_path / "a.whim", {"a": Always(arm=0)}).runs["a"]
    assert "propensities are wrong" in str(run.support.problem)


def test_effective_sample_size_by_hand(tmp_path: Path) -> None:
    log = logged(tmp_path / "a.whim", (0.2, 0.3, 0.5))
    [run] = whim.replay(log, {"b": Always(arm=1)}).runs["b"]
    shown = int((log.logged == 1).sum())
    assert run.support.effective == pytest.approx(shown)
    [mixed] = whim.replay(log, {"r": whim.Random()}).runs["r"]
    w, ww = mixed.weights[:2].tolist()
    assert mixed.support.effective == pytest.approx(w * w / ww)
    assert mixed.support.effective < mixed.weights[0]


def test_rewards_that_are_all_the_same_are_not_certain(tmp_path: Path) -> None:
    log = logged(tmp_path / "a.whim", (0.05, 0.45, 0.5), n=1000, rates=(0.0, 0.5, 0.5))
    [run] = whim.replay(log, {"a": Always(arm=0)}).runs["a"]
    wanted = proportion(0.0, run.support.effective)
    for name in ("ips", "snips"):
        assert run.estimates()[name] == pytest.approx(wanted)
        assert run.estimates()[name].high > 0.03


def test_the_command_line_says_unknown(tmp_path: Path) -> None:
    path = tmp_path / "sure.whim"
    logged(path, (0.0, 0.0, 1.0), n=300)
    arguments = ["replay", str(path), "--policy", "always:arm=1", "--jobs", "1"]
    said = CliRunner().invoke(app, arguments).output
    assert "0.00 [0.00, 0.00]" not in said
    assert "unknown, since no event shows" in " ".join(said.split())
    assert "effective" in said
    assert "0 %" in said
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    [row] = found["policies"]
    assert row["ctr"] is None
    assert row["support"] == 0.0
    assert row["unknown"]


def test_a_sweep_and_a_saved_report_say_unknown(tmp_path: Path) -> None:
    log = logged(tmp_path / "sure.whim", (0.0, 0.0, 1.0), n=300)
    settings = log_settings(log) | {"policy": {"name": "always", "params": {"arm": 1}}}
    row = log_run(settings | {"seed": 0, "run": 0})
    assert math.isnan(row["ctr"])
    assert (row["support"], "ips" in row) == (0.0, False)
    whim.replay(log, {"other": Always(arm=1)}).save(tmp_path / "out")
    page = report_page(read_folder(tmp_path / "out"))
    assert "unknown" in page
    assert "no event shows what the policy chooses" in page


# -- logs of the service (tests/slow/served_estimates.py has all policies and more logs) ---------


@pytest.mark.parametrize(("policy", "explore"), [("lints", 0.0), ("linucb-disjoint", 0.2)])
def test_intervals_on_logs_of_the_service_hold_the_truth(policy: str, explore: float) -> None:
    found = held(policy, explore, logs=40, events=300)
    known = found.logs - found.refused
    assert known >= 30
    for name, count in found.held.items():
        assert abs(count / known - 0.95) < 4 * math.sqrt(0.95 * 0.05 / known), name


def test_a_service_that_never_explores_has_its_estimates_refused() -> None:
    assert held("linucb-disjoint", 0.0, logs=5, events=200).refused == 5


def test_the_slow_experiment_has_every_policy_of_the_service() -> None:
    assert sorted(CONFIGS) == SERVED
    for policy, parts in CONFIGS.items():
        SpaceState(wire.SpaceConfig(policy=policy, **parts))
