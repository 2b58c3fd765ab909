"""``whim doctor`` and ``whim warm``: what is there, what is missing, what is compiled."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import whim
from tests.factories import FACTORIES
from tests.test_cli import refused, said
from whim.cli import doctor
from whim.cli.app import app
from whim.cli.warm import examples
from whim.evaluate.warm import warm_policy
from whim.extras import EXTRAS

ROOT = Path(__file__).parent.parent


def test_doctor_tells_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    seen = json.loads(said("doctor", "--json", "--data", str(tmp_path / "new")))
    assert seen["versions"].keys() == {"whim", "python", "numpy", "numba", "llvmlite"}
    assert seen["cache"]["writable"]
    assert Path(seen["cache"]["folder"]).is_dir()
    assert 1 <= seen["cores"]["usable"] <= seen["cores"]["machine"]
    assert seen["data"] == {"path": str(tmp_path / "new"), "exists": False, "problem": None}
    assert not seen["missing_extras"].keys() & {"cli", "logs", "runs", "plot", "report", "serve"}
    assert "cores" in said("doctor")


def test_doctor_names_the_extra_of_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "polars" else name)
    lines = CliRunner().invoke(app, ["doctor"]).output
    assert "missing    logs, for CSV" in lines
    assert "(polars): pip install 'whim-bandits[logs]'" in lines


def test_every_extra_of_the_package_is_one_that_doctor_knows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert EXTRAS.keys() == project["optional-dependencies"].keys() - {
        "dev",
        "dist",
        "docs",
        "paper",
    }


def test_warm_compiles_what_is_named_and_refuses_what_is_not() -> None:
    done = CliRunner().invoke(app, ["warm", "ucb", "linucb-disjoint:alpha=0.5", "--jobs", "1"])
    assert done.exit_code == 0, done.output
    assert "2 policies are compiled" in done.output
    assert "policy must be one of" in refused("warm", "nobody")


def test_warm_knows_an_example_of_every_policy() -> None:
    names = {policy.name for policy in examples()}
    assert names == whim.policies.POLICIES.keys() - {"oracle-restart"}


@pytest.mark.parametrize("name", FACTORIES)
def test_warming_leaves_a_policy_as_it_is(name: str) -> None:
    policy = FACTORIES[name]()
    before = policy.to_bytes()
    warm_policy(policy)
    assert policy.to_bytes() == before
