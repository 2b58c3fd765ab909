"""``WindowPool``: what policies with sliding windows share: growing, freeing and saving them."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from whim.kernels import windows
from whim.policies.base import Policy
from whim.types import F64, I64

__all__ = ["WindowPool"]


class WindowPool(Policy):
    """A policy whose rows each have a window in one pool of chunks.

    ``_table_rows`` must be a row array whose first columns are those of ``kernels.windows``.
    """

    _table_rows: I64

    def _open_pool(self, width: int, window: int) -> None:
        self._pool: F64
        self._links: I64
        self._pool, self._links = windows.empty_pool(width, min(windows.CHUNK, window))

    def _grow_pool(self) -> None:
        chunks = len(self._links)
        self._pool, self._links = windows.grown(
            self._pool, self._links, chunks + max(8, chunks // 2)
        )

    def _forget(self, slots: list[int], gone: bool) -> None:
        for slot in slots:
            windows.clear(self._table_rows, slot, self._links)
        super()._forget(slots, gone)

    def _shared(self) -> dict[str, npt.NDArray[Any]]:
        return super()._shared() | {"pool": self._pool, "links": self._links}

    def _restore_shared(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        super()._restore_shared(arrays)
        self._pool, self._links = arrays["pool"], arrays["links"]
