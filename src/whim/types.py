"""The words every room speaks: arm ids, decisions, change events, array types."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["F64", "I64", "ArmId", "ChangeEvent", "Decision"]

ArmId: TypeAlias = Hashable
F64: TypeAlias = npt.NDArray[np.float64]
I64: TypeAlias = npt.NDArray[np.int64]


class Decision(NamedTuple):
    """One arm as the policy sees it for one context.

    ``mean`` is the predicted reward and ``width`` what exploration adds for a policy that is
    optimistic, so that ``score = mean + width`` there. A policy that forces or samples
    (``MUCB``, ``LinTS``, ``Random``) may have another ``score``; it is what arms are ordered by.
    """

    arm: ArmId
    score: float
    mean: float
    width: float


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """A change of interest that a policy has detected and acted on.

    Attributes
    ----------
    arm
        The arm whose observations gave it away, or ``None`` when the policy keeps one model
        for all arms and cannot tell them apart.
    step
        Updates the policy had seen when it fired, this one included (the first is 1).
    plays
        Updates of that arm since it was added, this one included.
    statistic, threshold
        The test's value and the bound that it reached.
    theta_before, theta_after
        The arm's coefficients just before and just after the restart. Context-free policies
        put their one mean there.
    window
        Observations that the restarted model was built from (0: it starts from nothing).
    began
        The arm's play, counted as ``plays`` is, that was most likely the first after the change.
        ``None`` if the test cannot tell.
    p_value
        Of the test that fired, taken alone; ``None`` if it has none.
    direction
        Unit vector along which the coefficients moved; empty if the test does not say.
    group
        The group of arms whose shared model restarted (``PSLinUCBGroups``), of which ``arm`` gave
        it away; ``plays`` and ``began`` then count the group's plays. ``None``: just the arm.
    """

    arm: ArmId | None
    step: int
    plays: int
    statistic: float
    threshold: float
    theta_before: tuple[float, ...]
    theta_after: tuple[float, ...]
    window: int
    began: int | None = None
    p_value: float | None = None
    direction: tuple[float, ...] = ()
    group: ArmId | None = None
