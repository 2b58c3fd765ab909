"""The score test's statistic where nothing changed: noise that is estimated, and of any kind.

T over the noise is χ² only if the noise is known and normal. ``tempered`` puts the first right,
``surprising`` the second (docs/math.md).
"""

from __future__ import annotations

import math

from whim.kernels.detection.noise import Fit, Noise, Plays, noise_of, project, tilted
from whim.kernels.detection.windows import advance
from whim.kernels.jit import part
from whim.types import F64

_STEP = 1.0  # fitted: what rare clicks, which come in steps, fall short by
_WIDER = 0.8  # fitted: how much of the widening counts
_LIGHTER = 0.5  # fitted: how much of a tail lighter than the normal one counts, at most
_STEEPEST = 200.0  # exponent of a tilt


@part
def tempered(statistic: float, k: int, free: float) -> float:
    """A χ² value for a ratio whose noise was estimated from ``free`` residuals (Bartlett)."""
    return (free + 0.5 * k - 1.0) * math.log1p(statistic / free)


@part
def surprising(window: Plays, before: Plays, fit: Fit, k: int, free: float) -> float:
    """The χ² value of ``gain``, where the noise is what the residuals show."""
    d = fit.theta.shape[0]
    _find_direction(fit, d)
    noise = noise_of(window, before, fit, (free * fit.noise + fit.gain) / (free + k))
    if noise.share == 1.0:  # all of it normal
        return tempered(fit.gain / fit.noise, k, free)
    value, ratio = _saddlepoint(window, fit, noise, d), fit.gain / fit.noise
    if value > ratio:  # a lighter tail than the normal: trusted by half if clicks are even
        even = 4.0 * noise.rate * (1.0 - noise.rate) if noise.gap > 0.0 else 0.0
        value = ratio + _LIGHTER * even * even * (value - ratio)
    return tempered(value, k, free * noise.known)


@part
def _find_direction(fit: Fit, d: int) -> None:
    """β, by which the window moved θ, after the factors in ``room``; their pivots at its end."""
    room, beta = fit.room, fit.beta
    pivots = room[room.shape[0] - d :]
    for i in range(d - 1, -1, -1):
        k = i * (i + 1) // 2
        pivots[i] = room[k + i]
        for j in range(i):
            if room[j * (j + 3) // 2] > 0.0:
                beta[j] -= room[k + j] * beta[i]


@part
def _saddlepoint(window: Plays, fit: Fit, noise: Noise, d: int) -> float:
    """What stands in place of ``gain / noise``, by the saddlepoint approximation.

    Along β, gain = Σ aᵢεᵢ + what the plays before add, aᵢ = xᵢᵀβ. The former has the cumulants of
    the noise, of variance ``fit.noise`` at least, the latter those of a normal number. K is the
    cumulant function of their sum and K'(t) = gain.
    """
    w, gain, room, beta = window.windows, fit.gain, fit.room, fit.beta
    squares, largest, spread = 0.0, 0.0, 0.0
    c, p = window.chunk, window.place
    for _ in range(window.n):
        x = w.pool[c, p]
        a = project(x, beta)
        squares += a * a
        largest = max(largest, abs(a))
        spread += a * a * tilted(noise, fit, project(x, fit.theta), 0.0)[2]
        c, p = advance(w, c, p)
    if not spread > 0.0:
        return 0.0
    more = max(1.0, squares * fit.noise / spread)
    rest = max(1.0 - squares / gain, 0.0)
    normal = rest * gain * fit.noise
    t = _tilt(window, fit, noise, largest, normal, more)
    cumulant = 0.5 * normal * t * t
    room[: d * (d + 1) // 2] = 0.0
    c, p = window.chunk, window.place
    for _ in range(window.n):
        x = w.pool[c, p]
        mean = project(x, fit.theta)
        log, _, variance = tilted(noise, fit, mean, t * project(x, beta))
        cumulant += more * log
        variance /= tilted(noise, fit, mean, 0.0)[2]
        _add_square(x, rest + (1.0 - rest) * max(1.0, variance), d, room)
        c, p = advance(w, c, p)
    surprise = 2.0 * (t * gain - cumulant)
    if surprise <= 0.0:
        return 0.0
    inner = min(0.0, math.log(t * t * (more * spread + normal) / surprise))
    step = _STEP * (1.0 - 4.0 * noise.rate * (1.0 - noise.rate)) if noise.gap > 0.0 else 0.0
    pivots = room[room.shape[0] - d :]
    return max(surprise + inner + _WIDER * _widened(d, pivots, room) + step, 0.0)


@part
def _add_square(x: F64, weight: float, d: int, room: F64) -> None:
    """Add weight · x xᵀ, packed by rows."""
    k = 0
    for i in range(d):
        weighted = weight * x[i]
        for j in range(i + 1):
            room[k + j] += weighted * x[j]
        k += i + 1


@part
def _tilt(
    window: Plays, fit: Fit, noise: Noise, largest: float, normal: float, more: float
) -> float:
    """The root of K'(t) = gain, or the steepest tilt, by Newton's rule for ln K'."""
    w, gain, beta = window.windows, fit.gain, fit.beta
    reach = noise.gap
    if noise.gap == 0.0:
        reach = 1.0
        for j in range(noise.far + 1):
            reach = max(reach, abs(fit.atoms[j]))
        reach *= noise.scale * math.sqrt(fit.noise)
    low, high = 0.0, _STEEPEST / (largest * reach)
    t = min(1.0 / fit.noise, 0.5 * high)
    for _ in range(50):
        slope, curve = normal * t, normal
        c, p = window.chunk, window.place
        for _ in range(window.n):
            x = w.pool[c, p]
            a = project(x, beta)
            _, first, second = tilted(noise, fit, project(x, fit.theta), t * a)
            slope += more * a * first
            curve += more * a * a * second
            c, p = advance(w, c, p)
        if slope < gain:
            low = t
        else:
            high = t
        before = t
        t = t + slope / curve * math.log(gain / slope) if curve > 0.0 and slope > 0.0 else high
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
