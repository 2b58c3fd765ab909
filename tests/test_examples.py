"""The examples that are short enough run as they are told to."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_lists_draws_its_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "lists.svg"
    runpy.run_path(str(EXAMPLES / "lists.py"))["main"](str(path), runs=2, horizon=500)
    assert "<svg" in path.read_text()
    clicked, _, visits, *_, best = capsys.readouterr().out.replace(" at best", "").split()
    assert int(visits) * 0.7 < int(clicked) < int(best) < int(visits)
