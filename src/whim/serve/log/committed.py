"""``CommittedLog``: what is committed, wherever it lies, as those who replay it need it."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from whim.errors import WhimError
from whim.serve.log.rows import Raw, Row

_SPAN = 1 << 15  # row numbers per query of one space, so that no query takes long


class StoreError(WhimError):
    """The log cannot be written or read; nothing more is accepted."""


class UnavailableError(WhimError):
    """The database does not answer now; it can be tried again soon."""


class CommittedLog(ABC):
    """Rows in their order, verified against their checksums; ``path`` is how messages name it."""

    path: PurePath

    @abstractmethod
    def last(self) -> tuple[int, int]:
        """Number and time of the last row."""

    @abstractmethod
    def trimmed(self) -> int:
        """The row up to which others may have been removed by retention; 0: none has."""

    @abstractmethod
    def configs(self) -> list[Row]:
        """Rows that make, change and retire spaces, all of them."""

    @abstractmethod
    def base(self, space: int) -> tuple[int, int, bytes] | None:
        """What stands for rows that were removed: the last of them, its version, and its bytes."""

    @abstractmethod
    def _blocks(self, after: int, until: int | None, space: int | None) -> Iterator[list[Raw]]:
        """The same as ``blocks``, of rows that are not too far apart."""

    def blocks(
        self, after: int = 0, until: int | None = None, space: int | None = None
    ) -> Iterator[list[Raw]]:
        """Rows after one and up to another, in order, many at a time.

        Each block is a query of its own, so that a long read holds nothing up.
        """
        if space is not None:  # its rows may be few, and a query for them long
            last = self.last()[0] if until is None else until
            for low in range(after, last, _SPAN):
                yield from self._blocks(low, min(low + _SPAN, last), space)
        else:
            yield from self._blocks(after, until, None)

    def _sealed(self, space: int, rows: list[Any]) -> tuple[int, int, bytes] | None:
        """A base from the rows of its parts, if it has any and they match their seal."""
        if not rows:
            return None
        seq, version, size, seal, _ = rows[0]
        data = b"".join(row[4] or b"" for row in rows)
        if len(data) != size or hashlib.sha256(data).digest() != seal:
            raise StoreError(
                f"the base of space {space} in {self.path.name} must match its seal: it was "
                "altered."
            )
        return seq, version, data

    def _must_be_whole(self, block: list[Raw], expected: int) -> None:
        trimmed = self.trimmed()
        for row in block:
            if row[0] > max(expected, trimmed + 1):
                raise StoreError(
                    f"{self.path.name} must hold every row, got {row[0]} after {expected - 1}."
                )
            expected = row[0] + 1

    def rows(
        self, after: int = 0, until: int | None = None, space: int | None = None
    ) -> Iterator[Row]:
        """The same, one by one."""
        for block in self.blocks(after, until, space):
            for row in block:
                yield Row(*row[:6])
