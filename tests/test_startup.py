"""``import whim`` stays light: counts of what it imports, no timing (that is benchmarks/)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import whim

ROOT = Path(__file__).parent.parent
HEAVY = ("matplotlib", "scipy", "typer", "rich", "pandas", "sklearn", "polars", "joblib")


def _modules(code: str) -> list[str]:
    """Names in ``sys.modules`` of a fresh process that has run ``code``."""
    script = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True, check=True
    )
    return list(json.loads(done.stdout))


@pytest.fixture(scope="module")
def imported() -> list[str]:
    return _modules("import whim; whim.policies")


@pytest.fixture(scope="module")
def numba() -> set[str]:
    return set(_modules("import numba"))


@pytest.mark.parametrize("package", HEAVY)
def test_importing_whim_leaves_heavy_packages_alone(
    package: str, imported: list[str], numba: set[str]
) -> None:
    """Beyond what numba imports by itself (it looks for scipy)."""
    ours = [name for name in imported if name not in numba]
    assert not [name for name in ours if name.split(".")[0] == package]


def test_importing_whim_adds_little_to_numba(imported: list[str], numba: set[str]) -> None:
    own = [name for name in imported if name.split(".")[0] == "whim"]
    others = [name for name in imported if name not in numba and name not in own]
    assert "whim.policies" in own
    assert len(own) < 150
    assert len(others) < 60, others


def test_importing_whim_waits_for_nothing() -> None:
    """Policies, and numba with them, are loaded when they are first used."""
    assert not {"numba", "numpy", "whim.policies"} & set(_modules("import whim"))


LEAN = """
import sys

class Blocked:  # as if only numpy and numba were installed
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
import whim
from whim.errors import WhimError

policy = whim.LinUCBDisjoint(n_features=2)
policy.add_arms(["a", "b"])
decision = policy.select([1.0, 0.5])
policy.update(decision.arm, [1.0, 0.5], 1.0)
assert type(policy).from_bytes(policy.to_bytes()).select([1.0, 0.5]) == policy.select([1.0, 0.5])

world = whim.worlds.PiecewiseLinear(n_arms=3, n_features=2, period=50)
result = whim.simulate(world, {{"LinUCB": whim.LinUCBDisjoint(n_features=2)}}, horizon=100, runs=2)
assert result.rows()[0]["policy"] == "LinUCB"

def refused(call, *words):
    try:
        call()
    except WhimError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(words)

refused(result.table, "Tables need polars", "pip install 'whim-bandits[logs]'")
refused(result.plot, "Figures need matplotlib", "pip install 'whim-bandits[plot]'")
refused(
    lambda: whim.simulate(world, {{"a": whim.Random()}}, horizon=9, runs=2, jobs=2),
    "need joblib", "pip install 'whim-bandits[runs]'",
)
"""


def test_deciding_and_simulating_need_numpy_and_numba_only() -> None:
    blocked = {
        "polars", "joblib", "threadpoolctl", "matplotlib", "sklearn", "scipy", "river", "jinja2",
        "typer", "rich", "msgspec", "httpx", "starlette",
    }  # fmt: skip
    imported = _modules(LEAN.format(blocked=blocked))
    assert not [name for name in imported if name.split(".")[0] in blocked]


def test_the_core_requires_numpy_and_numba_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [re.split(r"[<>=]", name)[0] for name in project["dependencies"]] == ["numba", "numpy"]


def test_without_typer_the_command_names_its_extra() -> None:
    code = "import sys; sys.modules['typer'] = None; import whim_command; whim_command.main()"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("whim: The command line needs typer")
    assert "pip install 'whim-bandits[cli]'" in done.stderr


def test_a_source_distribution_has_the_sources_and_five_files() -> None:
    sdist = pytest.importorskip("hatchling.builders.sdist")
    files = sdist.SdistBuilder(str(ROOT)).recurse_included_files()
    beside = {file.distribution_path for file in files if file.distribution_path[:4] != "src/"}
    assert beside == {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md"}


def test_processes_import_nothing_from_the_current_folder() -> None:
    """Where somebody's ``csv.py`` may be: Python is started with -P."""
    started = [
        line.strip()
        for path in Path(whim.__file__).parent.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if "sys.executable," in line
    ]
    assert started
    assert [line for line in started if '"-P"' not in line] == []
