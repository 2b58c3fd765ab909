"""Simulators that know their own truth: expected rewards and change points."""

from whim.worlds.episode import Episode, World
from whim.worlds.piecewise import PiecewiseLinear

__all__ = ["Episode", "PiecewiseLinear", "World"]
