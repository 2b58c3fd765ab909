"""The command line as a user meets it: tables, JSON, wrong flags, bad input, Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import whim

SMALL = ["simulate", "--runs", "2", "--horizon", "300", "--arms", "3", "--features", "2"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whim", *arguments], capture_output=True, text=True, check=False
    )


def test_simulate_prints_a_table_and_the_same_one_again() -> None:
    first, second = run(*SMALL), run(*SMALL)
    assert first.returncode == 0, first.stderr
    for word in ("LinUCB", "PSLinUCB", "told the truth", "regret", "seed 0"):
        assert word in first.stdout
    assert first.stdout == second.stdout
    assert first.stderr == ""


def test_simulate_json() -> None:
    found = json.loads(run(*SMALL, "--json", "--seed", "3").stdout)
    assert found["settings"]["seed"] == 3
    assert [row["policy"] for row in found["policies"]] == ["LinUCB", "PSLinUCB", "told the truth"]
    regret = found["policies"][0]["regret"]
    assert regret["low"] <= regret["value"] <= regret["high"]


def test_policies_lists_them_all() -> None:
    found = json.loads(run("policies", "--json").stdout)
    assert {row["name"] for row in found} == set(whim.POLICIES)
    assert "pslinucb-hybrid" in run("policies").stdout


def test_version_and_help() -> None:
    assert run("--version").stdout == f"whim {whim.__version__}\n"
    assert "simulate" in run("--help").stdout
    assert run().returncode in (0, 2)


def test_bad_input_is_one_line_and_exit_code_2() -> None:
    for arguments in (
        [*SMALL, "--law", "cube"],
        [*SMALL, "--threshold", "-1"],
        ["simulate", "--runs", "0"],
        ["simulate", "--no-such-flag"],
        ["no-such-verb"],
    ):
        found = run(*arguments)
        assert found.returncode == 2, arguments
        assert "Traceback" not in found.stderr
        assert found.stderr
    assert run(*SMALL, "--law", "cube").stderr == (
        "whim: law must be one of ball, sphere, nonnegative, got 'cube'.\n"
    )


def test_interrupt_ends_quietly() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "whim", "simulate", "--runs", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
