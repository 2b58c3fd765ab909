"""The noise that the residuals of an arm's plays show, for the score test.

Rewards are of two values, and the rarer one comes at a rate that depends on the context; or they
are any numbers. Then the residuals near the mean are taken for a normal part, and those far out
for what they are: as likely to come again as they have come.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from whim.kernels.detection.windows import Windows, advance
from whim.kernels.jit import part
from whim.types import F64

FAR = 64  # residuals that are kept as they are, at most
_FAR = 2.0  # standard deviations from which on they are
_UNSEEN = 12.0  # fitted: an outlier that was never seen has e⁻¹² of the weight of one that was
_LEAST = 0.3  # of the mean rate: that of any play, at least, or less if contexts explain much


class Plays(NamedTuple):
    """``n`` plays from a record on, without those of the arm in slot ``skip``."""

    windows: Windows
    chunk: int
    place: int
    n: int
    skip: float


class Fit(NamedTuple):
    """What the window's own θ explains: ``gain``, beside the variance ``noise``.

    ``theta`` is that of all plays, ``beta``, a part of ``room``, what the window moves it by.
    ``room`` holds the fit of the window, ``atoms`` is scratch.
    """

    gain: float
    noise: float
    theta: F64
    beta: F64
    room: F64
    atoms: F64


class Noise(NamedTuple):
    """The distribution of a play's noise: two values, ``gap`` apart, or any (``gap`` is 0).

    Two: the upper one comes at a rate that the context decides, ``rate`` on average; of what the
    linear model adds to that mean rate for a context, ``trust`` counts, and of the mean rate each
    play has at least ``share``. Any: a normal part of weight ``share``; ``far``
    residuals that lie far out, each of weight ``each``; and one more, of weight ``last``, as large
    as any in the window. ``centre`` is the mean of it all, ``scale`` how much larger than
    elsewhere the noise is in the direction of the change. ``known`` is the share of the residuals
    that tell of the variance: outliers are few.
    """

    gap: float
    low: float
    rate: float
    trust: float
    share: float
    mean: float
    variance: float
    far: int
    each: float
    last: float
    centre: float
    scale: float
    known: float


class Tally(NamedTuple):
    """Sums over residuals: how many, those far out, sum and squares of the others; powers of all.

    ``along`` is the sum of a²e², ``across`` that of a².
    """

    plays: int
    far: int
    mean: float
    variance: float
    second: float
    fourth: float
    along: float
    across: float


@part
def project(x: F64, beta: F64) -> float:
    a = 0.0
    for j in range(beta.shape[0]):
        a += x[j] * beta[j]
    return a


@part
def _skipped(plays: Plays, x: F64, d: int) -> bool:
    skipped: bool = plays.skip >= 0.0 and x[d + 2] == plays.skip
    return skipped


@part
def noise_of(window: Plays, before: Plays, fit: Fit, whole: float) -> Noise:
    """``whole`` is the variance of the residuals of one θ for all plays."""
    d = fit.theta.shape[0]
    one, other, seen, plays = _two_values(window, d, math.nan, math.nan)
    if plays >= 0:
        one, other, more, rest = _two_values(before, d, one, other)
        seen, plays = seen + more, plays + rest if rest >= 0 else rest
    if plays < 0:
        return _any_values(window, before, fit)
    if math.isnan(other):  # one value, which shows no noise: normal
        fit.atoms[0] = 0.0
        return Noise(0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0, 0.0, 0.0, 0.0, 1.0, 1.0)
    rate = seen / plays
    if other < one:
        one, other, rate = other, one, 1.0 - rate
    gap = other - one
    spread = rate * (1.0 - rate)
    known = min(1.0, 2.0 * spread / max(1.0 - 4.0 * spread, 1e-9))
    unsure = min(max(whole / (gap * gap * spread), 1.0 / (plays + 1)), 1.0)
    share = _LEAST * unsure
    squares = _varied(window, fit, one + gap * rate) + _varied(before, fit, one + gap * rate)
    told = max(gap * gap * spread - whole, 0.0) * plays
    trust = told / squares if told < squares else 1.0
    return Noise(gap, one, rate, trust, share, 0.0, 0.0, 0, 0.0, 0.0, 0.0, 1.0, known)


@part
def _two_values(plays: Plays, d: int, one: float, other: float) -> tuple[float, float, int, int]:
    """Two rewards, how many plays have the second of them, and how many there are.

    A number of plays below 0 says that there is a third reward.
    """
    w, c, p = plays.windows, plays.chunk, plays.place
    seen, count = 0, 0
    for _ in range(plays.n):
        x = w.pool[c, p]
        c, p = advance(w, c, p)
        if _skipped(plays, x, d):
            continue
        if math.isnan(one):
            one = x[d]
        elif math.isnan(other) and x[d] != one:
            other = x[d]
        if x[d] == other:
            seen += 1
        elif x[d] != one:
            return one, other, seen, -1
        count += 1
    return one, other, seen, count


@part
def _varied(plays: Plays, fit: Fit, mean: float) -> float:
    """Sum of the squares by which the linear model's means differ from this one."""
    w, c, p, d = plays.windows, plays.chunk, plays.place, fit.theta.shape[0]
    squares = 0.0
    for _ in range(plays.n):
        x = w.pool[c, p]
        c, p = advance(w, c, p)
        if not _skipped(plays, x, d):
            more = project(x, fit.theta) - mean
            squares += more * more
    return squares


@part
def _slope(plays: Plays, fit: Fit) -> float:
    """What these plays have of the change themselves: the slope of their residuals on a."""
    w, c, p, d, beta = plays.windows, plays.chunk, plays.place, fit.theta.shape[0], fit.beta
    squares, products = 0.0, 0.0
    for _ in range(plays.n):
        x = w.pool[c, p]
        c, p = advance(w, c, p)
        if not _skipped(plays, x, d):
            a = project(x, beta)
            squares += a * a
            products += a * (x[d] - project(x, fit.theta))
    return products / squares if squares > 0.0 else 0.0


@part
def _add(plays: Plays, fit: Fit, moved: float, sums: Tally) -> Tally:
    """Add the residuals of some plays, in standard deviations, of a θ that moved along β."""
    w, c, p, d, beta = plays.windows, plays.chunk, plays.place, fit.theta.shape[0], fit.beta
    count, far, mean, variance, second, fourth, along, across = sums
    for _ in range(plays.n):
        x = w.pool[c, p]
        c, p = advance(w, c, p)
        if _skipped(plays, x, d):
            continue
        a = project(x, beta)
        e = (x[d] - project(x, fit.theta) - a * moved) / math.sqrt(fit.noise)
        count += 1
        second += e * e
        fourth += e * e * e * e
        across += a * a
        along += a * a * e * e
        if abs(e) > _FAR and far < FAR:
            fit.atoms[far] = e
            far += 1
        else:
            mean += e
            variance += e * e
    return Tally(count, far, mean, variance, second, fourth, along, across)


@part
def _outlier(window: Plays, fit: Fit) -> float:
    """The residual that says most for a change, in standard deviations."""
    w, c, p, d, beta = window.windows, window.chunk, window.place, fit.theta.shape[0], fit.beta
    largest, outlier = -1.0, 0.0
    for _ in range(window.n):
        x = w.pool[c, p]
        e = x[d] - project(x, fit.theta)
        size = abs(e * project(x, beta))
        if size > largest:
            largest, outlier = size, e
        c, p = advance(w, c, p)
    return outlier / math.sqrt(fit.noise)


@part
def _any_values(window: Plays, before: Plays, fit: Fit) -> Noise:
    """The residuals of the plays before and, of its own θ, of the window."""
    sums = Tally(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    sums = _add(before, fit, _slope(before, fit), sums)
    sums = _add(window, fit, 1.0, sums)
    plays, far, second = sums.plays, sums.far, sums.second / sums.plays
    bulk = plays - far
    mean = sums.mean / bulk if bulk > 0 else 0.0
    variance = max(sums.variance / bulk - mean * mean, 0.0) if bulk > 0 else 0.0
    known, scale = 1.0, 1.0
    if second > 0.0:
        known = min(1.0, 2.0 / max(sums.fourth / plays / (second * second) - 1.0, 1e-9))
    if second * sums.across > 0.0:
        scale = math.sqrt(max(1.0, sums.along / (sums.across * second)))
    each = 1.0 / (plays + 1)
    last = each * math.exp(-_UNSEEN * known)
    share = (bulk + 1) * each - last
    outlier = _outlier(window, fit)
    fit.atoms[far] = outlier
    centre = share * mean + last * outlier
    for j in range(far):
        centre += each * fit.atoms[j]
    return Noise(0.0, 0.0, 0.0, 0.0, share, mean, variance, far, each, last, centre, scale, known)


@part
def tilted(noise: Noise, fit: Fit, mean: float, s: float) -> tuple[float, float, float]:
    """Cumulant function at s of the noise of a play with this mean, and two derivatives."""
    if noise.gap == 0.0:
        return _tilted_any(noise, fit, s)
    s *= noise.gap
    at = noise.rate + noise.trust * ((mean - noise.low) / noise.gap - noise.rate)
    # beyond the least and largest rate the noise has a mean
    rate = min(max(at, noise.share * noise.rate), 1.0 - noise.share * (1.0 - noise.rate))
    if s > 0.0:
        total = rate + (1.0 - rate) * math.exp(-s)
        log = s + math.log(total)
        up = rate / total
    else:
        up = rate * math.exp(s)
        total = 1.0 - rate + up
        log = math.log(total)
        up /= total
    return log - s * at, noise.gap * (up - at), noise.gap * noise.gap * up * (1.0 - up)


@part
def _tilted_any(noise: Noise, fit: Fit, s: float) -> tuple[float, float, float]:
    size = noise.scale * math.sqrt(fit.noise)
    s *= size
    middle = noise.mean + s * noise.variance
    top = 0.5 * s * (noise.mean + middle)
    highest = top
    for j in range(noise.far + 1):
        highest = max(highest, s * fit.atoms[j])
    total = noise.share * math.exp(top - highest)
    first, second = total * middle, total * (middle * middle + noise.variance)
    for j in range(noise.far + 1):
        e = fit.atoms[j]
        weight = (noise.each if j < noise.far else noise.last) * math.exp(s * e - highest)
        total += weight
        first += weight * e
        second += weight * e * e
    first /= total
    variance = max(second / total - first * first, 0.0)
    return (
        highest + math.log(total) - s * noise.centre,
        size * (first - noise.centre),
        size * size * variance,
    )
