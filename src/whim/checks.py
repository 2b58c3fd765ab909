"""Checks of parameters and arrays at the boundary; all errors are worded alike."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from whim.errors import InvalidInputError
from whim.types import F64

if TYPE_CHECKING:
    from numpy.typing import NDArray

# the kernels' own limit (kernels/linalg/udu.py): beyond it means would lose too many digits
LARGEST = 1e10


def integer(name: str, value: object, minimum: int) -> int:
    """``value`` as an int of at least ``minimum``."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= minimum:
        return int(value)
    raise InvalidInputError(f"{name} must be an integer >= {minimum}, got {value!r}.")


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an int too large
        return math.inf


def real(name: str, value: object) -> float:
    """``value`` as a finite float; numbers and bools are accepted, text and arrays are not."""
    if isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
        found = _float(value)
        if abs(found) <= LARGEST:
            return found
    raise InvalidInputError(
        f"{name} must be a finite number, at most {LARGEST:g} in size, got {value!r}."
    )


def number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
    infinite: bool = False,
) -> float:
    """``value`` as a float within the bounds; with ``infinite``, +inf is accepted as well."""
    bounds: list[tuple[str, float | None, Callable[[float, float], bool]]] = [
        ("> ", above, operator.gt),
        (">= ", least, operator.ge),
        ("<= ", most, operator.le),
        ("< ", below, operator.lt),
    ]
    asked = " and ".join(f"{sign}{bound:g}" for sign, bound, _ in bounds if bound is not None)
    plain = isinstance(value, (int, float, np.integer, np.floating))
    if plain and not isinstance(value, bool):
        found = _float(value)
        fine = all(bound is None or holds(found, bound) for _, bound, holds in bounds)
        if fine and (math.isfinite(found) or (infinite and found > 0)):
            return found
    kind = "a number" if infinite else "a finite number"
    raise InvalidInputError(f"{name} must be {kind} {asked}, got {value!r}.".replace("  ", " "))


def optional(name: str, value: object, **bounds: float) -> float | None:
    """``None``, or a number within the bounds."""
    return None if value is None else number(name, value, **bounds)  # type: ignore[arg-type]


def choice(name: str, value: object, choices: tuple[str, ...]) -> str:
    """``value`` as one of the words in ``choices``."""
    if isinstance(value, str) and value in choices:
        return value
    raise InvalidInputError(f"{name} must be one of {', '.join(choices)}, got {value!r}.")


def _floats(name: str, value: object, shape: str) -> NDArray[Any]:
    try:
        found = np.asarray(value)
    except ValueError:
        raise InvalidInputError(f"{name} must be {shape}, got rows of unequal length.") from None
    if found.dtype.kind not in "iuf":
        raise InvalidInputError(f"{name} must be {shape} of real numbers, got {found.dtype}.")
    return found


def _all_finite(name: str, found: F64) -> F64:
    bad = ~(np.abs(found) <= LARGEST)
    if bad.any():
        where = ", ".join(str(int(i)) for i in np.argwhere(bad)[0])
        raise InvalidInputError(
            f"{name} must be finite and at most {LARGEST:g} in size, "
            f"got {found[bad][0]} at [{where}]."
        )
    return found


def vector(name: str, value: object, length: int | None) -> F64:
    """``value`` as a finite float64 vector of that length, contiguous and writable."""
    asked = "a vector" if length is None else f"a vector of length {length}"
    found = _floats(name, value, asked)
    if found.ndim != 1 or (length is not None and found.shape[0] != length):
        raise InvalidInputError(f"{name} must be {asked}, got shape {found.shape}.")
    return _all_finite(name, np.require(found, np.float64, ["C", "W"]))


def matrix(name: str, value: object, rows: int | None, columns: int | None) -> F64:
    """``value`` as a finite float64 matrix of that shape, contiguous and writable."""
    sides = ["n" if side is None else str(side) for side in (rows, columns)]
    asked = f"a matrix of shape ({', '.join(sides)})"
    found = _floats(name, value, asked)
    fits = found.ndim == 2 and all(
        side is None or side == size
        for side, size in zip((rows, columns), found.shape, strict=False)
    )
    if not fits:
        raise InvalidInputError(f"{name} must be {asked}, got shape {found.shape}.")
    return _all_finite(name, np.require(found, np.float64, ["C", "W"]))
