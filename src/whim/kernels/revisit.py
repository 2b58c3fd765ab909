"""Looking again at arms that nobody has played for a while (docs/math.md).

An arm unplayed for n steps has changed with probability q = 1 - (1 - h)ⁿ, h the rate of changes
an arm and step, and is then like a new one: it is scored by (1 - q) of its mean and by the width
whose square is the mixture of both. A play that its old model explains better than a new arm's
lowers q by Bayes' rule; one that it does not leaves q as it is, so that the arm is played on
until the test can tell. Nothing here knows which test that is.

``doubts`` has a row a slot: q after the last play, and the step of that play (from 1; 0: never).
``tally`` is for all arms: changes found, arm-steps over which they were looked for, the variance
of the noise, and the plays that it was measured on. ``rate`` is h, or 0 to learn it from these.
"""

from __future__ import annotations

import math

from whim.kernels import disjoint, factors, scoretest
from whim.kernels.disjoint import CHANGED, GROW, NOT_FINITE, QUIET
from whim.kernels.jit import inline, jit, lean
from whim.types import F64, I64

__all__ = [
    "DOUBTS", "TALLY", "all_doubts", "doubt", "fade", "note", "observe", "observe_many",
    "observe_many_scored", "observe_scored", "score", "take", "take_scored", "weigh",
]  # fmt: skip

DOUBTS, TALLY = 2, 4
_DOUBT, _SEEN = 0, 1
_CHANGES, _WATCHED, _NOISE, _PLAYS = range(TALLY)
_FASTEST = 0.5  # the largest rate that is learnt
_SUREST = 0.99  # the largest q: a few plays can always lower it
_MEMORY = 1000.0  # plays that the noise is averaged over


@inline
def fade(alpha: float, rate: float, tally: F64) -> float:
    """log(1 - h); 0 where there is no doubt: no change was found yet, or α leaves no width."""
    h = rate
    if h == 0.0 and tally[_CHANGES] > 0.0:
        h = min(_FASTEST, tally[_CHANGES] / tally[_WATCHED])
    return math.log1p(-h) if alpha > 0.0 else 0.0


@inline
def doubt(row: int, step: int, faded: float, doubts: F64) -> float:
    """q: the probability that an arm is another than its model, after ``step`` steps."""
    seen = doubts[row, _SEEN]
    if seen == 0.0 or faded == 0.0:
        return 0.0
    same: float = (1.0 - doubts[row, _DOUBT]) * math.exp(faded * (step - seen))
    return min(_SUREST, 1.0 - same)


@inline
def _new(x: F64, alpha: float, ridge: float) -> float:
    """The squared width of an arm that was never played."""
    square = 0.0
    for j in range(x.shape[0]):
        square += x[j] * x[j]
    return alpha * alpha * square / ridge


@jit
def all_doubts(
    slots: I64, alpha: float, rate: float, step: int, doubts: F64, tally: F64, out: F64
) -> None:
    """The q of each candidate."""
    faded = fade(alpha, rate, tally)
    for c in range(slots.shape[0]):
        out[c] = doubt(slots[c], step, faded, doubts)


@lean
def score(
    x: F64, slots: I64, cum: F64, alpha: float, ridge: float, rate: float, step: int, doubts: F64,
    tally: F64, out: F64,
) -> int:  # fmt: skip
    """As ``disjoint.score``, in view of the doubts."""
    best = disjoint.score(x, slots, cum, alpha, out)
    faded = fade(alpha, rate, tally)
    if best < 0 or faded == 0.0:
        return best
    new = _new(x, alpha, ridge)
    best = 0
    for c in range(slots.shape[0]):
        q = doubt(slots[c], step, faded, doubts)
        if q > 0.0:
            out[c, 1] *= 1.0 - q
            out[c, 2] = math.sqrt((1.0 - q) * out[c, 2] * out[c, 2] + q * new)
            out[c, 0] = out[c, 1] + out[c, 2]
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@inline
def weigh(
    row: int, x: F64, r: float, cum: F64, alpha: float, ridge: float, rate: float, step: int,
    doubts: F64, tally: F64,
) -> tuple[float, float]:  # fmt: skip
    """What a play, before it is learnt, makes of its arm's q and of the noise; changes nothing."""
    error = r - factors.predict(cum, row, x)
    spread = 1.0 + factors.quad(cum, row, x)
    square = error * error
    plays = min(tally[_PLAYS] + 1.0, _MEMORY)
    noise = tally[_NOISE] + (square / spread - tally[_NOISE]) / plays
    q = doubt(row, step, fade(alpha, rate, tally), doubts)
    if q == 0.0 or noise <= 0.0:
        return 0.0, noise
    old, new = noise * spread, noise + _new(x, alpha, ridge)
    log = 0.5 * (math.log(old / new) + square / old - r * r / new)
    odds = q / (1.0 - q) * math.exp(min(log, 0.0))
    return odds / (1.0 + odds), noise


@inline
def note(row: int, step: int, q: float, noise: float, status: int, doubts: F64, tally: F64) -> None:
    """Keep what ``weigh`` found once the play is learnt; a restarted arm is in no doubt."""
    if doubts[row, _SEEN] > 0.0:
        tally[_WATCHED] += step + 1.0 - doubts[row, _SEEN]
    if status == CHANGED:
        tally[_CHANGES] += 1.0
    doubts[row, _DOUBT] = 0.0 if status == CHANGED else q
    doubts[row, _SEEN] = step + 1.0
    tally[_NOISE] = noise
    tally[_PLAYS] = min(tally[_PLAYS] + 1.0, _MEMORY)


@inline
def take(
    row: int, x: F64, r: float, step: int, alpha: float, rate: float, doubts: F64, tally: F64,
    window: int, threshold: float, seed_first: bool, ridge: float, cum: F64, pre: F64, pool: F64,
    links: I64, table: I64, work: F64,
) -> int:  # fmt: skip
    """``disjoint.take`` with doubts."""
    q, noise = weigh(row, x, r, cum, alpha, ridge, rate, step, doubts, tally)
    status = disjoint.take(
        row, x, r, window, threshold, seed_first, ridge, cum, pre, pool, links, table, work
    )
    if status != GROW:
        note(row, step, q, noise, status, doubts, tally)
    return status


@inline
def take_scored(
    row: int, x: F64, r: float, step: int, alpha: float, rate: float, doubts: F64, tally: F64,
    bounds: F64, ridge: float, cum: F64, flat: F64, pool: F64, links: I64, table: I64, work: F64,
    room: F64, scratch: F64,
) -> int:  # fmt: skip
    """``scoretest.take`` with doubts."""
    q, noise = weigh(row, x, r, cum, alpha, ridge, rate, step, doubts, tally)
    status = scoretest.take(
        row, x, r, bounds, ridge, cum, flat, pool, links, table, work, room, scratch
    )
    if status != GROW:
        note(row, step, q, noise, status, doubts, tally)
    return status


@lean
def observe(
    row: int, x: F64, r: float, step: int, alpha: float, rate: float, doubts: F64, tally: F64,
    window: int, threshold: float, seed_first: bool, ridge: float, cum: F64, pre: F64, pool: F64,
    links: I64, table: I64, work: F64,
) -> int:  # fmt: skip
    """``disjoint.observe`` with doubts."""
    if not factors.finite(x):
        return NOT_FINITE
    return take(
        row, x, r, step, alpha, rate, doubts, tally, window, threshold, seed_first, ridge, cum,
        pre, pool, links, table, work,
    )  # fmt: skip


@lean
def observe_many(
    start: int, slots: I64, X: F64, rewards: F64, step: int, alpha: float, rate: float,
    doubts: F64, tally: F64, window: int, threshold: float, seed_first: bool, ridge: float,
    cum: F64, pre: F64, pool: F64, links: I64, table: I64, work: F64,
) -> tuple[int, int]:  # fmt: skip
    """``disjoint.observe_many`` with doubts; ``step`` is that of ``start``."""
    for i in range(start, slots.shape[0]):
        status = take(
            slots[i], X[i], rewards[i], step + i - start, alpha, rate, doubts, tally, window,
            threshold, seed_first, ridge, cum, pre, pool, links, table, work,
        )  # fmt: skip
        if status == GROW:
            return i, GROW
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET


@lean
def observe_scored(
    row: int, x: F64, r: float, step: int, alpha: float, rate: float, doubts: F64, tally: F64,
    bounds: F64, ridge: float, cum: F64, flat: F64, pool: F64, links: I64, table: I64, work: F64,
    room: F64, scratch: F64,
) -> int:  # fmt: skip
    """``scoretest.observe`` with doubts."""
    if not factors.finite(x):
        return NOT_FINITE
    return take_scored(
        row, x, r, step, alpha, rate, doubts, tally, bounds, ridge, cum, flat, pool, links,
        table, work, room, scratch,
    )  # fmt: skip


@lean
def observe_many_scored(
    start: int, slots: I64, X: F64, rewards: F64, step: int, alpha: float, rate: float,
    doubts: F64, tally: F64, bounds: F64, ridge: float, cum: F64, flat: F64, pool: F64,
    links: I64, table: I64, work: F64, room: F64, scratch: F64,
) -> tuple[int, int]:  # fmt: skip
    """``scoretest.observe_many`` with doubts; ``step`` is that of ``start``."""
    for i in range(start, slots.shape[0]):
        status = take_scored(
            slots[i], X[i], rewards[i], step + i - start, alpha, rate, doubts, tally, bounds,
            ridge, cum, flat, pool, links, table, work, room, scratch,
        )  # fmt: skip
        if status == GROW:
            return i, GROW
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET
