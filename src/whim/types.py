"""Types that every layer uses: arm ids, decisions, change events, arrays."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["F64", "I64", "ArmId", "ChangeEvent", "Decision", "ListDecision"]

ArmId: TypeAlias = Hashable
F64: TypeAlias = npt.NDArray[np.float64]
I64: TypeAlias = npt.NDArray[np.int64]


class Decision(NamedTuple):
    """One arm as the policy sees it for one context.

    ``mean`` is the predicted reward and ``width`` what an optimistic policy adds to it to explore:
    ``score = mean + width``. A policy that forces plays or samples (``MUCB``, ``LinTS``,
    ``Random``) may have another ``score``. Arms are ranked by ``score``.

    ``mean`` is what is expected now, and not always xᵀθ̂ of ``coefficients``: PSLinUCB with
    ``revisit`` takes into account that an arm may have changed since its last play
    (``chance_changed``), which draws its mean towards that of a new arm.
    """

    arm: ArmId
    score: float
    mean: float
    width: float


class ListDecision(NamedTuple):
    """A list of arms for one context, the top first: entry i of each field is the i-th item.

    ``scores``, ``means`` and ``widths`` are what ``Decision`` has of each. Scores fall from the top
    down, unless limits, diversity or features of slots had a say.
    """

    arms: list[ArmId]
    scores: list[float]
    means: list[float]
    widths: list[float]


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """A change of interest that a policy has detected and acted on.

    Attributes
    ----------
    arm
        The arm in whose rewards it was detected, or ``None`` when the policy has one model for all
        arms and cannot tell which of them changed.
    step
        Number of updates of the policy, including the one that detected it (the first is 1).
    plays
        Number of updates of that arm since it was added, including this one.
    statistic, threshold
        The test's value and the bound that it reached.
    theta_before, theta_after
        The arm's coefficients just before and just after the restart. Context-free policies
        have their mean there.
    window
        Number of observations from which the restarted model was built (0: from scratch).
    began
        The arm's play, counted like ``plays``, that was most likely the first after the change.
        ``None`` if the test does not estimate it.
    p_value
        Of the one test that detected it; ``None`` if that has none.
    direction
        Unit vector along which the coefficients moved; empty if the test does not estimate it.
    group
        The group of arms whose shared model restarted (``PSLinUCBGroups``); ``arm`` is then the one
        whose reward triggered it, and ``plays`` and ``began`` count the group's plays. ``None``:
        only the arm changed.
    probability
        That the arm has changed since the last report, as the policy believes; ``None`` if it
        holds no such belief.
    kind
        ``"jump"`` or ``"drift"``: how interests change, as the policy believes; ``None`` if it
        cannot tell.
    features
        The names of the coefficients, if the policy was given any (``with_features``).
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
    probability: float | None = None
    kind: str | None = None
    features: tuple[str, ...] = ()
