"""Ridge models that forget by a discount: D-LinUCB (Russac et al. 2019).

V = λI + Σ γ^(t-s) φφᵀ, Ṽ the same with γ², b = Σ γ^(t-s) rφ; the bound is
φᵀV⁻¹b + β √(φᵀV⁻¹ṼV⁻¹φ). A row holds two sums without λI, as factors L E Lᵀ: that of
(φ, r)(φ, r)ᵀ, which is V bordered by b, and Ṽ's. Ageing then scales E alone, and waits until the
row is next used; a play is two rank-one steps, O(p²). This is the one linear policy with O(p³)
steps, when it scores: the sum fades but its ridge does not, so from one step to the next V gains
(1-γ)λI, of full rank, and no rank-one step keeps its factors. They are made from the sum's by one
rank-one step per ridge entry. All that is added is positive: pivots stay above zero and keep their
digits for contexts of any scale. Nothing is ever inverted; φ is solved for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.kernels.jit import jit, part
from whim.kernels.linalg import ldl, udu
from whim.kernels.loops import Kernels
from whim.kernels.models.uniform import Pairs, feature, row_of
from whim.kernels.status import NO_CHANGE
from whim.types import F64, I64


class Radius(NamedTuple):
    """``alpha`` or, if that is nan, what β_t of Russac et al. is made of, from ``start`` on."""

    start: I64
    alpha: float
    sigma: float
    delta: float
    bound_x: float
    bound_theta: float


class State(NamedTuple):
    """Discounted sums by row (see ``row_of``); ``touched`` is the update number of each row's last.

    ``V`` takes the factors of a row when it scores, ``work`` is scratch.
    """

    sums: F64
    touched: I64
    gamma: float
    ridge: float
    pairs: Pairs
    radius: Radius
    V: F64
    work: F64


def empty_row(p: int) -> F64:
    """The row of a model that has learnt nothing: the sum of V bordered by b, and that of Ṽ."""
    return np.zeros(udu.packed_size(p + 1) + udu.packed_size(p))


@part
def _faded(state: State, row: int, step: int) -> float:
    weight: float = state.gamma ** float(step - state.touched[row])
    return weight


@part
def learn(state: State, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """Update number ``step + 1``."""
    pairs, sums = state.pairs, state.sums
    p = pairs.phi.shape[0]
    second = (p + 1) * (p + 2) // 2
    row = row_of(pairs, slot)
    phi, v = pairs.phi, state.work[1]
    feature(pairs, x, slot, z)
    fade = _faded(state, row, step + 1)
    state.touched[row] = step + 1
    for j in range(p + 1):
        sums[row, j] *= fade
    for j in range(p):
        sums[row, second + j] *= fade * fade
        v[j] = phi[j]
    v[p] = r
    ldl.add(sums[row], 0, p + 1, 0, 1.0, v)
    for j in range(p):
        v[j] = phi[j]
    ldl.add(sums[row], second, p, 0, 1.0, v)
    return NO_CHANGE


@part
def _factor(state: State, row: int, fade: float) -> None:
    """Factors of the row's ``V = fade · sum + ridge · I``, bordered by b, into ``V``."""
    V, v = state.V, state.work[1]
    q = v.shape[0]
    for j in range(V.shape[0]):
        V[j] = state.sums[row, j]
    for j in range(q):
        V[j] *= fade
    for j in range(q - 1):
        v[:] = 0.0
        v[j] = 1.0
        ldl.add(V, 0, q, j, state.ridge, v)


@part
def _bound(state: State, row: int, fade: float) -> tuple[float, float]:
    """Mean and ``√(φᵀ V⁻¹ Ṽ V⁻¹ φ)`` of the pair in hand, from the one solution u = V⁻¹ φ."""
    phi, V = state.pairs.phi, state.V
    u = state.work[1, : phi.shape[0]]
    mean = ldl.solve(V, 0, phi, u)
    square = 0.0
    for j in range(phi.shape[0]):
        square += u[j] * u[j]
    spread = fade * fade * ldl.quad(state.sums[row], V.shape[0], u) + state.ridge * square
    return mean, np.sqrt(spread)


@part
def _radius(state: State, step: int) -> float:
    b, p = state.radius, state.pairs.phi.shape[0]
    if not np.isnan(b.alpha):
        return b.alpha
    t = step - b.start[0]
    mass = float(t)
    if state.gamma < 1.0:
        rate = 2.0 * np.log(state.gamma)
        mass = np.expm1(t * rate) / np.expm1(rate)
    volume = p * np.log1p(b.bound_x**2 * mass / (state.ridge * p))
    noise = b.sigma * np.sqrt(2.0 * np.log(1.0 / b.delta) + volume)
    beta: float = np.sqrt(state.ridge) * b.bound_theta + noise
    return beta


@part
def score(state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """Bounds after ``step`` updates; a model that all arms share is factored once."""
    best, ready, fade = 0, -1, 1.0
    beta = _radius(state, step)
    for c in range(slots.shape[0]):
        row = row_of(state.pairs, slots[c])
        if row != ready:
            fade = _faded(state, row, step)
            _factor(state, row, fade)
            ready = row
        feature(state.pairs, x, slots[c], cross[c] if cross.shape[0] > 0 else x[:0])
        mean, width = _bound(state, row, fade)
        width *= beta
        out[c, 0] = mean + width
        out[c, 1] = mean
        out[c, 2] = width
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@jit
def score_many(state: State, step: int, X: F64, slots: I64, result: F64) -> None:
    """Scores of every context (a row) for every candidate (a column), each model factored once."""
    ready, fade = -1, 1.0
    beta = _radius(state, step)
    for c in range(slots.shape[0]):
        row = row_of(state.pairs, slots[c])
        if row != ready:
            fade = _faded(state, row, step)
            _factor(state, row, fade)
            ready = row
        for i in range(X.shape[0]):
            feature(state.pairs, X[i], slots[c], X[i, :0])
            mean, width = _bound(state, row, fade)
            result[i, c] = mean + beta * width


@jit
def coefficients(state: State, step: int, row: int, theta: F64) -> None:
    """``theta = V⁻¹ b`` of one row after ``step`` updates."""
    p = theta.shape[0]
    _factor(state, row, _faded(state, row, step))
    for j in range(p):
        unit = state.work[0, :p]
        unit[:] = 0.0
        unit[j] = 1.0
        theta[j] = ldl.solve(state.V, 0, unit, state.work[1, :p])


DISCOUNTED = Kernels("dlinucb", score, learn)
