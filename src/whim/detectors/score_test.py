"""The score test: has the model changed, in any direction, at a false-alarm rate that one names."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import numpy as np

from whim import checks
from whim.kernels.detection.score_test import SHORTEST
from whim.types import F64


@dataclass(frozen=True, slots=True)
class ScoreTest:
    """Compare the newest n plays of an arm with all before them, for n = 8, 16, 32, … at once.

    Attributes
    ----------
    false_alarm
        Expected false alarms per play of an arm that does not change, in (0, 0.01]. It is
        kept, to a factor of 5, by every kind of reward that was measured whose mean is linear in
        the context (docs/experiments.md).
    window
        Plays of an arm that are kept, at least 8: the longest n is the largest of 8, 16, 32, …
        that is no longer.
    lengths
        The window lengths n. Each is tested once in n/4 plays.

    Examples
    --------
    >>> test = ScoreTest(false_alarm=1e-5, window=64)
    >>> test.lengths
    (8, 16, 32, 64)
    >>> test.bounds(2).round(1)
    array([[ 0. , 20.8, 24.4],
           [ 0. , 19.5, 23. ],
           [ 0. , 18.2, 21.6],
           [ 0. , 16.9, 20.3]])
    """

    false_alarm: float = 1e-5
    window: int = 256
    lengths: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        rate = checks.number("false_alarm", self.false_alarm, above=0, most=0.01)
        object.__setattr__(self, "false_alarm", rate)
        window = checks.integer("window", self.window, SHORTEST)
        object.__setattr__(self, "window", window)
        count = (window // SHORTEST).bit_length()
        object.__setattr__(self, "lengths", tuple(SHORTEST << i for i in range(count)))

    def bounds(self, d: int) -> F64:
        """The value that counts as a change, by length and by degrees of freedom 0 to d."""
        table = np.zeros((len(self.lengths), d + 1))
        for i, n in enumerate(self.lengths):
            level = min(0.25, self.false_alarm * (n / 4) / len(self.lengths))
            for k in range(1, d + 1):
                table[i, k] = chi2_bound(level, k)
        return table


def chi2_tail(value: float, k: int) -> float:
    """Probability that χ² with k degrees of freedom exceeds ``value``.

    >>> round(chi2_tail(3.841, 1), 3), round(chi2_tail(9.488, 4), 3)
    (0.05, 0.05)
    """
    y = value / 2
    if y <= 0:
        return 1.0
    if math.isinf(y):
        return 0.0
    a = 0.5 if k % 2 else 1.0
    tail = math.erfc(math.sqrt(y)) if k % 2 else math.exp(-y)
    log, exp = math.log(y), math.exp
    for gamma in _log_gammas(k):
        tail += exp(a * log - y - gamma)
        a += 1
    return tail


@functools.lru_cache(maxsize=4096)
def _log_gammas(k: int) -> tuple[float, ...]:
    """The log of Γ(a + 1) for a = 1/2 or 1, in steps of 1, below k/2."""
    return tuple(math.lgamma(i / 2 + 1) for i in range(2 - k % 2, k, 2))


@functools.lru_cache(maxsize=65_536)
def chi2_bound(level: float, k: int) -> float:
    """The value that χ² with k degrees of freedom exceeds with probability ``level``."""
    near, far = _bracket(level, k)

    def above(value: float) -> bool:
        return value < far and (value <= near or chi2_tail(value, k) > level)

    low, high = 0.0, 1.0
    while above(high):
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if above(middle) else (low, middle)
    return high


def _bracket(level: float, k: int) -> tuple[float, float]:
    """Numbers close below and above the bound, by Newton's rule, so that few tails are needed."""
    wanted, gamma, at = math.log(level), math.lgamma(k / 2), float(k)
    for _ in range(60):
        tail = chi2_tail(at, k)
        if tail <= 0:
            break
        slope = math.exp((k / 2 - 1) * math.log(at / 2) - at / 2 - gamma) / (2 * tail)
        step = (math.log(tail) - wanted) / slope if slope > 0 else math.inf
        if not 0 < at + step < math.inf:
            break
        at += step
        if abs(step) <= 1e-13 * at:
            break
    near, far = at * (1 - 1e-12), at * (1 + 1e-12)
    found = chi2_tail(near, k) > level >= chi2_tail(far, k)
    return (near, far) if found else (0.0, math.inf)
