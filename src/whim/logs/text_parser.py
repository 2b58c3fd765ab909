"""Text as bytes: white space, digits, decimal numbers to the last bit, equal parts."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from whim.kernels.jit import part

U8: TypeAlias = npt.NDArray[np.uint8]

READ, SLOW, NONE = range(3)  # what became of a number

_LARGEST = 1e10
_DIGITS = 18  # that an int64 surely holds
_EXACT = 1 << 53
_TEN = np.array([10.0**k for k in range(23)])


@part
def same(data: U8, a: int, b: int, length: int) -> bool:
    """Whether two parts of the text are equal; no early end, so that LLVM takes many at a time."""
    one, other = data[a : a + length], data[b : b + length]
    different = False  # numba would widen bytes, not bools
    for k in range(one.shape[0]):
        different |= one[k] != other[k]
    return not different


@part
def blank(byte: int) -> bool:
    """Space, tab, CR, VT, FF: white space within a line."""
    return byte == 32 or byte == 9 or byte == 13 or byte == 11 or byte == 12


@part
def after_blanks(data: U8, i: int) -> int:
    """The next byte that is not white space; a line feed is not skipped."""
    while blank(data[i]):
        i += 1
    return i


@part
def ends(data: U8, i: int) -> bool:
    """Whether a token is over here."""
    return blank(data[i]) or data[i] == 10


@part
def whole(data: U8, i: int) -> tuple[int, int]:
    """Digits as a number, and the place after them; -1 if there are none or too many."""
    value = 0
    start = i
    while 48 <= data[i] <= 57:
        value = value * 10 + (data[i] - 48)
        i += 1
        if i - start > _DIGITS:
            return 0, -1
    return value, (i if i > start else -1)


@part
def exponent(data: U8, i: int) -> tuple[int, int, bool]:
    """What stands after an ``e``, the place after it, and whether there were any digits."""
    down = data[i] == 45
    if down or data[i] == 43:
        i += 1
    start = i
    value = 0
    while 48 <= data[i] <= 57:
        value = min(value * 10 + (data[i] - 48), 100_000_000)
        i += 1
    return (-value if down else value), i, i > start


@part
def number(data: U8, i: int) -> tuple[float, int, int]:
    """A decimal number, the place after it, and whether it still needs the slow, exact way.

    A mantissa below 2^53 and a power of ten up to 10^22 are exact doubles, so that one division
    or product is the correctly rounded number. Others are left for the caller to read again.
    """
    negative = data[i] == 45
    if negative or data[i] == 43:
        i += 1
    mantissa = 0
    digits = kept = power = 0  # significant digits, those in the mantissa
    start = i
    point = False
    while True:
        byte = data[i]
        if 48 <= byte <= 57:
            if digits > 0 or byte != 48:
                digits += 1
                if digits <= _DIGITS:
                    kept = digits
                    mantissa = mantissa * 10 + (byte - 48)
                else:
                    power += 1
            if point:
                power -= 1
        elif byte == 46 and not point:
            point = True
        else:
            break
        i += 1
    if i - start - point <= 0:
        return 0.0, i, NONE
    if data[i] == 101 or data[i] == 69:
        more, i, some = exponent(data, i + 1)
        if not some:
            return 0.0, i, NONE
        power += more
    if not ends(data, i):
        return 0.0, i, NONE
    sign = -1.0 if negative else 1.0
    if mantissa == 0:
        return sign * 0.0, i, READ
    # the number is mantissa · 10^power and a little more, so at least 10^size
    size = kept - 1 + power
    if size > 10:
        return 0.0, i, NONE
    if size == 10:
        shift = 11 - kept
        near = mantissa * _TEN[shift] if shift >= 0 else mantissa / _TEN[-shift]
        if near > _LARGEST:
            return 0.0, i, NONE
    if digits > _DIGITS or mantissa >= _EXACT or power < -22 or power > 22:
        return 0.0, i, SLOW
    if power < 0:
        return sign * (mantissa / _TEN[-power]), i, READ
    return sign * (mantissa * _TEN[power]), i, READ
