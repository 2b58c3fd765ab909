"""What policies with sliding windows share: growing, freeing and saving them."""

from __future__ import annotations

from whim.kernels.detection import windows
from whim.kernels.detection.windows import Windows
from whim.policies.base.compiled import CompiledPolicy
from whim.types import F64, I64


class WindowPool(CompiledPolicy):
    """A policy with windows in one pool of chunks."""

    _pool: F64
    _links: I64
    _record: tuple[int, ...]

    def _open_pool(self, width: int, window: int) -> None:
        pool, links = windows.empty_pool(width, min(windows.CHUNK, window))
        self._record = pool.shape[1:]
        self._keep(_pool=pool, _links=links)

    def _grow_pool(self) -> None:
        chunks = len(self._links)
        pool, links = windows.grown(self._pool, self._links, chunks + max(8, chunks // 2))
        self._keep(_pool=pool, _links=links)

    def _verify(self) -> None:
        super()._verify()
        chunks = len(self._links)
        if self._pool.shape != (chunks, *self._record) or not _inside(self._links, chunks):
            raise ValueError("links must name chunks of the pool")


class RowWindows(WindowPool):
    """A policy whose rows each have a window.

    ``_table_rows`` must be a row array whose first columns are those of ``detection.windows``.
    """

    _table_rows: I64

    def _windows(self) -> Windows:
        return Windows(self._table_rows, self._pool, self._links)

    def _verify(self) -> None:
        super()._verify()
        if not within_pool(self._table_rows, self._pool):
            raise ValueError("table_rows must name records of the pool")

    def _forget(self, slots: list[int], gone: bool) -> None:
        for slot in slots:
            windows.clear(self._windows(), slot)
        super()._forget(slots, gone)


def within_pool(ends: I64, pool: F64) -> bool:
    """Whether rows of windows name records of the pool."""
    chunks, places = pool.shape[:2]
    return (
        _inside(ends[:, [windows.HEAD, windows.TAIL]], chunks)
        and _inside(ends[:, [windows.HEAD_AT, windows.TAIL_AT]], places + 1)
        and _inside(ends[:, windows.COUNT], chunks * places + 1)
    )


def _inside(numbers: I64, end: int) -> bool:
    return bool(((numbers >= 0) & (numbers < end)).all())
