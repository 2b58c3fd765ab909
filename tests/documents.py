"""The Python of a document, executed as a reader would: block after block, in one namespace.

Nothing but the standard library is imported, so that it also runs where only the wheel is
installed: ``python tests/documents.py README.md docs/howto/csv.md``.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import sys
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def run_blocks(path: Path) -> int:
    """Execute the Python blocks of a page; a block of text after one is what it must print."""
    blocks = BLOCK.findall(path.read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    done = 0
    for (kind, source), (next_kind, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=False):
        if kind != "python" or source.lstrip().startswith(">>>"):
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, str(path), "exec"), names)
        if next_kind == "text" and printed.getvalue() != shown:
            raise AssertionError(f"{path.name} shows\n{shown}\nbut prints\n{printed.getvalue()}")
        done += 1
    return done


def run_sessions(path: Path) -> int:
    """Execute the sessions (``>>>``) of a page; each must print what it shows."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed, tried = doctest.testfile(str(path), module_relative=False, optionflags=flags)
    if failed:
        raise AssertionError(f"{path.name}: {failed} of {tried} lines of sessions fail")
    return tried


def main() -> None:
    """Execute the pages that are named, in the folder of now."""
    for name in sys.argv[1:]:
        blocks, lines = run_blocks(Path(name)), run_sessions(Path(name))
        sessions = f" and {lines} lines of sessions" if lines else ""
        sys.stdout.write(f"{Path(name).name}: {blocks} blocks{sessions}\n")


if __name__ == "__main__":
    main()
