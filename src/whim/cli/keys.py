"""``whim keys``: API keys of a data directory; no running service is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whim.cli.options import DATA, DataDir, Json

if TYPE_CHECKING:
    from whim.serve.http.keys import Keys

keys = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)


def _open(data: Path, *, new: bool = False) -> Keys:
    from whim.cli.serve import needed
    from whim.errors import InvalidInputError

    needed()
    if not new and not data.is_dir():
        raise InvalidInputError(f"data must be a directory that exists, got {str(data)!r}.")
    from whim.serve.http.keys import Keys

    return Keys(data / "keys.json")


@keys.command()
def make(
    name: Annotated[str, typer.Argument(help="A name for the key, such as shop-backend.")],
    scope: Annotated[
        list[str],
        typer.Option(help="decide, reward, read or admin (all of these); may be repeated."),
    ],
    data: DataDir = DATA,
) -> None:
    """Make a key and print its token, which is shown only once.

    Once there is a key, the service requires one everywhere. A running service accepts a new key
    within a second or two.
    """
    typer.echo(_open(data, new=True).make(name, scope))
    typer.echo(f"{name}: {', '.join(scope)}. The token is not kept: store it now.", err=True)


@keys.command("list")
def list_(data: DataDir = DATA, as_json: Json = False) -> None:
    """List the keys, without their tokens."""
    from whim.cli.show import print_json, print_table

    listed = _open(data).list()
    if as_json:
        import msgspec

        print_json({"keys": msgspec.to_builtins(listed)})
    elif not listed:
        typer.echo("no keys: the service is open to this machine, and to no other")
    else:
        cells = [
            [k.name, ", ".join(k.scopes), k.made[:16], "revoked" if k.revoked else "active"]
            for k in listed
        ]
        print_table(("key", "scopes", "made", "state"), cells, left=4)


@keys.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The key's name.")], data: DataDir = DATA
) -> None:
    """Revoke a key; a running service refuses it within a second or two."""
    _open(data).revoke(name)
    typer.echo(f"{name} is revoked")
