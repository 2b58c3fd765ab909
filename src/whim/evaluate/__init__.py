"""Policies against worlds and logs: regret, rates, intervals, and how changes were detected."""

from whim.evaluate.detection import Detection, score_detection
from whim.evaluate.intervals import Band, Interval, band, gain, mean_interval
from whim.evaluate.list_estimates import ListEstimate
from whim.evaluate.list_result import ListReplayResult, ListRun
from whim.evaluate.replay import replay
from whim.evaluate.replay_lists import estimate_lists
from whim.evaluate.replay_result import ReplayResult, ReplayRun
from whim.evaluate.simulate import simulate
from whim.evaluate.simulation_result import SimulationResult
from whim.evaluate.spread import spread
from whim.evaluate.store import TaskStore
from whim.evaluate.sweep import grid, sweep

Replayed = ReplayRun  # its former name

__all__ = [
    "Band", "Detection", "Interval", "ListEstimate", "ListReplayResult", "ListRun", "ReplayResult",
    "ReplayRun", "Replayed", "SimulationResult", "TaskStore", "band", "estimate_lists", "gain",
    "grid", "mean_interval", "replay", "score_detection", "simulate", "spread", "sweep",
]  # fmt: skip
