"""The score test's statistic where nothing changed: noise that is estimated, and clicks.

T over the noise is χ² only if the noise is known and normal. ``tempered`` puts the first right,
``clicked`` the second (docs/math.md).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from whim.kernels.detection.windows import Windows, advance
from whim.kernels.jit import part
from whim.types import F64

_STEP = 1.0  # fitted: what rare clicks, which come in steps, fall short by
_WIDER = 0.8  # fitted: how much of the widening counts


@part
def tempered(statistic: float, k: int, free: float) -> float:
    """A χ² value for a ratio whose noise was estimated from ``free`` residuals (Bartlett)."""
    return (free + 0.5 * k - 1.0) * math.log1p(statistic / free)


class Clicks(NamedTuple):
    """The n newest plays of an arm whose rewards are clicks, from a record on, and their fit.

    ``gain`` is what the window's own θ explains of the ``noise``, ``rate`` the click rate;
    ``room`` holds the fit.
    """

    windows: Windows
    chunk: int
    place: int
    n: int
    gain: float
    noise: float
    rate: float
    room: F64


@part
def clicked(plays: Clicks, d: int, k: int, free: float) -> float:
    """The χ² value where rewards are clicks."""
    even = 4.0 * plays.rate * (1.0 - plays.rate)
    ratio = plays.gain / plays.noise
    value = _clicks(plays, d)
    value = max(0.0, value + _STEP * (1.0 - even))
    if value > ratio:  # a lighter tail than the normal: trusted by half, rare clicks hardly
        value = ratio + 0.5 * even * even * (value - ratio)
    return tempered(value, k, free * min(1.0, 0.5 * even / max(1.0 - even, 1e-9)))


@part
def _clicks(plays: Clicks, d: int) -> float:
    """What clicks have in place of ``gain / noise``, by the saddlepoint approximation.

    Along the direction β that the window moved in, gain = Σ aᵢεᵢ + what the plays before add,
    aᵢ = xᵢᵀβ. The former has the cumulants of clicks, the latter those of a normal number, and
    both together the variance gain · noise. K is the cumulant function of their sum and
    K'(t) = gain.
    """
    w, gain, noise, rate, room = plays.windows, plays.gain, plays.noise, plays.rate, plays.room
    size = d * (d + 1) // 2
    beta, pivots = room[size : size + d], room[room.shape[0] - d :]
    for i in range(d - 1, -1, -1):
        k = i * (i + 1) // 2
        pivots[i] = room[k + i]
        for j in range(i):
            if room[j * (j + 3) // 2] > 0.0:
                beta[j] -= room[k + j] * beta[i]
    squares, largest = 0.0, 0.0
    c, p = plays.chunk, plays.place
    for _ in range(plays.n):
        a = _along(w.pool[c, p], beta)
        squares += a * a
        largest = max(largest, abs(a))
        c, p = advance(w, c, p)
    if largest == 0.0:
        return 0.0
    t = _tilt(plays, squares, largest, beta)
    spread = rate * (1.0 - rate)
    rest = max(1.0 - squares / gain, 0.0)
    cumulant = 0.5 * rest * gain * noise * t * t
    for j in range(size):
        room[j] = 0.0
    c, p = plays.chunk, plays.place
    for _ in range(plays.n):
        x = w.pool[c, p]
        a = _along(x, beta)
        grown = math.exp(t * a)
        mean = 1.0 + rate * (grown - 1.0)
        cumulant += (math.log(mean) - t * a * rate) * noise / spread
        share = rest + (1.0 - rest) * max(1.0, grown / (mean * mean))
        k = 0
        for i in range(d):
            weighted = share * x[i]
            for j in range(i + 1):
                room[k + j] += weighted * x[j]
            k += i + 1
        c, p = advance(w, c, p)
    surprise = 2.0 * (t * gain - cumulant)
    if surprise <= 0.0:
        return 0.0
    inner = min(0.0, math.log(t * t * gain * noise / surprise))
    return surprise + inner + _WIDER * _widened(d, pivots, room)


@part
def _along(x: F64, beta: F64) -> float:
    a = 0.0
    for j in range(beta.shape[0]):
        a += x[j] * beta[j]
    return a


@part
def _tilt(plays: Clicks, squares: float, largest: float, beta: F64) -> float:
    """The root of K'(t) = gain, or 40 / largest if that is less, by Newton's rule for ln K'."""
    w, gain, noise, rate = plays.windows, plays.gain, plays.noise, plays.rate
    rest = noise * max(gain - squares, 0.0)
    high = 40.0 / largest
    low = t = min(math.log1p(largest / noise) / largest, high)  # Poisson jumps, all the largest
    for _ in range(50):
        slope, curve = rest * t, rest
        c, p = plays.chunk, plays.place
        for _ in range(plays.n):
            a = _along(w.pool[c, p], beta)
            grown = math.exp(t * a)
            mean = 1.0 + rate * (grown - 1.0)
            slope += noise * a * (grown - 1.0) / mean
            curve += noise * a * a * grown / (mean * mean)
            c, p = advance(w, c, p)
        if slope < gain:
            low = t
        else:
            high = t
        before = t
        t += slope / curve * math.log(gain / slope) if curve > 0.0 else high
        if not low < t < high:
            t = 0.5 * (low + high)
        if abs(t - before) <= 1e-4 * before:
            break
    return t


@part
def _widened(d: int, pivots: F64, room: F64) -> float:
    """Logarithm of det of the matrix in ``room``, over that of the one with these ``pivots``."""
    log = 0.0
    k = 0
    for i in range(d):
        m = 0
        for j in range(i):
            for h in range(j):
                room[k + j] -= room[k + h] * room[m + h]
            m += j + 1
        m = 0
        for j in range(i):
            share = room[k + j] / room[m + j] if pivots[j] > 0.0 else 0.0
            room[k + i] -= share * room[k + j]
            room[k + j] = share
            m += j + 1
        if pivots[i] > 0.0:
            room[k + i] = max(room[k + i], pivots[i])  # less could only be rounding
            log += math.log(room[k + i] / pivots[i])
        k += i + 1
    return log
