"""Simulators that know their own truth: expected rewards and change points."""

from whim.worlds.piecewise import Episode, PiecewiseLinear

__all__ = ["Episode", "PiecewiseLinear"]
