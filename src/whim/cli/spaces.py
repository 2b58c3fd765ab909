"""``whim spaces``: the spaces of a running service."""

from __future__ import annotations

import json
import time
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whim.cli.options import Json
from whim.cli.refusals import in_words
from whim.errors import InvalidInputError, WhimError

if TYPE_CHECKING:
    from whim.client import Client, SpaceConfig, SpaceInfo

spaces = typer.Typer(
    help="List, show, make, change and retire the spaces of a running service.",
    no_args_is_help=True,
)
_URL = "http://127.0.0.1:8126"
_Name = Annotated[str, typer.Argument(help="The space's name.")]
_Url = Annotated[str, typer.Option(metavar="URL", help="Where the service listens.")]
_Key = Annotated[
    str | None,
    typer.Option(envvar="WHIM_KEY", help="An API key; better in the environment than here."),
]
_Policy = Annotated[
    str | None, typer.Option(metavar="SPEC", help="NAME[:param=value,...]; see whim policies.")
]
_Param = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A parameter of the policy; may be repeated."),
]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Another field: explore=0.1, rewards.wait_seconds=60."
    ),
]
_File = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="The configuration, as .json or .toml."),
]

_Features = Annotated[
    str | None,
    typer.Option(metavar="LOG", help="Encode contexts as this log was, or as a JSON file says."),
]

_COMPILING = 300.0  # seconds to wait where the service may have to compile a new policy first


def _client(url: str, key: str | None, timeout: float = 30.0, retries: int = 1) -> Client:
    from whim.cli.serve import needed

    needed()
    from whim.client import Client

    return Client(url, key or "", timeout=timeout, retries=retries)


@spaces.command("list")
def list_(url: _Url = _URL, key: _Key = None, as_json: Json = False) -> None:
    """List the spaces."""
    from whim.cli.show import compact, print_json, print_table

    with _client(url, key) as client:
        infos = client.spaces()
    if as_json:
        print_json({"spaces": [_plain(info) for info in infos]})
    elif not infos:
        typer.echo("no spaces: whim spaces create NAME makes one")
    else:
        cells = [
            [s.name, s.config.policy, _state(s), compact(s.arms), compact(s.steps),
             compact(s.waiting)]
            for s in infos
        ]  # fmt: skip
        print_table(("space", "policy", "state", "arms", "learnt", "waiting"), cells, left=3)


@spaces.command()
def show(name: _Name, url: _Url = _URL, key: _Key = None, as_json: Json = False) -> None:
    """Show a space: its configuration and its counts."""
    from whim.cli.show import print_json

    with _client(url, key) as client:
        info, stats = client.space(name), client.stats(space=name)
    if as_json:
        print_json({**_plain(info), "stats": stats})
        return
    config = _plain(info)["config"]
    typer.echo(f"{info.name}: version {info.version}, {_state(info)}")
    if info.failed:
        typer.echo(f"version {info.wanted} could not be built: {info.failed}")
    typer.echo(f"{info.arms:,} arms, {info.steps:,} rewards learnt, {info.waiting:,} waiting")
    _say_skipped(info)
    for field, value in config.items():
        shown = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
        typer.echo(f"  {field:<10} {shown}")
    for what, count in stats["counts"].items():
        typer.echo(f"  {what:<22} {count:>10,}")


@spaces.command()
def create(
    name: _Name,
    policy: _Policy = None,
    param: _Param = None,
    set_: _Set = None,
    file: _File = None,
    features: _Features = None,
    url: _Url = _URL,
    key: _Key = None,
    as_json: Json = False,
) -> None:
    """Make a space."""
    from whim.cli.show import print_json

    _check_name(name)
    base = {} if file is None else _read(file)
    if features is not None:
        from whim.features import load

        base |= {"context": load(features).config()}
    with _client(url, key, _COMPILING) as client:
        config = _laid(base, policy, param, set_)
        info = client.create(name, config)
    if as_json:
        print_json(_plain(info))
    else:
        typer.echo(f"{name} is made: {info.config.policy}")


@spaces.command()
def change(
    name: _Name,
    policy: _Policy = None,
    param: _Param = None,
    set_: _Set = None,
    file: _File = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the new version serves.")
    ] = False,
    url: _Url = _URL,
    key: _Key = None,
    as_json: Json = False,
) -> None:
    """Change the given fields of a space, or with --file all of its configuration.

    It is rebuilt from its log under the new configuration, and until then the old one serves.
    """
    from whim.cli.show import print_json

    if not (policy or param or set_ or file):
        raise InvalidInputError(
            "change must name what to change: --policy, --param, --set, --file."
        )
    with _client(url, key, _COMPILING) as client:
        base = _read(file) if file is not None else _plain(client.space(name))["config"]
        version = client.change(name, _laid(base, policy, param, set_))
        serves = _waited(client, name, version) if wait else None
    if as_json:
        print_json({"name": name, "version": version, "rebuilding": serves is None})
    else:
        state = "serves" if serves else "is being built; the old one serves until then"
        typer.echo(f"{name}: version {version} {state}")
    if serves is not None:
        _say_skipped(serves)


@spaces.command()
def learn(
    name: _Name,
    file: Annotated[Path, typer.Argument(help="A CSV or Parquet file, oldest row first.")],
    arm: Annotated[str, typer.Option(metavar="COLUMN", help="The arm shown.")],
    reward: Annotated[str, typer.Option(metavar="COLUMN", help="Its reward.")],
    id_: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="The row's id. Default: a hash of the row."),
    ] = None,
    url: _Url = _URL,
    key: _Key = None,
    as_json: Json = False,
) -> None:
    """Import past decisions and rewards from a table into a space in shadow mode.

    Contexts are the columns that the space's fields name. A row that was sent before is not
    learnt again.
    """
    from whim.cli.learning import Columns, check
    from whim.cli.learning import learn as send
    from whim.cli.progress import bar
    from whim.cli.show import print_json

    named = Columns(arm, reward, id_)
    odd = check(file, named)
    for line in odd:
        typer.echo(f"WARNING: {line}", err=True)
    size = file.stat().st_size if file.is_file() else 0
    with _client(url, key, retries=5) as client, bar("rows", size, in_bytes=True) as show:
        done = [0]

        def progress(more: int) -> None:
            done[0] += more
            show(done[0])

        found = send(client, name, file, named, progress)
    counts = {"rewards": found.states, "dropped": found.dropped, "noticed": found.noticed}
    if as_json:
        print_json({"name": name, **counts, "warnings": odd})
        return
    for what, some in counts.items():
        said = ", ".join(f"{count:,} {why}" for why, count in some.items())
        if said:
            typer.echo(f"{what:<8} {said}")
    if late := found.states["late"]:
        typer.echo(
            f"{late:,} rows were not learnt now, for their decisions are closed: an earlier run "
            "has learnt them, or the default for those whose reward it did not send in time.",
            err=True,
        )
    typer.echo(f"to let it decide: whim spaces change {name} --set shadow=false --wait")


@spaces.command()
def retire(
    name: _Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    url: _Url = _URL,
    key: _Key = None,
) -> None:
    """Retire a space; its log stays."""
    if not yes:
        typer.confirm(f"Retire {name}? It will no longer serve", abort=True, err=True)
    with _client(url, key) as client:
        client.retire(name)
    typer.echo(f"{name} is retired")


def _check_name(name: str) -> None:
    """Refuse in words what the service would refuse as text that fits no pattern."""
    from whim.cli.serve import needed

    needed()
    import msgspec

    from whim.serve.wire import Name

    try:
        msgspec.convert(name, Name)
    except msgspec.ValidationError:
        raise InvalidInputError(
            "name must be 1 to 64 letters (a to z), digits, points, underscores and hyphens, the "
            f"first one a letter or digit, got {name!r}."
        ) from None


def _waited(client: Client, name: str, version: int) -> SpaceInfo:
    while True:
        info = client.space(name)
        if info.version >= version:
            return info
        if not info.rebuilding:
            why = info.failed or "another change came."
            raise WhimError(f"{name} could not be rebuilt as version {version}: {why}")
        time.sleep(0.1)


def _say_skipped(info: SpaceInfo) -> None:
    if info.skipped:
        typer.echo(
            f"{info.skipped:,} logged decisions are not learnt: they do not fit this "
            "configuration, or their arm was retired while they waited.",
            err=True,
        )


def _state(info: SpaceInfo) -> str:
    shadow = ", shadow" if info.config.shadow else ""
    failed = ", not rebuilt" if info.failed else ""
    return ("rebuilding" if info.rebuilding else "serves") + failed + shadow


def _plain(info: SpaceInfo) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(info)
    return plain


def _laid(
    base: dict[str, Any], policy: str | None, param: list[str] | None, set_: list[str] | None
) -> SpaceConfig:
    """A configuration with what the command line says laid over it."""
    import msgspec

    from whim.cli import specs
    from whim.client import SpaceConfig

    config = dict(base)
    if policy is not None:
        spec = specs.parse_policy(policy)
        config |= {"policy": spec.name, "params": spec.params}
    if param:
        config["params"] = {**config.get("params", {}), **specs.settings("param", param)}
    for name, value in specs.settings("set", set_ or []).items():
        *outer, last = name.split(".")
        place = config
        for part in outer:
            inner = place.get(part, {})
            if not isinstance(inner, dict):
                raise InvalidInputError(f"set must name a field, got {name!r}.")
            place[part] = place = dict(inner)
        place[last] = value
    try:
        return msgspec.convert(config, SpaceConfig)
    except msgspec.ValidationError as error:
        known = SpaceConfig.__struct_fields__
        raise InvalidInputError(in_words(str(error), config, known)) from None


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text()
        content = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise InvalidInputError(
            f"file must be one that can be read, got {str(file)!r}: {error.strerror}."
        ) from None
    except ValueError as error:  # of either format, or no text at all
        raise InvalidInputError(f"file must be JSON or TOML, got {file.name}: {error}.") from None
    if not isinstance(content, dict):
        raise InvalidInputError(f"file must hold an object, got {type(content).__name__}.")
    return content
