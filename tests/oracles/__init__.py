"""Slow, literal versions of the algorithms, for the fast ones to be compared with."""

from .contextfree import CUSUMUCBOracle, DUCBOracle, MUCBOracle, SWUCBOracle, UCBOracle
from .disjoint import LinUCBDisjointOracle, PSLinUCBDisjointOracle
from .experts import DenBandOracle, DynamicLinUCBOracle
from .forgetting import (
    DLinUCBDisjointOracle,
    DLinUCBOracle,
    SWLinUCBDisjointOracle,
    SWLinUCBOracle,
)
from .hybrid import LinUCBHybridOracle, PSLinUCBHybridOracle, big_ridge, schur
from .modified import ModifiedPSLinUCBOracle
from .scorehybrid import ScoreTestHybridOracle
from .scoretest import ScoreTestOracle

__all__ = [
    "CUSUMUCBOracle",
    "DLinUCBDisjointOracle",
    "DLinUCBOracle",
    "DUCBOracle",
    "DenBandOracle",
    "DynamicLinUCBOracle",
    "LinUCBDisjointOracle",
    "LinUCBHybridOracle",
    "MUCBOracle",
    "ModifiedPSLinUCBOracle",
    "PSLinUCBDisjointOracle",
    "PSLinUCBHybridOracle",
    "SWLinUCBDisjointOracle",
    "SWLinUCBOracle",
    "SWUCBOracle",
    "ScoreTestHybridOracle",
    "ScoreTestOracle",
    "UCBOracle",
    "big_ridge",
    "schur",
]
