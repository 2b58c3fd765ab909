"""Simulators that know their own truth: expected rewards and change points."""

from whim.worlds.drifting import DriftingLinear
from whim.worlds.episode import Episode, World
from whim.worlds.grouped import GroupedLinear
from whim.worlds.listeners import Listeners
from whim.worlds.lists import ListEpisode, ListWorld
from whim.worlds.news import NewsLog, NewsWorld
from whim.worlds.piecewise import PiecewiseLinear
from whim.worlds.reversing import ReversingLinear
from whim.worlds.rotating import RotatingLinear

__all__ = [
    "DriftingLinear", "Episode", "GroupedLinear", "ListEpisode", "ListWorld", "Listeners",
    "NewsLog", "NewsWorld", "PiecewiseLinear", "ReversingLinear", "RotatingLinear", "World",
]  # fmt: skip
