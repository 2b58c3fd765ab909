"""Logs and results written by whim 0.1.0, before its kernels were rewritten: read, and equal.

The score test's statistics and regret are those since it was mended for rewards of any kind.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

import whim
from whim.report import read_folder
from whim.report.page import report_page

OLD = Path(__file__).parent / "data" / "written_by_0.1"
EXPECTED: dict[str, Any] = json.loads((OLD / "expected.json").read_text())


def policies(*labels: str) -> dict[str, whim.Policy]:
    recorded = EXPECTED["policies"]
    return {label: whim.policy(recorded[label][0], **recorded[label][1]) for label in labels}


@pytest.mark.parametrize("name", ["uniform", "weighted"])
@pytest.mark.parametrize("label", list(EXPECTED["policies"]))
def test_an_old_log_replays_to_the_same_bits(name: str, label: str) -> None:
    result = whim.replay(OLD / f"{name}-log", policies(label), bins=10)
    [run], expected = result.runs[label], EXPECTED["logs"][name][label]
    assert run.bin_matched.tolist() == expected["matched"]
    assert run.bin_total.tolist() == expected["total"]
    assert [list(change) for change in run.changes] == expected["changes"]
    assert run.weights.tolist() == expected["weights"]
    assert run.corrected.tolist() == expected["corrected"]


def test_old_logs_keep_their_columns() -> None:
    log = whim.logs.open(OLD / "weighted-log")
    assert (log.n_events, log.logging, log.arms) == (
        600, "propensity", ["sport", "culture", "news", "travel"],
    )  # fmt: skip
    assert log.propensity is not None
    assert set(np.unique(log.propensity)) == {0.1, 0.2, 0.3, 0.4}


def test_a_simulation_gives_the_regret_that_it_gave() -> None:
    world = whim.worlds.PiecewiseLinear(n_arms=4, n_features=3, period=200)
    made = policies(*EXPECTED["simulation"])
    result = whim.simulate(world, made, horizon=600, runs=2, points=4)
    assert {label: r.tolist() for label, r in result.regret.items()} == EXPECTED["simulation"]


@pytest.mark.parametrize(("kind", "frame"), [("replay", "over_time"), ("simulation", "curves")])
def test_old_results_hold_what_new_ones_do(kind: str, frame: str, tmp_path: Path) -> None:
    stored = json.loads((OLD / kind / "result.json").read_text())
    if kind == "replay":
        made: Any = whim.replay(OLD / "uniform-log", policies(*EXPECTED["policies"]), bins=10)
        stored["settings"]["log"] = "uniform-log"
    else:
        world = whim.worlds.PiecewiseLinear(users="fixed", period=200)
        only = {"LinUCB": whim.LinUCBDisjoint(n_features=5, alpha=1.0)}
        made = whim.simulate(world, only, horizon=600, runs=2)
        stored["policies"] = stored["policies"][:1]
    made.save(tmp_path / "new")
    new = json.loads((tmp_path / "new" / "result.json").read_text())
    assert new["settings"].keys() >= stored["settings"].keys()
    added = {"effective", "support", "unknown"} if kind == "replay" else set()
    assert [row.keys() - added for row in new["policies"]] == [
        row.keys() for row in stored["policies"]
    ]
    old_part = [{k: v for k, v in row.items() if k not in added} for row in new["policies"]]
    assert old_part == stored["policies"]
    old_frame = polars.read_parquet(OLD / kind / f"{frame}.parquet")
    new_frame = polars.read_parquet(tmp_path / "new" / f"{frame}.parquet")
    same = polars.col("policy").is_in(new_frame["policy"].unique().to_list())
    assert new_frame.equals(old_frame.filter(same))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "replay",
            ["Replay of uniform.whim", "169 of 600", "Average reward over time"],
        ),
        ("simulation", ["Regret in a simulated world", "told the truth", "Regret over time"]),
    ],
)
def test_old_results_make_a_page(kind: str, words: list[str]) -> None:
    [result] = read_folder(OLD / kind)
    page = report_page([result])
    assert [word for word in words if word not in page] == []
    assert all(np.isfinite(curve.y).all() for figure in result.figures for curve in figure.curves)
