"""``ListReplayResult``: what policies' lists earned on a log of lists, with intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from whim.evaluate.estimates import Support
from whim.evaluate.intervals import Interval, Z, bootstrap, mean_interval
from whim.evaluate.list_estimates import NAMES, ListEstimate
from whim.evaluate.replay_result import UNKNOWN, ReplayResult, ReplayRun
from whim.evaluate.simulation_result import columns
from whim.types import F64


@dataclass(slots=True)
class ListRun(ReplayRun):
    """One policy over one sample of a log of lists.

    Attributes
    ----------
    moments
        For each part of the log Σzzᵀ over lists, z = (a, a·r, v, 1): for each position whether it
        was learnt from, its reward if so, and whether the list has it.
    learnt
        Items that were learnt from.
    listed
        What ``list_estimates`` says of the policy, by the estimate's name.
    """

    moments: F64 = field(default_factory=lambda: np.zeros((1, 4, 4)))
    learnt: int = 0
    listed: dict[str, ListEstimate] = field(default_factory=dict)

    def note(
        self, bins: npt.NDArray[Any], learnt: npt.NDArray[np.bool_], rewards: F64,
        valid: npt.NDArray[np.bool_],
    ) -> None:  # fmt: skip
        """Add lists: the part of the log of each, its positions that count, and those it has."""
        one = np.ones((len(bins), 1))
        z = np.concatenate([learnt, learnt * rewards, valid, one], axis=1).astype(np.float64)
        for part in np.unique(bins).tolist():
            rows = z[bins == part]
            self.moments[part] += rows.T @ rows
        n = len(self.bin_events)
        self.bin_events += np.bincount(bins, minlength=n)
        self.bin_matched += np.bincount(bins, learnt.any(1), n)
        self.bin_total += np.bincount(bins, (learnt * rewards).sum(1), n)

    @property
    def rate(self) -> float:
        """Reward per list: over positions, the sum of mean rewards where the lists agree.

        A position that only some lists have counts by their share: short lists agree more often
        than long ones.
        """
        return position_rate(self.moments.sum(0)).value

    @property
    def interval(self) -> Interval:
        return position_rate(self.moments.sum(0))

    @property
    def support(self) -> Support:
        """That of ``rips``, which looks at the prefixes that replay matches."""
        return self.listed["rips"].support

    def estimates(self) -> dict[str, Interval]:
        """Value of the policy's lists from all lists, by every estimate that is not refused."""
        return {
            name: one.interval for name, one in self.listed.items() if one.support.problem is None
        }


def position_rate(moments: F64) -> Interval:
    """Σ_j (share of lists with a position j) · (mean reward there where lists agree); its interval.

    Positions of one list are not independent: their covariances are in ``moments``.
    """
    k, lists = len(moments) // 3, moments[-1, -1]
    counts, totals, having = moments[-1, : 3 * k].reshape(3, k)
    there = having > 0
    if not there.any() or (counts[there] < 1).any():
        return UNKNOWN
    counts = np.where(there, counts, 1.0)
    means, shares = totals / counts, having / lists
    value = float(shares @ means)
    # each list moves it by Σ_j share_j a_j (r_j - mean_j) / count_j + mean_j (v_j - share_j) / n
    of_items = [-shares * means / counts, shares / counts]
    pull = np.concatenate([*of_items, means / lists, [-value / lists]])
    variance = float(pull @ moments @ pull)
    if counts[there].min() < 2 or variance <= 1e-12 * max(value**2, 1e-300):
        return Interval(value, math.nan, math.nan)
    spread = Z * math.sqrt(variance)
    return Interval(value, value - spread, value + spread)


@dataclass(frozen=True)
class ListReplayResult(ReplayResult):
    """What each policy's lists earned; as ``ReplayResult``, rates being rewards per list."""

    def _unknown(self, label: str) -> bool:
        return False  # unmatched positions make a rate unknown by themselves

    def relative(self, label: str, baseline: str) -> Interval:
        """Reward per list over the baseline's, minus one."""
        ours, theirs = self.runs[label], self.runs[baseline]
        if label == baseline or len(ours) > 1:
            return super().relative(label, baseline)
        parts = [_position_sums(run) for run in (ours[0], theirs[0])]
        own = parts[0].shape[1]

        def beyond(sums: F64) -> F64:
            return np.asarray(_rates(sums[:, :own]) / _rates(sums[:, own:]) - 1)

        return bootstrap(np.concatenate(parts, axis=1), beyond)

    def rows(self, baseline: str | None = None) -> list[dict[str, Any]]:
        """One row per policy.

        ``ctr`` is the reward per list; for each estimate its value and interval, ``…_effective``,
        ``…_support`` and ``…_unknown``, why it is refused. ``learnt`` counts items.
        """
        rows = super().rows(baseline)
        for row in rows:
            runs = self.runs[row["policy"]]
            row["learnt"] = sum(run.learnt for run in runs if isinstance(run, ListRun))
            for name in NAMES:
                each = [run.listed[name] for run in runs if isinstance(run, ListRun)]
                problem = next((p for one in each if (p := one.support.problem)), None)
                value = UNKNOWN
                if problem is None and len(each) == 1:
                    value = each[0].interval
                elif problem is None:
                    over_runs = mean_interval(np.array([one.interval.value for one in each]))
                    value = self._with_the_log_s(over_runs, [one.interval for one in each])
                row |= columns(name, value)
                row |= {
                    f"{name}_effective": float(np.mean([one.support.effective for one in each])),
                    f"{name}_support": float(np.mean([one.support.share for one in each])),
                    f"{name}_unknown": problem,
                }
        return rows

    def over_time(self, label: str, *, cumulative: bool = True) -> list[dict[str, float]]:
        """The reward per list in each part of the log, or up to its end, over all runs."""
        moments = np.sum([getattr(run, "moments") for run in self.runs[label]], axis=0)  # noqa: B009
        matched = np.sum([run.bin_matched for run in self.runs[label]], axis=0)
        total = np.sum([run.bin_total for run in self.runs[label]], axis=0)
        if cumulative:
            moments, matched, total = moments.cumsum(0), matched.cumsum(), total.cumsum()
        points = []
        for b in range(len(moments)):
            interval = position_rate(moments[b])
            if math.isfinite(interval.value):
                point = columns("ctr", interval)
                point |= {"matched": float(matched[b]), "reward": float(total[b])}
                points.append({"share": (b + 1) / len(moments)} | point)
        return points


def _position_sums(run: ReplayRun) -> F64:
    """For each part of the log: of each position how often it counted, its rewards, and lists."""
    assert isinstance(run, ListRun)
    return np.asarray(run.moments[:, -1])


def _rates(sums: F64) -> F64:
    """Reward per list, from rows of such sums."""
    counts, totals, having = np.split(sums[:, :-1], 3, axis=1)
    per_list = np.divide(having * totals, counts, where=having > 0, out=np.zeros_like(counts))
    return np.asarray(per_list.sum(1) / sums[:, -1])
