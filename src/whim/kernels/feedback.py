"""What a list's rewards say about which of its items were seen; compiled into loops, and not."""

from __future__ import annotations

from whim.types import F64

SEMI, CASCADE, POSITIONS = range(3)


def learnt(feedback: int, rewards: F64, k: int) -> int:
    """How many of a list's ``k`` items are learnt from, from the top down.

    Under CASCADE those up to and including the first click (a reward above 0), all where there is
    none; else all.
    """
    if feedback == CASCADE:
        for i in range(k):
            if rewards[i] > 0.0:
                return i + 1
    return k
