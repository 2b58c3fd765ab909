"""``whim schema``: the statements that make Whim's tables in PostgreSQL, for others to run."""

from __future__ import annotations

from typing import Annotated

import typer

from whim.errors import InvalidInputError
from whim.extras import require_all


def schema(
    shards: Annotated[
        int, typer.Option(min=1, max=4096, help="How many parts the log has; more can be added.")
    ] = 1,
    before: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="FORMAT", help="Print the migration from this older format."
        ),
    ] = None,
) -> None:
    """Print the SQL that makes the tables of a shared log, for a database that others look after.

    Where it may make tables, `whim serve --store` does it by itself.
    """
    require_all("postgres", "The tables of PostgreSQL need")
    from whim.serve.postgres.schema import FORMAT, OLDEST, migration, text

    if before is None:
        typer.echo(text(shards), nl=False)
    elif OLDEST <= before < FORMAT:
        typer.echo(f"BEGIN;\n{migration(before)}COMMIT;")
    else:
        older = ", ".join(map(str, range(OLDEST, FORMAT)))
        raise InvalidInputError(f"--from must be an older format, {older}, got {before}.")
