"""Models of one arm side by side: column c of a table is model c, four at a time.

A table is flat, row by row, with n columns, n a multiple of four; its rows are the numbers of a
model as in ``udu``. All models see the same context, so each step of a sum is one instruction for
four of them, and a chain of divisions is waited for once. Columns in use by no model may hold
anything finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whim.kernels.jit import inline
from whim.kernels.linalg.f64x4 import load, splat, store
from whim.types import F64

_1 = np.uint64(1)


def columns_for(count: int) -> int:
    """Columns for so many models: whole fours."""
    return (count + 3) // 4 * 4


@inline
def forms(table: F64, c: Any, n: Any, x: F64, values: F64) -> Any:
    """xᵀθ and xᵀA⁻¹x of models c to c + 3; ``Uᵀx`` goes to their columns of ``values``."""
    c, n, d = np.uint64(c), np.uint64(n), np.uint64(x.shape[0])
    square, diagonal, at = splat(0.0, 1), c, d * n + c
    for j in range(d):
        value = splat(x[j], 1)
        for i in range(j):
            value += load(table, at, 1) * splat(x[i], 1)
            at += n
        store(values, diagonal, value)
        square += load(table, diagonal, 1) * value * value
        diagonal += n
    mean = splat(0.0, 1)
    for j in range(d):
        mean += load(table, at, 1) * splat(x[j], 1)
        at += n
    return mean, square


@inline
def learn(table: F64, c: Any, n: Any, values: F64, weight: Any, step: Any, pulls: F64) -> None:
    """Make ``A += weight · x xᵀ`` and ``θ += step · A⁻¹x``, of the matrix before, four times.

    ``values`` are those of ``forms``; ``pulls``, of the same shape, are scratch. Bierman's update
    as in ``udu.rank_one``, in a form in which the weight may be 0.
    """
    c, n, d = np.uint64(c), np.uint64(n), np.uint64(values.shape[0])
    one, none = splat(1.0, 1), splat(0.0, 1)
    rest, inverse, diagonal, at = one, one, c, d * n + c
    for j in range(d):
        value, size = load(values, diagonal, 1), load(table, diagonal, 1)
        v, weighted = size * value, weight * value
        ratio = none - weighted * inverse
        after = rest + weighted * v
        inverse = one / after
        store(table, diagonal, size * (rest * inverse))
        rest, up = after, c
        for _ in range(j):
            u, w = load(table, at, 1), load(pulls, up, 1)
            store(table, at, u + w * ratio)
            store(pulls, up, w + u * v)
            at += n
            up += n
        store(pulls, diagonal, v)
        diagonal += n
    up = c
    for _ in range(d):
        store(table, at, load(table, at, 1) + load(pulls, up, 1) * step)
        at += n
        up += n


@inline
def full_forms(table: F64, x: F64, lines: F64) -> Any:
    """xᵀm and xᵀPx of four models that keep P itself, its upper triangle column by column.

    ``lines`` become Px.
    """
    d, at, four = np.uint64(x.shape[0]), np.uint64(0), np.uint64(4)
    mean, square = splat(0.0, 1), splat(0.0, 1)
    for j in range(d):
        line, own, up = splat(0.0, 1), splat(x[j], 1), np.uint64(0)
        for i in range(j):
            p = load(table, at, 1)
            line += p * splat(x[i], 1)
            store(lines, up, load(lines, up, 1) + p * own)
            at += four
            up += four
        store(lines, up, line + load(table, at, 1) * own)
        at += four
    up = np.uint64(0)
    for j in range(d):
        square += load(lines, up, 1) * splat(x[j], 1)
        mean += load(table, at, 1) * splat(x[j], 1)
        at += four
        up += four
    return mean, square


@inline
def full_learn(table: F64, lines: F64, seen: Any, step: Any) -> None:
    """``P -= seen · Px xᵀP`` and ``m += step · Px``, with ``lines`` those of ``full_forms``."""
    four, at, right = np.uint64(4), np.uint64(0), np.uint64(0)
    d = np.uint64(lines.shape[0])
    for j in range(d):
        weighted, up = load(lines, right, 1) * seen, np.uint64(0)
        for _ in range(j + _1):
            store(table, at, load(table, at, 1) - load(lines, up, 1) * weighted)
            at += four
            up += four
        right += four
    up = np.uint64(0)
    for _ in range(d):
        store(table, at, load(table, at, 1) + load(lines, up, 1) * step)
        at += four
        up += four


@inline
def take(table: F64, c: int, row: F64) -> None:
    """Model c as a row of ``udu``."""
    for j in range(table.shape[0]):
        row[j] = table[j, c]


@inline
def put(table: F64, c: int, row: F64) -> None:
    """A row of ``udu`` as model c."""
    for j in range(table.shape[0]):
        table[j, c] = row[j]
