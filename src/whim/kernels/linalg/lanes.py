"""Many models or candidates side by side: column c of a table is candidate c's.

Where ``vectors`` takes several numbers of one sum in an instruction, this takes the same number of
several candidates, so that each one's sum keeps its own order. Tables are flat, row by row, with n
columns, n from ``columns``; those past the last candidate may hold anything. A sum waits for its
last addition, so six vectors side by side take little more time than one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whim.kernels.jit import bind, inline
from whim.kernels.linalg.f64x4 import joined, load, part, splat, store, transposed
from whim.types import F64

_0, _1, _2, _3, _4, _12, _24 = (np.uint64(i) for i in (0, 1, 2, 3, 4, 12, 24))
_FOURS = np.uint64(2**64 - 4)
PARTS = 3  # vectors at a time; bound to 3 and 6 below


def columns_for(n: int) -> int:
    """Columns for n candidates: whole blocks of twelve."""
    return (n + 11) // 12 * 12


columns = inline(columns_for)


@inline
def pack4(table: F64, n: Any, c: Any, matrix: F64, rows: Any, count: Any) -> None:
    """Columns c to c + 3 of ``table`` become the first numbers of four rows of ``matrix``."""
    at, n = np.uint64(c), np.uint64(n)
    one, two, three, four = matrix[rows[0]], matrix[rows[1]], matrix[rows[2]], matrix[rows[3]]
    count, p = np.uint64(count), _0
    while p + _4 <= count:
        turned = transposed(load(one, p, 1), load(two, p, 1), load(three, p, 1), load(four, p, 1))
        store(table, at, part(turned, 0))
        store(table, at + n, part(turned, 1))
        store(table, at + _2 * n, part(turned, 2))
        store(table, at + _3 * n, part(turned, 3))
        at += _4 * n
        p += _4
    while p < count:
        store(table, at, joined(one[p], two[p], three[p], four[p]))
        at += n
        p += _1


def _sum(start: Any, weights: F64, at: Any, table: F64, place: Any, n: Any, count: Any) -> Any:
    """``start + Σ weights[at + i] · table[place + i · n]``, i < count: PARTS vectors of columns."""
    for i in range(count):
        start += splat(weights[at + i], PARTS) * load(table, place, PARTS)
        place += n
    return start


def _quads(mean: F64, square: F64, c: Any, n: Any, models: F64, x: F64) -> None:
    d = np.uint64(x.shape[0])
    theta = d * (d + _1) // _2 * n + c
    store(mean, c, _sum(splat(0.0, PARTS), x, _0, models, theta, n, d))
    total, diagonal, column = splat(0.0, PARTS), c, d * n + c
    for j in range(d):
        f = _sum(splat(x[j], PARTS), x, _0, models, column, n, j)
        total += load(models, diagonal, PARTS) * f * f
        diagonal += n
        column += j * n
    store(square, c, total)


def _solve(W: F64, mean: F64, square: F64, c: Any, n: Any, models: F64, x: F64) -> None:
    d = np.uint64(x.shape[0])
    theta = d * (d + _1) // _2 * n + c
    store(mean, c, _sum(splat(0.0, PARTS), x, _0, models, theta, n, d))
    total, diagonal, column = splat(0.0, PARTS), c, d * n + c
    for j in range(d):
        f = _sum(splat(x[j], PARTS), x, _0, models, column, n, j)
        v = load(models, diagonal, PARTS) * f
        total += v * f
        line = c
        for _ in range(j):
            store(W, line, load(W, line, PARTS) + load(models, column, PARTS) * v)
            line += n
            column += n
        store(W, line, v)
        diagonal += n
    store(square, c, total)


def _cross_sums(
    mean: F64, length: F64, c: Any, n: Any, Y: F64, m: Any, W: F64, d: Any, beta: F64
) -> None:
    y_square, w_square, place = splat(0.0, PARTS), splat(0.0, PARTS), c
    for _ in range(m):
        value = load(Y, place, PARTS)
        y_square += value * value
        place += n
    place = c
    for _ in range(d):
        value = load(W, place, PARTS)
        w_square += value * value
        place += n
    store(length, c, y_square * w_square)
    total, place = load(mean, c, PARTS), c
    for h in range(m):
        part = _sum(splat(0.0, PARTS), beta, h * d, W, c, n, d)
        total += load(Y, place, PARTS) * part
        place += n
    store(mean, c, total)


def _squares(square: F64, c: Any, n: Any, f: F64, U: F64, k: Any) -> None:
    total, start = splat(0.0, PARTS), k
    for j in range(k):
        whole = j & _FOURS
        one, two, three, four = (
            splat(0.0, PARTS), splat(0.0, PARTS), splat(0.0, PARTS), splat(0.0, PARTS)
        )  # fmt: skip
        i, place = _0, c
        while i < whole:
            one += splat(f[start + i], PARTS) * load(U, place, PARTS)
            two += splat(f[start + i + _1], PARTS) * load(U, place + n, PARTS)
            three += splat(f[start + i + _2], PARTS) * load(U, place + _2 * n, PARTS)
            four += splat(f[start + i + _3], PARTS) * load(U, place + _3 * n, PARTS)
            place += _4 * n
            i += _4
        value = load(U, j * n + c, PARTS) + ((one + three) + (two + four))
        value = _sum(value, f, start + whole, U, place, n, j - whole)
        total += splat(f[j], PARTS) * value * value
        start += j
    store(square, c, load(square, c, PARTS) + total)


def _block(function: Any, parts: int) -> Any:
    """``function`` for so many vectors at a time."""
    some = {"PARTS": parts}
    some["_sum"] = inline(bind(_sum, f"{parts}", **some))
    return inline(bind(function, f"{parts}", **some))


_quads_3, _quads_6 = _block(_quads, 3), _block(_quads, 6)
_solve_3, _solve_6 = _block(_solve, 3), _block(_solve, 6)
_cross_sums_3, _cross_sums_6 = _block(_cross_sums, 3), _block(_cross_sums, 6)
_squares_3 = _block(_squares, 3)


@inline
def quads(mean: F64, square: F64, n: Any, stride: Any, models: F64, x: F64) -> None:
    """xᵀθ and xᵀA⁻¹x of n models side by side: number p of model c is at p · stride + c."""
    n, stride, c = np.uint64(n), np.uint64(stride), _0
    while c + _24 <= n:
        _quads_6(mean, square, c, stride, models, x)
        c += _24
    if c < n:
        _quads_3(mean, square, c, stride, models, x)


@inline
def solve(W: F64, mean: F64, square: F64, n: Any, models: F64, x: F64) -> None:
    """As ``quads``, and A⁻¹x of model c into column c of ``W``."""
    n, c = np.uint64(n), _0
    while c + _24 <= n:
        _solve_6(W, mean, square, c, n, models, x)
        c += _24
    if c < n:
        _solve_3(W, mean, square, c, n, models, x)


@inline
def cross_sums(mean: F64, length: F64, n: Any, Y: F64, m: Any, W: F64, d: Any, beta: F64) -> None:
    """With u = kron(y, w) of a column: ``mean += uᵀβ``, ``length = |u|²``.

    ``Y`` has m rows, ``W`` d.
    """
    n, m, d, c = np.uint64(n), np.uint64(m), np.uint64(d), _0
    while c + _24 <= n:
        _cross_sums_6(mean, length, c, n, Y, m, W, d, beta)
        c += _24
    if c < n:
        _cross_sums_3(mean, length, c, n, Y, m, W, d, beta)


@inline
def squares(square: F64, n: Any, f: F64, U: F64, k: Any) -> None:
    """``square[c] += uᵀA⁻¹u``, u = column c, in the order of ``vectors.quad``.

    ``f`` begins with the k × k factors.
    """
    n, k, c = np.uint64(n), np.uint64(k), _0
    while c < n:
        _squares_3(square, c, n, f, U, k)
        c += _12


@inline
def kron(U: F64, n: Any, Y: F64, m: Any, W: F64, d: Any, stride: Any) -> None:
    """Column c of ``U``, which has n, becomes kron(y, w) of column c of ``Y`` and ``W``."""
    n, d, stride, at, left = np.uint64(n), np.uint64(d), np.uint64(stride), _0, _0
    for _ in range(np.uint64(m)):
        right = _0
        for _ in range(d):
            c = _0
            while c < n:
                store(U, at + c, load(Y, left + c, 1) * load(W, right + c, 1))
                c += _4
            at += n
            right += stride
        left += stride
