"""How a step of a kernel ended, and where in a loop a decision stands."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from whim.types import I64


class Status(IntEnum):
    """What came of a step; kernels return the plain numbers, which cost nothing to hand over."""

    NO_CHANGE = 0
    CHANGED = 1  # a change was detected, and what it concerns was restarted
    GROW = 2  # nothing was touched: the window pool must grow first
    NOT_FINITE = 3  # nothing was touched: the context is not finite, or not an aligned array
    NEED_NOISE = 4  # a loop has used up its random numbers
    TEST = 5  # learnt; ``finish`` must now test for a change, which is rare and compiled apart


NO_CHANGE, CHANGED, GROW, NOT_FINITE, NEED_NOISE, TEST = (int(status) for status in Status)


class Turn(NamedTuple):
    """A decision in a loop: updates so far, and what is known from the events just before.

    ``repeats`` counts those with the same candidates; ``learnt`` is the place of the one whose
    reward was learnt at the last of them, or -1.
    """

    step: int
    repeats: int
    learnt: int


class ListTurn(NamedTuple):
    """The same of a list, of which several items may have been learnt: their places."""

    step: int
    repeats: int
    learnt: I64
