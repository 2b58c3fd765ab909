"""The paper's test: the mean residual of a full window under the model before it (Algorithm 1, 2).

``learn`` and ``finish`` are templates: ``compose`` binds a payoff model's functions to the names
that stand for them. A record is what the model keeps of a play, the reward last; the statistic is
|x̄ᵀθ_pre - r̄|, so only the window's sums matter. M_cur is never kept: it is the window's own model,
rebuilt from the window on a change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from whim.kernels.detection import windows
from whim.kernels.detection.windows import COUNT
from whim.kernels.jit import bind, part, splice
from whim.kernels.status import CHANGED, GROW, NO_CHANGE, TEST
from whim.types import F64

# columns of the windows' table after those of the window: whether M_pre has been seeded, and how
# many plays have left since the sums were exact
SEEDED, POPS, TABLE = range(windows.ENDS, windows.ENDS + 3)


class MeanResidual(NamedTuple):
    """The state of the test.

    A row of ``pre`` is M_pre, then the window's sums of what a record holds. ``report`` takes a
    change: θ before, θ after, and the statistic.
    """

    window: int
    threshold: float
    seed_first: bool
    pre: F64
    report: F64


def _placeholder(*arguments: Any) -> Any:
    raise NotImplementedError  # bound to a payoff model's own by ``compose``


write = teach = gap = leave = restart = theta = _placeholder


def learn(state: Any, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One play: learn, then compare the full window; it slides unless a change shows."""
    w, t = state.windows, state.test
    if windows.full(w, slot):
        return GROW
    chunk, place = windows.push(w, slot)
    record = w.pool[chunk, place]
    write(state, slot, x, z, r, record)
    sums = t.pre[slot, state.model.cum.shape[1] :]
    for j in range(sums.shape[0]):
        sums[j] += record[j]
    teach(state, slot, record)
    if w.table[slot, COUNT] < t.window:
        return NO_CHANGE

    statistic = abs(gap(state, slot, sums)) / t.window
    if statistic >= t.threshold or (t.seed_first and w.table[slot, SEEDED] == 0):
        t.report[2, 0] = statistic
        return TEST
    chunk, place = windows.pop(w, slot)
    old = w.pool[chunk, place]
    leave(state, slot, old)
    w.table[slot, POPS] += 1
    if w.table[slot, POPS] >= t.window:
        w.table[slot, POPS] = 0
        windows.resum(w, slot, sums)
    else:
        for j in range(sums.shape[0]):
            sums[j] -= old[j]
    return NO_CHANGE


def finish(state: Any, step: int, slot: int) -> int:
    """M_pre, M_cum <- M_cur; M_cur and the window <- empty. A seeding window is no change."""
    w, t = state.windows, state.test
    first = t.seed_first and w.table[slot, SEEDED] == 0
    cum, pre = state.model.cum[slot], t.pre[slot]
    theta(state, slot, t.report[0])
    restart(state, slot)
    for j in range(pre.shape[0]):
        pre[j] = cum[j] if j < cum.shape[0] else 0.0
    windows.empty(w, slot)
    theta(state, slot, t.report[1])
    w.table[slot, SEEDED] = 1
    return NO_CHANGE if first else CHANGED


def compose(name: str, **model: Callable[..., Any]) -> dict[str, Any]:
    """``learn`` and ``finish`` for a payoff model, for ``Kernels``.

    The model has ``write``, ``teach`` and ``theta`` as for ``score_test``, ``gap(state, slot,
    sums)``: the window's summed residual under M_pre, ``leave(state, slot, record)``, which teaches
    M_pre, and ``restart(state, slot)``, which makes M_cum anew from the window.
    """
    name = f"mean_residual_{name}"
    hot = {hook: splice(function) for hook, function in model.items()}
    return {"learn": part(bind(learn, name, **hot)), "finish": part(bind(finish, name, **model))}
