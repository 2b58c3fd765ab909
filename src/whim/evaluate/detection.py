"""How well changes were detected: which, how soon, and how many reports were false alarms."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from whim.types import I64, ArmId


class Detection(NamedTuple):
    """One run: changes detected with the delay of each, changes missed, and false alarms.

    A change of an arm is detected by the first report of that arm before its next change; every
    other report is a false alarm. ``delays`` are in steps, ``plays`` in plays of that arm.
    ``unplayed`` counts those of the missed that nothing could have found: the arm was not played
    between the change and its next.
    """

    delays: list[int]
    plays: list[int]
    missed: int
    false_alarms: int
    unplayed: int = 0

    @property
    def found(self) -> int:
        return len(self.delays)


def score_detection(
    reports: Iterable[tuple[ArmId, int]],
    changes: Mapping[int, Sequence[int]],
    played: Mapping[int, I64] | None = None,
    *,
    shared: bool = False,
) -> Detection:
    """Compare reports (arm, step) with the true changes of each arm.

    Parameters
    ----------
    reports
        In order. A report of all arms (arm ``None``) is compared with the changes of all.
    changes
        For each arm the steps after which its interests are new.
    played
        For each arm the steps (from 1) at which it was played, to count delays in plays and
        changes that no play followed.
    shared
        Reports are of all arms, so several arms that change together are one change.

    Examples
    --------
    >>> score_detection([("a", 150), ("a", 180), ("b", 20)], {"a": [100, 200], "b": []})
    Detection(delays=[50], plays=[], missed=1, false_alarms=2, unplayed=0)
    """
    every = sorted({step for steps in changes.values() for step in steps})
    first_report: dict[tuple[ArmId, int], int] = {}
    false_alarms = 0
    for arm, step in reports:
        steps = every if arm is None else changes.get(arm, ())  # type: ignore[call-overload]
        past = [c for c in steps if c < step]
        if past and (arm, past[-1]) not in first_report:
            first_report[arm, past[-1]] = step
        else:
            false_alarms += 1
    total = len(every) if shared else sum(map(len, changes.values()))
    plays = []
    if played is not None and not shared:
        for (arm, change), step in first_report.items():
            at = np.asarray(played.get(arm, ()))  # type: ignore[call-overload]
            plays.append(int(((at > change) & (at <= step)).sum()))
    delays = [step - change for (_, change), step in first_report.items()]
    unplayed = _unplayed(first_report.keys(), changes, played, shared=shared) if played else 0
    return Detection(delays, plays, total - len(first_report), false_alarms, unplayed)


def _unplayed(
    detected: Collection[tuple[ArmId, int]],
    changes: Mapping[int, Sequence[int]],
    played: Mapping[int, I64],
    *,
    shared: bool,
) -> int:
    """Changes that were not detected, and after which no arm that had changed was played."""
    seen: dict[tuple[ArmId, int], bool] = {}
    for arm, steps in changes.items():
        at = np.asarray(played.get(arm, ()))
        for i, change in enumerate(steps):
            end = steps[i + 1] if i + 1 < len(steps) else np.inf
            key = None if shared else arm, change
            seen[key] = seen.get(key, False) or bool(((at > change) & (at <= end)).any())
    return sum(not any_play and key not in detected for key, any_play in seen.items())
