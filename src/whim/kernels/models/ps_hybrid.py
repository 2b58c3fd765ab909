"""PSLinUCB-Hybrid (Algorithm 2 of the paper): hybrid payoffs with either change test.

With z = kron(y, x) an arm's rewards are linear in x alone, θ + (y ⊗ I)ᵀβ being one vector, so the
score test on (x, r) is as exact as for disjoint payoffs, however β is learnt. Where the caller
gives z it is on ((x, z), r). ``pre`` holds M_pre: for the paper's test the model before the window,
for the score test the arm's plays since its restart that left the window. G_pre is the paper's.

A record is x, z and r, then the squared residual; where the score test is in x alone, z comes last:
features may be set anew and are no record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from whim.kernels.detection import mean_residual, revisit, score_test, windows
from whim.kernels.detection.mean_residual import MeanResidual
from whim.kernels.detection.revisit import Revisit
from whim.kernels.detection.score_test import ScoreTest
from whim.kernels.detection.windows import COUNT, HEAD, HEAD_AT, Windows, advance
from whim.kernels.jit import jit, part, splice
from whim.kernels.linalg import lanes, udu
from whim.kernels.loops import Kernels
from whim.kernels.models import hybrid
from whim.kernels.models.hybrid import CUM, PLAIN, PRE, Hybrid
from whim.types import F64, I64


class MeanResidualState(NamedTuple):
    """With the paper's test; ``r_at`` is where r stands in a record.

    ``exact``: G_pre counts each observation once; else the letter of Algorithm 2.
    """

    model: Hybrid
    windows: Windows
    test: MeanResidual
    pre: F64
    r_at: int
    exact: bool


class ScoreTestState(NamedTuple):
    """With the score test."""

    model: Hybrid
    windows: Windows
    test: ScoreTest
    pre: F64
    r_at: int
    exact: bool
    revisit: Revisit


@part
def _z_at(state: Any) -> int:
    return state.model.d if state.r_at > state.model.d else state.model.d + 2  # type: ignore[no-any-return]


@part
def _write(state: Any, slot: int, x: F64, z: F64, r: float, record: F64) -> None:
    m, at = state.model, _z_at(state)
    for j in range(m.d):
        record[j] = x[j]
    hybrid.cross_features(m, slot, x, z, record[at : at + m.k])
    record[state.r_at] = r


@part
def _learn_record(state: Any, model: F64, slot: int, record: F64, u: F64) -> tuple[float, float]:
    """``hybrid.own`` from a record, whose z counts unless all z are PLAIN."""
    m, at = state.model, _z_at(state)
    z = record[at : at + (0 if m.kind == PLAIN else m.k)]
    return hybrid.own(m, model, slot, record[: m.d], z, record[state.r_at], m.work[2], u)


@part
def _teach(state: Any, slot: int, record: F64) -> None:
    m = state.model
    u = m.work[1, : m.k]
    g, error = _learn_record(state, m.cum[slot], slot, record, u)
    hybrid.join(m.shared[CUM], g, error, u, m.work[2])


@part
def _theta(state: Any, slot: int, out: F64) -> None:
    hybrid.theta(state.model, slot, out)


@part
def _unjoin(f: F64, g: float, error: float, u: F64, h: F64, v: F64) -> None:
    """Let β unlearn: undo what ``join`` with the same u, e and g added. Scales u by √g."""
    k = u.shape[0]
    beta = k * (k + 1) // 2
    root = np.sqrt(g)
    miss = error - udu.predict(f, u)
    for j in range(k):
        u[j] *= root
    gain = root * miss / udu.downdate(f, u, h, v)
    for j in range(k):
        f[beta + j] -= h[j] * gain


@part
def _trade(state: Any, slot: int) -> None:
    """The arm becomes a new one that has seen just its window; the old one stays in G, frozen.

    G_cum trades S(pre ∪ window) for S(pre) + S(window), the equation after a detection, by
    rank-one steps: first the window joins as a new arm's, then it leaves as the old one's. In
    this order no direction is ever left with the ridge alone, so no digits are lost. G_pre takes
    S(window) when ``exact``. ``pre`` is left with the whole old arm.
    """
    m, w, pre = state.model, state.windows, state.pre[slot]
    cum, h, v, u = m.cum[slot], m.work[2], m.work[3], m.work[1, : m.k]
    udu.set_prior(cum, m.d, m.ridge)
    for turn in range(2):
        chunk, place = w.table[slot, HEAD], w.table[slot, HEAD_AT]
        for _ in range(w.table[slot, COUNT]):
            record = w.pool[chunk, place]
            g, error = _learn_record(state, cum if turn == 0 else pre, slot, record, u)
            if turn == 0:
                hybrid.join(m.shared[CUM], g, error, u, h)
                if state.exact:
                    hybrid.join(m.shared[PRE], g, error, u, h)
            else:
                _unjoin(m.shared[CUM], g, error, u, h, v)
            chunk, place = advance(w, chunk, place)


# -- the paper's test ---------------------------------------------------------------------------


@part
def _gap(state: MeanResidualState, slot: int, sums: F64) -> float:
    """|x̄ᵀθ_pre + z̄ᵀβ_pre - r̄| = |x̄ᵀt_pre + uᵀβ_pre - r̄|, u that of x̄ and z̄."""
    m, pre = state.model, state.pre[slot]
    d, k = m.d, m.k
    at, beta = d * (d + 1) // 2, k * (k + 1) // 2
    u, x = m.work[1, :k], sums[:d]
    gap: float = -sums[d + k]
    for i in range(d):
        gap += x[i] * pre[at + i]
    z = sums[d : d + (0 if m.kind == PLAIN else k)]
    hybrid.apart(m, pre, slot, x, z, m.work[2], u)
    for j in range(k):
        gap += u[j] * m.shared[PRE, beta + j]
    return gap


@part
def _leave_to_pre(state: MeanResidualState, slot: int, record: F64) -> None:
    m = state.model
    u = m.work[1, : m.k]
    g, error = _learn_record(state, state.pre[slot], slot, record, u)
    hybrid.join(m.shared[PRE], g, error, u, m.work[2])


@part
def _restart_paper(state: MeanResidualState, slot: int) -> None:
    m = state.model
    _trade(state, slot)
    if not state.exact:
        for j in range(m.shared.shape[1]):
            m.shared[PRE, j] = m.shared[CUM, j]


@jit
def freeze(state: MeanResidualState, slot: int) -> None:
    """Before an arm is retired or reset: its window, never to be tested again, joins G_pre."""
    w = state.windows
    chunk, place = w.table[slot, HEAD], w.table[slot, HEAD_AT]
    for _ in range(w.table[slot, COUNT]):
        _leave_to_pre(state, slot, w.pool[chunk, place])
        chunk, place = advance(w, chunk, place)


# -- the score test -----------------------------------------------------------------------------


@part
def _expected(
    state: ScoreTestState, slot: int, record: F64
) -> tuple[tuple[float, float], tuple[float, float]]:
    m, at = state.model, _z_at(state)
    x, z, u, f = record[: m.d], record[at : at + m.k], m.work[1, : m.k], m.shared[CUM]
    square = hybrid.apart(m, m.cum[slot], slot, x, z[:0] if m.kind == PLAIN else z, m.work[2], u)
    own = udu.predict(m.cum[slot], x) + udu.predict(f, u), square + udu.quad(f, u)
    length = 0.0
    for j in range(m.d):
        length += x[j] * x[j]
    return own, (udu.predict(f, z), length / m.ridge + udu.quad(f, z))


@part
def _leave(state: ScoreTestState, slot: int, record: F64) -> None:
    _learn_record(state, state.pre[slot], slot, record, state.model.work[1, : state.model.k])


@part
def _restart(state: ScoreTestState, slot: int) -> None:
    """The arm anew from its window, which stays; β with both."""
    _trade(state, slot)
    udu.set_prior(state.pre[slot], state.model.d, state.model.ridge)


@jit
def settle(state: ScoreTestState, slot: int) -> None:
    """No play is to be tested again: those in the window join M_pre."""
    w = state.windows
    while w.table[slot, COUNT] > 0:
        chunk, place = windows.pop(w, slot)
        _leave(state, slot, w.pool[chunk, place])
    score_test.refit(state.test, w, slot)


_score_arms = splice(hybrid.score_arms)


@part
def _score_revisiting(
    state: ScoreTestState, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> int:
    """As ``hybrid.score``, where arms left alone may have become new ones, which know β too."""
    m, v = state.model, state.revisit
    best: int = _score_arms(m, x, slots, cross, out)
    fade = revisit.fading(v, m.alpha)
    if fade == 0.0:
        return best
    n, k, f = slots.shape[0], m.k, m.shared[CUM]
    wide = lanes.columns(n)
    own = 0.0
    for j in range(m.d):
        own += x[j] * x[j]
    own /= m.ridge
    Z, rest = m.scratch[: k * wide], m.scratch[k * wide :]
    mean, square, z = rest[:wide], rest[wide : 2 * wide], rest[2 * wide : 2 * wide + k]
    for c in range(n):
        given = cross[c] if cross.shape[0] > 0 else x[:0]
        hybrid.cross_features(m, slots[c], x, given, z)
        square[c] = own
        mean[c] = 0.0
        for j in range(k):
            Z[j * wide + c] = z[j]
            mean[c] += f[k * (k + 1) // 2 + j] * z[j]
    lanes.squares(square, wide, f, Z, k)
    best = 0
    for c in range(n):
        q = revisit.chance(v, slots[c], step, fade)
        if q > 0.0:
            revisit.mix(out[c], q, mean[c], square[c], m.alpha)
        if out[c, 0] > out[best, 0]:
            best = c
    return best


_SHARED: dict[str, Any] = {"write": _write, "teach": _teach, "theta": _theta}
MEAN_RESIDUAL = Kernels(
    "ps_hybrid", hybrid.score, decide=hybrid.decide, decide_turn=hybrid.decide_turn,
    **mean_residual.compose(
        "hybrid", gap=_gap, leave=_leave_to_pre, restart=_restart_paper, **_SHARED
    ),
)  # fmt: skip
SCORE_TEST = Kernels(
    "ps_hybrid_score", _score_revisiting,
    **score_test.compose(
        "hybrid", expected=_expected, leave=_leave, restart=_restart, **_SHARED
    ),
)  # fmt: skip
