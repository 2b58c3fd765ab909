"""Every policy's way into the compiled loop (``kernels.template``): how it decides and learns.

Two lines a policy hand its state to the very kernels that serve live calls.
"""

from __future__ import annotations

from whim.kernels import (
    contextfree,
    disjoint,
    experts,
    factors,
    forgetting,
    groups,
    hybrid,
    modified,
    packed,
    revisit,
    scorehybrid,
    scoretest,
    slaves,
    uniform,
    watched,
)
from whim.kernels.jit import inline, lean
from whim.kernels.template import QUIET, State, loop
from whim.types import F64, I64

__all__ = [
    "PACKED", "cusum", "denband", "discounted_linear", "discounted_ucb", "drawn", "dynamic",
    "grouped", "linucb", "linucb_hybrid", "linucb_shared", "linucb_watched", "modified_ps",
    "monitored", "ps_disjoint", "ps_hybrid", "ps_revisit", "ps_revisit_hybrid", "ps_scored",
    "ps_scored_hybrid", "sliding_linear", "sliding_shared", "sliding_ucb", "thompson",
    "thompson_shared", "ucb",
]  # fmt: skip

# whose ``out`` is the scratch of kernels.packed
PACKED = frozenset(("linucb", "linucb_watched", "ps_disjoint", "ps_scored"))


# -- context-free -------------------------------------------------------------------------------


@inline
def _drawn_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    return contextfree.score_drawn(x, slots.shape[0], noise, out)


@inline
def _drawn_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    return QUIET


@inline
def _ucb_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    stats, logarithm, alpha = s
    return contextfree.score_ucb(x, slots, stats, step, logarithm, alpha, out)


@inline
def _ucb_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    return contextfree.learn_one(row, x, r, s[0])


@inline
def _monitored_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    stats, live, clock, gamma = s[:4]
    return contextfree.score_monitored(x, slots, stats, live, step, clock, gamma, out)


@inline
def _monitored_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    stats, _, clock, _, window, threshold, pool, links, table, work = s
    return contextfree.monitor_one(
        row, x, r, step, window, threshold, stats, pool, links, table, clock, work
    )


@inline
def _discounted_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    stats, total, gamma, xi, bound = s
    return contextfree.score_discounted(x, slots, stats, step, total, gamma, xi, bound, out)


@inline
def _discounted_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    stats, total, gamma = s[:3]
    return contextfree.discount_one(row, x, r, step, gamma, stats, total)


@inline
def _sliding_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    stats, window, xi, bound = s[:4]
    return contextfree.score_sliding(x, slots, stats, step, window, xi, bound, out)


@inline
def _sliding_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    stats, window, _, _, ring, values, clock = s
    return contextfree.slide_one(row, x, r, window, stats, ring, values, clock)


@inline
def _cusum_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    stats, total, explore = s[:3]
    return contextfree.score_cusum(x, slots, stats, total, explore, noise, out)


@inline
def _cusum_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    stats, total, _, warmup, drift, threshold, work = s
    return contextfree.cusum_one(row, x, r, warmup, drift, threshold, stats, total, work)


drawn = loop("drawn", _drawn_decide, _drawn_learn)
ucb = loop("ucb", _ucb_decide, _ucb_learn)
monitored = loop("monitored", _monitored_decide, _monitored_learn)
discounted_ucb = loop("discounted_ucb", _discounted_decide, _discounted_learn)
sliding_ucb = loop("sliding_ucb", _sliding_decide, _sliding_learn)
cusum = loop("cusum", _cusum_decide, _cusum_learn)


# -- one model an arm ---------------------------------------------------------------------------


@inline
def _own_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    return disjoint.best(x, slots, s[0], s[1])[0]


@inline
def _packed_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    if again == 0 or slots.shape[0] < packed.LEAST or x.shape[0] >= factors.LONG:
        return disjoint.best(x, slots, s[0], s[1])[0]
    if again == 1:
        for c in range(slots.shape[0]):
            packed.pack(c, slots[c], s[0], out)
    elif learnt >= 0:
        packed.pack(learnt, slots[learnt], s[0], out)
    return packed.best(x, slots.shape[0], out, s[1])


@inline
def _own_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    factors.learn(s[0], row, x, r, s[2])
    return QUIET


@inline
def _thompson_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    return disjoint.sample(x, slots, s[0], s[1], noise, out)


@inline
def _ps_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    cum, _, window, threshold, seed_first, ridge, pre, pool, links, table, work = s
    return disjoint.take(
        row, x, r, window, threshold, seed_first, ridge, cum, pre, pool, links, table, work
    )


@inline
def _scored_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    cum, _, bounds, ridge, _, flat, pool, links, table, work, room, scratch = s
    return scoretest.take(
        row, x, r, bounds, ridge, cum, flat, pool, links, table, work, room, scratch
    )


@inline
def _doubting_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    cum, ridge, alpha, rate, doubts, tally = s[0], s[1], s[2], s[3], s[4], s[5]
    return revisit.score(x, slots, cum, alpha, ridge, rate, step, doubts, tally, out)


@inline
def _doubting_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    (
        cum, ridge, alpha, rate, doubts, tally, bounds, _, _, flat, pool, links, table, work,
        room, scratch,
    ) = s  # fmt: skip
    return revisit.take(
        row, x, r, step, alpha, rate, doubts, tally, bounds, ridge, cum, flat, pool, links, table,
        work, room, scratch,
    )  # fmt: skip


@inline
def _watched_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    cum, _, warmup, squared, drift, threshold, ridge, _, marks, work = s
    return watched.take(row, x, r, warmup, squared, drift, threshold, ridge, cum, marks, work)


@inline
def _modified_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    cum, alpha, live, restarted, gamma = s[:5]
    return modified.score(x, slots, cum, alpha, live, step - restarted[0], gamma, out)


@inline
def _modified_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    cum, _, live, _, _, window, threshold, ridge, half, pool, links, table, work = s
    return modified.observe(
        row, x, r, window, threshold, ridge, live, cum, half, pool, links, table, work
    )


@inline
def _grouped_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    cum, alpha, mark, rows, found, model, played = s[:7]
    return groups.best(x, slots, rows[:0], model, played, cum, alpha, mark, rows, found)[0]


@inline
def _grouped_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    return groups.observe(row, x, r, *s[7:])


linucb = loop("linucb", _packed_decide, _own_learn, lean)
thompson = loop("thompson", _thompson_decide, _own_learn)
ps_disjoint = loop("ps_disjoint", _packed_decide, _ps_learn, lean)
ps_scored = loop("ps_scored", _packed_decide, _scored_learn, lean)
ps_revisit = loop("ps_revisit", _doubting_decide, _doubting_learn, lean)
grouped = loop("grouped", _grouped_decide, _grouped_learn, lean)
linucb_watched = loop("linucb_watched", _packed_decide, _watched_learn, lean)
modified_ps = loop("modified_ps", _modified_decide, _modified_learn)


# -- one model for all, and both ----------------------------------------------------------------


@inline
def _shared_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    model, alpha, kind, features, rows, phi = s[:6]
    return uniform.score(kind, x, slots, features, rows, model, alpha, out, phi)


@inline
def _shared_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    model, _, kind, features, rows, phi, w = s
    return uniform.learn_one(kind, x, row, features, rows, r, model, phi, w)


@inline
def _thompson_shared(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    model, alpha, kind, features, rows, phi = s[:6]
    return uniform.sample(kind, x, slots, features, rows, model, alpha, noise, out, phi)


@inline
def _hybrid_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    cum, shared, k, alpha, ridge, kind, features, rows, scratch = s[:9]
    if kind == hybrid.PLAIN:
        return hybrid.best(x, slots, features, cum, shared, alpha, ridge, scratch)[0]
    return hybrid.score(kind, x, slots, features, rows, cum, shared, k, alpha, ridge, out, scratch)


@inline
def _hybrid_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    cum, shared, k, _, ridge, kind, features, _, _, work = s
    hybrid.learn(kind, x, row, work[0, :k], features, r, cum, shared, ridge, work)
    return QUIET


@inline
def _ps_hybrid_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    (
        cum, shared, k, _, ridge, kind, features, rows, _, window, threshold, seed_first, exact,
        pre, pool, links, table, work,
    ) = s  # fmt: skip
    return hybrid.observe(
        kind, x, row, features, rows, r, window, threshold, seed_first, exact, ridge, cum, pre,
        shared, k, pool, links, table, work,
    )  # fmt: skip


@inline
def _scored_hybrid_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    (
        cum, shared, k, _, ridge, kind, features, rows, _, bounds, pre, flat, pool, links, table,
        work, room, scratch,
    ) = s  # fmt: skip
    return scorehybrid.observe(
        kind, x, row, features, rows, r, bounds, ridge, cum, pre, flat, shared, k, pool, links,
        table, work, room, scratch,
    )  # fmt: skip


@inline
def _doubting_hybrid_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    cum, shared, k, alpha, ridge, kind, features, rows, scratch, _, rate, doubts, tally = s[:13]
    return revisit.score_hybrid(
        kind, x, slots, features, rows, cum, shared, k, alpha, ridge, out, scratch, rate, step,
        doubts, tally,
    )  # fmt: skip


@inline
def _doubting_hybrid_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    (
        cum, shared, k, _, ridge, kind, features, rows, _, alpha, rate, doubts, tally, bounds,
        pre, flat, pool, links, table, work, room, scratch,
    ) = s  # fmt: skip
    return revisit.observe_hybrid(
        kind, x, row, features, rows, r, step, alpha, rate, doubts, tally, bounds, ridge, cum,
        pre, flat, shared, k, pool, links, table, work, room, scratch,
    )  # fmt: skip


linucb_shared = loop("linucb_shared", _shared_decide, _shared_learn)
thompson_shared = loop("thompson_shared", _thompson_shared, _shared_learn)
linucb_hybrid = loop("linucb_hybrid", _hybrid_decide, _hybrid_learn)
ps_hybrid = loop("ps_hybrid", _hybrid_decide, _ps_hybrid_learn)
ps_scored_hybrid = loop("ps_scored_hybrid", _hybrid_decide, _scored_hybrid_learn)
ps_revisit_hybrid = loop("ps_revisit_hybrid", _doubting_hybrid_decide, _doubting_hybrid_learn)


# -- models that forget, and ensembles ----------------------------------------------------------


@inline
def _fading_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    sums, touched, start, bounds, kind, features, rows, V, work = s
    p, alpha, gamma, ridge, sigma, delta, bound_x, bound_theta = bounds
    beta = forgetting.radius(
        step - start[0], p, alpha, gamma, ridge, sigma, delta, bound_x, bound_theta
    )
    return forgetting.discount_score(
        kind, x, slots, features, rows, sums, touched, step, gamma, beta, ridge, V, work, out
    )


@inline
def _fading_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    sums, touched, _, bounds, kind, features, rows, _, work = s
    return forgetting.discount_one(
        kind, row, x, features, rows, r, step + 1, bounds[2], sums, touched, work
    )


@inline
def _window_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    cum, _, kind, features, rows, _, window, ridge, chain, pool, links, ends, work = s
    return forgetting.slide_one(
        kind, row, x, features, rows, r, window, ridge, cum, chain, pool, links, ends, work
    )


@inline
def _denband_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    kind, features, rows, settings, model, audit, order, marks, phi = s[:9]
    return experts.score(
        kind, x, slots, features, rows, settings, model, audit, order, marks, out, phi
    )


@inline
def _denband_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    (
        kind, features, rows, settings, model, audit, order, marks, phi, gates, counts, ring,
        admitted, work,
    ) = s  # fmt: skip
    return experts.observe(
        kind, x, row, features, rows, r, settings, model, audit, gates, counts, order, marks,
        ring, admitted, work, phi,
    )  # fmt: skip


@inline
def _dynamic_decide(
    s: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    kind, features, rows, settings, model, badness, order, marks, phi = s[:9]
    return slaves.score(
        kind, x, slots, features, rows, settings, model, badness, order, marks, out, phi
    )


@inline
def _dynamic_learn(s: State, step: int, row: int, x: F64, r: float) -> int:
    kind, features, rows, settings, model, badness, order, marks, phi, fails, counts, work = s
    return slaves.observe(
        kind, x, row, features, rows, r, settings, model, fails, counts, badness, order, marks,
        work, phi,
    )  # fmt: skip


discounted_linear = loop("discounted_linear", _fading_decide, _fading_learn)
sliding_linear = loop("sliding_linear", _own_decide, _window_learn)
sliding_shared = loop("sliding_shared", _shared_decide, _window_learn)
denband = loop("denband", _denband_decide, _denband_learn)
dynamic = loop("dynamic", _dynamic_decide, _dynamic_learn)
