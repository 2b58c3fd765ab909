"""Shell blocks of the documents run, one after the other, as a reader would type them.

``tests/shell_pages.py`` says what is left out or swapped. Commands that need another machine
(docker, kubectl, a bucket) or hours are not run; that they exist, with all their options, is in
``tests/test_command_lines.py``.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whim
from tests import shell_pages
from tests.documents import run_blocks
from tests.ports import free_ports
from tests.postgres import Server, binaries
from tests.shell_pages import (
    Command,
    commands,
    prints,
    run_here,
    run_script,
    script,
    sections,
)

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or not (shutil.which("bash") and shutil.which("curl")),
    reason="needs bash and curl",
)
ROOT = Path(__file__).parent.parent
HOWTO = ROOT / "docs" / "howto"


def page_of(path: Path, *headings: str) -> list[Command]:
    found = commands(sections(path.read_text("utf-8"), headings))
    assert found, f"{path.name} has no commands"
    return found


def played(folder: Path, page: list[Command], **more: Any) -> str:
    """Run commands against a port of their own."""
    swaps = more.pop("swaps", {})
    port = free_ports(3)
    environment = {"WHIM_DATA": str(folder / "whim-data"), **more}
    said = run_script(script(page, port, swaps), folder, port, **environment)
    for command in page:
        if not command.text.startswith(shell_pages.SKIPPED):
            prints(command.shown, said, {**swaps, "8126": str(port)})
    return said


def python_of(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's Python makes the files that its commands read."""
    monkeypatch.chdir(folder)
    run_blocks(path)


def shown_lists(folder: Path) -> None:
    """A table with a row per shown item, as the pages on lists have it."""
    rng = np.random.default_rng(0)
    rows = ["visit,rank,item,click,user_age,user_one,p,p_prefix,pool"]
    for visit in range(200):
        age = rng.random()
        for rank, item in enumerate(rng.permutation(["a", "b", "c"])[:2], 1):
            click = int(rng.random() < 0.3)
            prefix = (1 / 3, 1 / 6)[rank - 1]
            rows.append(f"v{visit},{rank},{item},{click},{age:.3f},1,{1 / 3},{prefix},a|b|c")
    (folder / "shown.csv").write_text("\n".join(rows) + "\n")


def ccb_lines(folder: Path) -> None:
    """Decision-service JSON of two slots that differ, as ``--ccb_explore_adf`` logs them."""
    rng = np.random.default_rng(0)
    actions = [{"_tag": name} for name in ("mocha", "latte", "tea")]
    lines = []
    for second in range(60):
        first, other = (int(i) for i in rng.permutation(3)[:2])
        clicked = int(rng.integers(2))
        lines.append({
            "Timestamp": f"2026-04-26T17:00:{second:02}Z", "EventId": f"e{second}",
            "c": {"user": {"new": clicked}, "_multi": actions, "_slots": [{}, {}]},
            "_outcomes": [
                {"_label_cost": -clicked, "_a": [first], "_p": [1 / 3]},
                {"_label_cost": 0, "_a": [other], "_p": [0.5]},
            ],
        })  # fmt: skip
    (folder / "ccb.dsjson").write_text("\n".join(map(json.dumps, lines)) + "\n")


def test_the_readme_serves(tmp_path: Path) -> None:
    said = played(tmp_path, page_of(ROOT / "README.md", "As a service"))
    assert '"decision_id":"visit-1","space":"demo"' in said
    assert '"state":"learnt"' in said


def test_the_tutorial_serves(tmp_path: Path) -> None:
    said = played(tmp_path, page_of(ROOT / "docs" / "tutorial.md"))
    assert '"decision_id":"visit-1","space":"offers"' in said
    assert '"state":"learnt"' in said


def test_from_vowpal_wabbit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = HOWTO / "vowpal-wabbit.md"
    python_of(path, tmp_path, monkeypatch)
    ccb_lines(tmp_path)
    said = run_here(page_of(path), {})
    assert "adaptive-linucb" in said
    assert "cascade DR" in said


def test_choosing_on_a_log_from_a_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_of(HOWTO / "choosing.md", tmp_path, monkeypatch)
    said = run_here(page_of(HOWTO / "choosing.md"), {})
    assert "false_alarm" in said


def test_lists_from_log_to_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python_of(HOWTO / "lists.md", tmp_path, monkeypatch)
    shown_lists(tmp_path)
    said = played(tmp_path, page_of(HOWTO / "lists.md"))
    assert "cascade DR" in said
    assert '"decision_id":"page-1","space":"front"' in said
    assert '"state":"kept"' in said or '"state":"learnt"' in said


def test_the_guide_to_lists_converts_and_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown_lists(tmp_path)
    page = [one for one in page_of(ROOT / "docs" / "lists.md") if "ccb.dsjson" not in one.text]
    assert "pseudo-inverse" in run_here(page, {})


def test_production_is_loaded_by_a_key_with_the_scope_that_the_page_names(tmp_path: Path) -> None:
    (load,) = page_of(HOWTO / "production.md")
    assert "WHIM_KEY=… python deploy/loadtest.py" in load.text
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    page = [
        Command("WHIM_HOST=127.0.0.1 whim keys make loader --scope admin > key", []),
        Command("whim serve", []),
        load,
        Command("whim keys revoke loader", []),
    ]
    swaps = {
        "WHIM_KEY=…": "WHIM_KEY=$(head -1 key)", "--rate 200 --seconds 30 --p99-ms 50":
        "--rate 20 --seconds 1 --p99-ms 60000",
    }  # fmt: skip
    assert '"errors": {}' in played(tmp_path, page, swaps=swaps)


def test_logs_are_converted_from_every_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in a bucket aside."""
    monkeypatch.chdir(tmp_path)
    whim.worlds.NewsWorld().write_r6a(_made(tmp_path / "R6A") / "day.gz", events=50, seed=0)
    shown_lists(tmp_path)
    rng = np.random.default_rng(0)
    head = "shown,click,user_age,user_one"
    rows = [f"{rng.choice(['a', 'b'])},{rng.integers(2)},{rng.random():.2f},1" for _ in range(50)]
    for path in (tmp_path / "visits.csv", _made(tmp_path / "visits") / "monday.csv"):
        path.write_text("\n".join([head, *rows]) + "\n")
    weather = [f"{rng.random():.2f},{rng.choice(['yes', 'no'])}" for _ in range(50)]
    (tmp_path / "weather.csv").write_text("\n".join(["wind,rain", *weather]) + "\n")
    np.savez(tmp_path / "stream.npz", X=rng.normal(size=(50, 2)), y=rng.integers(2, size=50))
    page = [one for one in page_of(ROOT / "docs" / "logs.md") if "s3://" not in one.text]
    said = ""
    for one in page:
        if "whim convert" in one.text:  # of which more than one make the same log
            for made in ("visits.whim", "weather.whim"):
                shutil.rmtree(tmp_path / made, ignore_errors=True)
        said += run_here([one], {})
    assert "pseudo-inverse" in said


def test_experiments_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of few steps in place of many; ``test_cli.py`` has the first command, a bare verb."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "r6a.whim"
    whim.worlds.NewsWorld().write_r6a(tmp_path / "day.gz", events=600, seed=0)
    whim.logs.convert(tmp_path / "day.gz", log, format="r6a")
    short = "--runs 1 --horizon 500 --jobs 1"
    swaps = {"--runs 20": short, "--runs 5": "--runs 1 --jobs 1"}
    bare, *page = page_of(ROOT / "docs" / "running.md", "From the command line")
    assert bare.text.startswith("whim simulate  ")
    said = run_here(page, swaps)
    assert (tmp_path / "out" / "report.html").is_file()
    assert "piecewise world" in said


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_from_a_csv_to_replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole page; without a PostgreSQL to its last section."""
    python_of(HOWTO / "csv.md", tmp_path, monkeypatch)
    parts = ["Start from a CSV", "Serve what it teaches"]
    if binaries() is None:
        said = played(tmp_path, page_of(HOWTO / "csv.md", *parts))
    else:
        server, base = Server.start(), free_ports(3)
        swaps = {
            "postgresql://localhost/whim": server.address(server.database()),
            "812$i": f"$(({base} + i))", "8121": str(base + 1), "8122": str(base + 2),
        }  # fmt: skip
        try:
            page = page_of(HOWTO / "csv.md", *parts, "On two replicas")
            said = played(tmp_path, page, swaps=swaps)
        finally:
            server.kill()
        assert '"decisions":3001,' in said
    assert '"decision_id":"visit-1","space":"shop"' in said
    assert '"state":"learnt"' in said
