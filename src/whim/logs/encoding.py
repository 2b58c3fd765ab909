"""Columns of a table into contexts: categories, scaled numbers, missing values, a constant.

What becomes of a column is found out from the first rows of all files, in their order: so the log
does not depend on how its rows are cut into files, nothing of the future is used, and a file of any
length is read once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whim.checks import LARGEST
from whim.errors import InvalidInputError
from whim.features import Features, Field, fit, load
from whim.features.features import as_text
from whim.logs.frames import columns_of, guarded, matching, numbers, scan
from whim.logs.sources import Source
from whim.types import F64

if TYPE_CHECKING:
    import polars as pl

FIT_ROWS = 100_000
NO_NUMBER = "cell that is no number taken as missing"
_MISSING = ("", "na", "n/a", "nan", "null")  # what stands for a missing value in text
_MOST = 0.9  # share of a column's cells that must be numbers

Cyclic = Mapping[str, float | None] | Sequence[str]


class Sample:
    """The first rows of one file after the other, and the features that are fitted to them."""

    def __init__(
        self, kind: str, context: Sequence[str], categories: Sequence[str], cyclic: Cyclic
    ) -> None:
        self._kind, self._asked = kind, list(context)
        self._categories, self._cyclic = list(categories), cyclic
        self._cells: dict[str, list[Any]] = {}
        self._rows = 0

    def add(self, file: Path) -> None:
        """Take rows of one more file."""
        lazy = scan(file, self._kind)
        names = matching(self._asked, columns_of(lazy, file), "context", file)
        if not self._cells:
            self._cells = {name: [] for name in names}
        wanted = lazy.select(list(self._cells)).head(FIT_ROWS - self._rows)
        frame = guarded(file, lambda: wanted.collect())
        for name, cells in self._cells.items():
            cells += _plain(frame[name])
        self._rows += len(frame)

    @property
    def full(self) -> bool:
        """Whether more rows would not be looked at."""
        return self._rows >= FIT_ROWS

    def found(self) -> tuple[list[str], Features]:
        """The columns that were meant, and what becomes of them."""
        columns = {
            name: cells if name in self._categories else _typed(cells)
            for name, cells in self._cells.items()
        }
        if not self._rows:
            columns = {name: [0.0] for name in columns}  # of a table without rows
        for name in [*self._categories, *self._cyclic]:
            if name not in columns:
                raise InvalidInputError(
                    f"categories and cyclic must be columns of the context "
                    f"({', '.join(columns)}), got {name!r}."
                )
        kinds = dict.fromkeys(self._categories, "choice")
        return list(columns), fit(columns, kinds=kinds, cyclic=self._cyclic)


class Encoding:
    """Batches of a table into vectors, as ``Features`` say; ``noticed`` counts odd cells."""

    def __init__(self, features: Features) -> None:
        self.features = features
        self.noticed: Counter[str] = Counter()

    @property
    def columns(self) -> list[str]:
        """The columns that are needed."""
        return [f.name for f in self.features.fields]

    def __call__(self, frame: pl.DataFrame) -> F64:
        cells = {f.name: self._cells(frame[f.name], f) for f in self.features.fields}
        return self.features._encoder.columns(cells, len(frame))

    def rows(self, frame: pl.DataFrame) -> list[dict[str, Any]]:
        """The same cells by name, None where one is missing: contexts as a space takes them."""
        cells = [list(self._cells(frame[f.name], f)) for f in self.features.fields]
        known = [[None if cell != cell else cell for cell in column] for column in cells]
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*known, strict=True)]

    def _cells(self, column: pl.Series, f: Field) -> Any:
        import polars as pl

        if f.kind in ("number", "cyclic"):
            if column.dtype == pl.String:
                column = column.str.strip_chars()
            numbers = column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().copy()
            numbers[~(np.abs(numbers) <= LARGEST)] = np.nan
            there = column.is_not_null()
            if column.dtype == pl.String:
                there &= ~column.str.to_lowercase().is_in(list(_MISSING))
            odd = int(np.count_nonzero(np.isnan(numbers) & there.to_numpy()))
            if odd and column.dtype == pl.String:
                self.noticed[NO_NUMBER] += odd
            return numbers if f.kind == "number" and not f.log else numbers.tolist()
        values = _plain(column)
        if f.kind == "flag":
            return [_as_flag(value) for value in values]
        if f.kind == "choice":
            return [as_text(value) for value in values]
        return [v if isinstance(v, list) else None if v is None else str(v) for v in values]


def contexts_of(
    lazy: pl.LazyFrame,
    file: Path,
    kind: str,
    context: Sequence[str],
    *,
    raw: bool,
    categories: Sequence[str],
    cyclic: Cyclic,
    features: Mapping[str, Any] | Features | Source | None,
) -> tuple[list[str], Callable[[pl.DataFrame], F64], Encoding | None]:
    """The names of a context's places, and how a batch becomes contexts."""
    names = matching(context, columns_of(lazy, file), "context", file)
    if raw:
        if categories or cyclic or features is not None:
            raise InvalidInputError("categories, cyclic and features must be left out where raw.")
        return names, lambda frame: numbers(frame, names), None
    if features is None:
        sample = Sample(kind, names, categories, cyclic)
        sample.add(file)
        encoding = Encoding(sample.found()[1])
    else:
        encoding = Encoding(given(features))
    if set(encoding.columns) != set(names):
        raise InvalidInputError(
            f"features must be of the context's columns, {', '.join(names)}, got "
            f"{', '.join(encoding.columns)}."
        )
    return encoding.features.names, encoding, encoding


def given(features: Mapping[str, Any] | Features | Source) -> Features:
    """Features as an option: themselves, as JSON, or the log or file that has them."""
    if isinstance(features, Features):
        return features
    return Features.from_dict(features) if isinstance(features, Mapping) else load(features)


def _plain(column: pl.Series) -> list[Any]:
    """The cells; text is stripped, and None where it stands for a missing value."""
    import polars as pl

    if column.dtype.is_temporal():
        column = column.cast(pl.String)
    values: list[Any] = column.to_list()
    if column.dtype != pl.String:
        return [None if value != value else value for value in values]
    stripped = (value and value.strip() for value in values)
    return [None if v is None or v.lower() in _MISSING else v for v in stripped]


def _typed(cells: list[Any]) -> list[Any]:
    """Text that means numbers, or true and false, as such."""
    import polars as pl

    there = [cell for cell in cells if cell is not None]
    if not there or not all(isinstance(cell, str) for cell in there):
        return cells
    if all(cell.lower() in ("true", "false") for cell in there):
        return [_as_flag(cell) for cell in cells]
    numbers = pl.Series(cells, dtype=pl.String).cast(pl.Float64, strict=False).to_list()
    sound = [n if n is not None and abs(n) <= LARGEST else None for n in numbers]
    good = sum(number is not None for number in sound)
    return sound if good >= _MOST * len(there) else cells


def _as_flag(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False, "1": True, "0": False}.get(value.lower())
    return None if value is None else bool(value)
