"""The command line as a user meets it: tables, JSON, wrong flags, bad input, Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import whim
import whim.cli
from whim.cli import show, specs
from whim.cli.app import app
from whim.errors import InvalidInputError, UnknownArmError, WhimError
from whim.evaluate.tasks import WORLDS, OracleMaker

SMALL = ["simulate", "--runs", "2", "--horizon", "300", "--arms", "3", "--features", "2"]
D, M = 2, 3


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whim", *arguments], capture_output=True, text=True, check=False
    )


def said(*arguments: str) -> str:
    """What a command prints, in this process."""
    found = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def refused(*arguments: str) -> str:
    """The one line of a command that is refused, in this process."""
    found = CliRunner().invoke(app, arguments)
    assert isinstance(found.exception, WhimError), found.output
    assert found.stdout == ""
    return str(found.exception)


def write_log(path: Path, *, n: int = 400, logging: str = "uniform", worth: float = 0.15) -> Path:
    """A small log: four arms of which three can be shown, arm 3 the best for half of the users."""
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(4, M))
    given = logging == "propensity"
    with whim.logs.Writer(
        path, n_features=D, n_item_features=M, logging=logging, propensities=given
    ) as w:
        for i in range(n):
            arms = sorted(rng.choice(4, size=3, replace=False).tolist())
            x = np.array([1.0, float(rng.random() < 0.5)])
            p = np.array([0.5, 0.3, 0.2]) if given else np.full(3, 1 / 3)
            place = int(rng.choice(3, p=p))
            chance = 0.2 + worth * arms[place] * x[1]
            w.event(
                time=i, x=x, arms=arms, features=Y[arms], shown=arms[place],
                reward=float(rng.random() < chance), propensity=p[place] if given else None,
            )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("logs") / "small.whim")


# -- simulate --------------------------------------------------------------------------------------


def test_simulate_prints_a_table_and_the_same_one_again() -> None:
    first, second = run(*SMALL), run(*SMALL, "--jobs", "2")
    assert first.returncode == 0, first.stderr
    for word in ("LinUCB", "PSLinUCB", "oracle", "regret", "seed 0"):
        assert word in first.stdout
    assert first.stdout == second.stdout
    assert first.stderr == ""


def test_tables_fit_eighty_columns() -> None:
    out = said("simulate", "--runs", "2", "--horizon", "3000", "--period", "500", "--jobs", "1")
    assert "delay in steps" in out  # the table of changes is there
    assert max(map(len, out.splitlines())) <= 80


def test_simulate_json_is_the_library_s_result() -> None:
    found = json.loads(said(*SMALL, "--json", "--seed", "3"))
    world = whim.worlds.PiecewiseLinear(n_arms=3, n_features=2, users="fixed")
    policies = {
        "LinUCB": whim.LinUCBDisjoint(n_features=2),
        "PSLinUCB": whim.PSLinUCBDisjoint(n_features=2),
        "PSLinUCB (paper)": whim.PSLinUCBDisjoint(n_features=2, window=100, threshold=0.35),
        "AdaptiveLinUCB": whim.AdaptiveLinUCB(n_features=2),
        "oracle": lambda episode: whim.OracleRestart(
            policy=whim.LinUCBDisjoint(n_features=2), changes=episode.changes
        ),
    }
    result = whim.simulate(world, policies, horizon=300, runs=2, seed=3)
    assert found["policies"] == result.rows()
    assert found["settings"]["seed"] == 3
    assert found["settings"]["world"] == result.settings["world"]


def test_simulate_with_policies_of_the_user_s_own() -> None:
    arguments = [
        *SMALL, "--json", "--set", "n_item_features=2", "--baseline", "greedy",
        "--policy", "ucb", "--policy", "greedy=linucb-uniform:payoff=cross,alpha=0",
        "--policy", "linucb-hybrid", "--policy", "swlinucb:window=50",
        "--policy", "truth=oracle-restart:policy=ucb",
    ]  # fmt: skip
    found = json.loads(said(*arguments))
    rows = {row["policy"]: row for row in found["policies"]}
    assert list(rows) == ["ucb", "greedy", "linucb-hybrid", "swlinucb", "truth"]
    assert found["baseline"] == "greedy"
    assert rows["greedy"]["saved"] == 0.0
    assert "LinUCBUniform(n_item_features=2, n_features=2" in found["settings"]["policies"][
        "greedy"
    ].replace("n_cross_features=None, ", "")


@pytest.mark.parametrize("world", ["drifting", "rotating", "news"])
def test_other_worlds(world: str) -> None:
    out = said("simulate", "--world", world, "--runs", "2", "--horizon", "200", "--jobs", "1")
    assert f"{world} world" in out
    assert ("oracle" in out) == (world != "drifting")


def test_simulate_saves_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure, folder = tmp_path / "regret.svg", tmp_path / "out"
    said(*SMALL, "--save", str(folder), "--plot", str(figure))
    assert figure.read_text().startswith("<?xml")
    assert {path.name for path in folder.iterdir()} == {"curves.parquet", "result.json"}


# -- replay ----------------------------------------------------------------------------------------


def test_replay_prints_the_usual_policies(log: Path) -> None:
    found = run("replay", str(log))
    assert found.returncode == 0, found.stderr
    for word in (
        "random", "PSLinUCB hybrid", "AdaptiveLinUCB", "CTR", "400 events", "logging uniform",
    ):  # fmt: skip
        assert word in found.stdout
    assert max(map(len, found.stdout.splitlines())) <= 80


def test_replay_json_is_the_library_s_result(log: Path) -> None:
    arguments = ["--policy", "random:seed=4", "--policy", "lin=linucb-disjoint:alpha=0.3"]
    how: dict[str, Any] = {"sample": 0.7, "runs": 3, "seed": 2, "first": 0.8}
    flags = [word for name, value in how.items() for word in (f"--{name}", str(value))]
    out = said("replay", str(log), *arguments, *flags, "--baseline", "lin", "--json")
    found = json.loads(out)
    policies = {"random": whim.Random(seed=4), "lin": whim.LinUCBDisjoint(n_features=D, alpha=0.3)}
    result = whim.replay(log, policies, **how)
    assert found["policies"] == result.rows("lin")
    assert found["settings"]["events"] == 320


def test_replay_of_propensities_has_three_estimates(tmp_path: Path) -> None:
    path = write_log(tmp_path / "p.whim", logging="propensity")
    out = said("replay", str(path), "--policy", "random", "--jobs", "1")
    for word in ("IPS", "SNIPS", "DR", "logging propensity"):
        assert word in out
    out = said("replay", str(path), "--policy", "random", "--logging", "uniform")
    assert "IPS" not in out
    assert "says that its logging is propensity. As uniform these numbers lean" in " ".join(
        out.split()
    )


def test_nothing_to_count_is_a_dash_and_null(tmp_path: Path) -> None:
    write_log(tmp_path / "one.whim", n=1)
    with whim.logs.Writer(tmp_path / "none.whim", n_features=D, logging="uniform"):
        pass
    for name in ("one", "none"):
        path = tmp_path / f"{name}.whim"
        for runs in ("1", "2"):
            arguments = [str(path), "--policy", "a=ucb", "--policy", "b=ucb", "--runs", runs]
            assert "–" in said("replay", *arguments, "--sample", "1e-9")
            found = json.loads(said("replay", *arguments, "--sample", "1e-9", "--json"))
            assert [row["ctr"] for row in found["policies"]] == [None, None]


def test_replay_saves_and_draws(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure, folder = tmp_path / "rates.png", tmp_path / "out"
    said("replay", str(log), "--save", str(folder), "--plot", str(figure), "--bins", "7")
    assert figure.read_bytes().startswith(b"\x89PNG")
    names = {path.name for path in folder.iterdir()}
    assert names == {"over_time.parquet", "changes.parquet", "result.json"}


# -- policies on the command line ------------------------------------------------------------------


def test_values_of_every_kind() -> None:
    spec = specs.parse_policy("A B=p:a=1,b=-2.5,c=true,d=None,e=word,f=inf,g=1e3")
    assert spec.label == "A B"
    assert spec.params == {
        "a": 1, "b": -2.5, "c": True, "d": None, "e": "word", "f": float("inf"), "g": 1000.0,
    }  # fmt: skip
    assert type(spec.params["a"]) is int
    assert type(spec.params["g"]) is float


def test_groups_to_be_given_are_refused() -> None:
    source = specs.Source("here", 4, 3, knows_truth=True)
    with pytest.raises(InvalidInputError, match="groups must be a number here"):
        specs.make(["pslinucb-groups:groups=given"], source)


def test_every_policy_can_be_asked_for() -> None:
    needs = {
        "cusum-ucb": "threshold=1", "dlinucb": "gamma=0.9", "ducb": "gamma=0.9",
        "modified-pslinucb": "b=0.1,c=0.1,gamma=0.1", "mucb": "window=20,threshold=3,gamma=0.1",
        "pslinucb-groups": "groups=3", "swlinucb": "window=50", "swucb": "window=50",
    }  # fmt: skip
    source = specs.Source("here", 4, 3, knows_truth=True)
    texts = [f"{name}:{needs[name]}" if name in needs else name for name in whim.POLICIES]
    made = specs.make(texts, source)
    assert list(made) == list(whim.POLICIES)
    for name, policy in made.items():
        assert isinstance(policy, whim.POLICIES[name]) != isinstance(policy, OracleMaker)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("ucb", (None, 0)),
        ("linucb-disjoint", (4, 0)),
        ("linucb-hybrid", (4, 3)),
        ("linucb-uniform", (None, 3)),
        ("linucb-uniform:payoff=cross", (4, 3)),
        ("denband:payoff=item", (None, 3)),
        ("lints", (4, 0)),
        ("lints:payoff=item", (None, 3)),
        ("lints:payoff=cross", (4, 3)),
        ("ucb:n_features=4", (4, 0)),
    ],
)
def test_sizes_are_filled_in(text: str, sizes: tuple[int | None, int]) -> None:
    (policy,) = specs.make([text], specs.Source("here", 4, 3, knows_truth=True)).values()
    assert isinstance(policy, whim.Policy)
    assert (policy.n_features, policy.n_item_features) == sizes


def test_policies_lists_them_all() -> None:
    found = json.loads(run("policies", "--json").stdout)
    assert {row["name"] for row in found} == set(whim.POLICIES)
    assert "pslinucb-hybrid" in said("policies")


# -- refusals --------------------------------------------------------------------------------------


def test_version_and_help() -> None:
    assert run("--version").stdout == f"whim {whim.__version__}\n"
    out = said("--help")
    assert all(verb in out for verb in ("simulate", "replay", "sweep"))
    assert run().returncode in (0, 2)


def test_bad_input_is_one_line_and_exit_code_2() -> None:
    found = run(*SMALL, "--law", "cube")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == "whim: law must be one of ball, sphere, nonnegative, got 'cube'.\n"
    found = run("replay", "no-such.whim")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == "whim: no-such.whim is no log: there is no such folder.\n"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["simulate", "--runs", "0"], "--runs"),
        (["simulate", "--no-such-flag"], "--no-such-flag"),
        (["sweep", "--policy", "ucb"], "--vary"),
        (["no-such-verb"], "no-such-verb"),
        (["simulate", "--runs", "0"], "got 0"),
        (["simulate", "--seed", "-1"], "got -1"),
        (["simulate", "--noise", "much"], "got much"),
        (["schema", "--from", "old"], "got old"),
        (["keys", "revoke"], "Missing argument"),
    ],
)
def test_wrong_flags(arguments: list[str], word: str) -> None:
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert word in found.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--threshold", "-1"], "threshold must be .* got -1"),
        (["--policy", "lin"], "policy must be one of adaptive-linucb, .* ucb, got 'lin'"),
        (["--policy", "LinUCBDisjoint"], r"'LinUCBDisjoint'; did you mean linucb-disjoint\?"),
        (["--policy", "ucb:windw=3"], "parameters of ucb must be among bonus, .* got 'windw'"),
        (["--policy", "mucb:window=20"], "threshold must be given for mucb, as in mucb:thresh"),
        (["--policy", "mucb:"], r"policy must be \[LABEL=\]NAME"),
        (["--policy", "=ucb"], r"policy must be \[LABEL=\]NAME"),
        (["--policy", "ucb:alpha"], "policy must be made of name=value, got 'alpha'"),
        (["--policy", "ucb:seed=1,seed=2"], "policy must have each name once, got 'seed' twice"),
        (["--policy", "ucb", "--policy", "ucb"], "labels must differ, got 'ucb' twice"),
        (["--policy", "linucb-disjoint:n_features=9"], "n_features of .* world, 2, got 9"),
        (["--policy", "linucb-hybrid"], "linucb-hybrid needs item features, and the piecewise"),
        (["--policy", "lints:payoff=odd"], "payoff must be one of disjoint, item, cross"),
        (["--policy", "lints:n_cross_features=9"], "n_cross_features of lints must be left out"),
        (["--policy", "oracle-restart:policy=oracle-restart"], "must be another one"),
        (["--policy", "ucb", "--alpha", "1"], "alpha must be given within --policy"),
        (["--policy", "ucb", "--baseline", "x"], "baseline must be one of ucb, got 'x'"),
        (["--world", "flat"], "world must be one of piecewise, drifting, rotating, news"),
        (["--set", "wings=2"], "parameters of the piecewise world must be among .* got 'wings'"),
        (["--set", "n_arms=2"], "n_arms must be given once"),
        (["--set", "asynchronous=maybe"], "asynchronous must be true or false, got 'maybe'"),
        (["--world", "news", "--period", "9"], "parameters of the news world .* got"),
        (["--jobs", "0"], "jobs, unless -1, must be an integer >= 1"),
        (["--plot", "regret.xyz"], r"plot must end in one of .*\.svg.*, got 'regret.xyz'"),
        (["--plot", "no-such-folder/a.svg"], "plot must be in a folder that exists"),
        (["--save", __file__], "save must be a folder, got the file"),
        (["--save", f"{__file__}/out"], "save must be where files can be written, got .*/out'"),
    ],
)
def test_simulate_refuses(arguments: list[str], line: str) -> None:
    assert re.search(line, refused(*SMALL, *arguments))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--policy", "oracle-restart"], "small.whim does not know its changes"),
        (["--policy", "ucb", "--baseline", "x"], "baseline must be one of ucb"),
        (["--logging", "odd"], "logging must be one of uniform, propensity, full"),
        (["--logging", "propensity"], "small.whim has none"),
        (["--logging", "full"], "logging must be 'uniform' or be left out, got 'full'"),
        (["--sample", "0"], "sample must be"),
        (["--first", "2"], "first must be"),
    ],
)
def test_replay_refuses(arguments: list[str], line: str, log: Path) -> None:
    assert line in refused("replay", str(log), *arguments)


def test_saving_that_fails_in_the_end_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "result.json").mkdir()
    line = refused(*SMALL, "--policy", "ucb", "--jobs", "1", "--save", str(tmp_path))
    assert line == f"save must be where files can be written, got '{tmp_path}': Is a directory."


def test_what_the_system_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device", "a.whim")

    monkeypatch.setattr("whim.cli.app.app", full)
    with pytest.raises(SystemExit) as left:
        whim.cli.main()
    assert left.value.code == 2
    assert capsys.readouterr().err == "whim: a.whim: No space left on device\n"


def test_the_help_names_every_world() -> None:
    for verb in ("simulate", "sweep"):
        out = said(verb, "--help")
        assert [world for world in WORLDS if world not in out] == []


# -- Ctrl-C ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.05, 0.3, 1.0])
def test_an_interrupt_in_the_first_seconds_is_one_line(seconds: float) -> None:
    """While Python imports, and while workers do, to which the terminal sends it as well."""
    ready, told = os.pipe()
    # the clock starts when the command listens: until then an interrupt is Python's own
    code = f"""
import os, signal, whim_command
set_handler = signal.signal
def listen(number, handler):
    set_handler(number, handler)
    os.write({told}, b".")
    signal.signal = set_handler
signal.signal = listen
whim_command.main()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, "simulate", "--runs", "100000", "--jobs", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        pass_fds=[told],
    )  # fmt: skip
    os.close(told)
    with os.fdopen(ready, "rb") as listening:
        assert listening.read(1) == b"."
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    # a quick machine has come to say how long it will take
    assert re.fullmatch(r"(this will take about [^\n]*\n)?\nwhim: interrupted\n", error), error


def test_an_interrupt_that_a_package_takes_for_a_failed_import_is_one_line() -> None:
    """As NumPy does where it imports datetime."""
    code = """
import importlib.abc, os, signal, sys
class Interrupted(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise ImportError("could not import module datetime")
sys.meta_path.insert(0, Interrupted())
import whim_command; whim_command.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nwhim: interrupted\n")


def test_an_interrupt_on_a_terminal_leaves_it_clean() -> None:
    """The bar is wiped and the cursor shown again."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "whim", "simulate", "--runs", "100000", "--jobs", "1"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(theirs)
    seen, end = b"", time.monotonic() + 300  # kernels may be compiled
    try:
        while not re.search(rb"[1-9]\d*/100000", seen):  # the bar is there, and work goes on
            assert time.monotonic() < end, seen[-400:]
            if select.select([ours], [], [], 1)[0]:
                seen += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
        while True:
            try:
                seen += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
    finally:
        process.kill()
        process.wait(10)
        os.close(ours)
    assert process.returncode == 130
    assert out == b""
    assert b"Traceback" not in seen
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")  # cursor: shown after hidden


def test_what_the_library_logs_is_shown_on_stderr_and_nowhere_else() -> None:
    code = """
import logging, sys
from whim.cli import main
sys.argv = ["whim", "policies", "--json"]
try:
    main()
finally:
    kernels = logging.getLogger("whim.kernels")
    kernels.debug("a detail")
    kernels.info("compiling kernels, kept in %s", "here")
    logging.getLogger("elsewhere").info("of another package")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert json.loads(done.stdout)
    assert done.stderr == "whim: compiling kernels, kept in here\n"


def test_labels_are_not_broken_where_the_terminal_is_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    numbers = ["1,234.5 [1,200.0, 1,300.0]", "41 % [40, 43]", "0.1234 [0.1200, 0.1300]"]
    labels = ["AdaptiveLinUCB", "PSLinUCB (paper)", "x" * 50]
    show.print_table(("policy", "regret", "saved", "reward"), [[one, *numbers] for one in labels])
    out = capsys.readouterr().out
    assert "AdaptiveLinUCB " in out
    assert "PSLinUCB (paper) " in out
    assert "x" * 33 not in out


def test_one_unknown_arm_is_said_in_the_singular() -> None:
    policy = whim.UCB()
    policy.add_arms(["a"])
    with pytest.raises(
        UnknownArmError, match=r"^arm must be a live arm, got unknown or retired: 'b'"
    ):
        policy.update("b", None, 1.0)
    with pytest.raises(UnknownArmError, match=r"^arms must be live arms, got"):
        policy.select(arms=["b"])
