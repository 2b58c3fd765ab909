"""Columns of a table into contexts: categories, scaled numbers, missing values, a constant.

What becomes of a column is found out from the first rows of all files, in their order: so the log
does not depend on how its rows are cut into files, nothing of the future is used, and a file of any
length is read once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from whim.checks import LARGEST
from whim.errors import InvalidInputError, LogFileError
from whim.features import Features, Field, fit, load
from whim.features.data import as_text
from whim.features.fit import round_of
from whim.features.times import first_time
from whim.logs.frames import columns_of, guarded, matching, numbers, scan
from whim.logs.sources import Source
from whim.types import F64

if TYPE_CHECKING:
    import polars as pl

FIT_ROWS = 100_000
# what is noticed about cells of a column
MARKER = "{}: {!r} taken as missing"
NO_NUMBER = "{}: no number up to 1e+10, taken as missing"
NO_FLAG = "{}: neither true nor false, taken as missing"
GAP = "{}: gap without a dimension of its own, taken as {}"
UNKNOWN = "{}: unknown category, all zeros"
_MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "-")  # what stands for a gap in text
_MOST = 0.9  # share of a column's cells that must be numbers
_CODES = 0.01  # share of its cells with a leading zero from which they are no numbers
_NUMBERS = (int, float, Decimal)
_CODE = re.compile(r"0\d+")

Cyclic = Mapping[str, float | None] | Sequence[str] | str


class Sample:
    """The first rows of one file after the other, and the features that are fitted to them."""

    def __init__(
        self,
        kind: str,
        context: Sequence[str],
        categories: Sequence[str] | str,
        cyclic: Cyclic,
        roles: Mapping[str, str],
    ) -> None:
        self._kind, self._asked, self._roles = kind, list(context), roles
        self._categories = [categories] if isinstance(categories, str) else list(categories)
        self._cyclic = [cyclic] if isinstance(cyclic, str) else cyclic
        self._cells: dict[str, list[Any]] = {}
        self._rows = 0

    def add(self, file: Path) -> None:
        """Take rows of one more file."""
        lazy = scan(file, self._kind)
        names = _matching(self._asked, lazy, file, self._roles)
        if not self._cells:
            self._cells = {name: [] for name in names}
        wanted = lazy.select(list(self._cells)).head(FIT_ROWS - self._rows)
        frame = guarded(file, lambda: wanted.collect())
        for name, cells in self._cells.items():
            dates = frame[name].dtype.is_temporal() and name not in self._categories
            cells += (frame[name] if dates else _cleaned(frame[name])).to_list()
        self._rows += len(frame)

    @property
    def names(self) -> list[str]:
        """The columns that were meant."""
        return list(self._cells)

    @property
    def full(self) -> bool:
        """Whether more rows would not be looked at."""
        return self._rows >= FIT_ROWS

    def found(self) -> tuple[list[str], Features, list[str]]:
        """The columns that were meant, what becomes of them, and dates that a pattern matched."""
        left_out = [name for name, cells in self._cells.items() if self._unasked_time(name, cells)]
        columns = {
            name: cells if name in self._categories else _typed(cells, self._is_cyclic(name))
            for name, cells in self._cells.items()
            if name not in left_out
        }
        if not columns:
            raise InvalidInputError(
                "context must have columns that are no dates or times of day, got "
                f"{', '.join(left_out)}."
            )
        if not self._rows:
            columns = {name: [0.0] for name in columns}  # of a table without rows
        for name in [*self._categories, *self._cyclic]:
            if name not in columns:
                raise InvalidInputError(
                    f"categories and cyclic must be columns of the context "
                    f"({', '.join(columns)}), got {name!r}."
                )
        kinds = dict.fromkeys(self._categories, "choice")
        return list(columns), fit(columns, kinds=kinds, cyclic=self._cyclic), left_out

    def _unasked_time(self, name: str, cells: list[Any]) -> bool:
        asked = name in self._asked or name in self._categories or name in self._cyclic
        return not asked and first_time(cells) is not None

    def _is_cyclic(self, name: str) -> bool:
        return name in self._cyclic or round_of(name) is not None


class Encoding:
    """Batches of a table into vectors, as ``Features`` say; ``noticed`` counts odd cells.

    These are cells taken as missing although they are not empty, and gaps and categories for which
    the features, fitted to other rows, have no dimension.
    """

    def __init__(self, features: Features) -> None:
        self.features = features
        self.noticed: Counter[str] = Counter()
        self.left_out: list[str] = []  # columns that a pattern matched, and that are not taken
        self._rows = 0  # that came before

    @property
    def columns(self) -> list[str]:
        """The columns that are needed."""
        return [f.name for f in self.features.fields]

    def __call__(self, frame: pl.DataFrame) -> F64:
        cells = {f.name: self._cells(frame[f.name], f) for f in self.features.fields}
        x = self.features._encoder.columns(cells, len(frame), first=self._rows + 1)
        self._rows += len(frame)
        return x

    def rows(self, frame: pl.DataFrame) -> list[dict[str, Any]]:
        """The same cells by name, None where one is missing: contexts as a space takes them."""
        cells = [list(self._cells(frame[f.name], f)) for f in self.features.fields]
        known = [[None if cell != cell else cell for cell in column] for column in cells]
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*known, strict=True)]

    def _cells(self, column: pl.Series, f: Field) -> Any:
        import polars as pl

        cleaned = _cleaned(column, f.values)
        gaps = self._gaps(column, cleaned, f)
        if f.kind in ("number", "cyclic"):
            numbers = cleaned.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy().copy()
            numbers[~(np.abs(numbers) <= LARGEST)] = np.nan
            self._notice(NO_NUMBER, f, int(np.isnan(numbers).sum()) - gaps)
            return numbers if f.kind == "number" and not f.log else numbers.tolist()
        values = cleaned.to_list()
        if f.kind == "flag":
            flags = [_as_flag(value) for value in values]
            self._notice(NO_FLAG, f, flags.count(None) - gaps)
            return flags
        if f.kind == "choice":
            texts = [as_text(value) for value in values]
            if not f.other:
                known = frozenset(f.values)
                odd = sum(isinstance(text, str) and text not in known for text in texts)
                self._notice(UNKNOWN, f, odd)
            return texts
        return [as_text(value) for value in values]

    def _gaps(self, column: pl.Series, cleaned: pl.Series, f: Field) -> int:
        """How many cells are missing; what stands there instead is noticed."""
        import polars as pl

        if column.dtype == pl.String:
            markers = column.str.strip_chars().filter(cleaned.is_null()).value_counts()
            for marker, n in markers.iter_rows():
                self._notice(MARKER, f, n if marker else 0, marker)
        gaps = cleaned.null_count()
        if not f.missing and f.kind != "hash":
            instead = "the mean" if f.kind == "number" and f.mean else "0"
            self._notice(GAP, f, gaps, instead)
        return gaps

    def _notice(self, what: str, f: Field, n: int, *more: str) -> None:
        if n:
            self.noticed[what.format(f.name, *more)] += n


def contexts_of(
    lazy: pl.LazyFrame,
    file: Path,
    kind: str,
    context: Sequence[str],
    *,
    roles: Mapping[str, str],
    raw: bool,
    categories: Sequence[str] | str,
    cyclic: Cyclic,
    features: Mapping[str, Any] | Features | Source | None,
) -> tuple[list[str], Callable[[pl.DataFrame], F64], Encoding | None]:
    """The names of a context's dimensions, and how a batch becomes contexts."""
    names = _matching(context, lazy, file, roles)
    if raw:
        if categories or cyclic or features is not None:
            raise InvalidInputError("categories, cyclic and features must be left out where raw.")
        return names, lambda frame: numbers(frame, names), None
    if features is None:
        sample = Sample(kind, context, categories, cyclic, roles)
        sample.add(file)
        names, fitted, left_out = sample.found()
    else:
        fitted = given(features)
        names, left_out = named_in(fitted, names, context)
    encoding = Encoding(fitted)
    encoding.left_out = left_out
    if set(encoding.columns) != set(names):
        raise InvalidInputError(
            f"features must be of the context's columns, {', '.join(names)}, got "
            f"{', '.join(encoding.columns)}."
        )
    return encoding.features.names, encoding, encoding


def named_in(
    features: Features, names: Sequence[str], context: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Of the columns of a context those that are taken, and those that only a pattern names.

    The features say which columns there are, so that ``*`` means them.
    """
    known = {f.name for f in features.fields} | set(context)
    return [name for name in names if name in known], [name for name in names if name not in known]


def given(features: Mapping[str, Any] | Features | Source) -> Features:
    """Features as an option: themselves, as JSON, or the log or file that has them."""
    if isinstance(features, Features):
        return features
    return Features.from_dict(features) if isinstance(features, Mapping) else load(features)


def _matching(
    patterns: Sequence[str], lazy: pl.LazyFrame, file: Path, roles: Mapping[str, str]
) -> list[str]:
    """The columns of the context; refuse a file whose columns are not separated by commas."""
    columns = columns_of(lazy, file)
    mark = next((mark for mark in ";\t" if len(columns) == 1 and mark in columns[0]), None)
    if mark is not None:
        raise LogFileError(
            f"{file} must have commas between its columns, got {mark!r} in its header, "
            f"{columns[0][:80]!r}."
        )
    return matching(patterns, columns, "context", file, roles)


def _cleaned(column: pl.Series, known: Sequence[str] = ()) -> pl.Series:
    """The cells, text stripped; null is all that stands for a gap and is no ``known`` category."""
    import polars as pl

    if column.dtype.is_temporal():
        return column.cast(pl.String)
    if column.dtype == pl.String:
        stripped = column.str.strip_chars()
        gaps = stripped.str.to_lowercase().is_in(_MISSING)
        return stripped.set(
            gaps & ~stripped.is_in(pl.Series(known, dtype=pl.String).implode()), None
        )
    return column.fill_nan(None) if column.dtype.is_float() else column


def _typed(cells: list[Any], cyclic: bool) -> list[Any]:
    """Text that means numbers, or true and false, as such; codes such as 01000 stay text."""
    import polars as pl

    there = [cell for cell in cells if cell is not None]
    numbers = cells
    if there and all(isinstance(cell, str) for cell in there):
        if all(cell.lower() in ("true", "false") for cell in there):
            return [_as_flag(cell) for cell in cells]
        codes = sum(_CODE.fullmatch(cell) is not None for cell in there)
        if codes >= _CODES * len(there) and codes and not cyclic:
            return cells
        numbers = pl.Series(cells, dtype=pl.String).cast(pl.Float64, strict=False).to_list()
    sound = [n if isinstance(n, _NUMBERS) and abs(float(n)) <= LARGEST else None for n in numbers]
    good = sum(number is not None for number in sound)
    return sound if good >= _MOST * len(there) else cells


def _as_flag(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False, "1": True, "0": False}.get(value.lower())
    return None if value is None else bool(value)
