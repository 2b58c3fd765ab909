"""``beyond/rewards``: false alarms of the score test on rewards and contexts as they really are.

Arms that never change, of every kind of reward: money, counts, dwell times, rare outliers, noise
and click rates that depend on the context; and streams of contexts and labels in random order, so
that whatever changed in them no longer does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

import whim.policies as whim
from whim.evaluate import Interval, spread
from whim.experiments import formatting as fmt
from whim.experiments.calibration import bunching, power_of_ten, ratio_of
from whim.experiments.options import Options
from whim.experiments.result import Curve, ExperimentResult, Figure, Table
from whim.types import F64

PLAYS = 50_000  # of an arm
FEATURES = 5
ALARMS = {1e-3: 100, 1e-4: 100, 1e-5: 20}  # by the requested rate: expected of a cell
LINEAR, BENT, STREAM = "linear", "not linear", "stream"
MOST = {LINEAR: 5.0, BENT: math.inf, STREAM: 10.0}  # wished for, measured over requested
_ARMS = 10  # of a task, at most

Plays = tuple[F64, F64]
Maker = Callable[[np.random.Generator, int], Plays]


class Case(NamedTuple):
    """A row of the table: how the mean reward depends on the context, and what is played."""

    name: str
    mean: str


class Task(NamedTuple):
    """Some of a cell's arms; ``path`` is a stream's file."""

    case: Case
    path: Path | None
    requested: float
    arms: int
    seed: tuple[int, ...]


# -- rewards ------------------------------------------------------------------------------------


def _contexts(rng: np.random.Generator, plays: int) -> F64:
    X = rng.normal(size=(plays, FEATURES))
    X[:, 0] = 1.0
    return X


def _plain(noise: Callable[[np.random.Generator, int], F64]) -> Maker:
    """One law of the noise, whatever the context."""

    def make(rng: np.random.Generator, plays: int) -> Plays:
        X = _contexts(rng, plays)
        return X, X @ _theta(rng) + 0.2 * noise(rng, plays)

    return make


def _alone(rewards: Callable[[np.random.Generator, int], F64]) -> Maker:
    """One law of the reward, whatever the context."""
    return lambda rng, plays: (_contexts(rng, plays), rewards(rng, plays))


def _clicks(rate: float, low: float, high: float) -> Callable[[np.random.Generator, int], F64]:
    """The upper one of two values comes at one rate."""
    return lambda rng, n: np.where(rng.random(n) < rate, high, low)


def _theta(rng: np.random.Generator) -> F64:
    theta = rng.normal(size=FEATURES)
    return np.asarray(theta / np.linalg.norm(theta))


def _outliers(rng: np.random.Generator, plays: int) -> F64:
    return rng.normal(size=plays) * np.where(rng.random(plays) < 0.01, 20.0, 1.0)


def _uneven(rng: np.random.Generator, plays: int) -> Plays:
    """The noise grows with one feature."""
    X = _contexts(rng, plays)
    return X, X @ _theta(rng) + 0.2 * np.abs(X[:, 1]) * rng.normal(size=plays)


def _two_rates(high: float, low: float) -> Maker:
    """Clicks whose rate depends on a feature that is 1 or -1."""

    def make(rng: np.random.Generator, plays: int) -> Plays:
        X = _contexts(rng, plays)
        X[:, 1] = np.where(rng.random(plays) < 0.5, 1.0, -1.0)
        rate = np.where(X[:, 1] > 0, high, low)
        return X, (rng.random(plays) < rate).astype(np.float64)

    return make


def _logistic(offset: float) -> Maker:
    def make(rng: np.random.Generator, plays: int) -> Plays:
        X = _contexts(rng, plays)
        rate = 1 / (1 + np.exp(-offset - 2 * X @ _theta(rng)))
        return X, (rng.random(plays) < rate).astype(np.float64)

    return make


def _hours(clicks: bool) -> Maker:
    """The hour as a plain number, while the mean follows the sun."""

    def make(rng: np.random.Generator, plays: int) -> Plays:
        hour = np.arange(plays) / 40 % 24
        X = np.c_[np.ones(plays), hour / 24]
        mean = 0.3 + 0.2 * np.sin(2 * np.pi * hour / 24)
        noisy = (rng.random(plays) < mean).astype(np.float64)
        return X, noisy if clicks else mean + 0.2 * rng.normal(size=plays)

    return make


def _quadratic(rng: np.random.Generator, plays: int) -> Plays:
    X = _contexts(rng, plays)
    return X, X @ _theta(rng) + 0.3 * X[:, 1] ** 2 + 0.2 * rng.normal(size=plays)


MAKERS: dict[str, tuple[str, Maker]] = {
    "normal": (LINEAR, _plain(lambda rng, n: rng.normal(size=n))),
    "clicks at 0.1": (LINEAR, _alone(_clicks(0.1, 0.0, 1.0))),
    "clicks at 0.03, worth 0.5": (LINEAR, _alone(_clicks(0.03, 0.0, 0.5))),
    "-1 or +1, at 0.05": (LINEAR, _alone(_clicks(0.05, -1.0, 1.0))),
    "clicks, rates .7 / .3": (LINEAR, _two_rates(0.7, 0.3)),
    "clicks, rates .6 / .1": (LINEAR, _two_rates(0.6, 0.1)),
    "clicks, rates .8 / .2": (LINEAR, _two_rates(0.8, 0.2)),
    "clicks, rates .95 / .05": (LINEAR, _two_rates(0.95, 0.05)),
    "Poisson counts, 0.5": (LINEAR, _alone(lambda rng, n: rng.poisson(0.5, n).astype(np.float64))),
    "exponential dwell": (LINEAR, _alone(lambda rng, n: rng.exponential(30.0, n))),
    "dwell, 90 % zeros": (
        LINEAR, _alone(lambda rng, n: rng.exponential(30.0, n) * (rng.random(n) < 0.1)),
    ),
    "revenue, 3 % buy": (
        LINEAR, _alone(lambda rng, n: rng.lognormal(3.0, 1.0, n) * (rng.random(n) < 0.03)),
    ),
    "Student's t3 noise": (LINEAR, _plain(lambda rng, n: rng.standard_t(3, n))),
    "1 % outliers, 20 times": (LINEAR, _plain(_outliers)),
    "noise that grows with a feature": (LINEAR, _uneven),
    "logistic clicks, rare": (BENT, _logistic(-4.0)),
    "logistic clicks, balanced": (BENT, _logistic(0.0)),
    "hour as a number, clicks": (BENT, _hours(True)),
    "hour as a number, normal": (BENT, _hours(False)),
    "quadratic mean": (BENT, _quadratic),
}  # fmt: skip
QUICK = ("normal", "clicks at 0.03, worth 0.5", "revenue, 3 % buy", "Student's t3 noise")


# -- streams in random order --------------------------------------------------------------------


def _stand_in(rng: np.random.Generator, plays: int) -> Plays:
    """Contexts around four centres, two for each of two classes; the reward of one class."""
    centres = 2 * np.random.default_rng(7).normal(size=(4, FEATURES))
    which = rng.integers(4, size=plays)
    X = centres[which] + rng.normal(size=(plays, FEATURES))
    X[:, 0] = 1.0
    return X, (which % 2).astype(np.float64)


def _shuffled(path: Path, rng: np.random.Generator) -> Plays:
    """A stream's contexts and one arm's rewards, in random order, again and again."""
    with np.load(path) as stored:
        X = stored["X"].astype(np.float64)
        arm = int(rng.integers(stored["R"].shape[1] if "R" in stored else stored["y"].max() + 1))
        r = stored["R"][:, arm] if "R" in stored else stored["y"] == arm
    order = np.concatenate([rng.permutation(len(X)) for _ in range(-(-PLAYS // len(X)))])[:PLAYS]
    return X[order], np.asarray(r[order], np.float64)


def _streams(folder: Path | None) -> list[Path]:
    """The ``.npz`` files with contexts X and labels y or rewards R."""
    if folder is None:
        return []
    return sorted([*folder.glob("*.npz"), *folder.glob("drift/*.npz")])


# -- measuring ----------------------------------------------------------------------------------


def _alarms(task: Task) -> list[int]:
    """Of each arm."""
    rng = np.random.default_rng(task.seed)
    counts = []
    for _ in range(task.arms):
        if task.path is not None:
            X, r = _shuffled(task.path, rng)
        else:
            make = _stand_in if task.case.mean == STREAM else MAKERS[task.case.name][1]
            X, r = make(rng, PLAYS)
        policy = whim.PSLinUCBDisjoint(n_features=X.shape[1], false_alarm=task.requested)
        policy.add_arms([0])
        counts.append(len(policy.update_many([0] * PLAYS, X, r)))
    return counts


def rewards(options: Options) -> ExperimentResult:
    """False alarms measured over requested; ``runs`` are the alarms expected of each cell."""
    expected = {1e-3: 20} if options.quick else ALARMS
    if options.runs is not None:
        expected = dict.fromkeys(expected, options.runs)
    cases = _cases(options)
    tasks = [
        task
        for (i, (case, path)), rate in product(enumerate(cases), expected)
        for task in _tasks(case, path, rate, expected[rate], (options.seed, i))
    ]
    advance = options.stage("beyond/rewards", len(tasks))
    counts = spread(_alarms, tasks, jobs=options.jobs, progress=advance)
    alarms_of = {(case, rate): [0] * 0 for (case, _), rate in product(cases, expected)}
    for task, alarms in zip(tasks, counts, strict=True):
        alarms_of[task.case, task.requested] += alarms
    ratios = {
        (case, rate): ratio_of(sum(alarms), len(alarms) * PLAYS * rate, bunching([alarms]))
        for (case, rate), alarms in alarms_of.items()
    }
    return ExperimentResult(
        title="False alarms of the score test on rewards of every kind",
        summary=_summary(ratios),
        settings={
            "seed": options.seed,
            "plays of an arm": PLAYS,
            "alarms expected of a cell": {f"{rate:.0e}": n for rate, n in expected.items()},
            "streams": "the user's" if _streams(options.data) else "a generated one",
            "policy": repr(whim.PSLinUCBDisjoint(n_features=1)),
        },
        differences=["Not in the paper, whose δ stands for no rate of false alarms."],
        tables=[_table([case for case, _ in cases], list(expected), ratios)],
        figures=[_figure([case for case, _ in cases], list(expected), ratios)],
        headline=[
            (f"False alarms at most {MOST[LINEAR]:g} times the requested rate", "–", _share(ratios))
        ],
    )


def _cases(options: Options) -> list[tuple[Case, Path | None]]:
    made: list[tuple[Case, Path | None]] = [
        (Case(name, mean), None)
        for name, (mean, _) in MAKERS.items()
        if name in QUICK or not options.quick
    ]
    streams = _streams(options.data)
    if not streams:
        return [*made, (Case("four clouds (generated)", STREAM), None)]
    return [*made, *((Case(path.stem, STREAM), path) for path in streams)]


def _tasks(
    case: Case, path: Path | None, rate: float, alarms: int, seed: tuple[int, int]
) -> list[Task]:
    arms = math.ceil(alarms / rate / PLAYS)
    return [
        Task(case, path, rate, min(_ARMS, arms - i), (*seed, round(1 / rate), i))
        for i in range(0, arms, _ARMS)
    ]


def _summary(ratios: dict[tuple[Case, float], Interval]) -> str:
    parts = []
    for mean, words in (
        (LINEAR, "where the mean is linear in the context"),
        (STREAM, "on streams in random order"),
        (BENT, "where the mean is plainly not linear"),
    ):
        values = [ratio.value for (case, _), ratio in ratios.items() if case.mean == mean]
        if values:
            parts.append(f"{min(values):.2f} to {max(values):.2f} {words}")
    return f"False alarms, measured over requested: {'; '.join(parts)}."


def _share(ratios: dict[tuple[Case, float], Interval]) -> str:
    sure = [ratio for (case, _), ratio in ratios.items() if case.mean == LINEAR]
    return f"{sum(ratio.value <= MOST[LINEAR] for ratio in sure)} of {len(sure)} cells"


def _table(
    cases: list[Case], rates: list[float], ratios: dict[tuple[Case, float], Interval]
) -> Table:
    return Table(
        title="False alarms, measured over requested, with 95 % intervals",
        columns=["rewards", "mean", *(f"requested {power_of_ten(rate)}" for rate in rates)],
        rows=[
            [case.name, case.mean, *(fmt.fixed(ratios[case, rate]) for rate in rates)]
            for case in cases
        ],
        caption=f"{FEATURES} features, the first of them 1, the others normal. Not linear: no "
        "coefficients are right for all contexts, and those of some plays are not those of others. "
        "Stream: contexts and labels of a data set in random order, the reward of one class.",
    )


def _figure(
    cases: list[Case], rates: list[float], ratios: dict[tuple[Case, float], Interval]
) -> Figure:
    ends = [0.5, len(cases) + 0.5]
    curves = [Curve("the requested rate", ends, [1.0] * 2, style="reference")]
    for i, rate in enumerate(rates):
        x = [n + 1 + 0.22 * (i - (len(rates) - 1) / 2) for n in range(len(cases))]
        rows = [ratios[case, rate] for case in cases]
        curves.append(fmt.points(f"requested {power_of_ten(rate)}", x, rows))
    return Figure(
        title="False alarms by kind of reward",
        x_label="row of the table",
        y_label="measured over requested",
        curves=curves,
        y_log=True,
        caption="With 95 % intervals, which allow for alarms that come in pairs.",
    )
