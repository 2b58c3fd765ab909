"""Every Python block of the documents runs, and prints what the document says it prints."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from tests.documents import BLOCK, run_blocks, run_sessions

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    path for where in ("*.md", "docs/*.md", "docs/howto/*.md", "benchmarks/*.md")
    for path in ROOT.glob(where)
)  # fmt: skip


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_python_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # for the files that a page writes
    run_blocks(path)


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/notebooks/*.ipynb")), ids=lambda p: p.name)
def test_notebooks_print_what_they_show(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    site = runpy.run_path(str(ROOT / "docs/_site/execute.py"))
    notebook = json.loads(path.read_text("utf-8"))
    shown = site["printed"](notebook)
    assert len(shown) > 3
    assert site["printed"](site["run"](notebook)) == shown


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_sessions_print_what_they_show(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    run_sessions(path)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_readme_starts_with_the_two_commands() -> None:
    first = BLOCK.search((ROOT / "README.md").read_text())
    assert first is not None
    assert re.findall(r"^make (\w+)", first.group(2), re.M) == ["run", "test"]


def test_the_readme_names_every_policy() -> None:
    import whim

    text = (ROOT / "README.md").read_text()
    for cls in whim.POLICIES.values():
        assert f"`{cls.__name__}`" in text
