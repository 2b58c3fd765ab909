"""``convert``: any source that Whim can read into a log, by the name of its format."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from whim.checks import choice
from whim.errors import InvalidInputError, LogFileError
from whim.logs import yahoo
from whim.logs.columns import Log
from whim.logs.sources import Source, files_of, names_in

FORMATS = ("r6a", "r6b", "lastfm", "movielens", "open-bandit", "dsjson", "csv", "parquet", "npz")
_MODULES = {
    "r6a": "yahoo", "r6b": "yahoo", "lastfm": "lastfm", "movielens": "movielens",
    "open-bandit": "open_bandit", "dsjson": "dsjson", "npz": "labelled",
}  # fmt: skip
_TABLES = ("csv", "parquet")


def convert(
    sources: Source | Sequence[Source], path: Source, *, format: str | None = None, **options: Any
) -> Log:
    r"""Read files or a folder into the log ``path``, and open it.

    Parameters
    ----------
    sources
        Files or folders; formats other than R6A, R6B and dsjson take one.
    format
        One of ``FORMATS``; ``None`` finds out from names and first lines (``format_of``).
    options
        What the reader takes: ``overwrite`` and ``progress`` always; see ``yahoo.convert``,
        ``lastfm.convert``, ``movielens.convert``, ``open_bandit.convert``,
        ``dsjson.convert``, ``tables.convert`` (with ``label``: ``labelled.convert_table``) and
        ``labelled.convert``.

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
    kind = format_of(several) if format is None else choice("format", format, FORMATS)
    reader, takes_many = _reader(kind, labelled="label" in options)
    if "format" in inspect.signature(reader).parameters:
        options = options | {"format": kind}
    _check_options(kind, reader, options)
    if takes_many:
        return reader(several, path, **options)
    if len(several) != 1:
        raise InvalidInputError(f"sources must be one for format {kind}, got {len(several)}.")
    return reader(several[0], path, **options)


def _reader(kind: str, *, labelled: bool) -> tuple[Callable[..., Log], bool]:
    """The function that reads a format, and whether it takes several sources."""
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
        if parameter.kind is parameter.KEYWORD_ONLY
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
    first = Path(sources[0]) if sources else Path()
    if len(sources) == 1:
        inside = set(names_in(first)) if first.is_dir() else set()
        if {"ratings.csv", "movies.csv"} <= inside:
            return "movielens"
        if "user_artists.dat" in inside:
            return "lastfm"
        if "item_context.csv" in inside or (
            first.suffix == ".csv" and (first.parent / "item_context.csv").is_file()
        ):
            return "open-bandit"
        if first.suffix in (".parquet", ".pq", ".npz"):
            return "npz" if first.suffix == ".npz" else "parquet"
        if first.suffix == ".csv" or first.name.endswith(".csv.gz"):
            return "csv"
    if first.name.removesuffix(".gz").endswith((".dsjson", ".json", ".jsonl")):
        return "dsjson"
    try:
        return yahoo.detect(files_of(sources))
    except LogFileError as error:
        if "does not look like" not in str(error):
            raise
        raise LogFileError(
            f"{first}: format not recognised; name one of {', '.join(FORMATS)}."
        ) from None
