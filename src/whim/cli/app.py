"""The ``whim`` command and its verbs."""

from __future__ import annotations

from typing import Annotated

import typer

from whim.cli import (
    convert,
    demo,
    doctor,
    export,
    keys,
    log,
    paper,
    policies,
    rebuild,
    replay,
    report,
    serve,
    simulate,
    spaces,
    sweep,
    warm,
)

app = typer.Typer(
    name="whim",
    help="Recommendations for people who change their minds.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("paper")(paper.paper)
app.command("simulate")(simulate.simulate)
app.command("convert")(convert.convert)
app.command("log")(log.log)
app.command("replay")(replay.replay)
app.command("sweep")(sweep.sweep)
app.command("report")(report.report)
app.command("policies")(policies.policies)
app.command("warm")(warm.warm)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("serve")(serve.serve)
app.command("export")(export.export)
app.add_typer(spaces.spaces, name="spaces")
app.add_typer(keys.keys, name="keys")
app.command("rebuild")(rebuild.rebuild)


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
