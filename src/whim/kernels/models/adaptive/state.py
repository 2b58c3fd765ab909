"""The state of the adaptive mixture: what is kept per arm, for all arms, and what is set.

Per arm there are models of today's coefficients that differ in when today began. Places 0 to
``count - 1`` are *beginnings*, oldest first: nothing before that play matters. Place ``EVER`` (the
last) has learnt from every play. *Drifts* have never begun anew and forget at a set rate instead.
A *world* says how interests change: jumps at one of the hazards, to new coefficients or, half of
the time, back to those of EVER; or drift at one of the rates. docs/math.md has the equations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim.kernels.linalg import udu
from whim.types import F64, I64

# per step of one arm of two; by plays, so divided by the number of arms
HAZARDS = np.array([1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2])
RATES = np.array([5e-6, 5e-5, 5e-4])
RETURNS = np.array([0.0, 0.5])  # the share of jumps that lead back to EVER's coefficients
JUMPS = len(HAZARDS) * len(RETURNS)  # worlds; world l has hazard l % 7 and return l // 7
DRIFTS = len(RATES)
WORLDS = JUMPS + DRIFTS

# columns of ``clock``
PLAYS, LAST, COUNT, ARCHIVED, REPORTED, CLOCK = range(6)
# columns of ``born``: the play that a beginning began with, and plays since
PLAY, AGE = range(2)
# columns of ``noise``: squared errors and their count, faded; weight of the jump worlds
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
# rows of ``room``: what each model said of a play
ERROR, SPREAD, LOG, LIKELIHOOD, ROOM = range(5)

RING = 512  # plays kept while rewards have had two values, to start over with at a third
CLICKS = 2  # values that rewards have had, at most, while they are taken for clicks


class Arms(NamedTuple):
    """One row per slot. A new arm's rows are zeros."""

    models: F64  # factors and coefficients of each place (linalg.udu)
    drifts: F64  # per rate a covariance, full, and coefficients
    anchor: F64
    weights: F64  # of each place in each jump world
    mixed: F64  # the same over all worlds
    gains: F64  # per beginning: log-likelihood gained over what was believed before; its square
    born: I64
    clock: I64
    said: F64  # of the likeliest model, for the prior
    noise: F64


class Shared(NamedTuple):
    """What all arms teach."""

    totals: F64
    prior: F64
    sums: F64
    worlds: F64  # log evidence, probability
    start: F64  # first context, then 1 where it has never been another


class Ring(NamedTuple):
    """The newest plays: slot and step, then context and reward."""

    at: I64
    place: I64
    play: F64


class Settings(NamedTuple):
    """Numbers that are set: of arms, of optimism (times 1 for clicks, 1.5 otherwise), of events."""

    arms: int
    optimism: float
    least_gain: float


class Scratch(NamedTuple):
    """Room for one step."""

    phi: F64  # the context and a constant
    e: F64
    w: F64
    v: F64
    room: F64
    hazards: F64  # per hazard: probability of its worlds; of jumps back in them
    report: F64


class State(NamedTuple):
    """The whole."""

    arms: Arms
    shared: Shared
    ring: Ring
    settings: Settings
    scratch: Scratch


def arm_rows(p: int, beginnings: int) -> dict[str, npt.NDArray[Any]]:
    """The rows of a new arm, by field of ``Arms``: zeros."""
    places = beginnings + 2
    shapes: dict[str, tuple[int, ...]] = {
        "models": (places, udu.packed_size(p) + p),
        "drifts": (DRIFTS, p * p + p),
        "anchor": (ANCHOR, p),
        "weights": (places, JUMPS),
        "mixed": (places,),
        "gains": (places, 2),
        "said": (SAID, p),
        "noise": (NOISE,),
    }
    rows: dict[str, npt.NDArray[Any]] = {name: np.zeros(shape) for name, shape in shapes.items()}
    return rows | {
        "born": np.zeros((places, 2), np.int64),
        "clock": np.zeros(CLOCK, np.int64),
    }


def shared_arrays(p: int) -> dict[str, F64]:
    """By field of ``Shared``, as nothing has been learnt."""
    return {
        "totals": np.zeros((SAID, p)),
        "prior": np.stack([np.zeros(p), np.ones(p)]),
        "sums": np.zeros(SUMS),
        "worlds": np.stack([np.zeros(WORLDS), np.full(WORLDS, 1.0 / WORLDS)]),
        "start": np.zeros((2, p)),
    }


def scratch(p: int, beginnings: int) -> Scratch:
    """Room for p numbers and so many beginnings."""
    room = np.zeros((ROOM, beginnings + 2 + DRIFTS))
    hazards, report = np.zeros((2, len(HAZARDS))), np.zeros((3, max(p, 8)))
    phi, e, w, v = np.zeros((4, p))
    return Scratch(phi, e, w, v, room, hazards, report)
