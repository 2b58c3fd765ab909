"""What the readers of tables share: files through polars, ids, numbers, features of items."""

from __future__ import annotations

import codecs
import contextlib
import csv
import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from whim.checks import LARGEST
from whim.errors import InvalidInputError, LogFileError
from whim.extras import require
from whim.types import F64, ArmId

if TYPE_CHECKING:
    import polars as pl


# of a reward in words
_WORDS = {"true": 1.0, "t": 1.0, "yes": 1.0, "y": 1.0, "false": 0.0, "f": 0.0, "no": 0.0, "n": 0.0}
ROLES = ("arm", "reward", "label", "time", "propensity", "prefix_propensity", "candidates", "list",
         "position")  # fmt: skip


class Items(NamedTuple):
    """Features of arms, from a file of their own."""

    features: dict[ArmId, F64]
    names: list[str]


def scan(file: Path, kind: str) -> pl.LazyFrame:
    """The file, unread; a CSV's columns as text, so that a bad cell costs its row only."""
    require("polars", "logs", "CSV and Parquet files need")
    import polars as pl

    if not file.is_file():
        raise LogFileError(f"{file}: there is no such file.")
    if kind == "parquet":
        return pl.scan_parquet(file, glob=False)
    guarded(file, lambda: _check_header(file))
    return pl.scan_csv(file, infer_schema=False, glob=False)


def _check_header(file: Path) -> None:
    """Refuse what polars would read as other names than those that stand there."""
    with file.open("rb") as opened:
        start = opened.read(2)
    if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raise LogFileError(f"{file} must be text in UTF-8, got UTF-16: save it as UTF-8.")
    names = next(_rows(file), [])
    twice = [name for name, n in Counter(names).items() if n > 1 and name]
    if twice:
        raise LogFileError(f"{file} must have columns of different names, got {twice} twice.")


def _rows(file: Path) -> Iterator[list[str]]:
    """The cells of a CSV, as far as it is one: a packed file has none."""
    with (
        contextlib.suppress(csv.Error, UnicodeDecodeError),
        file.open(encoding="utf-8-sig", newline="") as opened,
    ):
        yield from csv.reader(opened)


def columns_of(lazy: pl.LazyFrame, file: Path) -> list[str]:
    """The names of a file's columns."""
    return list(guarded(file, lambda: lazy.collect_schema().names()))


def guarded(file: Path, work: Callable[[], Any]) -> Any:
    """``work()``, with what polars says about a bad file as one line."""
    import polars as pl

    try:
        return work()
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        if first.startswith("found more fields than defined"):
            first = _too_long(file)
        raise LogFileError(f"{file} cannot be read: {first[:300]}.") from None


def roles_of(options: Mapping[str, Any]) -> dict[str, str]:
    """The columns that a reader's options name for something other than features, and for what.

    >>> roles_of({"arm": "shown", "reward": "click", "time": None, "context": ["age"]})
    {'shown': 'arm', 'click': 'reward'}
    """
    return {options[role]: role for role in ROLES if options.get(role) is not None}


def _too_long(file: Path) -> str:
    """The first row of a CSV that has more cells than there are columns, in words."""
    rows = _rows(file)
    columns = len(next(rows, []))
    row, n = next(((i, len(r)) for i, r in enumerate(rows, 1) if len(r) > columns), ("?", "more"))
    return f"row {row} must have {columns} cells, one for each column of the header, got {n}"


def matching(
    patterns: Sequence[str],
    columns: list[str],
    what: str,
    file: Path,
    roles: Mapping[str, str] | None = None,
) -> list[str]:
    """The columns that the names and patterns mean, in their order.

    Columns that have ``roles`` already are none of them: a feature that is the reward would teach a
    policy what nobody knows beforehand. Patterns leave them out.
    """
    names: list[str] = []
    roles = roles or {}
    for pattern in patterns:
        if pattern in roles:
            raise InvalidInputError(
                f"{what} must not contain {pattern!r}, which is the {roles[pattern]}."
            )
        several = [pattern]
        if "*" in pattern:
            several = [name for name in fnmatch.filter(columns, pattern) if name not in roles]
        if not several or several[0] not in columns:
            raise LogFileError(
                f"{file} has no column {pattern!r} for {what}; it has {', '.join(columns[:20])}."
            )
        names += [name for name in several if name not in names]
    if not names:
        raise InvalidInputError(f"{what} must name at least one column, got none.")
    return names


def numbers(frame: pl.DataFrame, names: Sequence[str]) -> F64:
    """Columns as one matrix; what is no number becomes nan."""
    import polars as pl

    cells = [pl.col(name).cast(pl.Float64, strict=False) for name in names]
    return frame.select(cells).fill_null(np.nan).to_numpy().reshape(len(frame), len(names))


def rewards_of(name: str, kind: pl.DataType) -> pl.Expr:
    """The rewards of a column: numbers, or words for 1 and 0; null where there is neither."""
    import polars as pl

    if kind.is_numeric() or kind == pl.Boolean:
        number = pl.col(name).cast(pl.Float64)
    else:
        text = pl.col(name).cast(pl.String).str.strip_chars()
        words = text.str.to_lowercase().replace_strict(
            _WORDS, default=None, return_dtype=pl.Float64
        )
        number = pl.coalesce(text.cast(pl.Float64, strict=False), words)
    return pl.when(number.abs() <= LARGEST).then(number).alias(name)


def rewards(frame: pl.DataFrame, name: str) -> F64:
    """The same of a frame; nan where there is none."""
    found = frame.select(rewards_of(name, frame.schema[name])).to_series()
    return found.fill_null(np.nan).to_numpy()


def items_of(file: Path, item_id: str, patterns: list[str]) -> Items:
    """Features of arms from a file with a row for each; rows with gaps are left out."""
    kind = "parquet" if file.suffix.lower() in (".parquet", ".pq") else "csv"
    lazy = scan(file, kind)
    columns = columns_of(lazy, file)
    names = matching(patterns, columns, "item_features", file, {item_id: "item_id"})
    matching([item_id], columns, "item_id", file)
    frame = guarded(file, lambda: lazy.select([item_id, *names]).collect())
    rows = numbers(frame, names)
    fine = [bool((np.abs(row) <= LARGEST).all()) for row in rows]
    ids = [as_id(value) for value in frame[item_id].to_list()]
    if len(set(ids)) < len(ids):
        raise LogFileError(f"{file}: {item_id} must not hold an id twice.")
    kept = zip(ids, rows, fine, strict=True)
    return Items({arm: row for arm, row, good in kept if good and arm is not None}, names)


def as_id(value: Any) -> ArmId:
    """A cell as an arm's id: whole numbers are ints, whether or not they come as text."""
    if isinstance(value, str) and re.fullmatch(r"0|-?[1-9]\d{0,17}", value):
        return int(value)
    if value is None or (isinstance(value, (int, str)) and not isinstance(value, bool)):
        arm: ArmId = value
        return arm
    return str(value)
