"""The appendix's algorithm: LinUCB whose window's halves are compared, all arms restarted.

The older half's fit has no ridge in the paper, so its matrix may be singular (always, when one
user comes back) and θ_pre is the least-norm solution: this takes the eigenvalues of one d × d
matrix per test, not an inverse.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.kernels.detection import windows
from whim.kernels.detection.windows import Windows
from whim.kernels.jit import jit, part
from whim.kernels.linalg import udu
from whim.kernels.loops import Kernels
from whim.kernels.models import disjoint
from whim.kernels.models.contextfree_tests import turn_of
from whim.kernels.models.disjoint import Ridge
from whim.kernels.status import CHANGED, GROW, NO_CHANGE, TEST
from whim.types import F64, I64

# columns of the windows' table after those of the window: the newer half's first record, and slides
MIDDLE, MIDDLE_AT, SLIDES, TABLE = range(windows.ENDS, windows.ENDS + 4)

_RCOND = 1e-10


class State(NamedTuple):
    """One ridge model per arm, and halves of its window.

    A row of ``half`` holds, of the window's older half, Σ x xᵀ (d², full) and Σ r x, then of its
    newer half Σ x and Σ r. ``live`` holds the slots of all arms in the order of the round robin,
    ``restarted`` the step of the last restart. ``report`` takes a change: θ before, θ after, and
    the statistic; ``A`` and ``V`` are scratch.
    """

    model: Ridge
    windows: Windows
    window: int
    threshold: float
    gamma: float
    half: F64
    live: I64
    restarted: I64
    report: F64
    A: F64
    V: F64


@part
def _jacobi(A: F64, V: F64) -> None:
    """Eigenvalues of a symmetric matrix onto A's diagonal, eigenvectors into V's columns."""
    d = A.shape[0]
    for i in range(d):
        for j in range(d):
            V[i, j] = 1.0 if i == j else 0.0
    for _ in range(60):
        off, on = 0.0, 0.0
        for i in range(d):
            on += A[i, i] * A[i, i]
            for j in range(i):
                off += A[i, j] * A[i, j]
        if off <= 1e-32 * on:
            return
        for p in range(d - 1):
            for q in range(p + 1, d):
                if A[p, q] == 0.0:
                    continue
                ratio = (A[q, q] - A[p, p]) / (2.0 * A[p, q])
                t = 1.0 / (abs(ratio) + np.sqrt(ratio * ratio + 1.0))
                if ratio < 0.0:
                    t = -t
                c = 1.0 / np.sqrt(t * t + 1.0)
                s = t * c
                for i in range(d):
                    a, b = A[i, p], A[i, q]
                    A[i, p], A[i, q] = c * a - s * b, s * a + c * b
                for i in range(d):
                    a, b = A[p, i], A[q, i]
                    A[p, i], A[q, i] = c * a - s * b, s * a + c * b
                for i in range(d):
                    a, b = V[i, p], V[i, q]
                    V[i, p], V[i, q] = c * a - s * b, s * a + c * b


@part
def _least_norm(A: F64, V: F64, b: F64, theta: F64) -> None:
    """``theta = A⁺ b`` for a positive semidefinite A, which is overwritten; V is scratch."""
    d = b.shape[0]
    _jacobi(A, V)
    largest = 0.0
    for i in range(d):
        largest = max(largest, abs(A[i, i]))
    for i in range(d):
        theta[i] = 0.0
    for j in range(d):
        if A[j, j] > _RCOND * largest:
            part = 0.0
            for i in range(d):
                part += V[i, j] * b[i]
            part /= A[j, j]
            for i in range(d):
                theta[i] += V[i, j] * part


@jit
def least_norm(A: F64, b: F64, theta: F64) -> None:
    """``theta = A⁺ b``, for Python to call."""
    _least_norm(A, np.empty((b.shape[0], b.shape[0])), b, theta)


@part
def score(state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """LinUCB's bounds; the candidate whose turn it is in the round robin scores +inf."""
    best = disjoint.score_rows(state.model, x, slots, out)
    turn = turn_of(state.live, step - state.restarted[0], state.gamma)
    if turn < 0:
        return best
    for c in range(slots.shape[0]):
        if slots[c] == turn:
            out[c, 0] = np.inf
            return c
    return best


@part
def _older(half: F64, record: F64, d: int, sign: float) -> None:
    """Add a record to the older half's sums, or take it away."""
    r = sign * record[d]
    for i in range(d):
        x_i = sign * record[i]
        for j in range(d):
            half[i * d + j] += x_i * record[j]
        half[d * d + i] += r * record[i]


@part
def _newer(half: F64, record: F64, d: int, sign: float) -> None:
    """Add a record to the newer half's sums, or take it away."""
    at = d * d + d
    for j in range(d + 1):
        half[at + j] += sign * record[j]


@part
def _resum(state: State, slot: int, d: int) -> None:
    """Both halves' sums from the window itself, and where the newer half starts."""
    w, half, middle = state.windows, state.half[slot], state.window // 2
    for j in range(half.shape[0]):
        half[j] = 0.0
    chunk, place = w.table[slot, windows.HEAD], w.table[slot, windows.HEAD_AT]
    for i in range(w.table[slot, windows.COUNT]):
        if i == middle:
            w.table[slot, MIDDLE], w.table[slot, MIDDLE_AT] = chunk, place
        if i < middle:
            _older(half, w.pool[chunk, place], d, 1.0)
        else:
            _newer(half, w.pool[chunk, place], d, 1.0)
        chunk, place = windows.advance(w, chunk, place)


@part
def _slide(state: State, slot: int, d: int) -> None:
    """After a push to a full window: drop the oldest, hand the middle one to the older half."""
    w, half, table = state.windows, state.half[slot], state.windows.table
    chunk, place = windows.pop(w, slot)
    _older(half, w.pool[chunk, place], d, -1.0)
    chunk, place = table[slot, MIDDLE], table[slot, MIDDLE_AT]
    _older(half, w.pool[chunk, place], d, 1.0)
    _newer(half, w.pool[chunk, place], d, -1.0)
    chunk, place = windows.advance(w, chunk, place)
    table[slot, MIDDLE], table[slot, MIDDLE_AT] = chunk, place
    table[slot, SLIDES] += 1
    if table[slot, SLIDES] >= state.window // 2:  # sums that run for ever gather rounding errors
        table[slot, SLIDES] = 0
        _resum(state, slot, d)


@part
def learn(state: State, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One play: learn, then compare the window's halves."""
    m, w, half = state.model, state.windows, state.half[slot]
    if windows.full(w, slot):
        return GROW
    d = x.shape[0]
    chunk, place = windows.push(w, slot)
    record = w.pool[chunk, place]
    disjoint.write(state, slot, x, z, r, record)
    udu.learn(m.cum[slot], x, r, m.w)
    if w.table[slot, windows.COUNT] < state.window:
        return NO_CHANGE
    if w.table[slot, windows.COUNT] == state.window:
        _resum(state, slot, d)
    else:
        _newer(half, record, d, 1.0)
        _slide(state, slot, d)

    for i in range(d):
        for j in range(d):
            state.A[i, j] = half[i * d + j]
    theta = state.report[0]
    _least_norm(state.A, state.V, half[d * d : d * d + d], theta)
    at = d * d + d
    residual = -half[at + d]
    for j in range(d):
        residual += half[at + j] * theta[j]
    statistic = abs(residual) / (state.window // 2)
    if statistic < state.threshold:
        return NO_CHANGE
    state.report[2, 0] = statistic
    return TEST


@part
def _restart_all(state: State, step: int, slot: int) -> int:
    """Every arm in ``live`` starts anew."""
    m, d = state.model, state.model.w.shape[0]
    disjoint.theta(state, slot, state.report[0])
    for j in range(d):
        state.report[1, j] = 0.0
    for c in range(state.live.shape[0]):
        row = state.live[c]
        udu.set_prior(m.cum[row], d, m.ridge)
        windows.empty(state.windows, row)
    return CHANGED


TWO_HALVES = Kernels("modified_pslinucb", score, learn, finish=_restart_all)
