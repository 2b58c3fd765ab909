"""``convert``: any source that Whim can read into a log, by the name of its format."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whim.checks import choice
from whim.errors import InvalidInputError, LogFileError
from whim.logs import yahoo
from whim.logs.columns import Log
from whim.logs.remote import expand, fetched_all, is_address, is_pattern
from whim.logs.sources import Source, files_of, names_in

if TYPE_CHECKING:
    from whim.logs.parts import Spread

FORMATS = ("r6a", "r6b", "lastfm", "movielens", "open-bandit", "dsjson", "csv", "parquet", "npz")
_MODULES = {
    "r6a": "yahoo", "r6b": "yahoo", "lastfm": "lastfm", "movielens": "movielens",
    "open-bandit": "open_bandit", "dsjson": "dsjson", "npz": "labelled",
}  # fmt: skip
_TABLES = ("csv", "parquet")


def convert(
    sources: Source | Sequence[Source],
    path: Source,
    *,
    format: str | None = None,
    spread: Spread | None = None,
    **options: Any,
) -> Log:
    r"""Read files, a folder or addresses into the log ``path``, and open it.

    Parameters
    ----------
    sources
        Files, folders, patterns (``"day-*.csv"``) and addresses that fsspec knows
        (``"s3://bucket/day=*/*.parquet"``); LastFM, MovieLens, Open Bandit and npz take one. CSV
        and Parquet files, if there are several, and files of a store are converted part by part:
        an interrupted call goes on with the parts in the folder ``path + ".parts"``.
    format
        One of ``FORMATS``; ``None`` finds out from names and first lines (``format_of``).
    spread
        Converts parts at once: ``functools.partial(whim.evaluate.spread, jobs=4)``.
    options
        What the reader takes: ``overwrite`` and ``progress`` always; see ``yahoo.convert``,
        ``lastfm.convert``, ``movielens.convert``, ``open_bandit.convert``,
        ``dsjson.convert``, ``tables.convert`` (with ``label``: ``labelled.convert_table``;
        with ``list``: ``list_tables.convert``) and ``labelled.convert``.

    Examples
    --------
    >>> import pathlib, tempfile, whim.logs
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> text = "age,shown,click\n0.3,a,1\n0.7,b,0\n"
    >>> _ = (folder / "visits.csv").write_text(text)
    >>> log = whim.logs.convert(folder / "visits.csv", folder / "visits.whim", arm="shown",
    ...                         reward="click", context=["age"])
    >>> log.n_events, log.arms
    (2, ['a', 'b'])
    """
    several = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    if is_address(path):
        raise InvalidInputError(
            f"path must be a folder of this machine, got {path}: copy the log there afterwards."
        )
    kind = format_of(several) if format is None else choice("format", format, FORMATS)
    lists = "list" in options and kind in _TABLES
    reader, takes_many = _reader(kind, labelled="label" in options, lists=lists)
    if "format" in inspect.signature(reader).parameters:
        options = options | {"format": kind}
    _check_options(kind, reader, options)
    if lists and in_parts(several, kind):
        raise InvalidInputError("list must come with one file of this machine, got several.")
    if in_parts(several, kind):
        shared = {name: options.pop(name) for name in ("overwrite", "progress") if name in options}
        named = (reader.__module__.rpartition(".")[2], reader.__name__)
        parts = importlib.import_module("whim.logs.parts")
        log: Log = parts.convert_parts(
            expand(several), path, reader=named, options=options, spread=spread, **shared
        )
        return log
    with contextlib.ExitStack() as copies:
        if any(is_address(source) for source in several):
            several = copies.enter_context(fetched_all(several))
        if is_address(options.get("items")):
            (options["items"],) = copies.enter_context(fetched_all([options["items"]]))
        if takes_many:
            return reader(several, path, **options)
        if len(several) != 1:
            raise InvalidInputError(f"sources must be one for format {kind}, got {len(several)}.")
        return reader(several[0], path, **options)


def in_parts(sources: Sequence[Source], kind: str) -> bool:
    """Whether each file is converted by itself, and the parts then merged.

    >>> in_parts(["a.csv"], "csv"), in_parts(["a.csv", "b.csv"], "csv")
    (False, True)
    """
    far = any(is_address(source) for source in sources)
    if kind in _TABLES:
        several = len(sources) > 1 or any(is_pattern(source) for source in sources)
        return far or several or any(Path(source).is_dir() for source in sources)
    return far and _MODULES.get(kind) == "yahoo"


def _reader(kind: str, *, labelled: bool, lists: bool) -> tuple[Callable[..., Log], bool]:
    """The function that reads a format, and whether it takes several sources."""
    if lists:
        return importlib.import_module("whim.logs.list_tables").convert, False
    if labelled and kind in _TABLES:
        return importlib.import_module("whim.logs.labelled").convert_table, False
    module = _MODULES.get(kind, "tables")  # imported when needed: most want extras
    convert = importlib.import_module(f"whim.logs.{module}").convert
    return convert, module in ("yahoo", "dsjson")


def _check_options(kind: str, reader: Callable[..., Log], options: dict[str, Any]) -> None:
    """A wrong or missing option is said in Whim's words."""
    known = {
        name: parameter
        for name, parameter in inspect.signature(reader).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name[0] != "_"
    }
    table = kind in _TABLES
    for name in options:
        if name not in known:
            labelled = " with label" if table and "label" in options else ""
            raise InvalidInputError(f"{name} is no option of format {kind}{labelled}.")
    needed = [name for name, parameter in known.items() if parameter.default is parameter.empty]
    missing = [name for name in needed if name not in options]
    if missing:
        instead = ", or label" if table else ""
        raise InvalidInputError(f"format {kind} needs {', '.join(missing)}{instead}.")


def format_of(sources: Sequence[Source]) -> str:
    """The format of a source, by the names of its files and, for Yahoo's, its first line."""
    source = sources[0] if sources else ""
    if is_address(source) or is_pattern(source):
        name = expand([source])[0].name
        found = _by_name(name)
        if found is None:
            raise LogFileError(f"{name}: format not recognised; name one of {', '.join(FORMATS)}.")
        return found
    first = Path(source)
    inside = names_in(first) if first.is_dir() else []
    if len(sources) == 1:
        if {"ratings.csv", "movies.csv"} <= set(inside):
            return "movielens"
        if "user_artists.dat" in inside:
            return "lastfm"
        if "item_context.csv" in inside or (
            first.suffix == ".csv" and (first.parent / "item_context.csv").is_file()
        ):
            return "open-bandit"
    found = _by_name(next((name for name in inside if name[0] not in "._"), first.name))
    if found is not None:
        return found
    try:
        return yahoo.detect(files_of(sources))
    except LogFileError as error:
        if "does not look like" not in str(error):
            raise
        raise LogFileError(
            f"{first}: format not recognised; name one of {', '.join(FORMATS)}."
        ) from None


def _by_name(name: str) -> str | None:
    """The format that the name of a file says, if it says one."""
    if name.endswith((".parquet", ".pq", ".npz")):
        return "npz" if name.endswith(".npz") else "parquet"
    if name.endswith((".csv", ".csv.gz")):
        return "csv"
    if name.removesuffix(".gz").endswith((".dsjson", ".json", ".jsonl")):
        return "dsjson"
    return None
