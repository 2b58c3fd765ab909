"""Which arms could be shown in each row of a table: one pool, a column's, or those seen so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from whim.logs.frames import as_id
from whim.types import I64, ArmId

if TYPE_CHECKING:
    import polars as pl


class Pooling:
    """The pool of each row: always ``fixed``, a column's, or the arms ``seen`` so far.

    Of a part whose pools depend on other parts (``order``) it is the shown arm; ``counts`` says
    then, under ``"seen"``, how many arms this part has shown up to each row of the last batch.
    """

    def __init__(
        self, column: str | None, separator: str, fixed: tuple[ArmId, ...] | None, order: str | None
    ) -> None:
        self._candidates, self._separator = column, separator
        self._fixed, self._order = fixed, order
        self.seen: dict[ArmId, None] = {}
        self.counts: I64 | None = None

    def pools(self, frame: pl.DataFrame, ids: list[ArmId]) -> tuple[list[Sequence[ArmId]], I64]:
        """The different pools of a batch, and which of them each row has."""
        if self._fixed is not None:
            return [self._fixed], np.zeros(len(frame), np.int64)
        if self._order is not None:
            return self._shown_alone(ids)
        if self._candidates is None:
            return self._seen_so_far(ids)
        return self._column(frame[self._candidates].to_list())

    def _shown_alone(self, ids: list[ArmId]) -> tuple[list[Sequence[ArmId]], I64]:
        number: dict[ArmId, int] = {}
        pool, counts = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
        for i, arm in enumerate(ids):
            if arm is not None:
                self.seen[arm] = None
            pool[i], counts[i] = number.setdefault(arm, len(number)), len(self.seen)
        self.counts = counts if self._order == "seen" else None
        return [() if arm is None else (arm,) for arm in number], pool

    def _seen_so_far(self, ids: list[ArmId]) -> tuple[list[Sequence[ArmId]], I64]:
        pools: list[Sequence[ArmId]] = []
        pool = np.zeros(len(ids), np.int64)
        for i, arm in enumerate(ids):  # this row's among them
            if not pools or (arm is not None and arm not in self.seen):
                if arm is not None:
                    self.seen[arm] = None
                pools.append(tuple(self.seen))
            pool[i] = len(pools) - 1
        return pools, pool

    def _column(self, cells: list[Any]) -> tuple[list[Sequence[ArmId]], I64]:
        pools: list[Sequence[ArmId]] = []
        pool = np.zeros(len(cells), np.int64)
        known: dict[Any, int] = {}
        for i, value in enumerate(cells):
            key = tuple(value) if isinstance(value, list) else value
            if key not in known:
                known[key] = len(pools)
                texts = key.split(self._separator) if isinstance(key, str) else key or ()
                arms = [as_id(c.strip() if isinstance(c, str) else c) for c in texts]
                pools.append([arm for arm in arms if arm is not None and arm != ""])
            pool[i] = known[key]
        return pools, pool
