"""What policies with a choice of change tests share: the test, its state, revisits, the event."""

from __future__ import annotations

from typing import Any

import numpy as np

from whim import checks
from whim.detectors import MeanResidual, ScoreTest
from whim.detectors.score_test import chi2_tail
from whim.errors import InvalidInputError
from whim.kernels.detection import mean_residual, noise, revisit, score_test
from whim.kernels.linalg import udu
from whim.policies.base.compiled import CompiledPolicy
from whim.policies.base.windows import RowWindows
from whim.types import F64, I64, ArmId, ChangeEvent


class Reporting(CompiledPolicy):
    """A policy whose kernels leave a change in ``_report``: θ before, θ after, and the verdict."""

    _report: F64

    def _open_report(self, width: int) -> None:
        self._report = np.zeros((3, max(width, 4)))

    def _change(self, slot: int, width: int, threshold: float, window: int = 0) -> ChangeEvent:
        """A change with a threshold that was known before."""
        before, after, verdict = self._report.tolist()
        return self._changed(
            slot,
            statistic=verdict[0],
            threshold=threshold,
            theta_before=tuple(before[:width]),
            theta_after=tuple(after[:width]),
            window=window,
        )

    def _scored_change(self, slot: int, width: int, plays: int, group: Any = None) -> ChangeEvent:
        """A change that the score test has detected."""
        before, after, (statistic, bound, freedom, kept) = (
            self._report[0, :width], self._report[1, :width], self._report[2, :4].tolist()
        )  # fmt: skip
        moved = after - before
        size = float(np.linalg.norm(moved))
        return self._changed(
            slot,
            plays=plays,
            statistic=statistic,
            threshold=bound,
            theta_before=tuple(before.tolist()),
            theta_after=tuple(after.tolist()),
            window=int(kept),
            began=plays - int(kept) + 1,
            p_value=chi2_tail(statistic, int(freedom)),
            direction=tuple((moved / size).tolist()) if size > 0 else (),
            group=group,
        )


def score_state(test: ScoreTest, p: int, flat: F64, report: F64) -> score_test.ScoreTest:
    """The score test's state over p numbers, with scratch of its own."""
    room, model = np.zeros(score_test.room_size(p)), udu.prior(p, 1.0, more=2)
    atoms = np.zeros(noise.FAR + 1)
    return score_test.ScoreTest(test.bounds(p), flat, report, room, model, np.zeros(p), atoms)


class Detecting(RowWindows, Reporting):
    """A policy that tests each arm, by the paper's test or the score test, and may revisit arms."""

    _alpha: float
    _doubts: F64
    _tally: F64
    _table_rows: I64

    def _open_test(
        self,
        window: int | None,
        threshold: float | None,
        false_alarm: float | None,
        first_window: str,
        revisit_rate: float | str | None,
    ) -> None:
        words = ("seed", "literal")
        self._seed_first = checks.choice("first_window", first_window, words) == "seed"
        self._test = _chosen_test(window, threshold, false_alarm)
        self._scored = isinstance(self._test, ScoreTest)
        self._open_revisit(revisit_rate)

    def _in_force(self) -> dict[str, Any]:
        rate = self._test.false_alarm if isinstance(self._test, ScoreTest) else None
        revisit = (self._rate or "auto") if self._revisits else "off"
        return {"window": self._test.window, "false_alarm": rate, "revisit": revisit}

    def _open_windows(self, tested: int, record: int, rows: dict[str, F64]) -> None:
        """``tested`` numbers of a record of ``record`` numbers are those of the score test."""
        columns, longest = mean_residual.TABLE, self._test.window
        if isinstance(self._test, ScoreTest):
            columns, longest = score_test.TABLE, self._test.lengths[-1]
            self._score_test = score_state(self._test, tested, np.zeros((0, 0)), self._report)
        self._open_pool(record, longest)
        self._rows(rows | {"_table_rows": np.zeros(columns, np.int64)})
        if self._revisits:  # stored under these names
            self._rows({"_doubts": np.zeros(revisit.COLUMNS)})
            self._keep(_tally=np.zeros(revisit.TALLY))

    def _open_revisit(self, rate: float | str | None) -> None:
        if not self._scored and rate not in (None, "off"):
            raise InvalidInputError(
                "revisit must be None or 'off' where threshold is given: the paper's policy "
                f"leaves arms that are not played alone, got {rate!r}."
            )
        self._rate = 0.0  # learnt
        if isinstance(rate, str):
            checks.choice("revisit", rate, ("auto", "off"))
        elif rate is not None:
            self._rate = checks.number("revisit", rate, above=0, below=1)
        self._revisits = self._scored and rate != "off"
        self._doubts, self._tally = np.zeros((0, revisit.COLUMNS)), np.zeros(revisit.TALLY)

    def _verify(self) -> None:
        super()._verify()
        if not self._revisits:
            return
        for kept in (self._tally, self._doubts[self._table.live]):
            if not (np.isfinite(kept) & (kept >= 0)).all():
                raise ValueError("tally and doubts must be numbers >= 0")
        if self._tally.shape != (revisit.TALLY,):
            raise ValueError(f"tally must have {revisit.TALLY} numbers, got {self._tally.shape}")

    def _revisit_state(self) -> revisit.Revisit:
        rate = self._rate if self._revisits else revisit.OFF
        return revisit.Revisit(rate, self._doubts, self._tally)

    def chance_changed(self, arm: ArmId) -> float:
        """q: how likely an arm has changed since it was last played; 0 without ``revisit``.

        What explains the difference between ``coefficients`` and the ``mean`` of a decision, which
        is (1-q)·xᵀθ̂ for disjoint payoffs: with probability q the arm is like a new one, of which
        nothing is known. For hybrid payoffs it is (1-q)·(xᵀθ̂ + zᵀβ̂) + q·zᵀβ̂.
        """
        return self._chances(np.array([self._table.slot(arm)])).item()

    def _chances(self, slots: I64) -> F64:
        """The probability q of each arm that it is another than its model."""
        q = np.zeros(len(slots))
        if self._revisits:
            revisit.all_chances(self._revisit_state(), self._alpha, self._step, slots, q)
        return q

    def _paper_state(self, pre: F64) -> mean_residual.MeanResidual:
        test = self._test
        assert isinstance(test, MeanResidual)
        return mean_residual.MeanResidual(
            test.window, test.threshold, self._seed_first, pre, self._report
        )

    def _score_state(self, flat: F64) -> score_test.ScoreTest:
        return self._score_test._replace(flat=flat)

    def _event(self, slot: int) -> ChangeEvent:
        d, test = self._d or 0, self._test
        if isinstance(test, ScoreTest):
            return self._scored_change(slot, d, self._plays[slot])
        return self._change(slot, d, test.threshold, test.window)


def _chosen_test(
    window: int | None, threshold: float | None, false_alarm: float | None
) -> MeanResidual | ScoreTest:
    """The paper's test where there is a threshold, else the score test."""
    if threshold is None:
        rate = 1e-5 if false_alarm is None else false_alarm
        return ScoreTest(rate, 256 if window is None else window)
    if false_alarm is not None:
        raise InvalidInputError(
            "false_alarm must be None where threshold is given: the paper's test has no such rate, "
            f"got {false_alarm!r}."
        )
    return MeanResidual(100 if window is None else window, threshold)
