"""The ``whim`` command and its verbs."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

# each has a module with a function, or a group of verbs, of its name; in the order of the help
_VERBS = (
    "paper", "simulate", "convert", "log", "replay", "sweep", "report", "policies", "warm",
    "doctor", "demo", "serve", "export", "rebuild", "backup", "restore", "move", "schema",
)  # fmt: skip
_GROUPS = ("spaces", "keys")


class _Verbs(TyperGroup):
    """Says what came where an option's value was refused, which typer leaves out."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _with_what_came(error)
            raise


def _with_what_came(error: typer.BadParameter) -> str:
    """Its message; newer versions of typer keep the value in the error that was the cause."""
    told = getattr(error.__cause__, "errors", None)
    found: list[dict[str, Any]] = [] if told is None else told()
    if not found:
        return error.message
    must = found[0]["msg"].removeprefix("Input should ").partition(", unable")[0]
    return f"must {must}, got {found[0]['input']}"


app = typer.Typer(
    name="whim", cls=_Verbs, help="Recommendations for people who change their minds.",
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
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
