"""``ModelRows``: a policy whose models are not its arms; rows are taken and freed as needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from whim.kernels.detection import contrast, score_test, windows
from whim.kernels.linalg import udu
from whim.kernels.models import groups
from whim.policies.base.detecting import Reporting
from whim.policies.base.windows import WindowPool, within_pool
from whim.types import F64, I64, ArmId

_CHUNK = 8  # plays: a thousand arms played once each should not cost a long window each


class ModelRows(WindowPool, Reporting):
    """Models with the score test, as rows that arms point to (``_model``)."""

    _kind: I64
    _clock: I64
    _past: F64
    _cum: F64
    _flat: F64
    _table_rows: I64
    _model: I64
    _ends: I64
    _live_rows: I64 | None = None  # the models of every live arm, once each, if known

    def _open_rows(self, d: int, ridge: float) -> None:
        size = udu.packed_size(d)
        self._blanks: dict[str, npt.NDArray[Any]] = {
            "_kind": np.array(groups.UNUSED),
            "_clock": np.zeros(2, np.int64),
            "_past": np.zeros(contrast.PAST),
            "_cum": udu.prior(d, ridge),
            "_flat": np.zeros(size + d + 2),
            "_table_rows": np.zeros(score_test.TABLE, np.int64),
        }
        self._open_pool(d + 3, _CHUNK)
        self._keep(**{name: blank[None][:0].copy() for name, blank in self._blanks.items()})
        zero = np.zeros((), np.int64)
        self._rows({"_model": zero, "_played": zero, "_ends": np.zeros(windows.ENDS, np.int64)})
        self._open_report(d)
        self._sums, self._side = np.zeros(score_test.room_size(d)), np.zeros((d, d))
        self._copies, self._totals = np.zeros((2, size + d + 2)), np.zeros(contrast.PAST)
        self._more_rows(1)

    def _more_rows(self, rows: int) -> None:
        for name, blank in self._blanks.items():
            old = getattr(self, name)
            new = np.empty((len(old) + rows, *blank.shape), blank.dtype)
            new[: len(old)], new[len(old) :] = old, blank
            setattr(self, name, new)
        self._size_scratch()

    def _size_scratch(self) -> None:
        """Room for one decision's models; and the row that the next arm to leave would get."""
        rows = len(self._kind)
        self._mark = np.full(rows, -1)
        self._among, self._scores = np.zeros(rows, np.int64), np.zeros((rows, 3))
        self._spare = int(np.argmax(self._kind == groups.UNUSED))
        self._live_rows = None
        self._unbind()

    def _taken(self) -> None:
        """Look for another spare row, after the last one was taken."""
        if (self._kind != groups.UNUSED).all():
            self._more_rows(max(8, len(self._kind) // 2))
        self._size_scratch()

    def _new_row(self) -> int:
        """Take a row for a model that arms share."""
        row = self._spare
        self._kind[row] = groups.SHARED
        self._taken()
        return row

    def _blank(self, row: int) -> None:
        """Forget what a model has learnt; plays that arms keep of it are stale from now on."""
        windows.clear(self._windows(), row)
        for name in ("_past", "_cum", "_flat"):
            getattr(self, name)[row] = self._blanks[name]
        self._clock[row, groups.SINCE] = self._clock[row, groups.EVER]

    def _free_row(self, row: int) -> None:
        self._blank(row)
        self._clock[row] = 0
        self._kind[row] = groups.UNUSED
        self._size_scratch()

    def _list(self, live: I64) -> None:
        super()._list(live)
        self._live_rows = None

    def _windows(self) -> windows.Windows:
        return windows.Windows(self._table_rows, self._pool, self._links)

    def _all_rows(self) -> I64:
        if self._live_rows is None:
            self._live_rows = np.unique(self._model[self._live])
        return self._live_rows

    def _verify(self) -> None:
        super()._verify()
        rows = len(self._kind)
        for name, blank in self._blanks.items():
            shape = getattr(self, name).shape
            if shape != (rows, *blank.shape):
                raise ValueError(f"{name[1:]} must have {rows} rows, got shape {shape}")
        if not (within_pool(self._table_rows, self._pool) and within_pool(self._ends, self._pool)):
            raise ValueError("table_rows and ends must name records of the pool")
        known = np.isin(self._kind, (groups.UNUSED, groups.SHARED, groups.ONE)).all()
        if not known or not (self._kind == groups.UNUSED).any():
            raise ValueError("kind must be that of a model, with one to spare")
        model = self._model[self._table.live]
        if not ((model >= 0) & (model < rows)).all() or (self._kind[model] < 0).any():
            raise ValueError("model must name models")
        self._size_scratch()

    def coefficients(self, arm: ArmId) -> F64:
        """The estimate θ̂ of an arm's model, its own or its group's, a copy."""
        d = self._d or 0
        at = udu.packed_size(d)
        return self._with_names(self._cum[self._model[self._table.slot(arm)], at : at + d].copy())

    def inverse(self, arm: ArmId) -> F64:
        """The kept A⁻¹ of an arm's model, its own or its group's, as a full matrix."""
        d = self._d or 0
        matrix = np.empty((d, d))
        udu.dense(self._cum[self._model[self._table.slot(arm)]], matrix)
        return matrix
