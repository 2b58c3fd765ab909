"""Ridge regression in rational numbers: what a float64 computation should have given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Ridge", "constant", "invert", "rational", "ridge", "solve"]

F64 = npt.NDArray[np.float64]
Row = list[Fraction]


class Ridge(NamedTuple):
    """``xᵀθ`` and ``xᵀA⁻¹x``, rounded once."""

    mean: float
    square: float


def rational(values: Iterable[Any]) -> Row:
    """Floats, of any precision, as they are."""
    return [Fraction(*v.as_integer_ratio()) for v in values]


def solve(A: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    """``A⁻¹ right`` for a positive definite matrix, by elimination."""
    n = len(A)
    rows = [[*a, *b] for a, b in zip(A, right, strict=True)]
    for j in range(n):
        for i in range(j + 1, n):
            factor = rows[i][j] / rows[j][j]
            if factor:
                rows[i] = [v - factor * w for v, w in zip(rows[i], rows[j], strict=True)]
    for j in range(n - 1, -1, -1):
        rows[j] = [v / rows[j][j] for v in rows[j]]
        for i in range(j):
            factor = rows[i][j]
            if factor:
                rows[i] = [v - factor * w for v, w in zip(rows[i], rows[j], strict=True)]
    return [row[n:] for row in rows]


def invert(A: npt.NDArray[Any], b: npt.NDArray[Any]) -> tuple[F64, F64]:
    """``A⁻¹`` and ``A⁻¹ b`` of arrays, rounded once."""
    n = len(b)
    unit = np.eye(n)
    right = [[*rational(row), *rational([v])] for row, v in zip(unit, b, strict=True)]
    found = [[float(v) for v in row] for row in solve([rational(row) for row in A], right)]
    return np.array(found)[:, :n], np.array(found)[:, n]


def ridge(X: F64, r: F64, lam: float, at: Sequence[F64]) -> list[Ridge]:
    """Mean and squared width of each context in ``at`` after the rows of X."""
    d = X.shape[1]
    A = [[Fraction(lam) * (i == j) for j in range(d)] for i in range(d)]
    b = [Fraction(0)] * d
    for x, y in zip(X, r, strict=True):
        row, reward = rational(x), Fraction(float(y))
        for i in range(d):
            if row[i]:
                b[i] += reward * row[i]
                for j in range(i + 1):
                    A[i][j] += row[i] * row[j]
    for i in range(d):
        for j in range(i):
            A[j][i] = A[i][j]
    points = [rational(x) for x in at]
    found = solve(A, [[b[i], *(x[i] for x in points)] for i in range(d)])
    results = []
    for c, x in enumerate(points, start=1):
        mean = sum((x[i] * found[i][0] for i in range(d)), Fraction(0))
        square = sum((x[i] * found[i][c] for i in range(d)), Fraction(0))
        results.append(Ridge(float(mean), float(square)))
    return results


def constant(x: F64, n: int, total: float, lam: float, at: F64) -> Ridge:
    """The same after ``n`` times the context x with rewards of this sum.

    A = λI + n xxᵀ, so that A⁻¹ = (I - n xxᵀ / (λ + n xᵀx)) / λ.
    """
    v, y = rational(x), rational(at)
    within = sum((a * a for a in v), Fraction(0))
    across = sum((a * c for a, c in zip(v, y, strict=True)), Fraction(0))
    size = sum((c * c for c in y), Fraction(0))
    below = Fraction(lam) + n * within
    square = (size - n * across**2 / below) / Fraction(lam)
    return Ridge(float(across * Fraction(total) / below), float(square))
