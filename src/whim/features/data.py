"""Rows and tables as people have them: data frames, lists of dicts, columns by name, sparse rows.

Neither pandas nor polars is imported: a frame is whatever has ``columns`` and gives each by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from whim.errors import InvalidInputError

_NONE = ("NAType", "NaTType")  # what pandas has for a missing value
_ABSENT = object()

Columns = dict[str, list[Any]]


def plain(value: Any) -> Any:
    """A value as Python has it; whatever stands for a missing one is None.

    >>> plain(float("nan")), plain(np.int64(3)), plain(np.array(["a", "b"]))
    (None, 3, ['a', 'b'])
    """
    kind = value.__class__
    if kind is float:
        return None if value != value else value
    if value is None or kind is str or kind is int or kind is bool:
        return value
    if isinstance(value, np.generic):
        return plain(value.item())
    if kind.__name__ in _NONE:
        return None
    if isinstance(value, Decimal):
        return None if value.is_nan() else float(value)
    if hasattr(value, "tolist"):
        value = value.tolist()
        if not isinstance(value, list):  # of an array without dimensions
            return plain(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    return value


def as_text(value: Any) -> Any:
    """A text, or each of several; whole numbers are what stands in a file.

    >>> as_text(3.0), as_text(38.5), as_text([1, None, "b"])
    ('3', '38.5', ['1', 'b'])
    """
    if value is None or value.__class__ is str:
        return value
    if isinstance(value, list):
        return [as_text(one) for one in value if one is not None]
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, (int, float)) else value


def as_flag(value: Any) -> Any:
    """1 and 0 as true and false."""
    return bool(value) if value.__class__ in (int, float) and value in (0, 1) else value


def as_row(row: Any, name: str = "x") -> Mapping[str, Any] | None:
    """A row by name: a dict, a row of a data frame or a frame of one; None if it has no names."""
    if isinstance(row, Mapping):
        return row
    if _is_frame(row):
        columns, n = as_columns(row, name)
        if n != 1:
            raise InvalidInputError(f"{name} must be one row, got a data frame of {n}.")
        return {column: values[0] for column, values in columns.items()}
    if hasattr(row, "_asdict"):  # a named tuple, as of ``itertuples``
        named: dict[str, Any] = row._asdict()
        return named
    if hasattr(row, "to_dict") and hasattr(row, "index"):
        named = row.to_dict()
        return named
    return None


def is_table(data: Any) -> bool:
    """Whether it is a data frame, or rows by name."""
    if _is_frame(data):
        return True
    several = isinstance(data, Sequence) and not isinstance(data, (str, bytes)) and len(data) > 0
    return several and as_row(data[0]) is not None


def as_columns(data: Any, name: str = "data", *, gaps: bool = False) -> tuple[Columns, int]:
    """The columns of a table, of plain values, and how many rows there are.

    Of rows that are dicts, each must have every name, unless ``gaps`` stand for missing values.

    >>> as_columns([{"age": 31, "device": "phone"}, {"age": None, "device": "desk"}])
    ({'age': [31, None], 'device': ['phone', 'desk']}, 2)
    """
    if hasattr(data, "collect"):
        raise InvalidInputError(f"{name} must be a data frame, got a {_kind(data)}: collect() it.")
    if _is_frame(data):
        _check_different([str(column) for column in data.columns], name)
        columns = {str(column): _values(data[column]) for column in data.columns}
        return columns, len(data)
    if isinstance(data, Mapping):
        return _of_columns(data, name)
    if not isinstance(data, Sequence) or isinstance(data, (str, bytes)):
        raise InvalidInputError(
            f"{name} must be a data frame, columns by name or a list of dicts, got {_kind(data)}."
        )
    return _of_rows(data, name, gaps)


def declared_categories(data: Any) -> dict[str, list[str]]:
    """The categories that columns of a table are declared to have, in their order."""
    named = data if _is_frame(data) or isinstance(data, Mapping) else {}
    listed = {}
    for column in getattr(named, "columns", named):
        dtype: Any = getattr(named[column], "dtype", None)
        categories: Any = getattr(dtype, "categories", None)
        if hasattr(categories, "to_list"):  # of pandas; of polars, where the type is an Enum
            listed[str(column)] = [as_text(plain(one)) for one in categories.to_list()]
    return listed


def lacks_names(data: Any, columns: Columns) -> bool:
    """Whether the table is of rows of which some lack names that others have."""
    rows = data if isinstance(data, Sequence) else []
    return any(len(as_row(row) or {}) < len(columns) for row in rows)


def _is_frame(data: Any) -> bool:
    lazy = hasattr(data, "collect")  # asking it for its columns would make polars warn
    return lazy or (hasattr(data, "columns") and hasattr(data, "__getitem__"))


def _check_different(names: Sequence[str], name: str) -> None:
    twice = [column for column, n in Counter(names).items() if n > 1]
    if twice:
        raise InvalidInputError(f"{name} must have columns of different names, got {twice}.")


def _values(column: Any) -> list[Any]:
    """The cells of a column: a series, an array or a list."""
    cells = column.to_list() if hasattr(column, "to_list") else column
    return [plain(cell) for cell in (cells.tolist() if hasattr(cells, "tolist") else cells)]


def _of_columns(data: Mapping[Any, Any], name: str) -> tuple[Columns, int]:
    _check_different([str(column) for column in data], name)
    columns: Columns = {}
    for column, cells in data.items():
        listed = isinstance(cells, Sequence) and not isinstance(cells, (str, bytes))
        series = hasattr(cells, "to_list") or getattr(cells, "ndim", 0) > 0
        if not listed and not series:
            raise InvalidInputError(
                f"{name} must be columns by name, got {_kind(cells)} as {str(column)!r}."
            )
        columns[str(column)] = _values(cells)
    lengths = {column: len(cells) for column, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInputError(f"{name} must be columns of the same length, got {lengths}.")
    return columns, next(iter(lengths.values()), 0)


def _of_rows(data: Sequence[Any], name: str, gaps: bool) -> tuple[Columns, int]:
    rows = []
    for i, one in enumerate(data):
        row = as_row(one, f"{name}[{i}]")
        if row is None:
            raise InvalidInputError(f"{name}[{i}] must be a dict by name, got {_kind(one)}.")
        rows.append({str(key): value for key, value in row.items()})
    columns: Columns = {column: [] for row in rows for column in row}
    for column, values in columns.items():
        for i, row in enumerate(rows):
            value = row.get(column, _ABSENT)
            if value is _ABSENT:
                if not gaps:
                    raise InvalidInputError(
                        f"{name}[{i}] must have {column!r} (None where it is not known)."
                    )
                value = None
            values.append(plain(value))
    return columns, len(rows)


def _kind(value: Any) -> str:
    return type(value).__name__
