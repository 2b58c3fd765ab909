"""``whim serve``: the service, until a signal ends it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whim.extras import require_all

if TYPE_CHECKING:
    from whim.serve.settings import Settings


def serve(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="whim.toml",
            envvar="WHIM_CONFIG",
            help="Settings; variables (WHIM_PORT for port, ...) and options override them.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where everything is kept; default whim-data."),
    ] = None,
    store: Annotated[
        list[str] | None,
        typer.Option(
            metavar="postgresql://…",
            help="A log that replicas share; --data then keeps this replica's copy of it. "
            "Repeated: other databases with shards of it (more_stores).",
        ),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(help="How many shards each database has at least; default: as it has, or 1."),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; any but this machine's needs keys.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Default 8126; 0 for any free one.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json.")] = None,
) -> None:
    """Serve decisions and rewards over HTTP, and the dashboard that shows interests changing.

    Without settings it listens on this machine only, and has a space named demo to try.
    """
    needed()
    from whim.serve.server import run
    from whim.serve.settings import load

    settings = load(
        config, environment=os.environ, data=data, store=store[0] if store else None,
        more_stores=(store or [])[1:] or None, shards=shards, host=host, port=port,
        log_format=log_format,
    )  # fmt: skip
    try:
        code = run(settings, ready=lambda address: _started(address, settings))
    except KeyboardInterrupt:  # after a shutdown in good order
        code = 0
    if code == 0:
        typer.echo("stopped; all that was accepted is in the log", err=True)
    raise typer.Exit(code)


def _started(address: str, settings: Settings) -> None:
    typer.echo(
        f"whim serves at {address}\n"
        f"dashboard        {address}/\n"
        f"data in          {Path(settings.data).resolve()}\n"
        "stop with Ctrl-C"
    )


def needed() -> None:
    """Refuse, with what to install, where the service's packages are missing."""
    require_all("serve", "The service needs")
