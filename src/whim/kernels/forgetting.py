"""Ridge models that forget: discounted (D-LinUCB) and over a sliding window (SW-LinUCB).

Both are written once over (row, φ): with ``kind`` OWN each arm has its own row and φ is the
context; with the kinds of ``kernels.uniform`` all arms share row 0.

**Discounted** (Russac et al. 2019). V = λI + Σ γ^(t-s) φφᵀ, Ṽ the same with γ², b = Σ γ^(t-s) rφ;
the bound is φᵀV⁻¹b + β √(φᵀV⁻¹ṼV⁻¹φ). A row holds two sums without λI, as factors L E Lᵀ: that of
(φ, r)(φ, r)ᵀ, which is V bordered by b, and Ṽ's. Ageing then scales E alone, and waits until the
row is next used; a play is two rank-one steps, O(p²). This is the one linear policy with O(p³)
steps, when it scores: the sum fades but its ridge does not, so from one step to the next V gains
(1-γ)λI, of full rank, and no rank-one step keeps its factors. They are made from the sum's by one
rank-one step a ridge entry. All that is added is positive: pivots stay above zero and keep their
digits for contexts of any scale. Nothing is ever inverted; φ is solved for.

**Window** (Cheung et al. 2019). One queue of the last plays over all arms; the records of a row are
chained, so that a row is rebuilt or dropped without a walk over the others. What leaves is taken
out of the row's factors. That multiplies the error already there by 1 / (1 - leverage), so a row is
rebuilt from its records once these factors reach ``_TRUST``, or as many plays have left as stay.
Leverages of few plays are near one (log det A cannot fall for long), so this too is amortised.
"""

from __future__ import annotations

import numpy as np

from whim.kernels import factors, ldl, uniform, windows
from whim.kernels.jit import inline, jit
from whim.types import F64, I64

__all__ = [
    "CHAIN",
    "OWN",
    "discount_many",
    "discount_one",
    "discount_row",
    "discount_score",
    "discount_score_many",
    "discount_theta",
    "drop",
    "radius",
    "record_size",
    "slide_many",
    "slide_one",
]

OWN = 3  # beside ITEM, CROSS and GIVEN of kernels.uniform
QUIET, GROW, NOT_FINITE = 0, 2, 3


@inline
def _row(kind: int, slot: int) -> int:
    return slot if kind == OWN else 0


@inline
def _feature(kind: int, x: F64, features: F64, slot: int, cross: F64, c: int, phi: F64) -> None:
    if kind == OWN:
        for j in range(phi.shape[0]):
            phi[j] = x[j]
    else:
        uniform.feature(kind, x, features, slot, cross, c, phi)


# -- discounted ------------------------------------------------------------------------------------


def discount_row(p: int) -> F64:
    """The row of a model that has learnt nothing: the sum of V bordered by b, and that of Ṽ."""
    return np.zeros(factors.packed_size(p + 1) + factors.packed_size(p))


@inline
def _discount(
    kind: int, slot: int, x: F64, features: F64, cross: F64, c: int, r: float, step: int,
    gamma: float, sums: F64, touched: I64, work: F64,
) -> None:  # fmt: skip
    p = work.shape[1] - 1
    second = (p + 1) * (p + 2) // 2
    row = _row(kind, slot)
    phi, v = work[0, :p], work[1]
    _feature(kind, x, features, slot, cross, c, phi)
    fade = gamma ** float(step - touched[row])
    touched[row] = step
    for j in range(p + 1):
        sums[row, j] *= fade
    for j in range(p):
        sums[row, second + j] *= fade * fade
        v[j] = phi[j]
    v[p] = r
    ldl.add(sums, row, 0, p + 1, 0, 1.0, v)
    for j in range(p):
        v[j] = phi[j]
    ldl.add(sums, row, second, p, 0, 1.0, v)


@jit
def discount_one(
    kind: int, slot: int, x: F64, features: F64, cross: F64, r: float, step: int, gamma: float,
    sums: F64, touched: I64, work: F64,
) -> int:  # fmt: skip
    """Update number ``step`` (the first is 1); ``touched`` is that of each row's last update."""
    if not factors.finite(x):
        return NOT_FINITE
    _discount(kind, slot, x, features, cross, 0, r, step, gamma, sums, touched, work)
    return QUIET


@jit
def discount_many(
    start: int, kind: int, slots: I64, X: F64, features: F64, cross: F64, rewards: F64, step: int,
    gamma: float, sums: F64, touched: I64, work: F64,
) -> None:  # fmt: skip
    """Updates in order from ``start``, which is update number ``step``."""
    for i in range(start, slots.shape[0]):
        _discount(
            kind, slots[i], X[i], features, cross, i, rewards[i], step + i - start, gamma,
            sums, touched, work,
        )  # fmt: skip


@jit
def _ridged(sums: F64, row: int, fade: float, ridge: float, V: F64, v: F64) -> None:
    """Factors of the row's ``V = fade · sum + ridge · I``, bordered by b, into row 0 of ``V``."""
    q = v.shape[0]
    for j in range(V.shape[1]):
        V[0, j] = sums[row, j]
    for j in range(q):
        V[0, j] *= fade
    for j in range(q - 1):
        v[:] = 0.0
        v[j] = 1.0
        ldl.add(V, 0, 0, q, j, ridge, v)


@inline
def _bound(
    sums: F64, row: int, fade: float, ridge: float, V: F64, phi: F64, u: F64
) -> tuple[float, float]:
    """Mean and ``√(φᵀ V⁻¹ Ṽ V⁻¹ φ)`` from the one solution u = V⁻¹ φ."""
    mean = ldl.solve(V, 0, 0, phi, u)
    square = 0.0
    for j in range(phi.shape[0]):
        square += u[j] * u[j]
    return mean, np.sqrt(fade * fade * ldl.quad(sums, row, V.shape[1], u) + ridge * square)


@jit
def radius(
    t: int, p: int, alpha: float, gamma: float, ridge: float, sigma: float, delta: float,
    bound_x: float, bound_theta: float,
) -> float:  # fmt: skip
    """``alpha`` or, if that is nan, β_t of Russac et al. after ``t`` updates."""
    if not np.isnan(alpha):
        return alpha
    mass = float(t)
    if gamma < 1.0:
        rate = 2.0 * np.log(gamma)
        mass = np.expm1(t * rate) / np.expm1(rate)
    volume = p * np.log1p(bound_x**2 * mass / (ridge * p))
    noise = sigma * np.sqrt(2.0 * np.log(1.0 / delta) + volume)
    beta: float = np.sqrt(ridge) * bound_theta + noise
    return beta


@jit
def discount_score(
    kind: int, x: F64, slots: I64, features: F64, cross: F64, sums: F64, touched: I64, step: int,
    gamma: float, beta: float, ridge: float, V: F64, work: F64, out: F64,
) -> int:  # fmt: skip
    """Bounds after ``step`` updates into ``out`` (score, mean, width); the best one's place or -1.

    ``V`` takes the factors of a row: a model that all arms share is factored once.
    """
    if not factors.finite(x):
        return -1
    best = 0
    ready = -1
    fade = 1.0
    p = work.shape[1] - 1
    phi, u = work[0, :p], work[1, :p]
    for c in range(slots.shape[0]):
        row = _row(kind, slots[c])
        if row != ready:
            fade = gamma ** float(step - touched[row])
            _ridged(sums, row, fade, ridge, V, work[1])
            ready = row
        _feature(kind, x, features, slots[c], cross, c, phi)
        mean, width = _bound(sums, row, fade, ridge, V, phi, u)
        width *= beta
        out[c, 0] = mean + width
        out[c, 1] = mean
        out[c, 2] = width
        if out[c, 0] > out[best, 0]:
            best = c
    return best


@jit
def discount_score_many(
    kind: int, X: F64, slots: I64, features: F64, cross: F64, sums: F64, touched: I64, step: int,
    gamma: float, beta: float, ridge: float, V: F64, work: F64, result: F64,
) -> None:  # fmt: skip
    """Scores of every context (a row) for every candidate (a column), each model factored once."""
    ready = -1
    fade = 1.0
    p = work.shape[1] - 1
    phi, u = work[0, :p], work[1, :p]
    for c in range(slots.shape[0]):
        row = _row(kind, slots[c])
        if row != ready:
            fade = gamma ** float(step - touched[row])
            _ridged(sums, row, fade, ridge, V, work[1])
            ready = row
        for i in range(X.shape[0]):
            _feature(kind, X[i], features, slots[c], cross, c, phi)
            mean, width = _bound(sums, row, fade, ridge, V, phi, u)
            result[i, c] = mean + beta * width


@jit
def discount_theta(
    row: int, sums: F64, touched: I64, step: int, gamma: float, ridge: float, V: F64, work: F64,
    theta: F64,
) -> None:  # fmt: skip
    """``theta = V⁻¹ b`` of one row after ``step`` updates."""
    p = theta.shape[0]
    _ridged(sums, row, gamma ** float(step - touched[row]), ridge, V, work[1])
    for j in range(p):
        unit = work[0, :p]
        unit[:] = 0.0
        unit[j] = 1.0
        theta[j] = ldl.solve(V, 0, 0, unit, work[1, :p])


# -- sliding window --------------------------------------------------------------------------------

# a record: its row (-1 once that row was dropped), the next record of that row, reward, φ
ROW, NEXT, REWARD, PHI = range(4)
# ``chain[row]``: records in the window, the first and the last one, removals since it was rebuilt
COUNT, FIRST, LAST, REMOVED = range(4)
CHAIN = 4
_TRUST = np.log(1e3)


def record_size(p: int) -> int:
    """Numbers in a record of ``pool``."""
    return PHI + p


@jit
def _rebuild(row: int, p: int, ridge: float, model: F64, chain: I64, pool: F64, w: F64) -> None:
    """The row's model afresh from its records, oldest first."""
    factors.set_prior(model, row, p, ridge)
    size = pool.shape[1]
    at = chain[row, FIRST]
    for _ in range(chain[row, COUNT]):
        record = pool[at // size, at % size]
        factors.learn(model, row, record[PHI:], record[REWARD], w)
        at = int(record[NEXT])
    chain[row, REMOVED] = 0


@jit
def _remove(record: F64, ridge: float, model: F64, chain: I64, pool: F64, work: F64) -> None:
    """Take the oldest record of its row out of the chain and out of the model."""
    row = int(record[ROW])
    phi, w = record[PHI:], work[1]
    p = phi.shape[0]
    chain[row, FIRST] = int(record[NEXT])
    chain[row, COUNT] -= 1
    chain[row, REMOVED] += 1
    if chain[row, REMOVED] >= chain[row, COUNT]:
        _rebuild(row, p, ridge, model, chain, pool, w)
        return
    doubt = model.shape[1] - 1
    theta = doubt - p
    rest = factors.downdate(model, row, phi, w, work[2])
    # an empty direction leaves rest = 0 or rounding below it: the log is then inf or nan
    model[row, doubt] -= np.log(rest)
    if not model[row, doubt] < _TRUST:
        _rebuild(row, p, ridge, model, chain, pool, w)
        return
    # the inverse after is A⁻¹ + wwᵀ/rest, so that A⁻¹φ after is w/rest
    loss = (record[REWARD] - factors.predict(model, row, phi)) / rest
    for j in range(p):
        model[row, theta + j] -= w[j] * loss


@inline
def _slide(
    kind: int, slot: int, x: F64, features: F64, cross: F64, c: int, r: float, window: int,
    ridge: float, model: F64, chain: I64, pool: F64, links: I64, ends: I64, work: F64,
) -> int:  # fmt: skip
    if windows.full(ends, 0, pool, links):
        return GROW
    row = _row(kind, slot)
    phi = work[0]
    _feature(kind, x, features, slot, cross, c, phi)
    factors.learn(model, row, phi, r, work[1])
    size = pool.shape[1]
    chunk, place = windows.push(ends, 0, pool, links)
    here = chunk * size + place
    pool[chunk, place, ROW] = row
    pool[chunk, place, NEXT] = 0.0
    pool[chunk, place, REWARD] = r
    for j in range(phi.shape[0]):
        pool[chunk, place, PHI + j] = phi[j]
    if chain[row, COUNT] == 0:
        chain[row, FIRST] = here
    else:
        last = chain[row, LAST]
        pool[last // size, last % size, NEXT] = here
    chain[row, LAST] = here
    chain[row, COUNT] += 1
    # the new play is in before the old one leaves: leverages are then at their smallest
    if ends[0, windows.COUNT] > window:
        chunk, place = windows.pop(ends, 0, pool, links)
        if pool[chunk, place, ROW] >= 0.0:
            _remove(pool[chunk, place], ridge, model, chain, pool, work)
    return QUIET


@jit
def slide_one(
    kind: int, slot: int, x: F64, features: F64, cross: F64, r: float, window: int, ridge: float,
    model: F64, chain: I64, pool: F64, links: I64, ends: I64, work: F64,
) -> int:  # fmt: skip
    """One play in, the one that is ``window`` older out; GROW or NOT_FINITE before any touch."""
    if not factors.finite(x):
        return NOT_FINITE
    return _slide(
        kind, slot, x, features, cross, 0, r, window, ridge, model, chain, pool, links, ends, work
    )


@jit
def slide_many(
    start: int, kind: int, slots: I64, X: F64, features: F64, cross: F64, rewards: F64,
    window: int, ridge: float, model: F64, chain: I64, pool: F64, links: I64, ends: I64, work: F64,
) -> tuple[int, int]:  # fmt: skip
    """Plays in order from ``start``, up to one that the pool cannot hold; where it stopped, why."""
    for i in range(start, slots.shape[0]):
        status = _slide(
            kind, slots[i], X[i], features, cross, i, rewards[i], window, ridge,
            model, chain, pool, links, ends, work,
        )  # fmt: skip
        if status == GROW:
            return i, GROW
    return slots.shape[0], QUIET


@jit
def drop(row: int, chain: I64, pool: F64) -> None:
    """Mark a row's records dead: they still count as steps, and leave without a trace."""
    size = pool.shape[1]
    at = chain[row, FIRST]
    for _ in range(chain[row, COUNT]):
        record = pool[at // size, at % size]
        record[ROW] = -1.0
        at = int(record[NEXT])
    chain[row, :] = 0
