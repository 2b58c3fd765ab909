"""Looking again at arms that nobody has played for a while (docs/math.md).

An arm unplayed for n steps has changed with probability q = 1 - (1 - h)ⁿ, h the rate of changes
an arm and step, and is then like a new one: it is scored by (1 - q) of its mean and by the width
whose square is the mixture of both. A play that its old model explains better than a new arm's
lowers q by Bayes' rule; one that it does not leaves q as it is, so that the arm is played on
until the test can tell.

``doubts`` has a row a slot: q after the last play, and the step of that play (from 1; 0: never).
``tally`` is for all arms: changes found, arm-steps over which they were looked for, the variance
of the noise, and the plays that it was measured on. ``rate`` is h, or 0 to learn it from these.
"""

from __future__ import annotations

import math

from whim.kernels import disjoint, factors, hybrid, lanes, scorehybrid, scoretest, vectors
from whim.kernels.disjoint import CHANGED, GROW, NOT_FINITE, QUIET
from whim.kernels.jit import inline, jit, lean, live
from whim.types import F64, I64

__all__ = [
    "DOUBTS", "TALLY", "all_doubts", "choose", "choose_hybrid", "observe", "observe_hybrid",
    "observe_many", "observe_many_hybrid", "score", "score_hybrid", "take",
]  # fmt: skip

DOUBTS, TALLY = 2, 4
_DOUBT, _SEEN = 0, 1
_CHANGES, _WATCHED, _NOISE, _PLAYS = range(TALLY)
_FASTEST = 0.5  # the largest rate that is learnt
_SUREST = 0.99  # the largest q: a few plays can always lower it
_MEMORY = 1000.0  # plays that the noise is averaged over


@inline
def _fade(alpha: float, rate: float, tally: F64) -> float:
    """log(1 - h); 0 where there is no doubt: no change was found yet, or α leaves no width."""
    h = rate
    if h == 0.0 and tally[_CHANGES] > 0.0:
        h = min(_FASTEST, tally[_CHANGES] / tally[_WATCHED])
    return math.log1p(-h) if alpha > 0.0 else 0.0


@inline
def _doubt(row: int, step: int, faded: float, doubts: F64) -> float:
    """q: the probability that an arm is another than its model, after ``step`` steps."""
    seen = doubts[row, _SEEN]
    if seen == 0.0 or faded == 0.0:
        return 0.0
    same: float = (1.0 - doubts[row, _DOUBT]) * math.exp(faded * (step - seen))
    return min(_SUREST, 1.0 - same)


@jit
def all_doubts(
    slots: I64, alpha: float, rate: float, step: int, doubts: F64, tally: F64, out: F64
) -> None:
    """The q of each candidate."""
    faded = _fade(alpha, rate, tally)
    for c in range(slots.shape[0]):
        out[c] = _doubt(slots[c], step, faded, doubts)


@inline
def _mix(c: int, q: float, mean: float, square: float, alpha: float, out: F64) -> None:
    """Candidate c's bound with a share q of a new arm's mean and squared width."""
    out[c, 1] += q * (mean - out[c, 1])
    out[c, 2] = math.sqrt((1.0 - q) * out[c, 2] * out[c, 2] + q * alpha * alpha * square)
    out[c, 0] = out[c, 1] + out[c, 2]


@inline
def _weigh(
    row: int, r: float, mean: float, square: float, new_mean: float, new_square: float,
    alpha: float, rate: float, step: int, doubts: F64, tally: F64,
) -> tuple[float, float]:  # fmt: skip
    """What a play, before it is learnt, makes of its arm's q and of the noise; changes nothing.

    ``mean`` and ``square`` are the arm's for its context, the others those of a new arm.
    """
    error = (r - mean) * (r - mean)
    spread = 1.0 + square
    plays = min(tally[_PLAYS] + 1.0, _MEMORY)
    noise = tally[_NOISE] + (error / spread - tally[_NOISE]) / plays
    q = _doubt(row, step, _fade(alpha, rate, tally), doubts)
    if q == 0.0 or noise <= 0.0:
        return 0.0, noise
    old, new = noise * spread, noise + alpha * alpha * new_square
    log = 0.5 * (math.log(old / new) + error / old - (r - new_mean) * (r - new_mean) / new)
    odds = q / (1.0 - q) * math.exp(min(log, 0.0))
    return odds / (1.0 + odds), noise


@inline
def _note(
    row: int, step: int, q: float, noise: float, status: int, doubts: F64, tally: F64
) -> None:
    """Keep what ``_weigh`` found once the play is learnt; a restarted arm is in no doubt."""
    if doubts[row, _SEEN] > 0.0:
        tally[_WATCHED] += step + 1.0 - doubts[row, _SEEN]
    if status == CHANGED:
        tally[_CHANGES] += 1.0
    doubts[row, _DOUBT] = 0.0 if status == CHANGED else q
    doubts[row, _SEEN] = step + 1.0
    tally[_NOISE] = noise
    tally[_PLAYS] = min(tally[_PLAYS] + 1.0, _MEMORY)


@inline
def _length(x: F64) -> float:
    square = 0.0
    for j in range(x.shape[0]):
        square += x[j] * x[j]
    return square


# -- disjoint payoffs ---------------------------------------------------------------------------


@lean
def score(
    x: F64, slots: I64, cum: F64, alpha: float, ridge: float, rate: float, step: int, doubts: F64,
    tally: F64, out: F64,
) -> int:  # fmt: skip
    """As ``disjoint.score``, in view of the doubts."""
    best = disjoint.score(x, slots, cum, alpha, out)
    faded = _fade(alpha, rate, tally)
    if best < 0 or faded == 0.0:
        return best
    new = _length(x) / ridge
    best = 0
    for c in range(slots.shape[0]):
        q = _doubt(slots[c], step, faded, doubts)
        if q > 0.0:
            _mix(c, q, 0.0, new, alpha, out)
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@live
def choose(
    x: F64, slots: I64, cum: F64, alpha: float, ridge: float, rate: float, step: int, doubts: F64,
    tally: F64, out: F64,
) -> tuple[int, float, float, float]:  # fmt: skip
    """Slot, score, mean and width of the best candidate; slot -1 if x is not finite."""
    if _fade(alpha, rate, tally) == 0.0:
        return disjoint.choose(x, slots, cum, alpha)
    best = score(x, slots, cum, alpha, ridge, rate, step, doubts, tally, out)
    if best < 0:
        return -1, 0.0, 0.0, 0.0
    return slots[best], out[best, 0], out[best, 1], out[best, 2]


@inline
def take(
    row: int, x: F64, r: float, step: int, alpha: float, rate: float, doubts: F64, tally: F64,
    bounds: F64, ridge: float, cum: F64, flat: F64, pool: F64, links: I64, table: I64, work: F64,
    room: F64, scratch: F64,
) -> int:  # fmt: skip
    """``scoretest.take`` with doubts."""
    q, noise = _weigh(
        row, r, factors.predict(cum, row, x), factors.quad(cum, row, x), 0.0, _length(x) / ridge,
        alpha, rate, step, doubts, tally,
    )  # fmt: skip
    status = scoretest.take(
        row, x, r, bounds, ridge, cum, flat, pool, links, table, work, room, scratch
    )
    if status != GROW:
        _note(row, step, q, noise, status, doubts, tally)
    return status


@live
def observe(
    row: int, x: F64, r: float, step: int, alpha: float, rate: float, doubts: F64, tally: F64,
    bounds: F64, ridge: float, cum: F64, flat: F64, pool: F64, links: I64, table: I64, work: F64,
    room: F64, scratch: F64,
) -> int:  # fmt: skip
    """``scoretest.observe`` with doubts."""
    if not factors.finite(x):
        return NOT_FINITE
    return take(
        row, x, r, step, alpha, rate, doubts, tally, bounds, ridge, cum, flat, pool, links,
        table, work, room, scratch,
    )  # fmt: skip


@lean
def observe_many(
    start: int, slots: I64, X: F64, rewards: F64, step: int, alpha: float, rate: float,
    doubts: F64, tally: F64, bounds: F64, ridge: float, cum: F64, flat: F64, pool: F64,
    links: I64, table: I64, work: F64, room: F64, scratch: F64,
) -> tuple[int, int]:  # fmt: skip
    """``scoretest.observe_many`` with doubts; ``step`` is that of ``start``."""
    for i in range(start, slots.shape[0]):
        status = take(
            slots[i], X[i], rewards[i], step + i - start, alpha, rate, doubts, tally, bounds,
            ridge, cum, flat, pool, links, table, work, room, scratch,
        )  # fmt: skip
        if status == GROW:
            return i, GROW
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET


# -- hybrid payoffs: a new arm has β too --------------------------------------------------------


@lean
def score_hybrid(
    kind: int, x: F64, slots: I64, features: F64, cross: F64, cum: F64, shared: F64, k: int,
    alpha: float, ridge: float, out: F64, scratch: F64, rate: float, step: int, doubts: F64,
    tally: F64,
) -> int:  # fmt: skip
    """As ``hybrid.score``, in view of the doubts."""
    best = hybrid.score(kind, x, slots, features, cross, cum, shared, k, alpha, ridge, out, scratch)
    faded = _fade(alpha, rate, tally)
    if best < 0 or faded == 0.0:
        return best
    n = slots.shape[0]
    wide = hybrid.columns(n)
    own = _length(x) / ridge
    Z = scratch[: k * wide].reshape((k, wide))
    rest = scratch[k * wide :]
    mean, square, z = rest[:wide], rest[wide : 2 * wide], rest[2 * wide : 2 * wide + k]
    for c in range(wide):
        mean[c] = 0.0
        square[c] = own
        last = min(c, n - 1)
        hybrid.feature(kind, x, features, slots[last], cross, last, z)
        for j in range(k):
            Z[j, c] = z[j]
    vectors.add_rows(mean, wide, shared[hybrid.CUM], k * (k + 1) // 2, Z, 0, wide, k)
    lanes.forms(square, wide, shared[hybrid.CUM], Z, k)
    best = 0
    for c in range(n):
        q = _doubt(slots[c], step, faded, doubts)
        if q > 0.0:
            _mix(c, q, mean[c], square[c], alpha, out)
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@live
def choose_hybrid(
    kind: int, x: F64, slots: I64, features: F64, cross: F64, cum: F64, shared: F64, k: int,
    alpha: float, ridge: float, out: F64, scratch: F64, rate: float, step: int, doubts: F64,
    tally: F64,
) -> tuple[int, float, float, float]:  # fmt: skip
    """Slot, score, mean and width of the best candidate; slot -1 if x is not finite."""
    best = score_hybrid(
        kind, x, slots, features, cross, cum, shared, k, alpha, ridge, out, scratch, rate, step,
        doubts, tally,
    )  # fmt: skip
    if best < 0:
        return -1, 0.0, 0.0, 0.0
    return slots[best], out[best, 0], out[best, 1], out[best, 2]


@inline
def _take_hybrid(
    kind: int, row: int, x: F64, z: F64, features: F64, r: float, step: int, alpha: float,
    rate: float, doubts: F64, tally: F64, bounds: F64, ridge: float, cum: F64, pre: F64,
    flat: F64, shared: F64, pool: F64, links: I64, table: I64, work: F64, room: F64, scratch: F64,
) -> int:  # fmt: skip
    u = work[1, : z.shape[0]]
    square = hybrid.apart(kind, cum, row, x, z, features, ridge, work[2], u)
    q, noise = _weigh(
        row, r, factors.predict(cum, row, x) + factors.predict(shared, hybrid.CUM, u),
        square + factors.quad(shared, hybrid.CUM, u),
        factors.predict(shared, hybrid.CUM, z),
        _length(x) / ridge + factors.quad(shared, hybrid.CUM, z),
        alpha, rate, step, doubts, tally,
    )  # fmt: skip
    status = scorehybrid.take(
        kind, row, x, z, features, r, bounds, ridge, cum, pre, flat, shared, pool, links, table,
        work, room, scratch,
    )  # fmt: skip
    if status != GROW:
        _note(row, step, q, noise, status, doubts, tally)
    return status


@live
def observe_hybrid(
    kind: int, x: F64, row: int, features: F64, cross: F64, r: float, step: int, alpha: float,
    rate: float, doubts: F64, tally: F64, bounds: F64, ridge: float, cum: F64, pre: F64,
    flat: F64, shared: F64, k: int, pool: F64, links: I64, table: I64, work: F64, room: F64,
    scratch: F64,
) -> int:  # fmt: skip
    """``scorehybrid.observe`` with doubts."""
    if not factors.finite(x):
        return NOT_FINITE
    z = work[0, :k]
    hybrid.feature(kind, x, features, row, cross, 0, z)
    return _take_hybrid(
        kind, row, x, z, features, r, step, alpha, rate, doubts, tally, bounds, ridge, cum, pre,
        flat, shared, pool, links, table, work, room, scratch,
    )  # fmt: skip


@lean
def observe_many_hybrid(
    start: int, kind: int, X: F64, slots: I64, features: F64, cross: F64, rewards: F64, step: int,
    alpha: float, rate: float, doubts: F64, tally: F64, bounds: F64, ridge: float, cum: F64,
    pre: F64, flat: F64, shared: F64, k: int, pool: F64, links: I64, table: I64, work: F64,
    room: F64, scratch: F64,
) -> tuple[int, int]:  # fmt: skip
    """``scorehybrid.observe_many`` with doubts; ``step`` is that of ``start``."""
    z = work[0, :k]
    for i in range(start, slots.shape[0]):
        hybrid.feature(kind, X[i], features, slots[i], cross, i, z)
        status = _take_hybrid(
            kind, slots[i], X[i], z, features, rewards[i], step + i - start, alpha, rate, doubts,
            tally, bounds, ridge, cum, pre, flat, shared, pool, links, table, work, room, scratch,
        )  # fmt: skip
        if status == GROW:
            return i, GROW
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET
