"""Replicas over a real PostgreSQL, under blows and under load: small runs of ``tests/slow``."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

from tests.crashes import Service
from tests.front_page import front_page
from tests.postgres import MISSING, binaries
from tests.retrying import PLAIN, SPACES, SUMS
from tests.torture import Blows, torture
from whim.serve.log.reader import LogReader

pytestmark = pytest.mark.skipif(binaries() is None, reason=MISSING)


def test_nothing_is_lost_whatever_happens(tmp_path: Path) -> None:
    blows = Blows(kill=3, freeze=1, restart=1, failover=1, cut=1, cut_all=1, change=1)
    summary = torture(tmp_path, blows, seed=7, pace=1.0, spaces=(PLAIN, SUMS))
    assert summary.answers >= len(summary.told.decisions) > 100


def test_every_answer_is_the_librarys(tmp_path: Path) -> None:
    report = front_page(tmp_path, 1000)
    assert report.decisions == 1000
    assert report.behind > 0, "decisions must overlap, or this shows little"


def test_a_service_can_have_another_clock(tmp_path: Path) -> None:
    with Service(tmp_path, ahead=7200.0) as service:
        service.wait()
        assert service.ask("POST", "/v1/spaces", SPACES[PLAIN])[0] == 201
    with contextlib.closing(LogReader(tmp_path / "log.db")) as reader:
        ahead = reader.last()[1] / 1e6 - time.time()
    assert 7000 < ahead <= 7200
