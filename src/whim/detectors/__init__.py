"""The change tests: what is compared with what, and when it counts as a change."""

from whim.detectors.mean_residual import MeanResidual
from whim.detectors.residual import Cusum, RiverDetector
from whim.detectors.score_test import ScoreTest

__all__ = ["Cusum", "MeanResidual", "RiverDetector", "ScoreTest"]
