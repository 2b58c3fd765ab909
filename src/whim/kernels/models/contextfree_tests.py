"""Context-free payoffs that are tested for changes: M-UCB and CUSUM-UCB.

``stats`` and the indices are those of ``contextfree``, with what the tests keep in more columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.kernels.detection import windows
from whim.kernels.detection.windows import Windows
from whim.kernels.jit import jit, part
from whim.kernels.loops import Kernels
from whim.kernels.models.contextfree import PLAYS, SUM, bounds, count, force
from whim.kernels.status import CHANGED, GROW, NO_CHANGE, TEST
from whim.types import F64, I64

# columns of ``stats`` after plays and sum; the last name of each line is how many there are
EARLY, LATE, MONITORED_COLUMNS = range(2, 5)  # M-UCB: sums of the window's halves
ORIGIN, UP, DOWN, CUSUM_COLUMNS = range(2, 6)  # CUSUM-UCB: warm-up mean, g+ and g-

# M-UCB: columns of the windows' table after those of the window, and the one of ``clock``
MIDDLE, MIDDLE_AT, SLID, MONITOR_TABLE = range(windows.ENDS, windows.ENDS + 4)
TAU = 0
_MANY = 2.0**62


# -- M-UCB --------------------------------------------------------------------------------------


class MonitoredState(NamedTuple):
    """M-UCB: UCB1 since the restart, unless it is the turn of one of the candidates.

    ``live`` holds the slots of all arms in the order of the round robin; ``report`` takes the
    statistic and the arm's mean before a change.
    """

    stats: F64
    windows: Windows
    live: I64
    clock: I64
    gamma: float
    window: int
    threshold: float
    report: F64


@part
def turn_of(live: I64, elapsed: int, gamma: float) -> int:
    """The slot whose turn it is ``elapsed`` steps after a restart, or -1.

    Counted from 0, so that the last arm has its turn even when N = K (the paper's ``(t - τ) mod
    N`` in 1..K loses it).
    """
    n = live.shape[0]
    if gamma <= 0.0 or n == 0:
        return -1
    period = max(n, int(np.floor(min(n / gamma, _MANY))))
    turn = elapsed % period
    return live[turn] if turn < n else -1


@jit
def round_robin(live: I64, elapsed: int, gamma: float) -> int:
    """``turn_of``, for Python to call."""
    return turn_of(live, elapsed, gamma)


@part
def _score_monitored(
    state: MonitoredState, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> int:
    elapsed = step - state.clock[TAU]
    best = bounds(slots, state.stats, 2.0 * np.log(elapsed + 1), 1.0, out)
    turn = turn_of(state.live, elapsed, state.gamma)
    if turn >= 0:
        for c in range(slots.shape[0]):
            if slots[c] == turn:
                force(c, slots.shape[0], out)
                return c
    return best


@part
def _sum_halves(state: MonitoredState, slot: int) -> None:
    """Recompute both sums, so that a million additions and subtractions leave no trace."""
    w, stats = state.windows, state.stats
    stats[slot, EARLY] = 0.0
    stats[slot, LATE] = 0.0
    chunk, place = w.table[slot, windows.HEAD], w.table[slot, windows.HEAD_AT]
    for i in range(w.table[slot, windows.COUNT]):
        stats[slot, EARLY if i < state.window // 2 else LATE] += w.pool[chunk, place, 0]
        chunk, place = windows.advance(w, chunk, place)


@part
def _learn_monitored(state: MonitoredState, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One play; compare the halves of the arm's full window."""
    w, stats, table = state.windows, state.stats, state.windows.table
    if windows.full(w, slot):
        return GROW
    half = state.window // 2
    chunk, place = windows.push(w, slot)
    w.pool[chunk, place, 0] = r
    count(stats, slot, r)
    held = table[slot, windows.COUNT]
    stats[slot, EARLY if held <= half else LATE] += r
    if held == half + 1:
        table[slot, MIDDLE] = chunk
        table[slot, MIDDLE_AT] = place
    if held < state.window:
        return NO_CHANGE

    if held > state.window:  # the oldest leaves, the first of the late half turns early
        chunk, place = windows.pop(w, slot)
        old = w.pool[chunk, place, 0]
        chunk, place = table[slot, MIDDLE], table[slot, MIDDLE_AT]
        moved = w.pool[chunk, place, 0]
        chunk, place = windows.advance(w, chunk, place)
        table[slot, MIDDLE] = chunk
        table[slot, MIDDLE_AT] = place
        stats[slot, EARLY] += moved - old
        stats[slot, LATE] -= moved
        table[slot, SLID] += 1
        if table[slot, SLID] >= state.window:
            table[slot, SLID] = 0
            _sum_halves(state, slot)

    statistic = abs(stats[slot, LATE] - stats[slot, EARLY])
    if statistic > state.threshold:
        state.report[0] = statistic
        return TEST
    return NO_CHANGE


@part
def _restart_all(state: MonitoredState, step: int, slot: int) -> int:
    """Forget every arm and empty every window."""
    state.report[1] = state.stats[slot, SUM] / state.stats[slot, PLAYS]
    for row in range(state.stats.shape[0]):
        windows.empty(state.windows, row)
        for j in range(MONITORED_COLUMNS):
            state.stats[row, j] = 0.0
    state.clock[TAU] = step + 1
    return CHANGED


MONITORED = Kernels("mucb", _score_monitored, _learn_monitored, finish=_restart_all)


# -- CUSUM-UCB ----------------------------------------------------------------------------------


class CusumState(NamedTuple):
    """CUSUM-UCB: UCB1 with t = Σn (``total``), a two-sided test per arm, random exploration."""

    stats: F64
    total: F64
    explore: float
    warmup: int
    drift: float
    threshold: float
    report: F64


@part
def _score_cusum(
    state: CusumState, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> int:
    """A uniformly random candidate if ``noise[0] < explore``."""
    best = bounds(slots, state.stats, 2.0 * np.log(max(state.total[0], 1.0)), 1.0, out)
    if noise[0] < state.explore:
        n = slots.shape[0]
        best = min(int(noise[1] * n), n - 1)
        force(best, n, out)
    return best


@part
def _learn_cusum(state: CusumState, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """Past the warm-up run the test; on a change reset the arm."""
    stats = state.stats
    state.total[0] += 1.0
    count(stats, slot, r)
    plays = stats[slot, PLAYS]
    if plays <= state.warmup:
        if plays == state.warmup:
            stats[slot, ORIGIN] = stats[slot, SUM] / plays
        return NO_CHANGE
    origin = stats[slot, ORIGIN]
    stats[slot, UP] = max(0.0, stats[slot, UP] + r - origin - state.drift)
    stats[slot, DOWN] = max(0.0, stats[slot, DOWN] + origin - r - state.drift)
    statistic = max(stats[slot, UP], stats[slot, DOWN])
    if statistic <= state.threshold:
        return NO_CHANGE
    state.report[0] = statistic
    state.report[1] = stats[slot, SUM] / plays
    state.total[0] -= plays
    for j in range(CUSUM_COLUMNS):
        stats[slot, j] = 0.0
    return CHANGED


CUSUM = Kernels("cusum_ucb", _score_cusum, _learn_cusum)
