"""Put the last run into the docs: tables between markers, and two figures.

``python -m benchmarks.peers.pages [--json FILE] [--page FILE] [--images FOLDER]`` replaces what
stands between ``<!-- bench:NAME -->`` and ``<!-- /bench -->``, so that no figure is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers.__main__ import RESULTS
from benchmarks.peers.environments import ROOT
from benchmarks.peers.markdown import TABLES

__all__ = ["main", "replaced"]

_MARKED = re.compile(r"(<!-- bench:([\w-]+) -->\n).*?(<!-- /bench -->)", re.DOTALL)


def replaced(page: str, content: dict[str, Any]) -> str:
    """The page with every marked table made anew; a table without figures says so."""

    def made(match: re.Match[str]) -> str:
        name = match[2]
        if name not in TABLES:
            raise SystemExit(f"no such table: {name} (there are: {', '.join(TABLES)})")
        part, table = TABLES[name]
        if part is None:
            text = table(content)
        elif "found" in content["parts"].get(part, {}):
            text = table(content["parts"][part]["found"])
        else:
            text = "Not measured."
        return f"{match[1]}{text}\n{match[3]}"

    return _MARKED.sub(made, page)


def main() -> None:
    """Tables into the page, figures into the folder; without the page, tables to stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images")
    given = parser.parse_args()
    if not given.json.exists():
        sys.exit(f"{given.json.name} is not there: run python -m benchmarks.peers first")
    content = json.loads(given.json.read_text())
    if given.page.exists():
        given.page.write_text(replaced(given.page.read_text(), content))
    else:
        marked = "\n\n".join(f"<!-- bench:{name} -->\n<!-- /bench -->" for name in TABLES)
        print(replaced(marked, content))
    from benchmarks.peers import figures  # matplotlib is wanted for these alone

    figures.draw(content, given.images)


if __name__ == "__main__":
    main()
