"""``whim report``: one HTML page from a folder of findings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["report"]


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the findings are.")],
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; DIR/report.html if not said.")
    ] = None,
    date: Annotated[str, typer.Option(help="Shown below the title, as given.")] = "",
    open_it: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
) -> None:
    """Make one self-contained HTML page from the findings (*.json) of a folder.

    The same findings give the same page, byte for byte. Its path is printed.
    """
    from whim.report import read_folder, write_report

    page = write_report(read_folder(folder), to or folder / "report.html", date=date)
    typer.echo(str(page))
    if open_it:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
