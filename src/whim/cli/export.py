"""``whim export``: a space's decisions and rewards, as a file for other tools."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from whim.cli.options import DATA, DataDir, Json


def export(
    space: Annotated[str, typer.Option("--space", help="The space to export.")],
    out: Annotated[Path, typer.Option("--out", help="The file to make; a folder for a log.")],
    data: DataDir = DATA,
    format: Annotated[
        str,
        typer.Option(
            "--format", help="parquet: all decisions; log: what whim replay reads; dsjson: VW's."
        ),
    ] = "parquet",
    since: Annotated[
        str | None, typer.Option(help="Decisions from this time on, such as 2026-01-31T12:00Z.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Decisions before this time.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is there already.")] = False,
    as_json: Json = False,
) -> None:
    """Write a space's decisions and their rewards to a file; the service may be running.

    If anything goes wrong, no incomplete file is left behind.
    """
    from whim.cli.progress import bar
    from whim.cli.serve import needed

    needed()
    from whim.serve.jobs.export import export as write

    low, high = _time("--since", since), _time("--until", until)
    with bar(out.name, 100) as advance:
        done = write(
            data, space, out, format=format, since=low, until=high, overwrite=force,
            progress=lambda share: advance(int(100 * share)),
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(done, indent=2, ensure_ascii=False))
        return
    typer.echo(f"{done['out']}: {done['rows']:,} decisions of {space} as {done['format']}")
    for reason, count in done["left_out"].items():
        typer.echo(f"  {count:>9,}  left out: {reason}")


def _time(name: str, text: str | None) -> int | None:
    """Microseconds since 1970 of a date or a time; UTC unless it says otherwise."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{name} takes a date or a time, got {text!r}") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
