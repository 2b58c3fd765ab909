"""The site: its reference names the whole contract once, and it builds without a warning."""

from __future__ import annotations

import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import whim

DOCS = Path(__file__).parent.parent / "docs"
BUILDERS = ("sphinx", "myst_parser", "furo", "sphinx_copybutton")


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "_site" / "reference.py"))


def test_the_reference_of_policies_has_every_method_once(reference: dict[str, Any]) -> None:
    contract, _, rest = reference["policies"]().partition("## Made, loaded, returned")
    others = rest.partition("## Every policy")[2]
    names = reference["public"](whim.Policy)
    assert {"select", "select_many", "update_list", "history", "clone", "load"} <= set(names)
    assert sorted(re.findall(r"auto(?:method|property):: (\w+)$", contract, re.M)) == sorted(names)
    added = {name for line in re.findall(r":members: (.*)", others) for name in line.split(", ")}
    assert {"beliefs", "coefficients", "chance_changed"} <= added
    assert not added & set(names)
    assert re.findall(r"autoclass:: whim\.(\w+)", others) == sorted(
        {cls.__name__ for cls in whim.POLICIES.values()}, key=str.lower
    )


def test_every_method_of_the_contract_says_what_it_does(reference: dict[str, Any]) -> None:
    for name in reference["public"](whim.Policy):
        assert getattr(whim.Policy, name).__doc__, name


def test_every_page_belongs_to_the_site() -> None:
    """A page that no table of contents names is a warning; this finds it without Sphinx."""
    named = {"index"}
    for page in DOCS.rglob("*.md"):
        at = page.parent.relative_to(DOCS)
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text("utf-8"), re.S):
            for line in block.split():
                if not line.startswith(":") and not line.isdigit():
                    named.add(str(Path(*_plain(at / line))))
    pages = {
        str(path.relative_to(DOCS).with_suffix(""))
        for kind in ("*.md", "*.ipynb")
        for path in DOCS.rglob(kind)
    }
    assert pages == named


def _plain(path: Path) -> list[str]:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return parts


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """As ``make docs``, which CI runs for every change; here only where its tools are installed."""
    missing = [name for name in BUILDERS if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: the extra docs, which make docs installs")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", "-b", "html",
         str(DOCS), str(tmp_path / "site"), "-d", str(tmp_path / "doctrees")],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "reference" / "policies.html").read_text("utf-8")
    for name in ("select_many", "save", "explain", "history"):
        assert page.count(f'id="whim.Policy.{name}"') == 1
