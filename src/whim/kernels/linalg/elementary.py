"""Exponentials and logarithms of four numbers at once, right to a few units in the last place.

The library's own take one number, and as long as these take for four. Sums and products alone, so
bits do not depend on who calls, nor on the machine.
"""

from __future__ import annotations

import math
from typing import Any

from whim.kernels.jit import inline
from whim.kernels.linalg.f64x4 import exponent, pick, splat, two_to

_ROUNDS = 1.5 * 2.0**52  # plus and minus this is rounding to whole numbers
_HIGH = float.fromhex("0x1.62e42feep-1")  # of ln 2: whole multiples up to 1023 are exact
_LOW = float.fromhex("0x1.a39ef35793c76p-33")  # the rest
_FARTHEST = 700.0  # exponents are cut here: what is beyond is nothing, or everything
_C = tuple(1.0 / math.factorial(n) for n in range(14))
_T = tuple(2.0 / (2 * n + 1) for n in range(11))


@inline
def _constant(x: float) -> Any:
    return splat(x, 1)


@inline
def _reduced(x: Any) -> Any:
    """e^x as 2^k (1 + rest): 2^k and rest, with |x - k ln 2| at most half of ln 2."""
    far = _constant(_FARTHEST)
    x = pick(x, far, far, pick(x, _constant(-_FARTHEST), x, _constant(-_FARTHEST)))
    k = x * _constant(1.0 / math.log(2.0)) + _constant(_ROUNDS) - _constant(_ROUNDS)
    r = (x - k * _constant(_HIGH)) - k * _constant(_LOW)
    s = r * r
    even = _constant(_C[12]) * s + _constant(_C[10])
    odd = _constant(_C[13]) * s + _constant(_C[11])
    even, odd = even * s + _constant(_C[8]), odd * s + _constant(_C[9])
    even, odd = even * s + _constant(_C[6]), odd * s + _constant(_C[7])
    even, odd = even * s + _constant(_C[4]), odd * s + _constant(_C[5])
    even, odd = even * s + _constant(_C[2]), odd * s + _constant(_C[3])
    return two_to(k), r + s * (even + r * odd)


@inline
def exp(x: Any) -> Any:
    """e^x; that of 700 beyond 700, on both sides."""
    power, rest = _reduced(x)
    return power + power * rest


@inline
def fallen(z: Any) -> Any:
    """1 - e^(-z), also of small z to all digits."""
    one = _constant(1.0)
    power, rest = _reduced(_constant(0.0) - z)
    return (one - power) - power * rest


@inline
def sigmoid(a: Any) -> Any:
    """The logistic function."""
    one = _constant(1.0)
    return one / (one + exp(_constant(0.0) - a))


@inline
def log(x: Any) -> Any:
    """The natural logarithm of numbers that are positive and normal."""
    one = _constant(1.0)
    k = exponent(x)
    m = x * two_to(_constant(0.0) - k)
    s = (m - one) / (m + one)
    z = s * s
    w = z * z
    even = _constant(_T[10]) * w + _constant(_T[8])
    odd = _constant(_T[9]) * w + _constant(_T[7])
    even, odd = even * w + _constant(_T[6]), odd * w + _constant(_T[5])
    even, odd = even * w + _constant(_T[4]), odd * w + _constant(_T[3])
    even, odd = even * w + _constant(_T[2]), odd * w + _constant(_T[1])
    tail = s * (z * odd + w * even)
    return k * _constant(_HIGH) + (s + s + (tail + k * _constant(_LOW)))
