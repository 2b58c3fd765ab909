"""Every Python block of the documents runs, and prints what the document says it prints."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    path for where in ("*.md", "docs/*.md", "docs/howto/*.md", "benchmarks/*.md")
    for path in ROOT.glob(where)
)  # fmt: skip
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_python_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # for the files that a page writes
    blocks = BLOCK.findall(path.read_text())
    names: dict[str, Any] = {"__name__": "__main__"}
    for (kind, source), (next_kind, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=False):
        if kind != "python" or source.lstrip().startswith(">>>"):
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, str(path), "exec"), names)
        if next_kind == "text":
            assert printed.getvalue() == shown


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_sessions_print_what_they_show(path: Path) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, _ = doctest.testfile(str(path), module_relative=False, optionflags=flags)
    assert failed == 0


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
