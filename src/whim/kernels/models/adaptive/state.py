"""The state of the adaptive mixture: what is kept per arm, for all arms, and what is set.

Per arm there are models of today's coefficients that differ in when today began. Column 0, *EVER*,
has learnt from every play. Columns 1 to ``count`` are *beginnings*, oldest first: nothing before
that play matters. They lie side by side, so that four learn at a time (linalg.columns), as do the
*drifts*, which have never begun anew and forget at a set rate instead. A *world* says how interests
change: jumps at one of the hazards, to new coefficients or, half of the time, back to those of
EVER; or drift at one of the rates. docs/math.md has the equations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim.kernels.linalg import udu
from whim.kernels.linalg.columns import columns_for
from whim.types import F64, I64

# per step of one arm of two; by plays, so divided by the number of arms. Whole fours: the hazard 0
# and the rate 0 are no worlds, and have no weight
HAZARDS = np.array([1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 0.0])
RATES = np.array([5e-6, 5e-5, 5e-4, 0.0])
RETURNS = np.array([0.0, 0.5])  # the share of jumps that lead back to EVER's coefficients
JUMPS = len(HAZARDS) * len(RETURNS)  # worlds; world l has hazard l % 8 and return l // 8
DRIFTS = 3
WORLDS = JUMPS + len(RATES)
# those that are worlds
REAL = [i for i, rate in enumerate([*np.tile(HAZARDS, len(RETURNS)), *RATES]) if rate > 0]
EVER = 0
# what is believed of the worlds before the first play
AT_FIRST = np.zeros(WORLDS)
AT_FIRST[REAL] = 1.0 / len(REAL)

# columns of ``clock``
PLAYS, LAST, COUNT, ARCHIVED, REPORTED, CLOCK = range(6)
# columns of ``born``: the play that a beginning began with, and plays since
PLAY, AGE = range(2)
# columns of ``noises``: squared errors and their count, faded; weight of the jump worlds
ERRORS, FREE, JUMPING, NOISE = range(4)
# rows of ``anchor``: precision and mean of the prior that models start from; EVER's precision
PRECISION, CENTRE, EVER_PRECISION, ANCHOR = range(4)
# rows of ``said`` and ``totals``: how well a coefficient is known, that times it, its square
KNOWN, VALUE, SQUARE, SAID = range(4)
# rows of ``prior``
MEAN, VARIANCE = range(2)
# columns of ``sums``
(
    ALL_ERRORS, ALL_FREE, VARIANCE_OF_ALL, STEPS, REWARDS_SQUARED, CONTEXTS_SQUARED, HIGHS, LOW,
    HIGH, VALUES, SUMS,
) = range(11)  # fmt: skip
# rows of ``room``: what each model says of a play, and how it learns it
EXPECTED, UNSURE, ERROR, SPREAD, LIKELIHOOD, INFORMATION, GAIN, STEP, APART, ROOM = range(10)

RING = 512  # plays kept while rewards have had two values, to start over with at a third
CLICKS = 2  # values that rewards have had, at most, while they are taken for clicks


class Arms(NamedTuple):
    """One row per slot. A new arm's rows are zeros."""

    models: F64  # factors and coefficients of EVER and the beginnings, side by side
    drifts: F64  # covariances, their upper triangles, and coefficients, side by side
    anchor: F64
    weights: F64  # of each model in each jump world
    mixed: F64  # the same over all worlds
    gains: F64  # per beginning: log-likelihood gained over what was believed before
    born: I64
    clock: I64
    said: F64  # of the likeliest model, for the prior
    noises: F64


class Shared(NamedTuple):
    """What all arms teach."""

    totals: F64
    prior: F64
    sums: F64
    worlds: F64  # log evidence, probability
    start: F64  # first context and its sum, then 1 where these have never been others


class Ring(NamedTuple):
    """The newest plays: slot and step, then context and reward."""

    at: I64
    place: I64
    play: F64


class Settings(NamedTuple):
    """Numbers that are set: of arms, of optimism (times 1 for clicks, 1.5 otherwise), of events."""

    arms: int
    beginnings: int
    optimism: float
    least_gain: float


class Scratch(NamedTuple):
    """Room for one step."""

    phi: F64  # the context and a constant
    room: F64  # a column for each model, then for each drift
    values: F64  # of linalg.columns
    pulls: F64
    lines: F64
    hazards: F64  # per hazard: probability of its worlds; of jumps back in them
    logs: F64  # of a play's evidence, per world
    report: F64
    axis: F64  # zeros, but for one


class State(NamedTuple):
    """The whole."""

    arms: Arms
    shared: Shared
    ring: Ring
    settings: Settings
    scratch: Scratch


def arm_rows(p: int, beginnings: int) -> dict[str, npt.NDArray[Any]]:
    """The rows of a new arm, by field of ``Arms``: zeros."""
    columns, size = columns_for(beginnings + 2), udu.packed_size(p) + p
    shapes: dict[str, tuple[int, ...]] = {
        "models": (size, columns),
        "drifts": (size, len(RATES)),
        "anchor": (ANCHOR, p),
        "weights": (columns, JUMPS),
        "mixed": (columns,),
        "gains": (columns,),
        "born": (columns, 2),
        "clock": (CLOCK,),
        "said": (SAID, p),
        "noises": (NOISE,),
    }
    whole = ("born", "clock")
    return {n: np.zeros(shapes[n], np.int64 if n in whole else np.float64) for n in Arms._fields}


def shared_arrays(p: int) -> dict[str, F64]:
    """By field of ``Shared``, as nothing has been learnt."""
    return {
        "totals": np.zeros((SAID, p)),
        "prior": np.stack([np.zeros(p), np.ones(p)]),
        "sums": np.zeros(SUMS),
        "worlds": np.stack([np.zeros(WORLDS), AT_FIRST]),
        "start": np.zeros((2, p)),
    }


def scratch(p: int, beginnings: int) -> Scratch:
    """Room for p numbers and so many beginnings."""
    columns = columns_for(beginnings + 2)
    return Scratch(
        phi=np.zeros(p),
        room=np.zeros((ROOM, columns + len(RATES))),
        values=np.zeros((p, columns)),
        pulls=np.zeros((p, columns)),
        lines=np.zeros((p, len(RATES))),
        hazards=np.zeros((2, len(HAZARDS))),
        logs=np.zeros(WORLDS),
        report=np.zeros((3, max(p, 8))),
        axis=np.zeros(p),
    )
