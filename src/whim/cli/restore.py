"""``whim restore``: a data directory made from a backup, which is checked first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whim.cli.options import DATA, DataDir, Json


def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="What whim backup made.")],
    data: DataDir = DATA,
    as_json: Json = False,
) -> None:
    """Make a data directory from a backup, to start a service with.

    Files are compared with their digests, and every row of the log with its checksum. Nothing is
    replaced: the directory must have no files of a service.
    """
    from whim.cli.progress import bar
    from whim.cli.serve import needed
    from whim.cli.show import print_json

    needed()
    import msgspec

    from whim.serve.backup import restore as fetch

    with bar("checking", 100) as advance:
        made = fetch(backup, data, lambda share: advance(int(100 * share)))
    if as_json:
        print_json(msgspec.to_builtins(made))
        return
    typer.echo(f"{data}: {', '.join(sorted(made.files))}; {made.rows:,} rows, of {made.made}")
