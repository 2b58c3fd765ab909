"""Intervals that hold however often they are looked at: confidence sequences from sums.

A 95 % interval is made for one look. On a page that is refreshed every two seconds, each look is
another chance to be wrong, and the chances add up. A confidence sequence holds at all looks at once
with 95 %, whoever stops looking when. docs/math.md has the formulas, and why these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from whim.evaluate.intervals import Interval

ALPHA = 0.05
SCALE = 100.0  # narrowest, relative to one look, at about nine times as many rewards
ENOUGH = 30.0  # rewards that are not 0 in each group before a difference is claimed


class Sums(NamedTuple):
    """Number of rewards, their sum, and the sum of their squares."""

    n: float
    total: float
    squares: float

    @property
    def clicks(self) -> bool:
        """Whether every reward is 0 or 1."""
        return self.squares == self.total

    def variance(self) -> float:
        """Of the rewards about their mean."""
        mean = self.total / self.n
        found = self.squares / self.n - mean * mean
        # what is left of equal rewards is rounding
        return found if found > 1e-12 * self.squares / self.n else 0.0


class Comparison(NamedTuple):
    """Two groups at the same times: their means, the difference, and the one over the other.

    ``lift`` is the first mean over the second, minus one; None where the second is not above 0.
    Ends that are not known yet are nan.
    """

    first: float
    second: float
    difference: Interval
    lift: Interval | None

    @property
    def claim(self) -> int:
        """1 if the first is better, -1 if it is worse, 0 while neither can be said."""
        return int(self.difference.low > 0) - int(self.difference.high < 0)


def studentised(n: float, alpha: float = ALPHA, scale: float = SCALE) -> float:
    """Standard errors that a mean of n never strays by, at any n; infinite while n is small.

    For one look it would be 1.96. The variance is estimated from the n.

    >>> [round(studentised(n), 2) for n in (10, 50, 100, 1000, 100_000)]
    [inf, 5.25, 3.83, 3.04, 3.59]
    """
    if n < 2:
        return math.inf
    growth = (n + scale) / scale
    bound = (math.sqrt(growth) / alpha) ** (2 / n)
    if bound >= growth:
        return math.inf
    return math.sqrt((n - 1) * (bound - 1) / (1 - bound / growth))


def alpha_from(start: int) -> float:
    """The share of ALPHA for a sequence that begins at a start, counted from 0.

    The shares of all starts sum to ALPHA: sequences from every start hold together, so whoever
    looks may choose the start, or move it along.

    >>> round(alpha_from(0), 4), round(sum(map(alpha_from, range(10**5))), 3)
    (0.0185, 0.047)
    >>> [round(studentised(2000, alpha_from(s)) / studentised(2000), 1) for s in (0, 3600, 10**8)]
    [1.1, 2.0, 2.6]
    """
    return ALPHA * (1 / math.log2(start + 2) - 1 / math.log2(start + 3))


def anytime_rate(n: float, total: float, squares: float, alpha: float = ALPHA) -> Interval:
    """Mean of n rewards, from their sum and that of their squares; at all times at once 95 %.

    Of clicks it holds for any number of them. Other rewards need some dozens, not all equal.

    >>> [round(part, 3) for part in anytime_rate(1000, 50.0, 50.0)]
    [0.05, 0.029, 0.079]
    >>> anytime_rate(10, 5.0, 2.5)
    Interval(value=0.5, low=nan, high=nan)
    """
    if n <= 0:
        return Interval(math.nan, math.nan, math.nan)
    sums, mean = Sums(n, total, squares), total / n
    if sums.clicks:
        return Interval(mean, *_click_ends(n, total, alpha))
    variance, strays = sums.variance(), studentised(n, alpha)
    if not variance or not math.isfinite(strays):
        return Interval(mean, math.nan, math.nan)
    half = strays * math.sqrt(variance / (n - 1))
    return Interval(mean, mean - half, mean + half)


def _click_ends(n: float, clicks: float, alpha: float) -> tuple[float, float]:
    """The rates that n rewards leave open, from the lowest to the highest.

    Those are the rates that are not 1/alpha times less likely than a rate drawn from Jeffreys's
    prior: the ratio is a martingale at the true rate, and exceeds that with chance alpha at most.
    """
    missed = n - clicks
    drawn = math.lgamma(clicks + 0.5) + math.lgamma(missed + 0.5) - math.lgamma(n + 1)
    least = drawn - math.log(math.pi) + math.log(alpha)  # logarithm of the likelihood at an end
    if not clicks:
        return 0.0, -math.expm1(least / n)
    if not missed:
        return math.exp(least / n), 1.0
    mean = clicks / n
    middle = math.log(clicks / missed)
    highest = clicks * math.log(mean) + missed * math.log(missed / n)
    reach = math.sqrt(2 * (highest - least) / (n * mean * (1 - mean)))
    low, high = (_log_odds(n, clicks, least, middle + side * reach) for side in (-1, 1))
    return 1 / (1 + math.exp(-low)), 1 / (1 + math.exp(-high))


def _log_odds(n: float, clicks: float, least: float, x: float) -> float:
    """Where the log-likelihood is ``least``, from a guess, by Newton's method.

    It is concave in the log-odds x: from the second step on x comes nearer from outside, and can
    only be too wide.
    """
    for _ in range(50):
        soft = max(x, 0.0) + math.log1p(math.exp(-abs(x)))  # ln(1 + e^x)
        rate = math.exp(x - soft)
        step = (clicks * x - n * soft - least) / (clicks - n * rate)
        x -= step
        if abs(step) < 1e-10:
            break
    return x


def compare(strata: Iterable[tuple[Sums, Sums]], alpha: float = ALPHA) -> Comparison | None:
    """Two groups to which callers were assigned by chance, each stratum a span of time.

    Groups are compared within each span, so that neither times nor shares that change count as a
    difference. None before both have rewards in the same span.

    >>> same = Sums(1000, 300.0, 300.0), Sums(1000, 300.0, 300.0)
    >>> better = Sums(1000, 400.0, 400.0), Sums(1000, 300.0, 300.0)
    >>> compare([same]).claim, compare([better]).claim, round(compare([better]).lift.value, 3)
    (0, 1, 0.333)
    """
    pairs = [(a, b) for a, b in strata if a.n > 0 and b.n > 0]
    if not pairs:
        return None
    # what a stratum tells of the difference grows with this
    weights = [a.n * b.n / (a.n + b.n) for a, b in pairs]
    whole = sum(weights)
    each = [(w / whole, a, b) for w, (a, b) in zip(weights, pairs, strict=True)]
    first = sum(share * a.total / a.n for share, a, _ in each)
    second = sum(share * b.total / b.n for share, _, b in each)
    one, two = math.nan, math.nan
    groups = [_together(group) for group in zip(*pairs, strict=True)]
    strays = studentised(whole, alpha) ** 2
    if _enough(*groups) and math.isfinite(strays):
        one, two = _variances(*groups)
        one *= strays * sum(share * share / a.n for share, a, _ in each)
        two *= strays * sum(share * share / b.n for share, _, b in each)
    half = math.sqrt(one + two)
    difference = Interval(first - second, first - second - half, first - second + half)
    lift = _lift(first, second, one, two)
    if lift is not None and lift.low < -1 and all(g.clicks for g in groups):
        lift = lift._replace(low=-1.0)
    return Comparison(first, second, difference, lift)


def _together(group: Iterable[Sums]) -> Sums:
    n, total, squares = map(sum, zip(*group, strict=True))
    return Sums(n, total, squares)


def _enough(first: Sums, second: Sums) -> bool:
    """Whether both means are near enough to normal: each of as many rewards as that takes.

    Rewards count as if all that are not 0 were of one size: of clicks, those who clicked, or
    those who did not if they are fewer.
    """
    n, total, squares = _together((first, second))
    if squares <= 0:
        return False
    share = min(total, n - total) / n if squares == total else total * total / (n * squares)
    return share * min(first.n, second.n) >= ENOUGH


def _variances(a: Sums, b: Sums) -> tuple[float, float]:
    """Of single rewards in each group; that of a small group leans on both together.

    A holdback of a hundred without a click has no spread of its own, but is no proof of zero.
    """
    both = (a.n * a.variance() + b.n * b.variance()) / (a.n + b.n)
    one, two = ((g.n * g.variance() + SCALE * both) / (g.n + SCALE) for g in (a, b))
    return one, two


def _lift(first: float, second: float, one: float, two: float) -> Interval | None:
    """Ratios r - 1 for which first - r·second is within chance of 0 (Fieller's interval).

    ``one`` and ``two`` are the squares of how far the means may stray.
    """
    if second <= 0:
        return None
    value, bend = first / second - 1, second * second - two
    inside = first * first * two + second * second * one - one * two
    if not (bend > 0 and inside > 0):  # or not known
        return Interval(value, math.nan, math.nan)  # the second may be as small as any
    root = math.sqrt(inside)
    return Interval(value, (first * second - root) / bend - 1, (first * second + root) / bend - 1)
