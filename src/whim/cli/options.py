"""Options that several verbs take, each with the same name and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Policies = Annotated[
    list[str] | None,
    typer.Option(metavar="SPEC", help="[LABEL=]NAME[:param=value,...]; may be repeated."),
]
WorldSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the world."),
]
Logging = Annotated[
    str | None,
    typer.Option(help="How arms were shown: uniform, propensity or full. Default: the log's own."),
]
Baseline = Annotated[
    str | None,
    typer.Option(metavar="LABEL", help="What others are compared with. Default: the first."),
]
Jobs = Annotated[int, typer.Option(help="Processes; -1 for one per core.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for a script to read.")]
SaveFolder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write the results there, for 'whim report DIR'."),
]
Plot = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw a figure (.svg, .png, .pdf).")
]
DataDir = Annotated[
    Path,
    typer.Option(metavar="DIR", envvar="WHIM_DATA", help="The service's data directory."),
]
DATA = Path("whim-data")  # its default
Store = Annotated[
    str | None,
    typer.Option(
        metavar="postgresql://…", envvar="WHIM_STORE",
        help="The log that replicas share, if that is where it is.",
    ),
]  # fmt: skip
Stores = Annotated[
    list[str] | None,
    typer.Option(
        "--store", metavar="postgresql://…", envvar="WHIM_STORE",
        help="The log that replicas share, if that is where it is; repeated for more databases.",
    ),
]  # fmt: skip
