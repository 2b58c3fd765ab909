"""Articles, feature vectors and indicators as Yahoo's lines write them, bytes to numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from whim.kernels.jit import part
from whim.logs.text_parser import NONE, SLOW, U8, after_blanks, ends, number, whole
from whim.types import F64

I32 = npt.NDArray[np.int32]

WIDTH = 6  # features of a user or an article in R6A; an id above it is stray
ALL = (1 << WIDTH) - 1


@part
def article(data: U8, i: int, named: bool) -> tuple[int, int]:
    """An article's number and the place after it, or -1; ``named`` ones start with ``id-``."""
    if named:
        if not (data[i] == 105 and data[i + 1] == 100 and data[i + 2] == 45):
            return 0, -1
        i += 3
    value, i = whole(data, i)
    if i < 0 or not ends(data, i):
        return 0, -1
    return value, i


@part
def vector(data: U8, i: int, row: F64, slow: I32) -> tuple[int, int, int, int]:
    """The ``id:value`` tokens up to the next ``|`` or the line's end, put in order of their ids.

    Returns the place after them (-1 if one is malformed), a bit for each id that was there, how
    many ids were none of 1..6, and how many values are left for the slow way (their ids and
    places are in ``slow``).
    """
    seen = strays = later = 0
    i = after_blanks(data, i)
    while data[i] != 124 and data[i] != 10:
        feature, i = whole(data, i)
        if i < 0 or data[i] != 58:
            return -1, 0, 0, 0
        start = i + 1
        value, i, how = number(data, start)
        if how == NONE:
            return -1, 0, 0, 0
        if 1 <= feature <= WIDTH:
            bit = 1 << (feature - 1)
            if seen & bit:
                return -1, 0, 0, 0
            seen |= bit
            row[feature - 1] = value
            if how == SLOW:
                slow[later, 0] = feature - 1
                slow[later, 1] = start
                slow[later, 2] = i
                later += 1
        else:
            strays += 1
        i = after_blanks(data, i)
    return i, seen, strays, later


@part
def indicators(data: U8, i: int, row: U8) -> tuple[int, int]:
    """R6B's user: the numbers of the features that are 1; the place after (or -1) and strays."""
    strays = 0
    row[:] = 0
    i = after_blanks(data, i)
    while data[i] != 124 and data[i] != 10:
        feature, i = whole(data, i)
        if i < 0 or not ends(data, i):
            return -1, 0
        if 1 <= feature <= row.shape[0]:
            row[feature - 1] = 1
        else:
            strays += 1
        i = after_blanks(data, i)
    return i, strays
