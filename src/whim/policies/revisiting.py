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
        if not scored and asked is not None:
            raise InvalidInputError(
                "revisit must be None where threshold is given: the paper's policy leaves arms "
                f"that are not played alone, got {asked!r}."
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
