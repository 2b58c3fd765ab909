"""``import whim`` stays light: counts of what it imports, no timing (that is benchmarks/)."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

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
    return _modules("import whim")


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
