"""Hybrid payoffs: each arm its own coefficients of x, and β of the cross features z for all.

LinUCB-Hybrid (Li et al. 2010, Algorithm 2) in rank-one form; PSLinUCB-Hybrid, which adds the change
tests, is in ``ps_hybrid``. With C = A⁻¹B, u = z - Cᵀx and g = 1/(1 + xᵀA⁻¹x), one observation is
A0 += g u uᵀ, and xᵀθ + zᵀβ = xᵀt + uᵀβ. A0 and b0 themselves are never formed. Nor is C: while an
arm's z are kron(y, x), B is kron(yᵀ, A - λI), so that u = λ kron(y, A⁻¹x). Where they are not, R
is kept, what C has beyond that (docs/math.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whim.kernels.jit import inline, jit, part, splice
from whim.kernels.linalg import lanes, udu, vectors
from whim.kernels.loops import Kernels
from whim.kernels.models import uniform
from whim.kernels.status import NO_CHANGE, Turn
from whim.types import F64, I64

CUM, PRE = range(2)
# what z is: kron(y, x), as always before (R = 0); kron(y, x), but not always; the caller's rows
PLAIN, GIVEN, MIXED = uniform.CROSS, uniform.GIVEN, 3
SLACK = 1.01  # of the bound that spares a candidate: many times what rounding could take from it
FEW = 3  # candidates that are sooner done one by one than side by side


class Hybrid(NamedTuple):
    """The models: d features of a context, k cross features, what z is (``kind``).

    A row of ``cum`` holds the factors of A, then t = A⁻¹b, then R row by row. ``shared`` holds the
    factors of A0 and β: row 0 is G_cum, row 1 G_pre. ``scratch`` has ``room_size`` numbers.
    """

    cum: F64
    shared: F64
    features: F64
    d: int
    k: int
    kind: int
    alpha: float
    ridge: float
    scratch: F64
    work: F64


class State(NamedTuple):
    """LinUCB."""

    model: Hybrid


def room_size(n: int, d: int, m: int, k: int) -> int:
    """Numbers of scratch for n candidates."""
    return (udu.packed_size(d) + 2 * d + m + k + 6) * lanes.columns_for(n) + k


@part
def cross_features(m: Hybrid, slot: int, x: F64, given: F64, z: F64) -> None:
    """``z`` of an arm: the caller's row, if there is one."""
    for j in range(given.shape[0]):
        z[j] = given[j]
    if given.shape[0] == 0:
        for h in range(m.features.shape[1]):
            for i in range(m.d):
                z[h * m.d + i] = m.features[slot, h] * x[i]


@inline
def _rest(m: Hybrid, model: F64, slot: int, x: F64, given: F64, rest: F64) -> None:
    """``rest = z - kron(y, x) - Rᵀx``: what u has beyond λ kron(y, A⁻¹x)."""
    d, k = m.d, m.k
    for j in range(k):
        rest[j] = given[j] if given.shape[0] > 0 else 0.0
    for h in range(m.features.shape[1] if given.shape[0] > 0 else 0):
        for i in range(d):
            rest[h * d + i] -= m.features[slot, h] * x[i]
    vectors.add_rows(rest, k, x, -1.0, model, d * (d + 1) // 2 + d, d)


@inline
def _cast(m: Hybrid, slot: int, w: F64, u: F64) -> None:
    """``u += λ kron(y, w)``."""
    line, length = np.uint64(slot), np.uint64(m.d)
    j = np.uint64(0)
    for h in range(np.uint64(m.features.shape[1])):
        y = m.ridge * m.features[line, h]
        for i in range(length):
            u[j + i] += y * w[i]
        j += length


@part
def apart(m: Hybrid, model: F64, slot: int, x: F64, given: F64, w: F64, u: F64) -> float:
    """Leave u, and A⁻¹x in ``w``; returns xᵀA⁻¹x. R = 0 where z is PLAIN and none is given."""
    if m.kind == PLAIN and given.shape[0] == 0:
        u[:] = 0.0
    else:
        _rest(m, model, slot, x, given, u)
    square = udu.times(model, x, w)
    _cast(m, slot, w, u)
    return square


# -- decisions ----------------------------------------------------------------------------------


def _side_by_side(m: Hybrid, x: F64, slots: I64) -> Any:
    """Candidates side by side: y, λA⁻¹x, room for u, xᵀt + uᵀβ, xᵀA⁻¹x and |u|², if R = 0."""
    n, d, k, n_item = slots.shape[0], m.d, m.k, m.features.shape[1]
    wide, last = lanes.columns(n), n - 1
    size = d * (d + 1) // 2 + d
    models, rest = m.scratch[: size * wide], m.scratch[size * wide :]  # flat: reshaping is a call
    Y, rest = rest[: n_item * wide], rest[n_item * wide :]
    W, rest = rest[: d * wide], rest[d * wide :]
    U, rest = rest[: k * wide], rest[k * wide :]
    mean, square, length = rest[:wide], rest[wide : 2 * wide], rest[2 * wide : 3 * wide]
    for c in range(0, n, 4):  # past the end, the last candidate once more
        rows = slots[c], slots[min(c + 1, last)], slots[min(c + 2, last)], slots[min(c + 3, last)]
        lanes.pack4(models, wide, c, m.cum, rows, size)
        lanes.pack4(Y, wide, c, m.features, rows, n_item)
    lanes.solve(W, mean, square, wide, models, x)
    if m.ridge != 1.0:
        for i in range(d * wide):
            W[i] *= m.ridge
    beta = m.shared[CUM, k * (k + 1) // 2 :]
    lanes.cross_sums(mean, length, wide, Y, n_item, W, d, beta)
    return Y, W, U, mean, square, length


_side_by_side = splice(_side_by_side)


@part
def score_arms(m: Hybrid, x: F64, slots: I64, cross: F64, out: F64) -> int:
    """Upper confidence bounds into ``out`` (score, mean, width); the best one's place.

    All candidates at once, side by side: each one's sum keeps its order and the processor does
    several of them in one instruction.
    """
    n, k = slots.shape[0], m.k
    wide = lanes.columns(n)
    Y, W, U, mean, square, _ = _side_by_side(m, x, slots)
    if m.features.shape[1] == 0:
        U[:] = 0.0
    lanes.kron(U, wide, Y, m.features.shape[1], W, m.d, wide)
    if m.kind != PLAIN or cross.shape[0] > 0:
        more = m.scratch[m.scratch.shape[0] - k :]
        for c in range(n):
            given = cross[c] if cross.shape[0] > 0 else x[:0]
            _rest(m, m.cum[slots[c]], slots[c], x, given, more)
            mean[c] += vectors.dot(m.shared[CUM], k * (k + 1) // 2, more, k)
            for j in range(k):
                U[j * wide + c] += more[j]
    lanes.squares(square, wide, m.shared[CUM], U, k)

    best = 0
    for c in range(n):
        out[c, 1] = mean[c]
        out[c, 2] = m.alpha * np.sqrt(square[c])
        out[c, 0] = out[c, 1] + out[c, 2]
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@part
def score(state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """``score_arms``."""
    return score_arms(state.model, x, slots, cross, out)


@part
def decide(
    state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> tuple[int, float, float, float]:
    """As ``score``, of the best candidate alone, for z that are PLAIN.

    As ``score`` to the last bit, with less work. uᵀA0⁻¹u is most of it, at least 0 and at most
    |u|²/λ, and u shrinks as an arm is played: a candidate whose score cannot reach what another
    is sure of is left out, and most are.
    """
    m = state.model
    n, d, n_item = slots.shape[0], np.uint64(m.d), np.uint64(m.features.shape[1])
    alpha, k, f = m.alpha, m.k, m.shared[CUM]
    Y, W, U, mean, square, most = _side_by_side(m, x, slots)
    least, share = U[:n], SLACK / m.ridge  # u comes later
    sure = -np.inf
    for c in range(n):
        least[c] = mean[c] + alpha * np.sqrt(square[c])
        most[c] = mean[c] + alpha * np.sqrt(square[c] + share * most[c])
    for c in range(n):
        sure = max(sure, least[c])
    left = 0
    for c in range(n):  # without a branch that nobody could foresee
        out_of_reach = most[c] < sure
        most[left] = c
        left += 1 - out_of_reach
    few = left <= FEW
    u, wide = U[:k], np.uint64(lanes.columns(n))
    for i in range(np.uint64(left)):
        place = np.uint64(most[i])
        if few:
            for h in range(n_item):
                for j in range(d):
                    u[h * d + j] = Y[h * wide + place] * W[j * wide + place]
            square[i] = square[place] + vectors.quad(f, u, k)
        else:  # side by side, those who may win in front
            for h in range(n_item):
                Y[h * wide + i] = Y[h * wide + place]
            for j in range(d):
                W[j * wide + i] = W[j * wide + place]
            square[i] = square[place]
        mean[i] = mean[place]
    if not few:
        lanes.kron(U, lanes.columns(left), Y, m.features.shape[1], W, m.d, lanes.columns(n))
        lanes.squares(square, lanes.columns(left), f, U, k)

    chosen, best, best_mean, best_width = 0, -np.inf, 0.0, 0.0
    for i in range(left):
        width = alpha * np.sqrt(square[i])
        if mean[i] + width > best:
            chosen, best = int(most[i]), mean[i] + width
            best_mean, best_width = mean[i], width
    return chosen, best, best_mean, best_width


@part
def decide_turn(
    state: State, turn: Turn, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> tuple[int, float, float, float]:
    """As ``decide``, for any z."""
    if state.model.kind == PLAIN:
        return decide(state, turn.step, x, slots, cross, noise, out)
    place = score_arms(state.model, x, slots, cross, out)
    return place, out[place, 0], out[place, 1], out[place, 2]


# -- rewards ------------------------------------------------------------------------------------


@part
def own(
    m: Hybrid, model: F64, slot: int, x: F64, given: F64, r: float, w: F64, u: F64
) -> tuple[float, float]:
    """Let the arm's own model learn; leaves u of the model before, returns g and the error e."""
    d, k = m.d, m.k
    at = d * (d + 1) // 2
    plain = m.kind == PLAIN and given.shape[0] == 0
    if plain:
        for j in range(k):
            u[j] = 0.0
    else:
        _rest(m, model, slot, x, given, u)
    error = r - udu.predict(model, x)
    g = 1.0 / udu.rank_one(model, x, 1.0, w)
    for i in range(d):
        step = g * w[i]
        model[at + i] += step * error
        if not plain:
            R_i = model[at + d + i * k : at + d + i * k + k]
            for j in range(k):
                R_i[j] += step * u[j]
    _cast(m, slot, w, u)
    return g, error


@part
def join(f: F64, g: float, error: float, u: F64, h: F64) -> None:
    """Let β learn: one least-squares step with feature u, target e and weight g."""
    k = u.shape[0]
    beta = k * (k + 1) // 2
    miss = error - udu.predict(f, u)
    gain = g * miss / udu.rank_one(f, u, g, h)
    for j in range(k):
        f[beta + j] += h[j] * gain


_own, _join = splice(own), splice(join)  # a tenth of a live update is handing over to them


@part
def learn(state: State, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One play under LinUCB-Hybrid."""
    m = state.model
    u, w = m.work[1, : m.k], m.work[2]
    g, error = _own(m, m.cum[slot], slot, x, z, r, w, u)
    _join(m.shared[CUM], g, error, u, w)
    return NO_CHANGE


# -- for Python to call -------------------------------------------------------------------------


@part
def theta(m: Hybrid, slot: int, out: F64) -> None:
    """θ = t - Cβ = t - Rβ - q + λA⁻¹q, with q the sum of β's parts, each times its y."""
    d, k, model, f = m.d, m.k, m.cum[slot], m.shared[CUM]
    at = d * (d + 1) // 2
    beta = k * (k + 1) // 2
    q, w = out[:d], m.work[2]
    for i in range(d):
        q[i] = 0.0
        for h in range(m.features.shape[1]):
            q[i] += m.features[slot, h] * f[beta + h * d + i]
    udu.times(model, q, w)
    for i in range(d):
        value = model[at + i] - q[i] + m.ridge * w[i]
        for j in range(k):
            value -= model[at + d + i * k + j] * f[beta + j]
        out[i] = value


@jit
def coefficients(m: Hybrid, slot: int, out: F64) -> None:
    """The arm's own θ."""
    theta(m, slot, out)


@jit
def set_features(model: F64, change: F64, ridge: float, d: int, k: int) -> None:
    """An arm's features are new, y less ``change``: R takes what its plays so far had of it."""
    A_inv = np.empty((d, d))
    udu.dense(model, A_inv)
    at = d * (d + 1) // 2 + d
    for i in range(d):
        for h in range(change.shape[0]):
            model[at + i * k + h * d + i] += change[h]
            for j in range(d):
                model[at + i * k + h * d + j] -= change[h] * ridge * A_inv[i, j]


@jit
def pack(m: Hybrid, slots: I64, T: F64, P: F64) -> None:
    """For ``batch.bounds``: with u = Ex, E = λ kron(y, A⁻¹) - Rᵀ, the bound's mean and square in x.

    t_a <- t + Eᵀβ and P_a <- A⁻¹ + EᵀA0⁻¹E.
    """
    d, k, f = m.d, m.k, m.shared[CUM]
    at = d * (d + 1) // 2
    beta = k * (k + 1) // 2
    A0_inv, square = np.empty((k, k)), np.empty((d, d))
    E, half = np.empty((k, d)), np.empty((k, d))
    udu.dense(f, A0_inv)
    for c in range(slots.shape[0]):
        model = m.cum[slots[c]]
        udu.dense(model, square)
        for j in range(k):
            for i in range(d):
                E[j, i] = -model[at + d + i * k + j]
        for h in range(m.features.shape[1]):
            for i in range(d):
                for g in range(d):
                    E[h * d + i, g] += m.ridge * m.features[slots[c], h] * square[i, g]
        half[:, :] = 0.0
        for j in range(k):
            for h in range(k):
                for i in range(d):
                    half[j, i] += A0_inv[j, h] * E[h, i]
        for i in range(d):
            T[c, i] = model[at + i]
        for j in range(k):
            for i in range(d):
                T[c, i] += E[j, i] * f[beta + j]
                for g in range(d):
                    square[i, g] += E[j, i] * half[j, g]
        udu.symmetric(square, P[c])


LINUCB = Kernels("linucb_hybrid", score, learn, decide=decide, decide_turn=decide_turn)
