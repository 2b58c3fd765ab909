"""Revisiting arms that nobody has played for a while (docs/math.md).

An arm unplayed for n steps has changed with probability q = 1 - (1 - h)ⁿ, h the rate of changes
per arm and step, and is then like a new one: it is scored by (1 - q) of its mean and by the width
whose square is the mixture of both. A play that its old model explains better than a new arm's
lowers q by Bayes' rule; one that it does not leaves q as it is, so that the arm is played on
until the test can tell.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from whim.kernels.jit import jit, part
from whim.types import F64, I64

COLUMNS, TALLY = 2, 4
OFF = -1.0
_CHANCE, _SEEN = 0, 1
_CHANGES, _WATCHED, _NOISE, _PLAYS = range(TALLY)
_FASTEST = 0.5  # the largest rate that is learnt
_SUREST = 0.99  # the largest q: a few plays can always lower it
_MEMORY = 1000.0  # plays that the noise is averaged over


class Revisit(NamedTuple):
    """What is believed of arms that are not played.

    ``rate`` is h, 0 to learn it from the tally, OFF for no revisits. ``chances`` has per slot q
    after the last play and the step of that play (from 1; 0: never). ``tally`` is for all arms:
    changes detected, arm-steps over which they were looked for, the variance of the noise, and the
    plays that it was measured on.
    """

    rate: float
    chances: F64
    tally: F64


@part
def fading(v: Revisit, alpha: float) -> float:
    """log(1 - h); 0 for no revisits: no change was detected yet, or α leaves no width."""
    h = v.rate
    if h == 0.0 and v.tally[_CHANGES] > 0.0:
        h = min(_FASTEST, v.tally[_CHANGES] / v.tally[_WATCHED])
    return math.log1p(-h) if alpha > 0.0 and h > 0.0 else 0.0


@part
def chance(v: Revisit, row: int, step: int, fade: float) -> float:
    """q: the probability that an arm is another than its model, after ``step`` steps."""
    seen = v.chances[row, _SEEN]
    if seen == 0.0 or fade == 0.0:
        return 0.0
    same: float = (1.0 - v.chances[row, _CHANCE]) * math.exp(fade * (step - seen))
    return min(_SUREST, 1.0 - same)


@jit
def all_chances(v: Revisit, alpha: float, step: int, slots: I64, out: F64) -> None:
    """The q of each candidate."""
    fade = fading(v, alpha)
    for c in range(slots.shape[0]):
        out[c] = chance(v, slots[c], step, fade)


@part
def mix(out: F64, q: float, mean: float, square: float, alpha: float) -> None:
    """One candidate's score, mean and width with a share q of a new arm's mean and square."""
    out[1] += q * (mean - out[1])
    out[2] = math.sqrt((1.0 - q) * out[2] * out[2] + q * alpha * alpha * square)
    out[0] = out[1] + out[2]


@part
def weigh(
    v: Revisit, row: int, step: int, r: float, own: tuple[float, float],
    new: tuple[float, float], alpha: float,
) -> tuple[float, float]:  # fmt: skip
    """What a play, before it is learnt, makes of its arm's q and of the noise; changes nothing.

    ``own`` are the arm's mean and squared width for its context, ``new`` those of a new arm.
    """
    mean, square = own
    new_mean, new_square = new
    error = (r - mean) * (r - mean)
    spread = 1.0 + square
    plays = min(v.tally[_PLAYS] + 1.0, _MEMORY)
    noise = v.tally[_NOISE] + (error / spread - v.tally[_NOISE]) / plays
    q = chance(v, row, step, fading(v, alpha))
    if q == 0.0 or noise <= 0.0:
        return 0.0, noise
    old, fresh = noise * spread, noise + alpha * alpha * new_square
    log = 0.5 * (math.log(old / fresh) + error / old - (r - new_mean) * (r - new_mean) / fresh)
    odds = q / (1.0 - q) * math.exp(min(log, 0.0))
    return odds / (1.0 + odds), noise


@part
def note(v: Revisit, row: int, step: int, q: float, noise: float) -> None:
    """Keep what ``weigh`` found once the play is learnt."""
    if v.chances[row, _SEEN] > 0.0:
        v.tally[_WATCHED] += step + 1.0 - v.chances[row, _SEEN]
    v.chances[row, _CHANCE] = q
    v.chances[row, _SEEN] = step + 1.0
    v.tally[_NOISE] = noise
    v.tally[_PLAYS] = min(v.tally[_PLAYS] + 1.0, _MEMORY)


@part
def note_change(v: Revisit, row: int) -> None:
    """A change was detected: the restarted arm is what its model says."""
    if v.rate >= 0.0:
        v.tally[_CHANGES] += 1.0
        v.chances[row, _CHANCE] = 0.0
