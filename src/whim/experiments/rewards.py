"""``beyond/rewards``: false alarms on rewards and contexts as they really are.

Arms that never change, of every kind of reward (see ``stationary``): alarms of the score test over
those requested, and the false events of AdaptiveLinUCB beside the number that is accepted. What
they cost is measured in ``shops``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import whim.policies as whim
from whim.evaluate import Interval, spread
from whim.experiments import formatting as fmt
from whim.experiments.calibration import bunching, power_of_ten, ratio_of
from whim.experiments.options import Options
from whim.experiments.result import Curve, ExperimentResult, Figure, Table
from whim.experiments.shops import LEAST, shops
from whim.experiments.stationary import BENT, FEATURES, LINEAR, STREAM, Case, cases

PLAYS = 50_000  # of an arm; of a policy with several
ALARMS = {1e-3: 100, 1e-4: 100, 1e-5: 20}  # by the requested rate: expected of a cell
ACCEPTED = (1.0, 0.1)  # false events per 10,000 plays; the first is the default
POLICIES, TOGETHER = 10, 10  # of AdaptiveLinUCB in a cell, and arms of each
MOST = {LINEAR: 5.0, BENT: math.inf, STREAM: 10.0}  # wished for, measured over requested
_ARMS = 10  # of a task, at most


class Task(NamedTuple):
    """Some of a cell's arms, or policies with some arms each."""

    case: Case
    requested: float
    arms: int
    seed: tuple[int, ...]


# of cells: a case and the requested rate, or the number accepted
Cells = dict[tuple[Case, float], Interval]


# -- measuring ----------------------------------------------------------------------------------


def _alarms(task: Task) -> list[int]:
    """Of each arm."""
    rng = np.random.default_rng(task.seed)
    counts = []
    for _ in range(task.arms):
        X, r = task.case.draw(rng, PLAYS)
        policy = whim.PSLinUCBDisjoint(n_features=X.shape[1], false_alarm=task.requested)
        policy.add_arms([0])
        counts.append(len(policy.update_many([0] * PLAYS, X, r)))
    return counts


def _events(task: Task) -> list[int]:
    """Of each policy, whose arms are played in turn."""
    rng = np.random.default_rng(task.seed)
    counts = []
    for _ in range(task.arms):
        drawn = [task.case.draw(rng, PLAYS // TOGETHER) for _ in range(TOGETHER)]
        X = np.stack([X for X, _ in drawn], axis=1).reshape(-1, drawn[0][0].shape[1])
        r = np.stack([r for _, r in drawn], axis=1).reshape(-1)
        policy = whim.AdaptiveLinUCB(n_features=X.shape[1], false_events=task.requested)
        policy.add_arms(range(TOGETHER))
        arms = np.arange(len(r)) % TOGETHER
        counts.append(len(policy.update_many(arms.tolist(), X, r)))
    return counts


def _counted(tasks: list[Task], counts: list[list[int]]) -> dict[tuple[Case, float], list[int]]:
    """Of each cell."""
    found: dict[tuple[Case, float], list[int]] = {}
    for task, own in zip(tasks, counts, strict=True):
        found.setdefault((task.case, task.requested), []).extend(own)
    return found


def _score_test(chosen: list[Case], expected: dict[float, int], options: Options) -> Cells:
    """Alarms measured over requested."""
    tasks = [
        task
        for (i, case), rate in product(enumerate(chosen), expected)
        for task in _tasks(case, rate, expected[rate], (options.seed, i))
    ]
    advance = options.stage("beyond/rewards", len(tasks))
    counts = spread(_alarms, tasks, jobs=options.jobs, progress=advance)
    return {
        (case, rate): ratio_of(sum(alarms), len(alarms) * PLAYS * rate, bunching([alarms]))
        for (case, rate), alarms in _counted(tasks, counts).items()
    }


def _tasks(case: Case, rate: float, alarms: int, seed: tuple[int, int]) -> list[Task]:
    arms = math.ceil(alarms / rate / PLAYS)
    return [
        Task(case, rate, min(_ARMS, arms - i), (*seed, round(1 / rate), i))
        for i in range(0, arms, _ARMS)
    ]


def _adaptive(chosen: list[Case], options: Options) -> Cells:
    """False events per 10,000 plays."""
    policies = 2 if options.quick else POLICIES
    tasks = [
        Task(case, accepted, policies, (options.seed, i, round(10 * accepted)))
        for (i, case), accepted in product(enumerate(chosen), ACCEPTED)
    ]
    advance = options.stage("beyond/rewards: events", len(tasks))
    counts = spread(_events, tasks, jobs=options.jobs, progress=advance)
    each = PLAYS // TOGETHER * TOGETHER
    return {
        cell: ratio_of(sum(events), len(events) * each / 1e4, bunching([events]))
        for cell, events in _counted(tasks, counts).items()
    }


# -- the experiment -----------------------------------------------------------------------------


def rewards(options: Options) -> ExperimentResult:
    """False alarms and events; ``runs`` are the alarms expected of each cell, and a shop's runs."""
    expected = {1e-3: 20} if options.quick else ALARMS
    if options.runs is not None:
        expected = dict.fromkeys(expected, options.runs)
    chosen = cases(options.data, quick=options.quick)
    ratios = _score_test(chosen, expected, options)
    events = _adaptive(chosen, options)
    shop, shares = shops(options)
    revenue = {label: share for (goods, label), share in shares.items() if goods == "revenue"}
    return ExperimentResult(
        title="False alarms on rewards of every kind",
        summary=f"{_summary(ratios)} AdaptiveLinUCB, which accepts {ACCEPTED[0]:g} false event per "
        f"10,000 plays, has {_ranges(events, ACCEPTED[0])}. In a shop with revenue in which "
        f"nothing changes PSLinUCB earns {fmt.fixed(revenue['PSLinUCB'], 3)} of LinUCB's value "
        f"(target: {LEAST:g}), AdaptiveLinUCB {fmt.fixed(revenue['AdaptiveLinUCB'], 3)}.",
        settings=_settings(options, chosen, expected),
        differences=["Not in the paper, whose δ stands for no rate of false alarms."],
        tables=[_alarm_table(chosen, list(expected), ratios), _event_table(chosen, events), shop],
        figures=[_figure(chosen, list(expected), ratios)],
        headline=[
            (
                f"False alarms at most {MOST[LINEAR]:g} times the requested rate",
                "–",
                _share(ratios),
            ),
            ("Revenue, nothing changes: PSLinUCB over LinUCB", "–", fmt.fixed(revenue["PSLinUCB"])),
        ],
        targets=_targets(ratios, events, shares),
    )


def _settings(options: Options, chosen: list[Case], expected: dict[float, int]) -> dict[str, Any]:
    return {
        "seed": options.seed,
        "plays of an arm": PLAYS,
        "alarms expected of a cell": {f"{rate:.0e}": n for rate, n in expected.items()},
        "streams": "the user's" if any(case.path for case in chosen) else "a generated one",
        "policy": repr(whim.PSLinUCBDisjoint(n_features=1)),
        "AdaptiveLinUCB": f"{TOGETHER} arms in turn, {PLAYS:,} plays in all, "
        f"{2 if options.quick else POLICIES} times; as it comes but for the events accepted",
    }


def _ranges(cells: Cells, requested: float | None = None, unit: str = "") -> str:
    """Smallest to largest, by how the mean depends on the context."""
    parts = []
    for mean, words in (
        (LINEAR, "where the mean is linear in the context"),
        (STREAM, "on streams in random order"),
        (BENT, "where the mean is plainly not linear"),
    ):
        values = [
            cell.value
            for (case, rate), cell in cells.items()
            if case.mean == mean and requested in (None, rate)
        ]
        if values:
            parts.append(f"{min(values):.2f} to {max(values):.2f}{unit} {words}")
    return "; ".join(parts)


def _summary(ratios: Cells) -> str:
    often = _ranges(ratios, unit=" times as often as requested")
    return f"The score test raises false alarms {often}."


def _targets(
    ratios: Cells, events: Cells, shares: Mapping[tuple[str, str], Interval]
) -> list[tuple[str, bool]]:
    """For linear means at every rate; for streams at the rate for which it was set."""
    streams = [
        ratio for (case, rate), ratio in ratios.items() if case.mean == STREAM and rate == 1e-4
    ]
    found = [
        (
            f"false alarms at most {MOST[LINEAR]:g} times the requested rate, linear means",
            _largest(cell for (case, _), cell in ratios.items() if case.mean == LINEAR)
            <= MOST[LINEAR],
        ),
        (
            f"AdaptiveLinUCB: at most {ACCEPTED[0]:g} false event per 10,000 plays, linear means",
            _largest(
                cell
                for (case, accepted), cell in events.items()
                if case.mean == LINEAR and accepted == ACCEPTED[0]
            )
            <= ACCEPTED[0],
        ),
    ]
    if streams:
        found.append(
            (
                f"false alarms at most {MOST[STREAM]:g} times the requested 10⁻⁴, streams",
                _largest(streams) <= MOST[STREAM],
            )
        )
    return found + [
        (f"{goods}, nothing changes: {label} earns {LEAST:g} of LinUCB", share.value >= LEAST)
        for (goods, label), share in shares.items()
        if label != "LinUCB"
    ]


def _largest(cells: Iterable[Interval]) -> float:
    return max(cell.value for cell in cells)


def _share(ratios: Cells) -> str:
    sure = [ratio for (case, _), ratio in ratios.items() if case.mean == LINEAR]
    return f"{sum(ratio.value <= MOST[LINEAR] for ratio in sure)} of {len(sure)} cells"


def _alarm_table(chosen: list[Case], rates: list[float], ratios: Cells) -> Table:
    return Table(
        title="False alarms of the score test, measured over requested, with 95 % intervals",
        columns=["rewards", "mean", *(f"requested {power_of_ten(rate)}" for rate in rates)],
        rows=[
            [case.name, case.mean, *(fmt.fixed(ratios[case, rate]) for rate in rates)]
            for case in chosen
        ],
        caption=f"{FEATURES} features, the first of them 1, the others normal. Not linear: no "
        "coefficients are right for all contexts, and those of some plays are not those of others. "
        "Stream: contexts and labels of a data set in random order, the reward of one class.",
    )


def _event_table(chosen: list[Case], events: Cells) -> Table:
    return Table(
        title="False events of AdaptiveLinUCB per 10,000 plays, with 95 % intervals",
        columns=["rewards", "mean", *(f"accepted {number:g}" for number in ACCEPTED)],
        rows=[
            [case.name, case.mean, *(fmt.fixed(events[case, number]) for number in ACCEPTED)]
            for case in chosen
        ],
        caption=f"{TOGETHER} arms, played in turn.",
    )


def _figure(chosen: list[Case], rates: list[float], ratios: Cells) -> Figure:
    ends = [0.5, len(chosen) + 0.5]
    curves = [Curve("the requested rate", ends, [1.0] * 2, style="reference")]
    for i, rate in enumerate(rates):
        x = [n + 1 + 0.22 * (i - (len(rates) - 1) / 2) for n in range(len(chosen))]
        rows = [ratios[case, rate] for case in chosen]
        curves.append(fmt.points(f"requested {power_of_ten(rate)}", x, rows))
    return Figure(
        title="False alarms of the score test by kind of reward",
        x_label="row of the table",
        y_label="measured over requested",
        curves=curves,
        y_log=True,
        caption="With 95 % intervals, which allow for alarms that come in pairs.",
    )
