"""``ReplayResult``: rates with intervals, over time and against a baseline; tables and files."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.evaluate import estimates
from whim.evaluate.estimates import Support
from whim.evaluate.intervals import (
    Interval,
    bootstrap,
    mean_interval,
    of_one_log,
    rate_interval,
    ratio_interval,
)
from whim.evaluate.simulation_result import columns, draw, frame, write_frames
from whim.types import F64, ArmId

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure


UNKNOWN = Interval(math.nan, math.nan, math.nan)


@dataclass(slots=True)
class ReplayRun:
    """One policy over one sample of a log.

    Attributes
    ----------
    events, matched, total
        Events met, events that counted, and the sum of their rewards.
    bin_events, bin_matched, bin_total, bin_squares
        The same in each part of the log, and the sum of the squares of the rewards.
    changes
        Each change reported: event of the log, arm, step of the policy, statistic.
    """

    bin_events: F64
    bin_matched: F64
    bin_total: F64
    bin_squares: F64
    changes: list[tuple[int, ArmId, int, float]] = field(default_factory=list)
    # sums over events of w, w², wr, (wr)², w²r with w = 1 / p where the choice is what was shown
    weights: F64 = field(default_factory=lambda: np.zeros(5))
    # sums of the doubly robust terms and of their squares, and their number
    corrected: F64 = field(default_factory=lambda: np.zeros(3))
    # events that are compared with what was shown, and those of them whose choice had a chance
    backed: F64 = field(default_factory=lambda: np.zeros(2))
    # the least and the largest reward of all events, matched or not
    rewards: F64 = field(default_factory=lambda: np.array([math.inf, -math.inf]))

    @classmethod
    def empty(cls, bins: int) -> ReplayRun:
        """Nothing seen yet."""
        return cls(np.zeros(bins), np.zeros(bins), np.zeros(bins), np.zeros(bins))

    def count(self, bins: npt.NDArray[Any], counted: npt.NDArray[np.bool_], earned: F64) -> None:
        """Add events: the part of the log that each is in, whether it counts, what it earned."""
        n = len(self.bin_events)
        self.bin_events += np.bincount(bins, minlength=n)
        bins, earned = bins[counted], earned[counted]
        self.bin_matched += np.bincount(bins, minlength=n)
        self.bin_total += np.bincount(bins, earned, n)
        self.bin_squares += np.bincount(bins, earned**2, n)

    def weigh(self, w: F64, rewards: F64) -> None:
        """Add the events that show the choice to the sums of inverse propensities."""
        wr = w * rewards
        self.weights += [w.sum(), (w**2).sum(), wr.sum(), (wr**2).sum(), (w * wr).sum()]

    def back(self, supported: npt.NDArray[Any], rewards: F64) -> None:
        """Add events: whether the choice could have been shown (0 to 1), and what was earned."""
        self.backed += [len(supported), supported.sum()]
        if len(rewards):
            self.rewards[0] = min(self.rewards[0], rewards.min())
            self.rewards[1] = max(self.rewards[1], rewards.max())

    def correct(self, terms: F64) -> None:
        """Add doubly robust terms."""
        self.corrected += [terms.sum(), (terms**2).sum(), len(terms)]

    @property
    def events(self) -> int:
        return int(self.bin_events.sum())

    @property
    def matched(self) -> int:
        return int(self.bin_matched.sum())

    @property
    def total(self) -> float:
        return float(self.bin_total.sum())

    @property
    def rate(self) -> float:
        """Mean reward of the events that counted: the click rate (CTR)."""
        return self.total / self.matched if self.matched else math.nan

    @property
    def interval(self) -> Interval:
        """``rate`` with its interval from the events of this run alone."""
        return rate_interval(self.matched, self.total, float(self.bin_squares.sum()))

    @property
    def support(self) -> Support:
        """How much of the log the estimates rest on, and why they are unknown if they are."""
        return estimates.support(self.events, self.weights.tolist(), self.backed.tolist())

    def estimates(self) -> dict[str, Interval]:
        """Value of the policy from all events, matched or not: IPS, SNIPS, doubly robust.

        None of them where the log does not support the policy's choices (``support`` says why).
        SNIPS on a uniform log is the rate with every event weighted by the size of its pool,
        which undoes that small pools match more often.
        """
        if self.support.problem is not None:
            return {}
        return estimates.estimates(
            self.events, self.weights.tolist(), self.corrected.tolist(), self.rewards
        )


def _beyond(ours: ReplayRun, theirs: ReplayRun) -> Interval:
    """One run's rate over another's, minus one; the parts of the log are drawn anew."""
    sums = [part for run in (ours, theirs) for part in (run.bin_total, run.bin_matched)]
    parts = np.column_stack(sums)

    def beyond(means: F64) -> F64:
        above, plays, below, other = means.T
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios: F64 = (above / plays) / (below / other)
        return ratios - 1

    return bootstrap(parts[parts.any(axis=1)], beyond)


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What each policy earned: ``settings`` of the replay and ``runs`` by label.

    ``separate``: each run has a log of its own. Runs of one log share its chance: what
    the log itself leaves open, as the events of one run show it, is then added to the interval.
    """

    settings: dict[str, Any]
    runs: dict[str, list[ReplayRun]]
    separate: bool = False

    def problem(self, label: str) -> str | None:
        """Why a policy's estimates are unknown: the log does not support them; else None."""
        return next(filter(None, (run.support.problem for run in self.runs[label])), None)

    def _unknown(self, label: str) -> bool:
        """Whether matched events say nothing of the policy: a log with propensities, no support."""
        propensities = self.settings.get("logging") == "propensity"
        return propensities and self.problem(label) is not None

    def rate(self, label: str) -> Interval:
        """Click rate: over runs if there are several, else from the events of the one.

        Unknown (nan) where a log with propensities does not support the policy's choices.
        """
        if self._unknown(label):
            return UNKNOWN
        runs = self.runs[label]
        if len(runs) == 1:
            return runs[0].interval
        over_runs = mean_interval(np.array([run.rate for run in runs]))
        return self._with_the_log_s(over_runs, [run.interval for run in runs])

    def _with_the_log_s(self, over_runs: Interval, single: list[Interval]) -> Interval:
        """Widen an interval over runs of one log by what all of the log leaves open."""
        if self.separate:
            return over_runs
        return of_one_log(over_runs, single, self.settings.get("sample", 1.0))

    def relative(self, label: str, baseline: str) -> Interval:
        """Rate over the baseline's, minus one; runs are paired.

        With a single run its parts (bins of time) are what is paired and drawn anew; how another
        run would have gone is then not in the interval.
        """
        ours, theirs = self.runs[label], self.runs[baseline]
        if self._unknown(label) or self._unknown(baseline):
            return UNKNOWN
        if label == baseline:
            return Interval(0.0, 0.0, 0.0)
        single = [_beyond(a, b) for a, b in zip(ours, theirs, strict=True)]
        if len(ours) == 1:
            return single[0]
        ratio = ratio_interval(
            np.array([run.rate for run in ours]), np.array([run.rate for run in theirs])
        )
        over_runs = Interval(ratio.value - 1, ratio.low - 1, ratio.high - 1)
        return self._with_the_log_s(over_runs, single)

    def rows(self, baseline: str | None = None) -> list[dict[str, Any]]:
        """One row per policy; ``relative`` is against ``baseline``, by default the first policy.

        ``effective`` and ``support`` are the effective sample size of the estimates and the share
        of events with support, means over runs; ``unknown`` says why there are no estimates.
        """
        labels = list(self.runs)
        base = checks.choice("baseline", baseline or labels[0], tuple(labels))
        rows = []
        for label, runs in self.runs.items():
            row: dict[str, Any] = {"policy": label}
            row |= columns("ctr", self.rate(label))
            row |= columns("relative", self.relative(label, base))
            row |= {
                "events": sum(run.events for run in runs),
                "matched": sum(run.matched for run in runs),
                "reward": sum(run.total for run in runs),
                "changes": sum(len(run.changes) for run in runs) / len(runs),
            }
            if self.settings.get("logging") != "full":  # where every event counts
                row |= {
                    "effective": float(np.mean([run.support.effective for run in runs])),
                    "support": float(np.mean([run.support.share for run in runs])),
                    "unknown": self.problem(label),
                }
            for name in ("ips", "snips", "dr"):
                each = [run.estimates().get(name) for run in runs]
                known = [one for one in each if one is not None]
                if len(known) < len(runs):
                    continue  # of some runs would be a choice among them
                if len(known) == 1:
                    row |= columns(name, known[0])
                else:
                    over_runs = mean_interval(np.array([one.value for one in known]))
                    row |= columns(name, self._with_the_log_s(over_runs, known))
            rows.append(row)
        return rows

    def table(self, baseline: str | None = None) -> polars.DataFrame:
        """``rows`` as a frame."""
        return frame(self.rows(baseline))

    def over_time(self, label: str, *, cumulative: bool = True) -> list[dict[str, float]]:
        """The rate in each part of the log, or up to its end, with interval and counts."""
        matched = np.array([run.bin_matched for run in self.runs[label]])
        total = np.array([run.bin_total for run in self.runs[label]])
        squares = np.array([run.bin_squares for run in self.runs[label]])
        if cumulative:
            matched, total, squares = matched.cumsum(1), total.cumsum(1), squares.cumsum(1)
        points = []
        for b in range(matched.shape[1]):
            n, sum_ = float(matched[:, b].sum()), float(total[:, b].sum())
            if n == 0:
                continue
            if len(matched) > 1 and (matched[:, b] > 0).all():
                interval = self._with_the_log_s(
                    mean_interval(total[:, b] / matched[:, b]),
                    [
                        rate_interval(*sums)
                        for sums in zip(matched[:, b], total[:, b], squares[:, b], strict=True)
                    ],
                )
            else:
                interval = rate_interval(n, sum_, float(squares[:, b].sum()))
            point = columns("ctr", interval) | {"matched": n, "reward": sum_}
            points.append({"share": (b + 1) / matched.shape[1]} | point)
        return points

    def changes(self) -> polars.DataFrame:
        """Every change reported: policy, run, event of the log, arm, step, statistic."""
        rows = [
            {"policy": label, "run": r, "event": at, "arm": None if arm is None else str(arm)}
            | {"step": step, "statistic": statistic}
            for label, runs in self.runs.items()
            for r, run in enumerate(runs)
            for at, arm, step, statistic in run.changes
        ]
        schema = {
            "policy": str, "run": int, "event": int, "arm": str, "step": int, "statistic": float,
        }  # fmt: skip
        return frame(rows, schema)

    def plot(self) -> Figure:
        """The average click rate so far against the share of the log seen, with 95 % bands."""
        names = ("share", "ctr", "ctr_low", "ctr_high")
        points = {label: self.over_time(label) for label in self.runs}
        lines = {label: [[p[k] for p in some] for k in names] for label, some in points.items()}
        return draw(lines, "share of the log", "average reward of matched events", alpha=0.15)

    def save(self, folder: str | Path) -> Path:
        """Write ``over_time.parquet``, ``changes.parquet`` and ``result.json`` into a folder."""
        points = [
            {"policy": label, **point} for label in self.runs for point in self.over_time(label)
        ]
        numbers = ("share", "ctr", "ctr_low", "ctr_high", "matched", "reward")
        schema: dict[str, type] = {"policy": str} | dict.fromkeys(numbers, float)
        return write_frames(
            folder,
            {"settings": self.settings, "policies": self.rows()},
            {"over_time": frame(points, schema), "changes": self.changes()},
        )
