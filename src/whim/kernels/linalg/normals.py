"""Independent normal numbers: how likely each of them is the largest."""

from __future__ import annotations

import math

import numpy as np

from whim.kernels.jit import jit, part
from whim.types import F64

_REACH = 8.5  # standard deviations: beyond is less than 1e-16
_NARROW = 1e-12  # of the largest mean: a deviation below is none


@part
def _below(t: float) -> float:
    """The standard normal distribution function."""
    value: float = 0.5 * math.erfc(-t / math.sqrt(2.0))
    return value


@part
def _fixed(mean: F64, width: F64, narrow: float, first: bool, out: F64) -> float:
    """The largest of the numbers without spread, -inf if there is none; what it wins into ``out``.

    Of equal ones the first, or each its share.
    """
    n, largest = mean.shape[0], -np.inf
    for c in range(n):
        if width[c] <= narrow:
            largest = max(largest, mean[c])
    share, equal = 1.0, 0
    for c in range(n):
        if width[c] > narrow:
            share *= _below((largest - mean[c]) / width[c])
        elif mean[c] == largest and not (first and equal):
            equal += 1
            out[c] = 1.0
    for c in range(n):
        if width[c] <= narrow and out[c] > 0.0:
            out[c] = share / equal
    return largest


@part
def _step(mean: F64, width: F64, narrow: float, at: float, end: float) -> float:
    """How far every distribution function is smooth from ``at`` on: the least spread there."""
    h = end - at
    for c in range(mean.shape[0]):
        reach = _REACH * width[c]
        if width[c] > narrow and at < mean[c] + reach:
            begins = mean[c] - reach
            h = min(h, begins - at if at < begins else width[c])
    return h


@jit
def largest(mean: F64, width: F64, first: bool, nodes: F64, weights: F64, out: F64) -> None:
    """``out[c]``: the probability that c is the largest of N(mean, width²), by quadrature.

    P(c) = ∫ f_c(v) Π F(v) dv over all others. ``nodes`` and ``weights`` are Gauss and Legendre's,
    for steps in which no function is steeper than they can follow. ``first`` is for numbers
    without spread: of equal ones the first wins, else they share.
    """
    n = mean.shape[0]
    narrow = _NARROW * np.abs(mean).max()
    out[:] = 0.0
    at = _fixed(mean, width, narrow, first, out)
    end = at
    for c in range(n):
        if width[c] > narrow:
            at = max(at, mean[c] - _REACH * width[c])
            end = max(end, mean[c] + _REACH * width[c])
    before, below = np.empty(n + 1), np.empty(n)
    before[0] = 1.0
    while at < end:
        h = _step(mean, width, narrow, at, end)
        for i in range(nodes.shape[0]):
            v = at + 0.5 * h * (1.0 + nodes[i])
            for c in range(n):
                below[c] = _below((v - mean[c]) / width[c]) if width[c] > narrow else 1.0
                before[c + 1] = before[c] * below[c]
            after = 0.5 * h * weights[i] / math.sqrt(2.0 * math.pi)
            for c in range(n - 1, -1, -1):
                if width[c] > narrow:
                    t = (v - mean[c]) / width[c]
                    out[c] += before[c] * after * math.exp(-0.5 * t * t) / width[c]
                after *= below[c]
        if at + h <= at:  # no number lies in between
            break
        at += h
    out /= out.sum()
