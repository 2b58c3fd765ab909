"""``whim move``: a log from a data directory to PostgreSQL, or back."""

from __future__ import annotations

from typing import Annotated

import typer

from whim.cli.options import Json
from whim.extras import require_all


def move(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="A data directory, or postgresql://…")
    ],
    target: Annotated[str, typer.Argument(metavar="TO", help="The other of the two.")],
    as_json: Json = False,
) -> None:
    """Move the log, the keys and the webhook cursors from a directory to PostgreSQL, or back.

    No service may run on either side. Rows keep their numbers, times and keys; both places are
    compared, row by row and by the state of every space, before the old one is closed: a service
    does not start there any more, and says where its log has gone. An interrupted move changes
    nothing at the old place, and can be run again.
    """
    from whim.cli.progress import stages
    from whim.cli.serve import needed
    from whim.cli.show import print_json, print_table

    needed()
    require_all("postgres", "Moving a log to or from PostgreSQL needs")
    from whim.serve.move import is_store, move
    from whim.serve.postgres.moving import shown

    with stages() as showing:
        done = move(source, target, showing.stage)
    places = [shown(place) if is_store(place) else place for place in (source, target)]
    if as_json:
        print_json({"from": places[0], "to": places[1], "rows": done.rows, "digests": done.digests})
        return
    typer.echo(f"{places[0]} -> {places[1]}: {done.rows:,} rows; the states are the same:")
    print_table(("space", "digest"), [[n, d[:16]] for n, d in sorted(done.digests.items())], left=2)
