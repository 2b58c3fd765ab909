"""The ``whim`` command and its verbs."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

# each has a module with a function, or a group of verbs, of its name; in the order of the help
_VERBS = (
    "paper", "simulate", "convert", "log", "replay", "sweep", "report", "policies", "warm",
    "doctor", "demo", "serve", "export", "rebuild", "backup", "restore", "move", "schema",
)  # fmt: skip
_GROUPS = ("spaces", "keys")

app = typer.Typer(
    name="whim", help="Recommendations for people who change their minds.", no_args_is_help=True,
    add_completion=False, pretty_exceptions_enable=False,
)  # fmt: skip
for _name in _VERBS:
    app.command(_name)(getattr(import_module(f"whim.cli.{_name}"), _name))
for _name in _GROUPS:
    app.add_typer(getattr(import_module(f"whim.cli.{_name}"), _name), name=_name)


def _version(wanted: bool) -> None:
    if wanted:
        from whim import __version__

        typer.echo(f"whim {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Recommendations for people who change their minds."""
