"""``Revisiting``: looking again at arms that nobody has played for a while."""

from __future__ import annotations

from typing import Any

import numpy as np

from whim import checks
from whim.kernels import revisit
from whim.kernels.jit import Direct
from whim.policies.rows import RidgeRows
from whim.types import F64, I64

__all__ = ["Revisiting"]

_SCORE = Direct(revisit.score)


class Revisiting(RidgeRows):
    """A policy with one ridge model an arm that may doubt those it has not played lately."""

    _doubts: F64
    _tally: F64

    def _open_revisit(self, asked: float | str | None) -> None:
        self._revisits = asked is not None
        self._quick = not (self._revisits or self._random_ties)
        if asked is None:
            return
        self._rate = 0.0  # learnt
        if isinstance(asked, str):
            checks.choice("revisit", asked, ("auto",))
        else:
            self._rate = checks.number("revisit", asked, above=0, below=1)
        self._rows({"_doubts": np.zeros(revisit.DOUBTS)})
        self._keep(_tally=np.zeros(revisit.TALLY))

    def _doubt_state(self) -> tuple[Any, ...]:
        return self._alpha, self._rate, self._doubts, self._tally

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        if not self._revisits:
            return super()._score(x, slots, cross, noise)
        best: int = _SCORE.call(
            x, slots, self._cum, self._alpha, self._ridge, self._rate, self._step, self._doubts,
            self._tally, self._out,
        )  # fmt: skip
        return best

    def _forms(self, d: int, slots: I64) -> tuple[F64, F64]:
        T, P = super()._forms(d, slots)
        if self._revisits:
            q = np.empty(len(slots))
            revisit.all_doubts(
                slots, self._alpha, self._rate, self._step, self._doubts, self._tally, q
            )
            T *= (1 - q)[:, None]
            P *= (1 - q)[:, None]
            i = np.arange(d)
            P[:, i * d - i * (i - 1) // 2] += (q / self._ridge)[:, None]  # the squares of x
        return T, P
