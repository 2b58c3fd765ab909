"""``whim backup``: a consistent copy of a data directory, while the service runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whim.cli.options import DATA, DataDir, Json


def backup(
    to: Annotated[Path, typer.Argument(metavar="TO", help="The directory to make.")],
    data: DataDir = DATA,
    as_json: Json = False,
) -> None:
    """Copy the log, snapshots, keys and webhook cursors; the service may be running.

    The copy is that of one moment: the log up to some row, and nothing that is ahead of it. It is
    checked, row by row, before it gets its name; if anything goes wrong nothing is left behind.
    """
    from whim.cli.progress import bar
    from whim.cli.serve import needed
    from whim.cli.show import print_json

    needed()
    import msgspec

    from whim.serve.backup import backup as copy

    with bar("checking", 100) as advance:
        made = copy(data, to, lambda share: advance(int(100 * share)))
    if as_json:
        print_json(msgspec.to_builtins(made))
        return
    size = sum(file.bytes for file in made.files.values())
    typer.echo(f"{to}: {', '.join(sorted(made.files))}; {made.rows:,} rows, {size / 1e6:,.1f} MB")
