"""``beyond/calibration``: how often the score test fires where nothing changes.

Arms that never change, played 50,000 times each so that starts count as they do in use: alarms
measured over alarms requested, with an interval, for every kind of reward and context.
"""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

import numpy as np

import whim.policies as whim
from whim.evaluate import Interval, spread
from whim.experiments import formatting as fmt
from whim.experiments.options import Options
from whim.experiments.result import Curve, ExperimentResult, Figure, Table
from whim.types import F64

PLAYS = 50_000  # of an arm
FEATURES = (1, 5, 20)
CONTEXTS = ("constant", "random", "heavy")
BY_CONTEXT = "clicks by context"
REWARDS = (
    "normal 0.05", "normal 1", "clicks 0.02", "clicks 0.1", "clicks 0.5", BY_CONTEXT,
)  # fmt: skip
ALARMS = {1e-3: 100, 1e-4: 100, 1e-5: 60}  # by the requested rate: expected of a cell
LOW, HIGH = 0.1, 2.0  # the target, measured over requested
_ARMS = 10  # of a task, at most


class Case(NamedTuple):
    """A row of the table; ``number`` is its place there."""

    number: int
    d: int
    contexts: str
    rewards: str

    @property
    def linear(self) -> bool:
        """Whether the mean reward is linear in the context: a click rate ends at 0 and 1."""
        return self.contexts != "heavy" or self.rewards != BY_CONTEXT


class Task(NamedTuple):
    """Some of a cell's arms."""

    case: Case
    requested: float
    arms: int
    seed: tuple[int, ...]


# of cells: a case and the requested rate
Ratios = dict[tuple[Case, float], Interval]


def calibration(options: Options) -> ExperimentResult:
    """False alarms measured over requested, by case; ``runs`` are the alarms expected of each."""
    expected = {1e-3: 20} if options.quick else ALARMS
    if options.runs is not None:
        expected = dict.fromkeys(expected, options.runs)
    cases = _cases(options.quick)
    tasks = [
        task for case, rate in product(cases, expected)
        for task in _tasks(case, rate, expected[rate], options.seed)
    ]  # fmt: skip
    advance = options.stage("beyond/calibration", len(tasks))
    counts = spread(_alarms, tasks, jobs=options.jobs, progress=advance)
    alarms_of = {cell: [0] * 0 for cell in product(cases, expected)}
    for task, alarms in zip(tasks, counts, strict=True):
        alarms_of[task.case, task.requested] += alarms
    bunches = {rate: bunching([alarms_of[case, rate] for case in cases]) for rate in expected}
    ratios = {
        (case, rate): ratio_of(sum(alarms), len(alarms) * PLAYS * rate, bunches[rate])
        for (case, rate), alarms in alarms_of.items()
    }
    summary, shares = _summary(ratios)
    return ExperimentResult(
        title="False alarms of the score test",
        summary=summary,
        settings={
            "seed": options.seed,
            "plays": PLAYS * sum(map(len, alarms_of.values())),
            "plays of an arm": PLAYS,
            "alarms expected of a cell": {f"{rate:.0e}": n for rate, n in expected.items()},
            "variance of alarms over their mean": {
                f"{rate:.0e}": round(bunch, 2) for rate, bunch in bunches.items()
            },
            "policy": repr(whim.PSLinUCBDisjoint(n_features=1)),
        },
        differences=["Not in the paper, whose δ stands for no rate of false alarms."],
        tables=[_table(cases, list(expected), ratios)],
        figures=[
            _figure(d, [case for case in cases if case.d == d], list(expected), ratios)
            for d in dict.fromkeys(case.d for case in cases)
        ],
        headline=[(f"False alarms within {LOW:g} to {HIGH:g} of the requested rate", "–", shares)],
        targets=[
            (
                f"false alarms {LOW:g} to {HIGH:g} times the requested rate in every cell",
                all(
                    LOW <= ratio.value <= HIGH for (case, _), ratio in ratios.items() if case.linear
                ),
            )
        ],
    )


def _cases(quick: bool) -> list[Case]:
    kinds = product(FEATURES[:2] if quick else FEATURES, CONTEXTS, REWARDS)
    kept = [
        (d, contexts, rewards) for d, contexts, rewards in kinds
        if not (contexts == "constant" and rewards == BY_CONTEXT)
        and not (quick and contexts == "heavy")
    ]  # fmt: skip
    return [Case(i + 1, *kind) for i, kind in enumerate(kept)]


def _tasks(case: Case, rate: float, alarms: int, seed: int) -> list[Task]:
    arms = math.ceil(alarms / rate / PLAYS)
    own = seed, case.d, CONTEXTS.index(case.contexts), REWARDS.index(case.rewards)
    return [
        Task(case, rate, min(_ARMS, arms - i), (*own, round(1 / rate), i))
        for i in range(0, arms, _ARMS)
    ]


def _alarms(task: Task) -> list[int]:
    """Of each arm."""
    rng = np.random.default_rng(task.seed)
    counts = []
    for _ in range(task.arms):
        policy = whim.PSLinUCBDisjoint(n_features=task.case.d, false_alarm=task.requested)
        policy.add_arms([0])
        X = _contexts(task.case, rng)
        events = policy.update_many([0] * PLAYS, X, _rewards(task.case, X, rng))
        counts.append(len(events))
    return counts


def _contexts(case: Case, rng: np.random.Generator) -> F64:
    """Those of one arm; where they vary and d > 1 the first feature is 1."""
    size = PLAYS, case.d
    if case.contexts == "constant":
        return np.tile(rng.normal(size=case.d), (PLAYS, 1))
    X = rng.normal(size=size) if case.contexts == "random" else rng.standard_t(2, size=size)
    if case.d > 1:
        X[:, 0] = 1.0
    return X


def _rewards(case: Case, X: F64, rng: np.random.Generator) -> F64:
    """Rewards of one distribution throughout."""
    theta = rng.normal(size=case.d)
    if case.rewards == BY_CONTEXT:
        rate = np.clip(0.1 + 0.03 * X @ theta / np.linalg.norm(theta), 0.0, 1.0)
        return (rng.random(PLAYS) < rate).astype(np.float64)
    kind, size = case.rewards.split()
    if kind == "clicks":
        return (rng.random(PLAYS) < float(size)).astype(np.float64)
    noisy: F64 = X @ theta + float(size) * rng.normal(size=PLAYS)
    return noisy


def bunching(cells: list[list[int]]) -> float:
    """How many alarms come at a time: the variance of an arm's number over its mean, at least 1.

    After a false alarm the model holds plays that were unlike the rest, and the rest is a
    change from it: one alarm often brings another.
    """
    spare = sum(len(cell) - 1 for cell in cells)
    mean = sum(float(np.mean(cell)) * (len(cell) - 1) for cell in cells)
    variance = sum(float(np.var(cell)) * len(cell) for cell in cells)
    return max(1.0, variance / mean) if spare and mean else 1.0


def ratio_of(alarms: int, expected: float, bunch: float) -> Interval:
    """Measured over requested; a Poisson number of bunches, whose interval is Byar's."""
    n, z = alarms / bunch, 1.96
    low = n * (1 - 1 / (9 * n) - z / (3 * math.sqrt(n))) ** 3 if alarms else 0.0
    high = (n + 1) * (1 - 1 / (9 * (n + 1)) + z / (3 * math.sqrt(n + 1))) ** 3
    return Interval(alarms / expected, max(low, 0.0) * bunch / expected, high * bunch / expected)


def _summary(ratios: Ratios) -> tuple[str, str]:
    sure = [ratio for (case, _), ratio in ratios.items() if case.linear]
    rest = [ratio.value for (case, _), ratio in ratios.items() if not case.linear]
    inside = sum(LOW <= ratio.value <= HIGH for ratio in sure)
    whole = sum(ratio.low >= LOW and ratio.high <= HIGH for ratio in sure)
    least, most = min(ratio.value for ratio in sure), max(ratio.value for ratio in sure)
    text = (
        f"Of {len(sure)} cells {inside} have {LOW:g} to {HIGH:g} times the requested false "
        f"alarms, {whole} of them with their whole 95 % interval; they lie between {least:.2f} and "
        f"{most:.2f}."
    )
    if rest:
        text += (
            " Where the click rate is clipped at 0 or 1, so that no linear model is right, it is "
            f"{min(rest):.1f} to {max(rest):.1f} times."
        )
    return text, f"{inside} of {len(sure)} cells"


def _table(cases: list[Case], rates: list[float], ratios: Ratios) -> Table:
    return Table(
        title="False alarms, measured over requested, with 95 % intervals",
        columns=[
            "row",
            "d",
            "contexts",
            "rewards",
            *(f"requested {power_of_ten(rate)}" for rate in rates),
        ],
        rows=[
            [str(case.number), str(case.d), case.contexts, case.rewards]
            + [fmt.fixed(ratios[case, rate]) for rate in rates]
            for case in cases
        ],
        caption="normal σ: xᵀθ and noise of standard deviation σ. clicks p: 0 or 1 at the rate p; "
        "by context: at 0.1 + 0.03 xᵀu, |u| = 1, clipped to [0, 1]. Contexts: one, normal, or "
        "heavy (Student's t with two degrees of freedom); the first feature is 1 if they vary and "
        "d > 1.",
    )


def _figure(d: int, cases: list[Case], rates: list[float], ratios: Ratios) -> Figure:
    first, last = cases[0].number, cases[-1].number
    ends = [first - 0.5, last + 0.5]
    wish = Curve(f"target: {LOW:g} to {HIGH:g}", ends, [1.0] * 2, [LOW] * 2, [HIGH] * 2)
    wish.style = "reference"
    curves = [wish]
    for i, rate in enumerate(rates):
        shift = 0.22 * (i - (len(rates) - 1) / 2)
        x = [case.number + shift for case in cases]
        rows = [ratios[case, rate] for case in cases]
        curves.append(fmt.points(f"requested {power_of_ten(rate)}", x, rows))
    return Figure(
        title=f"False alarms, d = {d}",
        x_label="row of the table",
        y_label="measured over requested",
        curves=curves,
        y_log=True,
        caption="With 95 % intervals, which allow for alarms that come in pairs. The band is "
        "the target, the line the requested rate.",
    )


def power_of_ten(rate: float) -> str:
    """Such as ``10⁻³``.

    >>> power_of_ten(1e-5)
    '10⁻⁵'
    """
    return "10" + f"{round(math.log10(rate))}".translate(
        str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    )
