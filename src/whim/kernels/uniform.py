"""Uniform payoffs: one ridge model of the features of a (user, item) pair, shared by all arms.

LinUCB of Chu et al. 2011 and linear Thompson sampling. The model is row 0 of ``model``. What
the features φ are is the caller's ``kind``: the item's own (the paper's choice), the cross
features kron(y, x), or rows that the caller gives.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import factors
from whim.kernels.jit import inline, jit
from whim.types import F64, I64

__all__ = [
    "CROSS",
    "GIVEN",
    "ITEM",
    "feature",
    "learn_many",
    "learn_one",
    "pack",
    "sample",
    "score",
]

ITEM, CROSS, GIVEN = range(3)
QUIET, NOT_FINITE = 0, 3


@inline
def feature(kind: int, x: F64, features: F64, slot: int, cross: F64, c: int, phi: F64) -> None:
    """Fill ``phi``; ``features`` has a row a slot, ``cross`` a row a candidate."""
    if kind == ITEM:
        for j in range(phi.shape[0]):
            phi[j] = features[slot, j]
    elif kind == CROSS:
        k = 0
        for j in range(features.shape[1]):
            for i in range(x.shape[0]):
                phi[k] = features[slot, j] * x[i]
                k += 1
    else:
        for j in range(phi.shape[0]):
            phi[j] = cross[c, j]


@jit
def score(
    kind: int, x: F64, slots: I64, features: F64, cross: F64, model: F64, alpha: float, out: F64,
    phi: F64,
) -> int:  # fmt: skip
    """Upper confidence bounds into ``out`` (score, mean, width); the best one's place or -1."""
    if not factors.finite(x):
        return -1
    best = 0
    for c in range(slots.shape[0]):
        feature(kind, x, features, slots[c], cross, c, phi)
        mean = factors.predict(model, 0, phi)
        width = alpha * np.sqrt(factors.quad(model, 0, phi))
        out[c, 0] = mean + width
        out[c, 1] = mean
        out[c, 2] = width
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@jit
def sample(
    kind: int, x: F64, slots: I64, features: F64, cross: F64, model: F64, alpha: float,
    noise: F64, out: F64, phi: F64,
) -> int:  # fmt: skip
    """As ``score`` for Thompson sampling: all arms share the draw θ̃ = θ + α U √D · noise."""
    if score(kind, x, slots, features, cross, model, alpha, out, phi) < 0:
        return -1
    p = phi.shape[0]
    drawn = np.empty(p)
    k = p
    for j in range(p):
        step = alpha * np.sqrt(model[0, j]) * noise[j]
        drawn[j] = step
        for i in range(j):
            drawn[i] += model[0, k + i] * step
        k += j
    best = 0
    for c in range(slots.shape[0]):
        feature(kind, x, features, slots[c], cross, c, phi)
        value = out[c, 1]
        for j in range(p):
            value += phi[j] * drawn[j]
        out[c, 0] = value
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@jit
def learn_one(
    kind: int, x: F64, slot: int, features: F64, cross: F64, r: float, model: F64, phi: F64, w: F64
) -> int:
    """One ridge update; ``cross`` holds the played arm's row, if any."""
    if not factors.finite(x):
        return NOT_FINITE
    feature(kind, x, features, slot, cross, 0, phi)
    factors.learn(model, 0, phi, r, w)
    return QUIET


@jit
def learn_many(
    kind: int, X: F64, slots: I64, features: F64, cross: F64, rewards: F64, model: F64, phi: F64,
    w: F64,
) -> None:  # fmt: skip
    """Ridge updates in order."""
    for i in range(slots.shape[0]):
        feature(kind, X[i], features, slots[i], cross, i, phi)
        factors.learn(model, 0, phi, rewards[i], w)


@jit
def pack(model: F64, p: int, Y: F64, d: int, T: F64, P: F64) -> None:
    """For ``batch.bounds`` under cross features: φᵀθ and φᵀA⁻¹φ as forms in x, an arm a row of Y.

    With φ = kron(y, x), block (j, h) of A⁻¹ enters xᵀPx with weight y_j y_h.
    """
    inverse = np.empty((p, p))
    factors.dense(model, 0, inverse)
    theta = p * (p + 1) // 2
    square = np.empty((d, d))
    m = Y.shape[1]
    for c in range(Y.shape[0]):
        T[c, :] = 0.0
        square[:, :] = 0.0
        for j in range(m):
            for i in range(d):
                T[c, i] += Y[c, j] * model[0, theta + j * d + i]
            for h in range(m):
                weight = Y[c, j] * Y[c, h]
                for i in range(d):
                    for g in range(d):
                        square[i, g] += weight * inverse[j * d + i, h * d + g]
        factors.symmetric(square, P[c])
