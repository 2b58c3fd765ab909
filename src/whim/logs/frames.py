"""What the readers of tables share: files through polars, ids, numbers, features of items."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from whim.checks import LARGEST
from whim.errors import InvalidInputError, LogFileError
from whim.extras import require
from whim.types import F64, ArmId

if TYPE_CHECKING:
    import polars as pl


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
    return pl.scan_csv(file, infer_schema=False, glob=False)


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
        raise LogFileError(f"{file} cannot be read: {first[:300]}.") from None


def matching(patterns: Sequence[str], columns: list[str], what: str, file: Path) -> list[str]:
    """The columns that the names and patterns mean, in their order."""
    names: list[str] = []
    for pattern in patterns:
        several = fnmatch.filter(columns, pattern) if "*" in pattern else [pattern]
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


def items_of(file: Path, item_id: str, patterns: list[str]) -> Items:
    """Features of arms from a file with a row for each; rows with gaps are left out."""
    kind = "parquet" if file.suffix.lower() in (".parquet", ".pq") else "csv"
    lazy = scan(file, kind)
    columns = columns_of(lazy, file)
    names = matching(patterns, columns, "item_features", file)
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
