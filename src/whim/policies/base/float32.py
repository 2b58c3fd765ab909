"""Many contexts against many arms in single precision: ``batch.bounds``, about half as long.

Features, arms and contexts are scaled first, so that nothing overflows and a squared width is 1
where all directions are known alike. A squared width far below is the small difference of large
numbers: those scores are made in double precision, and so none is off by more than about 1e-6
of what it is made of (docs/math.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from whim.kernels.linalg import batch
from whim.types import F64

SMALL = 1 / 64  # scaled squared widths below have lost too many digits
_BLOCK = 2**19  # scores per block: 2 MB, still in a cache when they are added up
_ROWS = 256  # contexts per block, at least: a product with fewer is slower
_FEW = 128  # contexts: for fewer the scaling costs more than the product saves
_TINY = float(np.finfo(np.float32).tiny)

F32 = npt.NDArray[np.float32]


def bounds(X: F64, T: F64, P: F64, alpha: float) -> F64:
    """As ``batch.bounds``, with products in single precision; few contexts in double."""
    n, d = X.shape
    if 0 < n < _FEW:
        return batch.bounds(X, T, P, alpha)
    unit = _units(P, d)
    size, scaled = _lengths(X * unit)
    spread, Q = _forms(P, unit, d)
    means, widths = T / unit, alpha * np.sqrt(spread)
    most = max(float(np.abs(means).max()), float(widths.max()), _TINY)
    t, w = (means / most).astype(np.float32), (widths / most).astype(np.float32)
    size *= most

    result = np.empty((n, len(T)))
    step = max(1, min(n, max(_ROWS, _BLOCK // len(T))))
    features = np.empty((step, P.shape[1]), np.float32)
    room = np.empty((2, step, len(T)), np.float32)
    for at in range(0, n, step):
        part = result[at : at + step]
        x: Any = scaled[at : at + step]
        squared, mean = room[:, : len(x)]
        batch.expand(x, features[: len(x)])
        np.matmul(features[: len(x)], Q.T, out=squared)
        np.matmul(x, t.T, out=mean)
        lost = squared < SMALL if squared.min() < SMALL else None
        if lost is not None:
            np.maximum(squared, 0.0, out=squared)
        np.sqrt(squared, out=squared)
        squared *= w
        squared += mean
        np.multiply(squared, size[at : at + step], out=part)
        if lost is not None and _again(part, lost, X[at : at + step], T, P, alpha):
            rest = X[at + step :]
            if len(rest):
                result[at + step :] = batch.bounds(rest, T, P, alpha)
            break
    return result


def _units(P: F64, d: int) -> F64:
    """One number per feature: how uncertain its coefficient typically is."""
    i = np.arange(d)
    own = P[:, i * d - i * (i - 1) // 2]
    typical: F64 = np.exp(np.log(np.maximum(own, _TINY)).mean(axis=0) / 2)
    return typical


def _lengths(X: F64) -> tuple[F64, F32]:
    """Lengths of contexts, as a column, and the contexts at length 1."""
    size: F64 = np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
    return size, (X / np.where(size > 0, size, 1.0)).astype(np.float32)


def _forms(P: F64, unit: F64, d: int) -> tuple[F64, F32]:
    """Sizes of the forms, and the forms at size 1, in units of the features."""
    units = np.empty((1, P.shape[1]))
    batch.expand(unit[None], units)
    Q = P / units
    size = np.maximum(np.sqrt(np.einsum("ij,ij->i", Q, Q) / d), 1e-300)
    Q /= size[:, None]
    return size, Q.astype(np.float32)


def _again(part: F64, lost: npt.NDArray[np.bool_], X: F64, T: F64, P: F64, alpha: float) -> bool:
    """Rows or columns with lost digits in double precision; whether that was most of them."""
    rows, arms = np.flatnonzero(lost.any(axis=1)), np.flatnonzero(lost.any(axis=0))
    of_rows, of_arms = len(rows) / len(X), len(arms) / len(T)
    if of_rows <= of_arms:
        part[rows] = batch.bounds(X[rows], T, P, alpha)
    else:
        part[:, arms] = batch.bounds(X, T[arms], P[arms], alpha)
    return min(of_rows, of_arms) > 1 / 2
