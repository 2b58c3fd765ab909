"""How numbers are scaled: their mean and spread over any portions, apart from mere rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from whim.checks import LARGEST
from whim.errors import InvalidInputError
from whim.features.fields import Field, logged
from whim.features.times import advice

Moments = tuple[int, float, float]  # count, mean, sum of squares about the mean

ROUNDING = 1e-9  # of a column's size: a spread below it is that of equal numbers


def numbers_of(values: Sequence[Any], name: str) -> list[float]:
    """The numbers of a column, without what is missing."""
    for i, value in enumerate(values):
        if value is None:
            continue
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise InvalidInputError(
                f"{name} must hold numbers, got {repr(value)[:80]} at [{i}]{advice(value)}."
            )
        if not abs(value) <= LARGEST:
            raise InvalidInputError(
                f"{name} must hold numbers of at most {LARGEST:g} in size, got "
                f"{str(value)[:80]} at [{i}]."
            )
    return [float(value) for value in values if value is not None]


def moments(values: Sequence[float], f: Field) -> Moments:
    """How many numbers a column has, their mean and the sum of squares about it, once logged."""
    taken = np.array([logged(value, f.log) if f.log else value for value in values])
    mean = float(taken.mean())
    return len(taken), mean, float(((taken - mean) ** 2).sum())


def both(one: Moments, other: Moments) -> Moments:
    """Two groups of values as one (Chan, Golub and LeVeque)."""
    n, step = one[0] + other[0], other[1] - one[1]
    squares = one[2] + other[2] + step * step * one[0] * other[0] / n
    return n, one[1] + step * other[0] / n, squares


def scale_of(seen: Moments) -> float:
    """The standard deviation, or 1 where it is that of equal numbers: zero, or rounding.

    >>> scale_of((2, 0.0, 8.0)), scale_of((2, 1234.567, 1e-25))
    (2.0, 1.0)
    """
    n, mean, squares = seen
    spread = math.sqrt(squares / n)
    return spread if spread > ROUNDING * abs(mean) else 1.0


def to_digits_of(scale: float, mean: float) -> float:
    """The mean without digits that do not matter at this scale.

    >>> to_digits_of(8.65544, 34.499999999), to_digits_of(17.3, 1_700_000_029.51234)
    (34.5, 1700000029.5123)
    """
    return round(mean, 5 - math.floor(math.log10(scale)))
