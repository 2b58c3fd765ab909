"""Rows and tables as people have them: data frames, lists of dicts, columns by name, sparse rows.

Neither pandas nor polars is imported: a frame is whatever has ``columns`` and gives each by name.
"""

from __future__ import annotations

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
        return plain(float(value))
    if isinstance(value, (list, tuple, set, frozenset)) or hasattr(value, "tolist"):
        several = value.tolist() if hasattr(value, "tolist") else list(value)
        return [plain(one) for one in several]
    return value


def as_row(row: Any) -> Mapping[str, Any] | None:
    """A row by name: a dict, or a row of a data frame; None if it has no names."""
    if isinstance(row, Mapping):
        return row
    if hasattr(row, "_asdict"):  # a named tuple, as of ``itertuples``
        named: dict[str, Any] = row._asdict()
        return named
    if hasattr(row, "to_dict") and hasattr(row, "index"):
        named = row.to_dict()
        return named
    return None


def is_table(data: Any) -> bool:
    """Whether it is a data frame, or rows by name."""
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        return True
    several = isinstance(data, Sequence) and not isinstance(data, (str, bytes)) and len(data) > 0
    return several and as_row(data[0]) is not None


def as_columns(data: Any, name: str = "data", *, gaps: bool = False) -> tuple[Columns, int]:
    """The columns of a table, of plain values, and how many rows there are.

    Of rows that are dicts, each must have every name, unless ``gaps`` stand for missing values.

    >>> as_columns([{"age": 31, "device": "phone"}, {"age": None, "device": "desk"}])
    ({'age': [31, None], 'device': ['phone', 'desk']}, 2)
    """
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        columns = {str(c): [plain(v) for v in data[c].to_list()] for c in data.columns}
        return columns, len(data)
    if isinstance(data, Mapping):
        columns = {
            str(c): [plain(v) for v in (values.tolist() if hasattr(values, "tolist") else values)]
            for c, values in data.items()
            if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
        }
        lengths = {len(values) for values in columns.values()}
        if len(columns) < len(data) or len(lengths) > 1:
            raise InvalidInputError(f"{name} must be columns of the same length by name.")
        return columns, lengths.pop() if lengths else 0
    if not isinstance(data, Sequence) or isinstance(data, (str, bytes)):
        raise InvalidInputError(
            f"{name} must be a data frame, columns by name or a list of dicts, got {_kind(data)}."
        )
    return _of_rows(data, name, gaps)


def _of_rows(data: Sequence[Any], name: str, gaps: bool) -> tuple[Columns, int]:
    rows = []
    for i, one in enumerate(data):
        row = as_row(one)
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
