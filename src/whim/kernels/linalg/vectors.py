"""Sums over numbers that lie side by side, four in one instruction, always in the same order.

``dot`` has eight running sums, ``add_rows`` keeps each column's own order; ``quad`` and
``rank_one`` are those of ``udu`` for long vectors, four columns at a time. Arrays are contiguous.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from whim.kernels.jit import inline
from whim.kernels.linalg.f64x4 import load, splat, store, total
from whim.types import F64

_0, _1, _2, _3, _4, _8 = (np.uint64(i) for i in (0, 1, 2, 3, 4, 8))
_FOURS, _EIGHTS = np.uint64(2**64 - 4), np.uint64(2**64 - 8)  # masks: whole fours, whole eights


@inline
def dot(a: F64, at: Any, b: F64, n: Any) -> float:
    """``Σ a[at + i] · b[i]``, i < n, in eight running sums; ``a`` may be in float32."""
    start, n = np.uint64(at), np.uint64(n)
    one, other = splat(0.0, 1), splat(0.0, 1)
    whole, i = n & _EIGHTS, _0
    while i < whole:
        one += load(a, start + i, 1) * load(b, i, 1)
        other += load(a, start + i + _4, 1) * load(b, i + _4, 1)
        i += _8
    if i + _4 <= n:
        one += load(a, start + i, 1) * load(b, i, 1)
        i += _4
    result: float = total(one + other)
    while i < n:
        result += a[start + i] * b[i]
        i += _1
    return result


@inline
def add_rows(
    line: F64, n: Any, weights: F64, sign: float, matrix: F64, at: Any, count: Any
) -> None:
    """``line[c] += sign · Σ weights[i] · matrix[at + i · n + c]``, c < n, i < count, in order."""
    start, n, count = np.uint64(at), np.uint64(n), np.uint64(count)
    whole, c = n & _FOURS, _0
    while c < whole:
        sums, place = load(line, c, 1), start + c
        for i in range(count):
            sums += splat(sign * weights[i], 1) * load(matrix, place, 1)
            place += n
        store(line, c, sums)
        c += _4
    while c < n:
        place = start + c
        for i in range(count):
            line[c] += (sign * weights[i]) * matrix[place]
            place += n
        c += _1


@inline
def _columns(f: F64, x: F64, j: Any, c0: Any, c1: Any, c2: Any, c3: Any) -> Any:
    """Numbers j to j + 3 of ``Uᵀx``, whose columns start at c0 to c3; j is a multiple of four.

    Each is x_j, then four running sums of the products before j, then the rest in their order.
    """
    a, b, c, d = splat(0.0, 1), splat(0.0, 1), splat(0.0, 1), splat(0.0, 1)
    i = _0
    while i < j:
        v = load(x, i, 1)
        a += load(f, c0 + i, 1) * v
        b += load(f, c1 + i, 1) * v
        c += load(f, c2 + i, 1) * v
        d += load(f, c3 + i, 1) * v
        i += _4
    x0, x1, x2, x3 = x[j], x[j + _1], x[j + _2], x[j + _3]
    f0 = x0 + total(a)
    f1 = x1 + total(b) + f[c1 + j] * x0
    f2 = x2 + total(c) + f[c2 + j] * x0 + f[c2 + j + _1] * x1
    f3 = x3 + total(d) + f[c3 + j] * x0 + f[c3 + j + _1] * x1 + f[c3 + j + _2] * x2
    return f0, f1, f2, f3


@inline
def _column(f: F64, x: F64, j: Any, start: Any, whole: Any) -> float:
    """Number j of ``Uᵀx``, one of the last, of which the first ``whole`` products are fours."""
    sums, i = splat(0.0, 1), _0
    while i < whole:
        sums += load(f, start + i, 1) * load(x, i, 1)
        i += _4
    result: float = x[j] + total(sums)
    while i < j:
        result += f[start + i] * x[i]
        i += _1
    return result


@inline
def quad(f: F64, x: F64, k: Any) -> float:
    """``xᵀA⁻¹x`` for the k × k factors that ``f`` begins with, which may be in float32."""
    k = np.uint64(k)
    whole, j, c0, result = k & _FOURS, _0, k, 0.0
    while j < whole:
        c1 = c0 + j
        c2 = c1 + j + _1
        c3 = c2 + j + _2
        f0, f1, f2, f3 = _columns(f, x, j, c0, c1, c2, c3)
        result += f[j] * f0 * f0
        result += f[j + _1] * f1 * f1
        result += f[j + _2] * f2 * f2
        result += f[j + _3] * f3 * f3
        c0 = c3 + j + _3
        j += _4
    while j < k:
        f0 = _column(f, x, j, c0, whole)
        result += f[j] * f0 * f0
        c0 += j
        j += _1
    return result


@inline
def _pivot(f: F64, j: Any, value: float, rest: float, inverse: float) -> Any:
    """One number of D after the step; what its column then needs: v, ratio, rest and inverse."""
    diagonal = f[j]
    v = diagonal * value
    after = rest + value * v
    new = 1.0 / after
    f[j] = diagonal * (rest * new)
    return v, -value * inverse, after, new


@inline
def _move(f: F64, at: Any, w: float, v: float, ratio: float) -> float:
    """A number of w goes through a column, which changes by what it is there."""
    u = f[at]
    f[at] = u + w * ratio
    moved: float = w + u * v
    return moved


@inline
def _move_four(f: F64, at: Any, w: Any, v: Any, ratio: Any) -> Any:
    u = load(f, at, 1)
    store(f, at, u + w * ratio)
    return w + u * v


@inline
def rank_one(f: F64, x: F64, k: Any, weight: float, w: F64) -> float:
    """``udu.rank_one``, four columns at a time: w is read and written once for them."""
    k = np.uint64(k)
    rest, inverse = 1.0 / weight, weight
    whole, j, c0 = k & _FOURS, _0, k
    while j < whole:
        c1 = c0 + j
        c2 = c1 + j + _1
        c3 = c2 + j + _2
        f0, f1, f2, f3 = _columns(f, x, j, c0, c1, c2, c3)
        v0, r0, rest, inverse = _pivot(f, j, f0, rest, inverse)
        v1, r1, rest, inverse = _pivot(f, j + _1, f1, rest, inverse)
        v2, r2, rest, inverse = _pivot(f, j + _2, f2, rest, inverse)
        v3, r3, rest, inverse = _pivot(f, j + _3, f3, rest, inverse)
        V0, V1, V2, V3 = splat(v0, 1), splat(v1, 1), splat(v2, 1), splat(v3, 1)
        R0, R1, R2, R3 = splat(r0, 1), splat(r1, 1), splat(r2, 1), splat(r3, 1)
        i = _0
        while i < j:
            moved = _move_four(f, c0 + i, load(w, i, 1), V0, R0)
            moved = _move_four(f, c1 + i, moved, V1, R1)
            moved = _move_four(f, c2 + i, moved, V2, R2)
            store(w, i, _move_four(f, c3 + i, moved, V3, R3))
            i += _4
        first = _move(f, c2 + j, _move(f, c1 + j, v0, v1, r1), v2, r2)
        w[j] = _move(f, c3 + j, first, v3, r3)
        w[j + _1] = _move(f, c3 + j + _1, _move(f, c2 + j + _1, v1, v2, r2), v3, r3)
        w[j + _2] = _move(f, c3 + j + _2, v2, v3, r3)
        w[j + _3] = v3
        c0 = c3 + j + _3
        j += _4
    while j < k:
        f0 = _column(f, x, j, c0, whole)
        v0, r0, rest, inverse = _pivot(f, j, f0, rest, inverse)
        i = _0
        while i < j:
            w[i] = _move(f, c0 + i, w[i], v0, r0)
            i += _1
        w[j] = v0
        c0 += j
        j += _1
    return rest * weight
