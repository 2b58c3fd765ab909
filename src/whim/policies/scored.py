"""What policies with a choice of change tests share: choosing one, and the score test's event."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from whim.detectors import MeanResidual, ScoreTest
from whim.detectors.score_test import chi2_tail
from whim.errors import InvalidInputError
from whim.types import ChangeEvent

__all__ = ["chosen_test", "detailed"]


def chosen_test(
    window: int | None, threshold: float | None, false_alarm: float | None
) -> MeanResidual | ScoreTest:
    """The paper's test where there is a threshold, else the score test."""
    if threshold is None:
        rate = 1e-5 if false_alarm is None else false_alarm
        return ScoreTest(rate, 256 if window is None else window)
    if false_alarm is not None:
        raise InvalidInputError(
            "false_alarm must be None where threshold is given: the paper's test has no such rate, "
            f"got {false_alarm!r}."
        )
    return MeanResidual(100 if window is None else window, threshold)


def detailed(event: ChangeEvent, freedom: int) -> ChangeEvent:
    """With what the score test knows beyond the paper's."""
    moved = np.subtract(event.theta_after, event.theta_before)
    size = float(np.linalg.norm(moved))
    return replace(
        event,
        began=event.plays - event.window + 1,
        p_value=chi2_tail(event.statistic, freedom),
        direction=tuple((moved / size).tolist()) if size > 0 else (),
    )
