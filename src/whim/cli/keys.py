"""``whim keys``: API keys of a directory or of a shared log; no running service is needed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whim.cli.options import DATA, DataDir, Json, Store
from whim.errors import InvalidInputError
from whim.extras import require_all

if TYPE_CHECKING:
    from whim.serve.http.keys import Keys

_NO_ADMIN = (
    "No key has the scope admin, for all spaces: from now on nobody can make or change spaces, and "
    "the dashboard is for keys with the scope read. To make one: whim keys make admin --scope admin"
)

keys = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)


@contextlib.contextmanager
def _opened(data: Path, store: str | None, *, new: bool = False) -> Iterator[Keys]:
    from whim.cli.serve import needed

    needed()
    from whim.serve.http.keys import Keys
    from whim.serve.log.origin import origin_of

    if store is not None:
        require_all("postgres", "Keys in PostgreSQL need")
        from whim.serve.http.shared_keys import StoreKeys
        from whim.serve.postgres.queries import Queries

        with contextlib.closing(Queries(store)) as documents:
            documents.open()
            if documents.ask("SELECT 1 FROM whim.meta WHERE name = 'home'"):
                raise InvalidInputError(
                    "store must be the first database of the log, which has its keys, got another "
                    "of its databases."
                )
            yield StoreKeys(documents)
        return
    if not new and not data.is_dir():
        raise InvalidInputError(f"data must be a directory that exists, got {str(data)!r}.")
    if origin_of(data) is not None:
        raise InvalidInputError(
            f"store must be given for a replica, whose keys are in the database it shares, got "
            f"its directory {str(data)!r} alone."
        )
    yield Keys(data / "keys.json")


@keys.command()
def make(
    name: Annotated[str, typer.Argument(help="A name for the key, such as shop-backend.")],
    scope: Annotated[
        list[str],
        typer.Option(help="decide, reward, read or admin (all of these); may be repeated."),
    ],
    space: Annotated[
        list[str] | None,
        typer.Option(help="Only for this space; may be repeated. Default: for all."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="DATE", help="The last day, or the time (UTC), that the key is valid."
        ),
    ] = None,
    data: DataDir = DATA,
    store: Store = None,
) -> None:
    """Make a key and print its token, which is shown only once.

    Once there is a key, the service requires one everywhere. A running service accepts a new key
    within a second or two; with --store, all replicas do.
    """
    with _opened(data, store, new=True) as held:
        typer.echo(held.make(name, scope, spaces=space or (), until=until))
        typer.echo(f"{name}: {', '.join(scope)}. The token is not kept: store it now.", err=True)
        if not _any_admin(held):
            typer.echo(_NO_ADMIN, err=True)


def _any_admin(held: Keys) -> bool:
    """Whether somebody can make spaces and see all of them."""
    now = time.time()
    return any(
        "admin" in key.scopes and not (key.spaces or key.revoked or key.ended(now))
        for key in held.list()
    )


@keys.command("list")
def list_(data: DataDir = DATA, store: Store = None, as_json: Json = False) -> None:
    """List the keys, without their tokens."""
    from whim.cli.show import print_json, print_table

    with _opened(data, store) as held:
        listed = held.list()
    if as_json:
        import msgspec

        print_json({"keys": msgspec.to_builtins(listed)})
    elif not listed:
        typer.echo("no keys: the service is open to this machine, and to no other")
    else:
        now = time.time()
        cells = [
            [
                k.name,
                ", ".join(k.scopes),
                ", ".join(k.spaces) or "all",
                k.made[:16],
                (k.until or "")[:16],
                "revoked" if k.revoked else "over" if k.ended(now) else "active",
            ]
            for k in listed
        ]
        print_table(("key", "scopes", "spaces", "made", "until", "state"), cells, left=6)


@keys.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The key's name.")],
    data: DataDir = DATA,
    store: Store = None,
) -> None:
    """Revoke a key; a running service refuses it within a second or two."""
    with _opened(data, store) as held:
        held.revoke(name)
    typer.echo(f"{name} is revoked")
