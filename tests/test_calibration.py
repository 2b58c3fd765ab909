"""``beyond/calibration``: its intervals, and that it counts the same with any number of jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2  # type: ignore[import-untyped]

from whim.experiments import Options, calibration


@pytest.mark.parametrize("alarms", [0, 1, 5, 40, 300])
def test_intervals_are_those_of_a_poisson_number(alarms: int) -> None:
    ratio = calibration.ratio_of(alarms, 20.0, 1.0)
    low = chi2.ppf(0.025, 2 * alarms) / 2 if alarms else 0.0
    assert ratio.value == alarms / 20
    assert 20 * ratio.low == pytest.approx(low, rel=0.03, abs=0.05)
    assert 20 * ratio.high == pytest.approx(chi2.ppf(0.975, 2 * alarms + 2) / 2, rel=0.03)


def test_alarms_in_pairs_widen_the_interval() -> None:
    rng = np.random.default_rng(1)
    single = [rng.poisson(1.0, size=40).tolist() for _ in range(50)]
    pairs = [(2 * rng.poisson(0.5, size=40)).tolist() for _ in range(50)]
    assert calibration.bunching(single) == pytest.approx(1, abs=0.1)
    assert calibration.bunching(pairs) == pytest.approx(2, abs=0.2)
    assert calibration.bunching([[3], [5]]) == 1.0  # one arm a cell: nothing to tell it from
    wide, narrow = calibration.ratio_of(40, 40.0, 2.0), calibration.ratio_of(40, 40.0, 1.0)
    assert wide.low < narrow.low < 1 < narrow.high < wide.high


def test_jobs_change_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(calibration, "FEATURES", (1, 2))
    monkeypatch.setattr(calibration, "CONTEXTS", ("random",))
    found = [
        calibration.calibration(Options(quick=True, runs=20, jobs=jobs, seed=seed, work=tmp_path))
        for jobs, seed in ((1, 0), (2, 0), (1, 1))
    ]
    assert found[0].tables == found[1].tables
    assert found[0].tables != found[2].tables
    assert len(found[0].tables[0].rows) == 12
    assert found[0].summary.startswith("Of 12 cells 12 have 0.1 to 2 times the requested")
