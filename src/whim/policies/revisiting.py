"""``Revisiting``: a policy that may look again at arms that nobody has played for a while."""

from __future__ import annotations

from typing import Any

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.kernels import revisit
from whim.policies.base import Policy
from whim.types import F64, I64

__all__ = ["Revisiting"]


class Revisiting(Policy):
    """What such a policy keeps: the doubt about each arm, and how often changes were found."""

    _alpha: float
    _doubts: F64
    _tally: F64

    def _open_revisit(self, asked: float | str | None, scored: bool) -> None:
        if not scored and asked not in (None, "off"):
            raise InvalidInputError(
                "revisit must be None or 'off' where threshold is given: the paper's policy "
                f"leaves arms that are not played alone, got {asked!r}."
            )
        self._rate = 0.0  # learnt
        if isinstance(asked, str):
            checks.choice("revisit", asked, ("auto", "off"))
        elif asked is not None:
            self._rate = checks.number("revisit", asked, above=0, below=1)
        self._revisits = scored and asked != "off"
        if self._revisits:
            self._rows({"_doubts": np.zeros(revisit.DOUBTS)})
            self._keep(_tally=np.zeros(revisit.TALLY))

    def _verify(self) -> None:
        super()._verify()
        if not self._revisits:
            return
        for kept in (self._tally, self._doubts[self._table.live]):
            if not (np.isfinite(kept) & (kept >= 0)).all():
                raise ValueError("tally and doubts must be numbers >= 0")
        if self._tally.shape != (revisit.TALLY,):
            raise ValueError(f"tally must have {revisit.TALLY} numbers, got {self._tally.shape}")

    def _doubt_state(self) -> tuple[Any, ...]:
        return self._alpha, self._rate, self._doubts, self._tally

    def _doubted(self, slots: I64) -> F64:
        """The probability q of each arm that it is another than its model."""
        q = np.zeros(len(slots))
        if self._revisits:
            revisit.all_doubts(
                slots, self._alpha, self._rate, self._step, self._doubts, self._tally, q
            )
        return q
