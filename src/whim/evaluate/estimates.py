"""What a log says of the value of another policy: IPS, SNIPS and doubly robust, and their support.

A choice that could not have been shown has no support: nothing in the log says what it earns, and
every estimate from inverse propensities counts it as 0. Estimates without support are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from whim.evaluate.intervals import Interval, Z, normal_interval, proportion
from whim.types import F64

CERTAIN = 1 - 1e-9  # propensities from here on leave nothing to the other candidates
_LEAST = 0.999  # share of events that must have support
_FAR = 4.0  # standard errors that the mean weight may be away from 1


class Support(NamedTuple):
    """How much of a log an estimate rests on.

    Attributes
    ----------
    effective
        The effective sample size (Σw)²/Σw²: as many events of equal weight would say as much.
    share
        Share of the events in which the policy's choice could have been shown.
    problem
        Why the estimates are unknown; None if they are not.
    """

    effective: float
    share: float
    problem: str | None


def support(events: int, weights: Sequence[float], backed: Sequence[float]) -> Support:
    """Support, from the sums over ``events`` events that ``ReplayRun`` keeps.

    ``weights`` starts with Σw and Σw²; ``backed`` holds the events whose support is known, and
    those of them that have it. With full support the mean weight is 1, but for chance.

    >>> support(100, [100.0, 200.0], [100.0, 100.0])
    Support(effective=50.0, share=1.0, problem=None)
    >>> support(100, [60.0, 60.0], [100.0, 60.0]).problem
    'in 40 % of the events the choice could not have been shown'
    >>> support(10_000, [1.0, 1.0], [10_000.0, 1.0]).problem
    'in 100 % of the events the choice could not have been shown'
    """
    w, ww = weights[0], weights[1]
    known, supported = backed
    share = supported / known if known else 1.0
    if not events or not w:
        return Support(0.0, 0.0, "no event shows what the policy chooses")
    effective, mean = w * w / ww, w / events
    error = math.sqrt(max(ww / events - mean * mean, 0.0) / events)
    problem = None
    if share < _LEAST:
        percent = round(100 * (1 - share), 1)
        problem = f"in {percent:g} % of the events the choice could not have been shown"
    elif abs(mean - 1) > _FAR * error + 1e-9:
        problem = (
            f"the inverse propensities sum to {mean:.3g} of the events, which is too far from 1 "
            "to be chance: some choices could not have been shown, or the propensities are wrong"
        )
        share = min(share, mean)
    return Support(effective, share, problem)


def estimates(
    events: int, weights: Sequence[float], corrected: Sequence[float], rewards: F64
) -> dict[str, Interval]:
    """IPS, SNIPS and, where there are terms of it, doubly robust, each with its interval.

    ``weights`` are sums of w, w², wr, (wr)², w²r; ``corrected`` those of the doubly robust terms
    and of their squares, and their number; ``rewards`` the least and the largest of the log.
    """
    found = {}
    w, ww, wr, wrwr, wwr = weights
    if events and w:
        value = wr / w
        residual = wrwr - 2 * value * wwr + value**2 * ww
        if residual > 1e-12 * wrwr:
            found["ips"] = normal_interval(wr / events, wrwr / events - (wr / events) ** 2, events)
            spread = Z * math.sqrt(residual) / w
            found["snips"] = Interval(value, value - spread, value + spread)
        else:
            found["snips"] = _of_equal(value, w * w / ww, rewards)
            found["ips"] = found["snips"]._replace(value=wr / events)
    total, squares, count = corrected
    if count:
        mean = total / count
        found["dr"] = normal_interval(mean, squares / count - mean**2, int(count))
    return found


def _of_equal(value: float, effective: float, rewards: F64) -> Interval:
    """Where all rewards that count are the same: their spread of 0 says nothing of the next one.

    Wilson's interval between the least and the largest reward of the log, if they differ.
    """
    low, high = rewards.tolist()
    if not low < high:
        return Interval(value, math.nan, math.nan)
    _, least, most = proportion((value - low) / (high - low) * effective, effective)
    return Interval(value, low + least * (high - low), low + most * (high - low))
