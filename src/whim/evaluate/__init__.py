"""Policies against worlds: regret, intervals, and how well changes were found."""

from whim.evaluate.intervals import Interval, gain, mean_interval
from whim.evaluate.simulate import SimulationResult, simulate

__all__ = ["Interval", "SimulationResult", "gain", "mean_interval", "simulate"]
