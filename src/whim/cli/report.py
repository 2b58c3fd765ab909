"""``whim report``: one HTML page from a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the results are.")],
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page. Default: DIR/report.html.")
    ] = None,
    date: Annotated[str, typer.Option(help="Shown below the title, as given.")] = "",
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Make one self-contained HTML page from the results in a folder.

    Results come from 'whim paper', 'whim simulate --save' and 'whim replay --save'. The same
    results give the same page, byte for byte.
    """
    from whim.report import read_folder, write_report

    page = write_report(read_folder(folder), to or folder / "report.html", date=date)
    typer.echo(str(page))
    if open_it:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
