"""Models of one arm side by side: column c of a table is model c.

The rows of a table are the numbers of a model as in ``udu``. All models see the same context, so
each step of a sum is one instruction for four of them, and a chain of divisions is waited for once.
``forms`` and ``learn`` take eight columns at a time, so there are whole eights; those in use by no
model may hold anything that a model can.
"""

from __future__ import annotations

import numpy as np

from whim.kernels.jit import inline
from whim.kernels.linalg.f64x4 import load, splat, store
from whim.types import F64

_0, _1, _4, _8 = (np.uint64(i) for i in (0, 1, 4, 8))


def columns_for(count: int) -> int:
    """Columns for so many models: whole eights."""
    return (count + 7) // 8 * 8


@inline
def forms(table: F64, x: F64, values: F64, means: F64, squares: F64) -> None:
    """xᵀθ and xᵀA⁻¹x of all models; ``values`` become ``Uᵀx``."""
    c, n, d = _0, np.uint64(table.shape[1]), np.uint64(x.shape[0])
    while c < n:
        square, diagonal, at = splat(0.0, 2), c, d * n + c
        for j in range(d):
            value = splat(x[j], 2)
            for i in range(j):
                value += load(table, at, 2) * splat(x[i], 2)
                at += n
            store(values, diagonal, value)
            square += load(table, diagonal, 2) * value * value
            diagonal += n
        mean = splat(0.0, 2)
        for j in range(d):
            mean += load(table, at, 2) * splat(x[j], 2)
            at += n
        store(means, c, mean)
        store(squares, c, square)
        c += _8


@inline
def learn(table: F64, values: F64, weights: F64, steps: F64, pulls: F64) -> None:
    """Make ``A += weight · x xᵀ`` and ``θ += step · A⁻¹x``, of the matrix before, for all models.

    ``values`` are those of ``forms``; ``pulls``, of the same shape, are scratch. Bierman's update
    as in ``udu.rank_one``, in a form in which a weight may be 0, or take away what was added.
    """
    c, n, d = _0, np.uint64(table.shape[1]), np.uint64(values.shape[0])
    while c < n:
        one, none, weight = splat(1.0, 2), splat(0.0, 2), load(weights, c, 2)
        rest, inverse, diagonal, at = one, one, c, d * n + c
        for j in range(d):
            value, size = load(values, diagonal, 2), load(table, diagonal, 2)
            v, weighted = size * value, weight * value
            ratio = none - weighted * inverse
            after = rest + weighted * v
            inverse = one / after
            store(table, diagonal, size * (rest * inverse))
            rest, up = after, c
            for _ in range(j):
                u, w = load(table, at, 2), load(pulls, up, 2)
                store(table, at, u + w * ratio)
                store(pulls, up, w + u * v)
                at += n
                up += n
            store(pulls, diagonal, v)
            diagonal += n
        step, up = load(steps, c, 2), c
        for _ in range(d):
            store(table, at, load(table, at, 2) + load(pulls, up, 2) * step)
            at += n
            up += n
        c += _8


@inline
def full_forms(table: F64, x: F64, lines: F64, means: F64, squares: F64) -> None:
    """xᵀm and xᵀPx of four models that keep P itself, its upper triangle column by column.

    ``lines`` become Px.
    """
    d, at = np.uint64(x.shape[0]), _0
    for j in range(d):
        line, own, up = splat(0.0, 1), splat(x[j], 1), _0
        for i in range(j):
            p = load(table, at, 1)
            line += p * splat(x[i], 1)
            store(lines, up, load(lines, up, 1) + p * own)
            at += _4
            up += _4
        store(lines, up, line + load(table, at, 1) * own)
        at += _4
    mean, square, up = splat(0.0, 1), splat(0.0, 1), _0
    for j in range(d):
        square += load(lines, up, 1) * splat(x[j], 1)
        mean += load(table, at, 1) * splat(x[j], 1)
        at += _4
        up += _4
    store(means, _0, mean)
    store(squares, _0, square)


@inline
def full_learn(table: F64, lines: F64, seen: F64, steps: F64) -> None:
    """``P -= seen · Px xᵀP`` and ``m += step · Px``, with ``lines`` those of ``full_forms``."""
    d, at, right, once, step = (
        np.uint64(lines.shape[0]),
        _0,
        _0,
        load(seen, 0, 1),
        load(steps, 0, 1),
    )
    for j in range(d):
        weighted, up = load(lines, right, 1) * once, _0
        for _ in range(j + _1):
            store(table, at, load(table, at, 1) - load(lines, up, 1) * weighted)
            at += _4
            up += _4
        right += _4
    up = _0
    for _ in range(d):
        store(table, at, load(table, at, 1) + load(lines, up, 1) * step)
        at += _4
        up += _4
