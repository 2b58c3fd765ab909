"""AdaptiveLinUCB: interests that jump, drift or stay, with nothing to set."""

from __future__ import annotations

from typing import Any

import numpy as np

from whim import checks
from whim.kernels.linalg import udu
from whim.kernels.models import adaptive
from whim.kernels.models.adaptive import state as parts
from whim.policies.base.detecting import Reporting
from whim.types import F64, I64, ArmId, ChangeEvent


class AdaptiveLinUCB(Reporting):
    """One policy for interests that jump, drift or stay as they are.

    Parameters
    ----------
    n_features
        Length of a context.
    """

    name = "adaptive-linucb"
    _kernels = adaptive.ADAPTIVE

    def __init__(
        self,
        *,
        n_features: int,
        optimism: float = 1.0,
        false_events: float = 1.0,
        beginnings: int = 6,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        d = checks.integer("n_features", n_features, 1)
        self._optimism = checks.number("optimism", optimism, least=0)
        self._false_events = checks.number("false_events", false_events, above=0)
        self._beginnings = checks.integer("beginnings", beginnings, 2)
        super().__init__(n_features=d, seed=seed, ties=ties)
        self._p = d + 1
        if self._p < udu.SHORT:
            self._unused = ("VECTORS",)
        rows = parts.arm_rows(self._p, self._beginnings)
        self._fields = list(rows)
        self._rows({f"_{name}": row for name, row in rows.items()})
        shared = parts.shared_arrays(self._p)
        self._shared = list(shared)
        self._keep(
            **{f"_{name}": array for name, array in shared.items()},
            _ring_at=np.zeros(2, np.int64),
            _ring_place=np.zeros((parts.RING, 2), np.int64),
            _ring_play=np.zeros((parts.RING, d + 1)),
        )
        self._scratch = parts.scratch(self._p, self._beginnings)
        self._report = self._scratch.report

    def _state(self) -> parts.State:
        arms = parts.Arms(**{name: getattr(self, f"_{name}") for name in self._fields})
        shared = parts.Shared(**{name: getattr(self, f"_{name}") for name in self._shared})
        ring = parts.Ring(self._ring_at, self._ring_place, self._ring_play)
        settings = parts.Settings(max(len(self._table), 1), self._optimism, 3.0)
        return parts.State(arms, shared, ring, settings, self._scratch)

    def _forget(self, slots: list[int], gone: bool) -> None:
        super()._forget(slots, gone)
        self._ring_place[np.isin(self._ring_place[:, 0], slots), 0] = -1

    def _event(self, slot: int) -> ChangeEvent:
        return self._change(slot, self._d or 0, 3.0)
