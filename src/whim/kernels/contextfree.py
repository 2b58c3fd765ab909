"""Context-free payoffs: an arm is its rewards; contexts are only checked to be finite.

UCB, M-UCB, discounted and sliding-window UCB, CUSUM-UCB. One row a slot in ``stats``, which
starts with the number of plays and the sum of rewards that the index is made of. Every index is
``mean + scale · sqrt(level / plays)``; an arm without plays has mean 0 and an infinite width.
``step`` is the number of updates so far, so the play being decided is number ``step + 1``.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import factors, windows
from whim.kernels.jit import inline, jit
from whim.types import F64, I64

__all__ = [
    "AT",
    "CHANGED",
    "CUSUM",
    "DISCOUNTED",
    "FILLED",
    "GROW",
    "MONITORED",
    "MONITOR_TABLE",
    "NOT_FINITE",
    "PLAIN",
    "POPS",
    "QUIET",
    "RING",
    "TAU",
    "cusum_many",
    "cusum_one",
    "discount_many",
    "discount_one",
    "discounted_total",
    "learn_many",
    "learn_one",
    "monitor_many",
    "monitor_one",
    "restart_all",
    "round_robin",
    "score_cusum",
    "score_discounted",
    "score_drawn",
    "score_monitored",
    "score_sliding",
    "score_ucb",
    "skip_one",
    "slide_many",
    "slide_one",
]

QUIET, CHANGED, GROW, NOT_FINITE = range(4)

# columns of ``stats``; the last name of each line is how many a policy has
PLAYS, SUM, PLAIN = range(3)
EARLY, LATE, MONITORED = range(2, 5)  # M-UCB: sums of the window's halves
LAST, DISCOUNTED = range(2, 4)  # D-UCB: step of the last play, which plays and sum are as of
ORIGIN, UP, DOWN, CUSUM = range(2, 6)  # CUSUM-UCB: warm-up mean, g+ and g-

# M-UCB: columns of ``table`` after those of the window, and the one of ``clock``
MIDDLE, MIDDLE_AT, SLID, MONITOR_TABLE = range(windows.ENDS, windows.ENDS + 4)
TAU = 0

# SW-UCB: where ``ring`` takes the next play, how many it holds, pops since its sums were exact
AT, FILLED, POPS, RING = range(4)
_REFRESH = 1024  # at least this many pops between refreshes, which visit every row

_LARGEST = np.finfo(np.float64).max
_MANY = 2.0**62


# -- indices ------------------------------------------------------------------------------------


@inline
def _bound(c: int, mean: float, plays: float, level: float, scale: float, out: F64) -> None:
    width = scale * np.sqrt(level / plays) if plays > 0.0 else np.inf
    out[c, 0] = mean + width
    out[c, 1] = mean
    out[c, 2] = width


@jit
def _bounds(slots: I64, stats: F64, level: float, scale: float, out: F64) -> int:
    """Score, mean and width of each candidate into ``out``; the best one's place."""
    best = 0
    for c in range(slots.shape[0]):
        plays = stats[slots[c], PLAYS]
        mean = stats[slots[c], SUM] / plays if plays > 0.0 else 0.0
        _bound(c, mean, plays, level, scale, out)
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@inline
def _force(place: int, n: int, out: F64) -> None:
    """Make one candidate the best: +inf for it, and finite scores for the others."""
    for c in range(n):
        out[c, 0] = min(out[c, 0], _LARGEST)
    out[place, 0] = np.inf


@jit
def score_drawn(x: F64, n: int, noise: F64, out: F64) -> int:
    """Random choice: the scores are the draws."""
    if not factors.finite(x):
        return -1
    best = 0
    for c in range(n):
        out[c, 0] = noise[c]
        out[c, 1] = 0.0
        out[c, 2] = 0.0
        if noise[c] > noise[best]:
            best = c
    return best


@jit
def score_ucb(
    x: F64, slots: I64, stats: F64, step: int, logarithm: bool, alpha: float, out: F64
) -> int:
    """UCB1's ``alpha · sqrt(2 ln t / n)`` or, without the logarithm, ``alpha / sqrt(n)``."""
    if not factors.finite(x):
        return -1
    level = 2.0 * np.log(max(step, 1)) if logarithm else 1.0
    return _bounds(slots, stats, level, alpha, out)


@inline
def round_robin(live: I64, elapsed: int, gamma: float) -> int:
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
def score_monitored(
    x: F64, slots: I64, stats: F64, live: I64, step: int, clock: I64, gamma: float, out: F64
) -> int:
    """M-UCB: UCB1 since the restart, unless it is the turn of one of the candidates.

    ``live`` holds the slots of all arms in the order of the round robin.
    """
    if not factors.finite(x):
        return -1
    elapsed = step - clock[TAU]
    best = _bounds(slots, stats, 2.0 * np.log(elapsed + 1), 1.0, out)
    turn = round_robin(live, elapsed, gamma)
    if turn >= 0:
        for c in range(slots.shape[0]):
            if slots[c] == turn:
                _force(c, slots.shape[0], out)
                return c
    return best


@jit
def score_discounted(
    x: F64, slots: I64, stats: F64, step: int, total: F64, gamma: float, xi: float, bound: float,
    out: F64,
) -> int:  # fmt: skip
    """D-UCB: mean + 2B sqrt(ξ ln(ΣN) / N), N discounted to this step.

    The discount cancels in the mean. An N that has underflowed to 0 gives +inf, as it should:
    that arm is all but unknown.
    """
    if not factors.finite(x):
        return -1
    level = xi * np.log(max(total[0], 1.0))
    best = 0
    for c in range(slots.shape[0]):
        row = slots[c]
        plays = stats[row, PLAYS]
        mean = stats[row, SUM] / plays if plays > 0.0 else 0.0
        _bound(c, mean, plays * gamma ** (step - stats[row, LAST]), level, 2.0 * bound, out)
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@jit
def score_sliding(
    x: F64, slots: I64, stats: F64, step: int, window: int, xi: float, bound: float, out: F64
) -> int:
    """SW-UCB: mean + B sqrt(ξ ln(min(t, τ)) / N) over the last τ plays of all arms."""
    if not factors.finite(x):
        return -1
    level = xi * np.log(max(min(step, window), 1))
    return _bounds(slots, stats, level, bound, out)


@jit
def score_cusum(
    x: F64, slots: I64, stats: F64, total: F64, explore: float, noise: F64, out: F64
) -> int:
    """CUSUM-UCB: UCB1 with t = Σn, or a uniformly random candidate if ``noise[0] < explore``."""
    if not factors.finite(x):
        return -1
    best = _bounds(slots, stats, 2.0 * np.log(max(total[0], 1.0)), 1.0, out)
    if noise[0] < explore:
        n = slots.shape[0]
        best = min(int(noise[1] * n), n - 1)
        _force(best, n, out)
    return best


# -- rewards ------------------------------------------------------------------------------------


@jit
def skip_one(x: F64) -> int:
    """Learn nothing: random choice."""
    return QUIET if factors.finite(x) else NOT_FINITE


@jit
def learn_one(row: int, x: F64, r: float, stats: F64) -> int:
    """UCB: one more play and its reward."""
    if not factors.finite(x):
        return NOT_FINITE
    stats[row, PLAYS] += 1.0
    stats[row, SUM] += r
    return QUIET


@jit
def learn_many(slots: I64, rewards: F64, stats: F64) -> None:
    """UCB: plays in order."""
    for i in range(slots.shape[0]):
        stats[slots[i], PLAYS] += 1.0
        stats[slots[i], SUM] += rewards[i]


@jit
def restart_all(stats: F64, table: I64, links: I64) -> None:
    """M-UCB: forget every arm and empty every window."""
    for row in range(stats.shape[0]):
        windows.clear(table, row, links)
        stats[row, :] = 0.0


@jit
def _sum_halves(row: int, half: int, stats: F64, pool: F64, links: I64, table: I64) -> None:
    """Recompute both sums, so that a million additions and subtractions leave no trace."""
    stats[row, EARLY] = 0.0
    stats[row, LATE] = 0.0
    chunk, place = table[row, windows.HEAD], table[row, windows.HEAD_AT]
    for i in range(table[row, windows.COUNT]):
        stats[row, EARLY if i < half else LATE] += pool[chunk, place, 0]
        chunk, place = windows.advance(pool, links, chunk, place)


@inline
def _monitor(
    row: int, r: float, step: int, window: int, threshold: float, stats: F64, pool: F64,
    links: I64, table: I64, clock: I64, work: F64,
) -> int:  # fmt: skip
    if windows.full(table, row, pool, links):
        return GROW
    half = window // 2
    chunk, place = windows.push(table, row, pool, links)
    pool[chunk, place, 0] = r
    stats[row, PLAYS] += 1.0
    stats[row, SUM] += r
    count = table[row, windows.COUNT]
    stats[row, EARLY if count <= half else LATE] += r
    if count == half + 1:
        table[row, MIDDLE] = chunk
        table[row, MIDDLE_AT] = place
    if count < window:
        return QUIET

    if count > window:  # the oldest leaves, the first of the late half turns early
        chunk, place = windows.pop(table, row, pool, links)
        old = pool[chunk, place, 0]
        chunk, place = table[row, MIDDLE], table[row, MIDDLE_AT]
        moved = pool[chunk, place, 0]
        chunk, place = windows.advance(pool, links, chunk, place)
        table[row, MIDDLE] = chunk
        table[row, MIDDLE_AT] = place
        stats[row, EARLY] += moved - old
        stats[row, LATE] -= moved
        table[row, SLID] += 1
        if table[row, SLID] >= window:
            table[row, SLID] = 0
            _sum_halves(row, half, stats, pool, links, table)

    statistic = abs(stats[row, LATE] - stats[row, EARLY])
    if statistic > threshold:
        work[0] = statistic
        work[1] = stats[row, SUM] / stats[row, PLAYS]
        restart_all(stats, table, links)
        clock[TAU] = step + 1
        return CHANGED
    return QUIET


@jit
def monitor_one(
    row: int, x: F64, r: float, step: int, window: int, threshold: float, stats: F64, pool: F64,
    links: I64, table: I64, clock: I64, work: F64,
) -> int:  # fmt: skip
    """M-UCB: one play; compare the halves of the arm's full window and restart all on a change.

    Returns NOT_FINITE or, when the pool has no room, GROW before anything is touched. On a
    change ``work`` holds the statistic and the arm's mean before.
    """
    if not factors.finite(x):
        return NOT_FINITE
    return _monitor(row, r, step, window, threshold, stats, pool, links, table, clock, work)


@jit
def monitor_many(
    start: int, slots: I64, rewards: F64, step: int, window: int, threshold: float, stats: F64,
    pool: F64, links: I64, table: I64, clock: I64, work: F64,
) -> tuple[int, int]:  # fmt: skip
    """M-UCB: plays in order from ``start``, which is number ``step + 1``; where and why it stopped.

    Stops after a change, or before a play that the pool cannot hold.
    """
    for i in range(start, slots.shape[0]):
        status = _monitor(
            slots[i], rewards[i], step + i - start, window, threshold, stats, pool, links, table,
            clock, work,
        )  # fmt: skip
        if status == GROW:
            return i, GROW
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET


@jit
def discounted_total(stats: F64, step: int, gamma: float) -> float:
    """D-UCB: ΣN, each discounted to this step."""
    total = 0.0
    for row in range(stats.shape[0]):
        total += stats[row, PLAYS] * gamma ** (step - stats[row, LAST])
    return total


@inline
def _discount(row: int, r: float, step: int, gamma: float, stats: F64, total: F64) -> None:
    # only the played arm is touched: the others are discounted when they are next read
    weight = gamma ** (step + 1 - stats[row, LAST])
    stats[row, PLAYS] = stats[row, PLAYS] * weight + 1.0
    stats[row, SUM] = stats[row, SUM] * weight + r
    stats[row, LAST] = step + 1
    total[0] = total[0] * gamma + 1.0


@jit
def discount_one(
    row: int, x: F64, r: float, step: int, gamma: float, stats: F64, total: F64
) -> int:
    """D-UCB: one play."""
    if not factors.finite(x):
        return NOT_FINITE
    _discount(row, r, step, gamma, stats, total)
    return QUIET


@jit
def discount_many(
    slots: I64, rewards: F64, step: int, gamma: float, stats: F64, total: F64
) -> None:
    """D-UCB: plays in order, the first of them number ``step + 1``."""
    for i in range(slots.shape[0]):
        _discount(slots[i], rewards[i], step + i, gamma, stats, total)


@jit
def _sum_ring(stats: F64, ring: I64, values: F64, clock: I64) -> None:
    """Recompute every arm's sum from the ring, oldest play first."""
    for row in range(stats.shape[0]):
        stats[row, SUM] = 0.0
    for i in range(clock[FILLED]):
        at = (clock[AT] + i) % clock[FILLED]
        if ring[at] >= 0:
            stats[ring[at], SUM] += values[at]


@inline
def _slide(row: int, r: float, window: int, stats: F64, ring: I64, values: F64, clock: I64) -> int:
    at = clock[AT]
    if clock[FILLED] < window:
        if at == ring.shape[0]:
            return GROW
        clock[FILLED] += 1
    else:
        old = ring[at]
        if old >= 0:  # not a play of an arm that was retired or reset since
            stats[old, PLAYS] -= 1.0
            stats[old, SUM] -= values[at]
            if stats[old, PLAYS] == 0.0:
                stats[old, SUM] = 0.0
        clock[POPS] += 1
    ring[at] = row
    values[at] = r
    stats[row, PLAYS] += 1.0
    stats[row, SUM] += r
    clock[AT] = at + 1 if at + 1 < window else 0
    if clock[POPS] >= max(window, _REFRESH):
        clock[POPS] = 0
        _sum_ring(stats, ring, values, clock)
    return QUIET


@jit
def slide_one(
    row: int, x: F64, r: float, window: int, stats: F64, ring: I64, values: F64, clock: I64
) -> int:
    """SW-UCB: one play enters the ring of all arms' last ``window`` and the oldest leaves it.

    ``ring`` holds slots (-1: forgotten) and ``values`` rewards; GROW, nothing touched, when they
    are full and shorter than the window.
    """
    if not factors.finite(x):
        return NOT_FINITE
    return _slide(row, r, window, stats, ring, values, clock)


@jit
def slide_many(
    start: int, slots: I64, rewards: F64, window: int, stats: F64, ring: I64, values: F64,
    clock: I64,
) -> tuple[int, int]:  # fmt: skip
    """SW-UCB: plays in order from ``start``; where and why it stopped."""
    for i in range(start, slots.shape[0]):
        if _slide(slots[i], rewards[i], window, stats, ring, values, clock) == GROW:
            return i, GROW
    return slots.shape[0], QUIET


@inline
def _accumulate(
    row: int, r: float, warmup: int, drift: float, threshold: float, stats: F64, total: F64,
    work: F64,
) -> int:  # fmt: skip
    total[0] += 1.0
    stats[row, PLAYS] += 1.0
    stats[row, SUM] += r
    plays = stats[row, PLAYS]
    if plays <= warmup:
        if plays == warmup:
            stats[row, ORIGIN] = stats[row, SUM] / plays
        return QUIET
    origin = stats[row, ORIGIN]
    stats[row, UP] = max(0.0, stats[row, UP] + r - origin - drift)
    stats[row, DOWN] = max(0.0, stats[row, DOWN] + origin - r - drift)
    statistic = max(stats[row, UP], stats[row, DOWN])
    if statistic > threshold:
        work[0] = statistic
        work[1] = stats[row, SUM] / plays
        total[0] -= plays
        stats[row, :] = 0.0
        return CHANGED
    return QUIET


@jit
def cusum_one(
    row: int, x: F64, r: float, warmup: int, drift: float, threshold: float, stats: F64,
    total: F64, work: F64,
) -> int:  # fmt: skip
    """CUSUM-UCB: one play; past the warm-up run the two-sided test, reset the arm on a change.

    On a change ``work`` holds the statistic and the arm's mean before.
    """
    if not factors.finite(x):
        return NOT_FINITE
    return _accumulate(row, r, warmup, drift, threshold, stats, total, work)


@jit
def cusum_many(
    start: int, slots: I64, rewards: F64, warmup: int, drift: float, threshold: float, stats: F64,
    total: F64, work: F64,
) -> tuple[int, int]:  # fmt: skip
    """CUSUM-UCB: plays in order from ``start``; stops after a change."""
    for i in range(start, slots.shape[0]):
        status = _accumulate(slots[i], rewards[i], warmup, drift, threshold, stats, total, work)
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET
