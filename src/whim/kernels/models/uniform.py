"""Uniform payoffs: one ridge model of the features of a (user, item) pair, shared by all arms.

LinUCB of Chu et al. 2011 and linear Thompson sampling. What the features φ of a pair are is its
``Pairs``: the item's own (the paper's choice), the cross features kron(y, x), the context alone
where each arm has a model, or rows that the caller gives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.kernels.jit import jit, part
from whim.kernels.linalg import udu
from whim.kernels.loops import Kernels
from whim.kernels.status import NO_CHANGE
from whim.types import F64, I64

ITEM, CROSS, GIVEN, OWN = range(4)


class Pairs(NamedTuple):
    """How a pair's features are made: ``kind``, the arms' features, and room for one φ.

    Rows that a caller gives count whatever the kind.
    """

    kind: int
    features: F64
    phi: F64


class State(NamedTuple):
    """One ridge model for all arms, row 0 of ``cum``; ``w`` and ``draw`` are scratch."""

    cum: F64
    alpha: float
    pairs: Pairs
    w: F64
    draw: F64


@part
def row_of(pairs: Pairs, slot: int) -> int:
    """The row of an arm's model."""
    return slot if pairs.kind == OWN else 0


@part
def feature(pairs: Pairs, x: F64, slot: int, given: F64) -> None:
    """Fill ``phi``; ``given`` is the caller's own row, or empty."""
    phi, features = pairs.phi, pairs.features
    if given.shape[0] > 0:
        for j in range(phi.shape[0]):
            phi[j] = given[j]
    elif pairs.kind == OWN:
        for j in range(phi.shape[0]):
            phi[j] = x[j]
    elif pairs.kind == ITEM:
        for j in range(phi.shape[0]):
            phi[j] = features[slot, j]
    else:
        k = 0
        for j in range(features.shape[1]):
            for i in range(x.shape[0]):
                phi[k] = features[slot, j] * x[i]
                k += 1


@part
def score_row(
    model: F64, alpha: float, pairs: Pairs, x: F64, slots: I64, cross: F64, out: F64
) -> int:
    """Upper confidence bounds of one model into ``out``; the best one's place."""
    best = 0
    for c in range(slots.shape[0]):
        feature(pairs, x, slots[c], cross[c] if cross.shape[0] > 0 else x[:0])
        mean = udu.predict(model, pairs.phi)
        width = alpha * np.sqrt(udu.quad(model, pairs.phi))
        out[c, 0] = mean + width
        out[c, 1] = mean
        out[c, 2] = width
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@part
def score(state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """Upper confidence bounds; the best one's place."""
    return score_row(state.cum[0], state.alpha, state.pairs, x, slots, cross, out)


@part
def sample(state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """As ``score`` for Thompson sampling: all arms share the draw θ̃ = θ + α U √D · noise."""
    model, pairs, drawn = state.cum[0], state.pairs, state.draw
    score_row(model, state.alpha, pairs, x, slots, cross, out)
    p = pairs.phi.shape[0]
    k = p
    for j in range(p):
        part = state.alpha * np.sqrt(model[j]) * noise[j]
        drawn[j] = part
        for i in range(j):
            drawn[i] += model[k + i] * part
        k += j
    best = 0
    for c in range(slots.shape[0]):
        feature(pairs, x, slots[c], cross[c] if cross.shape[0] > 0 else x[:0])
        value = out[c, 1]
        for j in range(p):
            value += pairs.phi[j] * drawn[j]
        out[c, 0] = value
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@part
def learn(state: State, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One ridge update."""
    feature(state.pairs, x, slot, z)
    udu.learn(state.cum[0], state.pairs.phi, r, state.w)
    return NO_CHANGE


@jit
def pack(model: F64, p: int, Y: F64, d: int, T: F64, P: F64) -> None:
    """For ``batch.bounds`` under cross features: φᵀθ and φᵀA⁻¹φ as forms in x, Y a row per arm.

    With φ = kron(y, x), block (j, h) of A⁻¹ enters xᵀPx with weight y_j y_h.
    """
    inverse = np.empty((p, p))
    udu.dense(model, inverse)
    theta = p * (p + 1) // 2
    square = np.empty((d, d))
    m = Y.shape[1]
    for c in range(Y.shape[0]):
        T[c, :] = 0.0
        square[:, :] = 0.0
        for j in range(m):
            for i in range(d):
                T[c, i] += Y[c, j] * model[theta + j * d + i]
            for h in range(m):
                weight = Y[c, j] * Y[c, h]
                for i in range(d):
                    for g in range(d):
                        square[i, g] += weight * inverse[j * d + i, h * d + g]
        udu.symmetric(square, P[c])


LINUCB = Kernels("linucb_shared", score, learn)
LINTS = Kernels("lints_shared", sample, learn)
