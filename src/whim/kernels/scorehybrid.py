"""The score test for hybrid payoffs: what is tested, and the restart of an arm and of G.

With z = kron(y, x) an arm's rewards are linear in x alone, θ + (y ⊗ I)ᵀβ being one vector, so the
test on (x, r) is as exact as for disjoint payoffs, however β is learnt. Where the caller gives z it
is on ((x, z), r). What p numbers v are tested is told by ``bounds``: d, or d + k.

``cum`` and ``shared`` are as in ``hybrid``, without G_pre; ``pre`` holds M_pre, of the arm's plays
since its restart that have left the window. A record is v, r and the squared residual, and z where
v is x alone: features may be set anew and are no record.
"""

from __future__ import annotations

from whim.kernels import factors, hybrid, scoretest, windows
from whim.kernels.disjoint import CHANGED, GROW, NOT_FINITE, QUIET
from whim.kernels.jit import inline, jit, lean, live
from whim.types import F64, I64

__all__ = ["observe", "observe_many", "settle", "take"]


@inline
def _z_at(d: int, p: int) -> int:
    """Where z stands in a record."""
    return d if p > d else d + 2


@jit
def settle(
    kind: int, row: int, kept: int, d: int, k: int, p: int, features: F64, ridge: float, pre: F64,
    flat: F64, pool: F64, links: I64, table: I64, work: F64,
) -> None:  # fmt: skip
    """Only the newest ``kept`` plays are to be tested again: older ones join M_pre."""
    at = _z_at(d, p)
    while table[row, windows.COUNT] > kept:
        chunk, place = windows.pop(table, row, pool, links)
        old = pool[chunk, place]
        x, z, r = old[:d], old[at : at + k], old[p]
        w, u = work[2], work[1, :k]
        hybrid.own(hybrid.recorded(kind), pre, row, x, z, features, ridge, r, w, u)
    scoretest.anew(row, p, flat, pool, links, table, work[2])


@jit
def _restart(
    kind: int, row: int, kept: int, d: int, k: int, p: int, features: F64, ridge: float, cum: F64,
    pre: F64, flat: F64, shared: F64, pool: F64, links: I64, table: I64, work: F64,
) -> None:  # fmt: skip
    """The arm anew from its newest ``kept`` plays, which stay in the window; β with both."""
    hybrid.theta(cum, row, features, ridge, shared, hybrid.CUM, d, k, work[2], work[4])
    settle(kind, row, kept, d, k, p, features, ridge, pre, flat, pool, links, table, work)
    hybrid.trade(
        kind, row, d, k, _z_at(d, p), p, False, features, ridge, cum, pre, shared, pool, links,
        table, work,
    )  # fmt: skip
    factors.set_prior(pre, row, d, ridge)
    hybrid.theta(cum, row, features, ridge, shared, hybrid.CUM, d, k, work[2], work[5])


@inline
def take(
    kind: int, row: int, x: F64, z: F64, features: F64, r: float, bounds: F64, ridge: float,
    cum: F64, pre: F64, flat: F64, shared: F64, pool: F64, links: I64, table: I64, work: F64,
    room: F64, scratch: F64,
) -> int:  # fmt: skip
    """``observe`` for a context that is known to be finite and its z."""
    if windows.full(table, row, pool, links):
        return GROW
    d, k, p = x.shape[0], z.shape[0], bounds.shape[1] - 1
    at = _z_at(d, p)
    u, w = work[1, :k], work[2]
    chunk, place = windows.push(table, row, pool, links)
    for j in range(d):
        pool[chunk, place, j] = x[j]
    for j in range(k):
        pool[chunk, place, at + j] = z[j]
    pool[chunk, place, p] = r
    g, error = hybrid.own(kind, cum, row, x, z, features, ridge, r, w, u)
    hybrid.join(shared, hybrid.CUM, g, error, u, w)
    scoretest.learn(row, p, chunk, place, flat, pool, table, w)
    if scoretest.slides(row, bounds, table):
        chunk, place = windows.pop(table, row, pool, links)
        old = pool[chunk, place]
        x_old, z_old, r_old = old[:d], old[at : at + k], old[p]
        hybrid.own(hybrid.recorded(kind), pre, row, x_old, z_old, features, ridge, r_old, w, u)
    kept = scoretest.changed(row, p, bounds, flat, pool, links, table, w, work[6], room, scratch)
    if kept == 0:
        return QUIET
    _restart(
        kind, row, kept, d, k, p, features, ridge, cum, pre, flat, shared, pool, links, table, work
    )
    return CHANGED


@live
def observe(
    kind: int, x: F64, row: int, features: F64, cross: F64, r: float, bounds: F64, ridge: float,
    cum: F64, pre: F64, flat: F64, shared: F64, k: int, pool: F64, links: I64, table: I64,
    work: F64, room: F64, scratch: F64,
) -> int:  # fmt: skip
    """One play: learn, test the lengths whose turn it is, restart after a change.

    Returns NOT_FINITE or, when the pool has no room, GROW before anything is touched. On a change
    ``work`` holds θ before and after in rows 4 and 5 and the verdict of ``scoretest.changed`` in
    row 6.
    """
    if not factors.finite(x):
        return NOT_FINITE
    z = work[0, :k]
    hybrid.feature(kind, x, features, row, cross, 0, z)
    return take(
        kind, row, x, z, features, r, bounds, ridge, cum, pre, flat, shared, pool, links, table,
        work, room, scratch,
    )  # fmt: skip


@lean
def observe_many(
    start: int, kind: int, X: F64, slots: I64, features: F64, cross: F64, rewards: F64,
    bounds: F64, ridge: float, cum: F64, pre: F64, flat: F64, shared: F64, k: int, pool: F64,
    links: I64, table: I64, work: F64, room: F64, scratch: F64,
) -> tuple[int, int]:  # fmt: skip
    """Plays in order from ``start``; stops after a change, or before a play the pool cannot hold.

    Returns where to go on and why it stopped.
    """
    z = work[0, :k]
    for i in range(start, slots.shape[0]):
        hybrid.feature(kind, X[i], features, slots[i], cross, i, z)
        status = take(
            kind, slots[i], X[i], z, features, rewards[i], bounds, ridge, cum, pre, flat, shared,
            pool, links, table, work, room, scratch,
        )  # fmt: skip
        if status == GROW:
            return i, GROW
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], QUIET
