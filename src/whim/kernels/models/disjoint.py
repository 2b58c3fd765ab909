"""Disjoint payoffs: each arm its own ridge model of the user's features.

LinUCB (Li et al. 2010, Algorithm 1), linear Thompson sampling, and PSLinUCB-Disjoint (Algorithm 1
of the paper) with either change test. A state has the models under ``model``, then what its test
keeps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whim.kernels.detection import mean_residual, revisit, score_test
from whim.kernels.detection.mean_residual import MeanResidual
from whim.kernels.detection.revisit import Revisit
from whim.kernels.detection.score_test import ScoreTest
from whim.kernels.detection.windows import COUNT, HEAD, HEAD_AT, Windows, advance
from whim.kernels.jit import inline, part, splice
from whim.kernels.linalg import packed, udu, vectors
from whim.kernels.linalg.udu import LONG, VECTORS
from whim.kernels.lists import take_scores
from whim.kernels.loops import Kernels
from whim.kernels.status import NO_CHANGE, ListTurn, Turn
from whim.types import F64, I64

COPIES = True  # False in kernels of policies whose decisions read the models themselves


class Ridge(NamedTuple):
    """One model per arm: ``cum`` has its row, ``shown`` the same as decisions read it.

    They are one array, or ``shown`` is a copy in float32 of half the size, which every change of
    a row is written to. ``w`` is scratch.
    """

    cum: F64
    shown: F64
    alpha: float
    ridge: float
    w: F64


class State(NamedTuple):
    """LinUCB and Thompson sampling."""

    model: Ridge


class MeanResidualState(NamedTuple):
    """PSLinUCB with the paper's test."""

    model: Ridge
    windows: Windows
    test: MeanResidual


class ScoreTestState(NamedTuple):
    """PSLinUCB with the score test."""

    model: Ridge
    windows: Windows
    test: ScoreTest
    revisit: Revisit


# -- decisions ----------------------------------------------------------------------------------


@splice
def _four(
    x: F64, cum: F64, a: int, b: int, c: int, e: int
) -> tuple[float, float, float, float, float, float, float, float]:
    """Means of four rows, then their squared widths: no sum waits for another's last addition.

    Unsigned numbers spare the compiler Python's indexing from the end.
    """
    d = np.uint64(x.shape[0])
    theta = d * (d + np.uint64(1)) // np.uint64(2)
    row_0, row_1, row_2, row_3 = np.uint64(a), np.uint64(b), np.uint64(c), np.uint64(e)
    mean_0, mean_1, mean_2, mean_3 = 0.0, 0.0, 0.0, 0.0
    quad_0, quad_1, quad_2, quad_3 = 0.0, 0.0, 0.0, 0.0
    column = d
    for j in range(d):
        x_j = x[j]
        mean_0 += x_j * cum[row_0, theta + j]
        mean_1 += x_j * cum[row_1, theta + j]
        mean_2 += x_j * cum[row_2, theta + j]
        mean_3 += x_j * cum[row_3, theta + j]
        f_0, f_1, f_2, f_3 = x_j, x_j, x_j, x_j
        for i in range(j):
            x_i = x[i]
            f_0 += cum[row_0, column + i] * x_i
            f_1 += cum[row_1, column + i] * x_i
            f_2 += cum[row_2, column + i] * x_i
            f_3 += cum[row_3, column + i] * x_i
        quad_0 += cum[row_0, j] * f_0 * f_0
        quad_1 += cum[row_1, j] * f_1 * f_1
        quad_2 += cum[row_2, j] * f_2 * f_2
        quad_3 += cum[row_3, j] * f_3 * f_3
        column += j
    return mean_0, mean_1, mean_2, mean_3, quad_0, quad_1, quad_2, quad_3


@part
def score_rows(m: Ridge, x: F64, rows: I64, out: F64) -> int:
    """Upper confidence bounds of these rows into ``out``: score, mean, width; the best's place."""
    n, d = rows.shape[0], x.shape[0]
    long = VECTORS and d >= LONG  # then one row has sums enough of its own
    if VECTORS:
        for c in range(n if long else 0):
            out[c, 2] = vectors.quad(m.shown[rows[c]], x, d)
            out[c, 1] = vectors.dot(m.shown[rows[c]], d * (d + 1) // 2, x, d)
    last = n - 1
    for c in range(0, 0 if long else n, 4):  # past the end, the last candidate once more
        c_1 = c + 1 if c < last else last
        c_2 = c + 2 if c + 1 < last else last
        c_3 = c + 3 if c + 2 < last else last
        (
            out[c, 1], out[c_1, 1], out[c_2, 1], out[c_3, 1],
            out[c, 2], out[c_1, 2], out[c_2, 2], out[c_3, 2],
        ) = _four(x, m.shown, rows[c], rows[c_1], rows[c_2], rows[c_3])  # fmt: skip
    best = 0
    for c in range(n):
        out[c, 2] = m.alpha * np.sqrt(out[c, 2])
        out[c, 0] = out[c, 1] + out[c, 2]
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@part
def score(state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """Upper confidence bounds of the candidates; the best one's place."""
    return score_rows(state.model, x, slots, out)


@part
def decide(
    state: Any, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> tuple[int, float, float, float]:
    """As ``score``, of the best candidate alone."""
    cum, alpha = state.model.shown, state.model.alpha
    chosen, best, best_mean, best_width = 0, -np.inf, 0.0, 0.0
    n, d = slots.shape[0], x.shape[0]
    long = VECTORS and d >= LONG
    if VECTORS:  # through memory in one direction: widths, then means
        for c in range(n if long else 0):
            w_0 = alpha * np.sqrt(vectors.quad(cum[slots[c]], x, d))
            m_0 = vectors.dot(cum[slots[c]], d * (d + 1) // 2, x, d)
            if m_0 + w_0 > best:
                chosen, best, best_mean, best_width = c, m_0 + w_0, m_0, w_0
    last = n - 1
    for c in range(0, 0 if long else n, 4):
        c_1 = c + 1 if c < last else last
        c_2 = c + 2 if c + 1 < last else last
        c_3 = c + 3 if c + 2 < last else last
        m_0, m_1, m_2, m_3, q_0, q_1, q_2, q_3 = _four(
            x, cum, slots[c], slots[c_1], slots[c_2], slots[c_3]
        )
        w_0, w_1 = alpha * np.sqrt(q_0), alpha * np.sqrt(q_1)
        w_2, w_3 = alpha * np.sqrt(q_2), alpha * np.sqrt(q_3)
        if m_0 + w_0 > best:
            chosen, best, best_mean, best_width = c, m_0 + w_0, m_0, w_0
        if m_1 + w_1 > best:
            chosen, best, best_mean, best_width = c_1, m_1 + w_1, m_1, w_1
        if m_2 + w_2 > best:
            chosen, best, best_mean, best_width = c_2, m_2 + w_2, m_2, w_2
        if m_3 + w_3 > best:
            chosen, best, best_mean, best_width = c_3, m_3 + w_3, m_3, w_3
    return chosen, best, best_mean, best_width


@part
def decide_turn(
    state: Any, turn: Turn, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> tuple[int, float, float, float]:
    """As ``decide``; the same candidates again have their models side by side in ``out``."""
    n, m = slots.shape[0], state.model
    if turn.repeats == 0 or n < packed.LEAST or x.shape[0] >= LONG:
        return decide(state, turn.step, x, slots, cross, noise, out)
    if turn.repeats == 1:
        for c in range(n):
            packed.pack(c, m.shown[slots[c]], out)
    elif turn.learnt >= 0:
        packed.pack(turn.learnt, m.shown[slots[turn.learnt]], out)
    return packed.best(x, n, out, m.alpha), 0.0, 0.0, 0.0


@part
def score_turn(
    state: Any, turn: ListTurn, x: F64, slots: I64, noise: F64, out: F64, scores: F64
) -> None:
    """Scores alone, of all candidates; side by side as in ``decide_turn``."""
    n, m = slots.shape[0], state.model
    if turn.repeats == 0 or n < packed.LEAST or x.shape[0] >= LONG:
        score_rows(m, x, slots, out)
        take_scores(out, n, scores)
        return
    if turn.repeats == 1:
        for c in range(n):
            packed.pack(c, m.shown[slots[c]], out)
    else:
        for c in turn.learnt:
            packed.pack(c, m.shown[slots[c]], out)
    packed.score(x, n, out, m.alpha)
    for c in range(n):
        scores[c] = out[out.shape[0] - packed.WORK, c]


@part
def sample(state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """As ``score`` for Thompson sampling: the score is ``mean + width · noise``.

    For one context xᵀθ̃ with θ̃ ~ N(θ, α²A⁻¹) is N(xᵀθ, α² xᵀA⁻¹x), independent over arms, so
    one normal number per arm has the distribution of a whole posterior draw.
    """
    score_rows(state.model, x, slots, out)
    best = 0
    for c in range(slots.shape[0]):
        out[c, 0] = out[c, 1] + out[c, 2] * noise[c]
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@part
def _length(x: F64) -> float:
    square = 0.0
    for j in range(x.shape[0]):
        square += x[j] * x[j]
    return square


@part
def score_revisiting(
    state: ScoreTestState, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> int:
    """As ``score``, where arms left alone may have become new ones."""
    m, v = state.model, state.revisit
    best = score_rows(m, x, slots, out)
    fade = revisit.fading(v, m.alpha)
    if fade == 0.0:
        return best
    new = _length(x) / m.ridge
    best = 0
    for c in range(slots.shape[0]):
        q = revisit.chance(v, slots[c], step, fade)
        if q > 0.0:
            revisit.mix(out[c], q, 0.0, new, m.alpha)
        if out[c, 0] > out[best, 0]:
            best = c
    return best


_decide, _score_revisiting = splice(decide), splice(score_revisiting)


@part
def decide_revisiting(
    state: ScoreTestState, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> tuple[int, float, float, float]:
    """As ``score_revisiting``, of the best candidate alone."""
    if revisit.fading(state.revisit, state.model.alpha) == 0.0:
        best: tuple[int, float, float, float] = _decide(state, step, x, slots, cross, noise, out)
        return best
    place = _score_revisiting(state, step, x, slots, cross, noise, out)
    return place, out[place, 0], out[place, 1], out[place, 2]


@part
def _decide_turn_revisiting(
    state: ScoreTestState, turn: Turn, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> tuple[int, float, float, float]:
    if revisit.fading(state.revisit, state.model.alpha) == 0.0:
        return decide_turn(state, turn, x, slots, cross, noise, out)
    return score_revisiting(state, turn.step, x, slots, cross, noise, out), 0.0, 0.0, 0.0


@part
def _score_turn_revisiting(
    state: ScoreTestState, turn: ListTurn, x: F64, slots: I64, noise: F64, out: F64, scores: F64
) -> None:
    if revisit.fading(state.revisit, state.model.alpha) == 0.0:
        score_turn(state, turn, x, slots, noise, out, scores)
    else:
        score_revisiting(state, turn.step, x, slots, out[:0], noise, out)
        take_scores(out, slots.shape[0], scores)


# -- rewards ------------------------------------------------------------------------------------


@inline
def show(m: Ridge, row: int) -> None:
    """Bring the copy that decisions read up to date, if it is one."""
    if COPIES and m.shown.ctypes.data != m.cum.ctypes.data:
        for j in range(m.cum.shape[1]):
            m.shown[row, j] = m.cum[row, j]


_learn = splice(udu.learn)


@part
def learn(state: State, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One plain ridge update: LinUCB and Thompson sampling."""
    _learn(state.model.cum[slot], x, r, state.model.w)
    show(state.model, slot)
    return NO_CHANGE


# -- what the tests ask of this model; a record is x, then r -------------------------------------


@part
def write(state: Any, slot: int, x: F64, z: F64, r: float, record: F64) -> None:
    """What is kept of a play."""
    d = x.shape[0]
    for j in range(d):
        record[j] = x[j]
    record[d] = r


@part
def teach(state: Any, slot: int, record: F64) -> None:
    """A play to the model that decides."""
    m, d = state.model, state.model.w.shape[0]
    udu.learn(m.cum[slot], record[:d], record[d], m.w)
    show(m, slot)


@part
def relearn(state: Any, slot: int) -> None:
    """The model anew from the plays in the window."""
    m, w, d = state.model, state.windows, state.model.w.shape[0]
    udu.set_prior(m.cum[slot], d, m.ridge)
    chunk, place = w.table[slot, HEAD], w.table[slot, HEAD_AT]
    for _ in range(w.table[slot, COUNT]):
        record = w.pool[chunk, place]
        udu.learn(m.cum[slot], record[:d], record[d], m.w)
        chunk, place = advance(w, chunk, place)
    show(m, slot)


@part
def theta(state: Any, slot: int, out: F64) -> None:
    """The model's coefficients."""
    d = state.model.w.shape[0]
    at = d * (d + 1) // 2
    for j in range(d):
        out[j] = state.model.cum[slot, at + j]


@part
def _gap(state: MeanResidualState, slot: int, sums: F64) -> float:
    d: int = state.model.w.shape[0]
    at = d * (d + 1) // 2
    residual: float = -sums[d]
    for j in range(d):
        residual += sums[j] * state.test.pre[slot, at + j]
    return residual


@part
def _leave_to_pre(state: MeanResidualState, slot: int, record: F64) -> None:
    d: int = state.model.w.shape[0]
    r: float = record[d]
    udu.learn(state.test.pre[slot], record[:d], r, state.model.w)


@part
def _expected(
    state: ScoreTestState, slot: int, record: F64
) -> tuple[tuple[float, float], tuple[float, float]]:
    m, x = state.model, record[: state.model.w.shape[0]]
    own = udu.predict(m.cum[slot], x), udu.quad(m.cum[slot], x)
    return own, (0.0, _length(x) / m.ridge)


@part
def _leave(state: ScoreTestState, slot: int, record: F64) -> None:
    pass  # the model keeps what it has learnt


DECISIONS: dict[str, Any] = {
    "decide": decide, "decide_turn": decide_turn, "score_turn": score_turn, "packs": True
}  # fmt: skip
LINUCB = Kernels("linucb", score, learn, **DECISIONS)
LINTS = Kernels("lints", sample, learn)
MEAN_RESIDUAL = Kernels(
    "ps_disjoint", score, **DECISIONS,
    **mean_residual.compose(
        "disjoint", write=write, teach=teach, gap=_gap, leave=_leave_to_pre, restart=relearn,
        theta=theta,
    ),
)  # fmt: skip
SCORE_TEST = Kernels(
    "ps_disjoint_score", score_revisiting, decide=decide_revisiting,
    decide_turn=_decide_turn_revisiting, score_turn=_score_turn_revisiting, packs=True,
    **score_test.compose(
        "disjoint", write=write, expected=_expected, teach=teach, leave=_leave,
        restart=relearn, theta=theta,
    ),
)  # fmt: skip
