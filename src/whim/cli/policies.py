"""``whim policies``: the registered policies and their parameters."""

from __future__ import annotations

import inspect
import json

import typer

from whim.cli.options import Json


def policies(as_json: Json = False) -> None:
    """List the policies, what each is and the parameters that it takes."""
    from whim.policies import POLICIES

    rows = [
        {
            "name": name,
            "class": cls.__name__,
            "what": (inspect.getdoc(cls) or "").splitlines()[0],
            "parameters": {
                p.name: None if p.default is p.empty else p.default
                for p in inspect.signature(cls).parameters.values()
            },
        }
        for name, cls in sorted(POLICIES.items())
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        typer.echo(f"{row['name']}  ({row['class']})\n    {row['what']}")
