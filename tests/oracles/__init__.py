"""Slow, literal versions of the algorithms, for the fast ones to be compared with."""

from .adaptive import AdaptiveOracle
from .contextfree import CUSUMUCBOracle, DUCBOracle, MUCBOracle, SWUCBOracle, UCBOracle
from .disjoint import LinUCBDisjointOracle, PSLinUCBDisjointOracle
from .experts import DenBandOracle, DynamicLinUCBOracle
from .forgetting import (
    DLinUCBDisjointOracle,
    DLinUCBOracle,
    SWLinUCBDisjointOracle,
    SWLinUCBOracle,
)
from .groups import GroupsOracle
from .hybrid import LinUCBHybridOracle, PSLinUCBHybridOracle, big_ridge, schur
from .modified import ModifiedPSLinUCBOracle
from .revisit import RevisitOracle
from .scorehybrid import ScoreTestHybridOracle
from .scoretest import ScoreTestOracle

__all__ = [
    "AdaptiveOracle",
    "CUSUMUCBOracle",
    "DLinUCBDisjointOracle",
    "DLinUCBOracle",
    "DUCBOracle",
    "DenBandOracle",
    "DynamicLinUCBOracle",
    "GroupsOracle",
    "LinUCBDisjointOracle",
    "LinUCBHybridOracle",
    "MUCBOracle",
    "ModifiedPSLinUCBOracle",
    "PSLinUCBDisjointOracle",
    "PSLinUCBHybridOracle",
    "RevisitOracle",
    "SWLinUCBDisjointOracle",
    "SWLinUCBOracle",
    "SWUCBOracle",
    "ScoreTestHybridOracle",
    "ScoreTestOracle",
    "UCBOracle",
    "big_ridge",
    "schur",
]
