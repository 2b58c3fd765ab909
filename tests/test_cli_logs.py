"""``whim convert`` and ``whim log`` as a user meets them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import whim.logs
from tests.test_convert_tables import VISITS
from tests.test_convert_yahoo import EXAMPLE, EXAMPLE_B, line

# both verbs, whether or not the app has them already
START = """
from whim.cli import app, convert, log, main
app.app.command("convert")(convert.convert)
app.app.command("log")(log.log)
main()
"""


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", START, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_convert_and_log_of_r6a(tmp_path: Path) -> None:
    (tmp_path / "day").write_bytes(EXAMPLE + line(click=b"5") + b"\n" + EXAMPLE)
    found = run("convert", tmp_path / "day", "--to", tmp_path / "day.whim")
    assert found.returncode == 0, found.stderr
    assert found.stderr == ""
    for words in ("2 events, 3 arms, 1 pools", "logging uniform", "read 4 lines as r6a"):
        assert words in found.stdout
    assert "1  click other than 0 or 1" in found.stdout
    assert "1  empty line" in found.stdout
    told = json.loads(run("log", tmp_path / "day.whim", "--json").stdout)
    assert told["events"] == 2
    assert told["time"] == {"first": 1241160900, "last": 1241160900}
    assert told["pool_size"] == {"smallest": 3, "mean": 3.0, "largest": 3}
    assert told["dropped"] == {"click other than 0 or 1": 1}
    assert "mean reward     0" in run("log", tmp_path / "day.whim").stdout


def test_convert_as_json_with_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(VISITS)
    found = run(
        "convert", tmp_path / "t.csv", "--to", tmp_path / "t.whim", "--arm", "shown", "--reward",
        "click", "--context", "u1, u2", "--arms", "a,b", "--json",
    )  # fmt: skip
    told = json.loads(found.stdout)
    assert (told["events"], told["reader"], told["logging"]) == (2, "csv", None)
    assert told["dropped"] == {"shown arm not among the candidates": 1}
    assert whim.logs.open(tmp_path / "t.whim").event(0).arms == ["a", "b"]


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(EXAMPLE_B)
    (tmp_path / "junk").write_bytes(bytes(range(256)))
    (tmp_path / "bad").write_bytes(EXAMPLE_B + b"what\n")
    to = ["--to", tmp_path / "x.whim"]
    run("convert", tmp_path / "b", "--to", tmp_path / "there.whim")
    for arguments, words in (
        (["convert", tmp_path / "none", *to], "no such file"),
        (["convert", tmp_path / "junk", *to], "format not recognised"),
        (["convert", tmp_path / "bad", "--strict", *to], "line 2"),
        (["convert", tmp_path / "b", "--format", "r9", *to], "format"),
        (["convert", tmp_path / "b", "--arm", "shown", *to], "arm is no option of format r6b"),
        (["convert", tmp_path / "b", "--to", tmp_path / "there.whim"], "already"),
        (["log", tmp_path / "none"], "no log"),
    ):
        found = run(*arguments)
        assert found.returncode == 2, (arguments, found.stderr)
        assert words in found.stderr
        assert len(found.stderr.strip().splitlines()) == 1
    assert {p.name for p in tmp_path.iterdir()} == {"b", "junk", "bad", "there.whim"}
