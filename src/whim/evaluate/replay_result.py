"""``ReplayResult``: rates with intervals, over time and against a baseline; tables and files."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.evaluate.intervals import (
    Interval,
    Z,
    bootstrap,
    mean_interval,
    normal_interval,
    of_one_log,
    rate_interval,
    ratio_interval,
)
from whim.evaluate.simulation_result import columns, draw, frame, write_frames
from whim.types import F64, ArmId

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure


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

    def estimates(self) -> dict[str, Interval]:
        """Value of the policy from all events, matched or not: IPS, SNIPS, doubly robust.

        SNIPS on a uniform log is the rate with every event weighted by the size of its pool,
        which undoes that small pools match more often.
        """
        n = self.events
        w, ww, wr, wrwr, wwr = self.weights.tolist()
        estimates = {}
        if n and w:
            estimates["ips"] = normal_interval(wr / n, wrwr / n - (wr / n) ** 2, n)
            value = wr / w
            residual = wrwr - 2 * value * wwr + value**2 * ww
            spread = Z * math.sqrt(max(residual, 0.0)) / w
            estimates["snips"] = Interval(value, value - spread, value + spread)
        total, squares, count = self.corrected.tolist()
        if count:
            mean = total / count
            estimates["dr"] = normal_interval(mean, squares / count - mean**2, int(count))
        return estimates


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

    def rate(self, label: str) -> Interval:
        """Click rate: over runs if there are several, else from the events of the one."""
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
        """One row per policy; ``relative`` is against ``baseline``, by default the first policy."""
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
            for name in ("ips", "snips", "dr"):
                each = [run.estimates().get(name) for run in runs]
                known = [one for one in each if one is not None]
                if len(known) == 1:
                    row |= columns(name, known[0])
                elif known:
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
