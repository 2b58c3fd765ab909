"""LinUCB with one ridge model per arm whose residuals a detector of its own watches."""

from __future__ import annotations

from typing import NamedTuple

from whim.kernels.detection import cusum_residual
from whim.kernels.detection.cusum_residual import CusumTest
from whim.kernels.jit import part
from whim.kernels.linalg import udu
from whim.kernels.loops import Kernels
from whim.kernels.models import disjoint
from whim.kernels.models.disjoint import Ridge
from whim.kernels.status import CHANGED, NO_CHANGE
from whim.types import F64


class CusumState(NamedTuple):
    """With CUSUM, compiled."""

    model: Ridge
    test: CusumTest


class ResidualState(NamedTuple):
    """For a detector of another library: ``residual`` takes that of the play just learnt."""

    model: Ridge
    residual: F64


@part
def _learn_cusum(state: CusumState, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """One play: learn, then test; on a change the arm starts from nothing."""
    m = state.model
    residual = r - udu.predict(m.cum[slot], x)
    udu.learn(m.cum[slot], x, r, m.w)
    status = cusum_residual.test(state.test, slot, residual)
    if status == CHANGED:
        disjoint.theta(state, slot, state.test.report[0])
        udu.set_prior(m.cum[slot], x.shape[0], m.ridge)
    return status


@part
def _learn_residual(state: ResidualState, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    m = state.model
    state.residual[0] = r - udu.predict(m.cum[slot], x)
    udu.learn(m.cum[slot], x, r, m.w)
    return NO_CHANGE


CUSUM = Kernels("linucb_cusum", disjoint.score, _learn_cusum, **disjoint.DECISIONS)
RESIDUAL = Kernels("linucb_residual", disjoint.score, _learn_residual, decide=disjoint.decide)
