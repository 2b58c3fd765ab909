"""Simulators that know their own truth: expected rewards and change points."""

from whim.worlds.drifting import DriftingLinear
from whim.worlds.episode import Episode, World
from whim.worlds.grouped import GroupedLinear
from whim.worlds.listeners import Listeners
from whim.worlds.news import NewsLog, NewsWorld
from whim.worlds.piecewise import PiecewiseLinear
from whim.worlds.rotating import RotatingLinear

__all__ = [
    "DriftingLinear", "Episode", "GroupedLinear", "Listeners", "NewsLog", "NewsWorld",
    "PiecewiseLinear", "RotatingLinear", "World",
]  # fmt: skip
