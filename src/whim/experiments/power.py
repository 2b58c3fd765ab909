"""``beyond/power``: the score test with nothing set, against the paper's test and an oracle.

Each line has the bar that it was promised to stay under.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import whim.policies as whim
from whim.evaluate import SimulationResult, simulate
from whim.evaluate.intervals import ratio_interval
from whim.evaluate.tasks import OracleMaker
from whim.experiments import formatting as fmt
from whim.experiments.options import Options, after
from whim.experiments.result import ExperimentResult, Table
from whim.worlds import PiecewiseLinear

D, M, HORIZON = 5, 5, 20_000
_OURS, _ORACLE = "score test", "oracle"
_WORLD = PiecewiseLinear(n_arms=10, n_features=D, period=2000, noise=0.2, law="sphere")


class _Line(NamedTuple):
    """A world, and the most that regret may be as a multiple of another policy's."""

    title: str
    world: PiecewiseLinear
    bars: dict[str, float]
    hybrid: bool = False


def _lines() -> list[_Line]:
    papers = "paper's test, ω = 100, δ = 0.35"
    return [
        _Line("random users, unit sphere", _WORLD, {papers: 0.22, _ORACLE: 1.5}),
        _Line("random users, unit ball", replace(_WORLD, law="ball"), {papers: 0.35}),
        _Line("one user, unit sphere", replace(_WORLD, users="fixed"), {papers: 0.85}),
        _Line("one user, unit ball", replace(_WORLD, users="fixed", law="ball"), {papers: 0.85}),
        _Line("nothing changes", replace(_WORLD, period=None), {"LinUCB": 1.1}),
        _Line(
            "hybrid payoffs, random users, unit sphere",
            replace(_WORLD, n_item_features=M),
            {"paper's test, ω = 100, δ = 0.4": 0.4, _ORACLE: 1.5},
            hybrid=True,
        ),
    ]


def _policies(line: _Line) -> dict[str, Any]:
    ps: Callable[..., whim.Policy] = whim.PSLinUCBHybrid if line.hybrid else whim.PSLinUCBDisjoint
    lin: Callable[..., whim.Policy] = whim.LinUCBHybrid if line.hybrid else whim.LinUCBDisjoint
    items = {"n_item_features": M} if line.hybrid else {}
    sizes: dict[str, Any] = {"n_features": D, **items, "alpha": 1.5 if line.hybrid else 1.0}
    base, delta = lin(**sizes), 0.4 if line.hybrid else 0.35
    return {
        _OURS: ps(**sizes),
        f"paper's test, ω = 100, δ = {delta}": ps(**sizes, window=100, threshold=delta),
        _ORACLE: OracleMaker(base.name, sizes),
        "LinUCB": base,
    }


def power(options: Options) -> ExperimentResult:
    """Ratios of regret with their intervals, the bars, and whether they are met."""
    runs = options.choose(50, 10)
    lines = _lines()
    advance = options.stage("beyond/power", runs * len(lines))
    results = [
        simulate(
            line.world, _policies(line), horizon=HORIZON, runs=runs, seed=options.seed,
            jobs=options.jobs, progress=after(advance, i * runs),
        )
        for i, line in enumerate(lines)
    ]  # fmt: skip
    rows, met = _rows(lines, results)
    count = len(rows)
    return ExperimentResult(
        title="What detecting every change is worth",
        summary=f"With nothing set, the score test has {rows[0][3]} times the regret of the "
        f"paper's test and {rows[1][3]} times that of an oracle that knows the changes (random "
        f"users, unit sphere, {runs} runs). {met} of {count} bars are met.",
        settings={"runs": runs, "seed": options.seed, "horizon": HORIZON}
        | {"worlds": {line.title: line.world.describe() for line in lines}}
        | {"policies": {line.title: {k: repr(p) for k, p in _policies(line).items()}
                        for line in (lines[0], lines[-1])}},
        differences=[
            "The paper has no such test; worlds are those of its appendix, with random users and "
            "arms that change at times of their own where not said otherwise.",
            "α = 1 (hybrid: 1.5) for all policies of a line, as in the paper. The score test knows "
            "neither the noise nor how often interests change.",
        ],
        tables=[
            Table(
                title="Regret of the score test as a multiple of others'",
                columns=["world", "against", "bar", "ratio", "met"],
                rows=rows,
                caption="Ratio of mean regrets after 20,000 steps with its 95 % interval over "
                "paired runs. Met: the ratio is at most the bar; surely: its interval is as well.",
            ),
            _regrets(lines, results),
        ],
        figures=[
            fmt.regret_over_time(result, f": {line.title}")
            for line, result in zip(lines, results, strict=True)
            if line.world.period is not None  # else all curves are one
        ],
        headline=[
            (f"Regret, score test ÷ {other.split(',')[0]}: {line}", "–", ratio)
            for line, other, _, ratio, _ in rows
            if not options.quick or "[1.000, 1.000]" not in ratio  # the same choices throughout
        ],
        targets=[
            (f"regret {bar} of {other.split(',')[0]}: {line}", verdict != "no")
            for line, other, bar, _, verdict in rows
        ],
    )  # fmt: skip


def _rows(lines: list[_Line], results: list[SimulationResult]) -> tuple[list[list[str]], int]:
    rows, met = [], 0
    for line, result in zip(lines, results, strict=True):
        for other, bar in line.bars.items():
            ratio = ratio_interval(result.regret[_OURS][:, -1], result.regret[other][:, -1])
            met += ratio.value <= bar
            sure = "yes, surely" if ratio.high <= bar else "yes"
            rows.append(
                [
                    line.title, other, f"≤ {bar}", fmt.fixed(ratio, 3),
                    sure if ratio.value <= bar else "no",
                ]
            )  # fmt: skip
    return rows, met


def _regrets(lines: list[_Line], results: list[SimulationResult]) -> Table:
    rows = []
    for line, result in zip(lines, results, strict=True):
        for label in result.regret:
            reports = label == _OURS or label.startswith("paper")
            share, false = fmt.share(fmt.total(result, label)), fmt.alarms(result, label)
            rows.append(
                [
                    line.title, label, fmt.final_regret(result, label),
                    share if reports else "", f"{false:.2f}" if reports else "",
                ]
            )  # fmt: skip
    return Table(
        title="Regret after 20,000 steps",
        columns=["world", "policy", "regret", "changes detected", "false alarms per 10,000 plays"],
        rows=rows,
        caption="Means over runs with 95 % intervals. The score test revisits arms that "
        "are not played (by default); changes of arms never played cannot be detected.",
        highlight=[i for i, row in enumerate(rows) if row[1] == _OURS],
    )
