"""``whim convert`` and ``whim log`` as a user meets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import whim.logs
from tests.test_convert_tables import VISITS
from tests.test_convert_yahoo import EXAMPLE, EXAMPLE_B, line
from whim.logs import convert

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
    # the first conversion on a machine says that it compiles the parser, and nothing else
    said = found.stderr.splitlines()
    assert not [line for line in said if not line.startswith("whim: compiling kernels")]
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


def in_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[Any, str]:
    """As ``run``, without the start of a process: the exit code and stderr."""
    monkeypatch.setattr(sys, "argv", ["whim", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        exec(START, {})
    return left.value.code, capsys.readouterr().err


def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b").write_bytes(EXAMPLE_B)
    (tmp_path / "junk").write_bytes(bytes(range(256)))
    (tmp_path / "bad").write_bytes(EXAMPLE_B + b"what\n")
    to = ["--to", tmp_path / "x.whim"]
    convert(tmp_path / "b", tmp_path / "there.whim")
    for arguments, words in (
        (["convert", tmp_path / "none", *to], "no such file"),
        (["convert", tmp_path / "junk", *to], "format not recognised"),
        (["convert", tmp_path / "bad", "--strict", *to], "line 2"),
        (["convert", tmp_path / "b", "--format", "r9", *to], "format"),
        (["convert", tmp_path / "b", "--arm", "shown", *to], "arm is no option of format r6b"),
        (["convert", tmp_path / "b", "--to", tmp_path / "there.whim"], "already"),
        (["convert", tmp_path / "b", "--to", "s3://a/b.whim"], "machine, got s3://a/b.whim"),
        (["convert", tmp_path / "b", "--option", "pool-size=3", *to], "pool_size is no option"),
        (["log", tmp_path / "none"], "no log"),
    ):
        code, said = in_process(monkeypatch, capsys, *arguments)
        assert code == 2, (arguments, said)
        assert words in said
        assert len(said.strip().splitlines()) == 1
    assert {p.name for p in tmp_path.iterdir()} == {"b", "junk", "bad", "there.whim"}


def unread(pipe: int) -> int:
    """Bytes that nobody has taken out of a pipe yet."""
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    arguments = ["convert", pipe, "--to", tmp_path / "x.whim", "--format", "r6a"]
    command = [sys.executable, "-c", START, *map(str, arguments)]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process,
        # for reading as well: opening for writing alone waits for a reader, which never comes if
        # the command fails before it opens the pipe
        pipe.open("r+b", buffering=0) as file,
    ):
        file.write(EXAMPLE)
        while unread(file.fileno()) or not list(tmp_path.glob(".x.whim.*.part")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]
