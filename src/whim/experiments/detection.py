"""``beyond/detection``: how soon changes are detected, how many are missed, and what alarms cost.

Every policy with a detector, on every kind of world that knows its truth. The score test runs as
it comes; each competitor with the best of a few settings (see ``competitors``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, product
from typing import Any

import numpy as np

from whim.evaluate import SimulationResult, simulate
from whim.experiments import formatting as fmt
from whim.experiments.competitors import (
    ADAPTIVE,
    FORCED_GLR,
    ORACLE,
    OURS,
    PAPERS,
    RIVERS,
    Case,
    Competitor,
    competitors,
    tune,
)
from whim.experiments.formatting import alarms, share, total
from whim.experiments.options import Options, after
from whim.experiments.result import Curve, ExperimentResult, Figure, Table
from whim.worlds import DriftingLinear, NewsWorld, PiecewiseLinear, RotatingLinear

K, D, NOISE, PERIOD, HORIZON, QUICK_HORIZON = 10, 5, 0.2, 2000, 20_000, 3_000
_LAWS = {"sphere": "unit sphere", "ball": "unit ball"}
_USERS = {"random": "random users", "fixed": "one user"}
_TIMES = {True: "each arm at its own times", False: "all arms together"}
_MAIN = "unit sphere, random users, each arm at its own times"
_FIXED = "unit sphere, one user, each arm at its own times"
# in the overview; the rest of them only in the tables of the worlds
_SHORT = [
    OURS, ADAPTIVE, PAPERS, "Paper's test, tuned", "CUSUM", *RIVERS, FORCED_GLR,
    "Sliding window", "LinUCB",
]  # fmt: skip
_AT_RATES = "Score test, four rates"
_COLUMNS = [
    "policy", "regret", "detected", "missed", "never played", "delay in plays: median / 90 %",
    "delay in steps: median / 90 %", "false alarms per 10,000 plays",
]  # fmt: skip


def cases(*, quick: bool) -> list[Case]:
    """The worlds, the main one first; four of them if quick."""
    T = QUICK_HORIZON if quick else HORIZON
    linear: dict[str, Any] = {"n_arms": K, "n_features": D, "noise": NOISE}
    worlds = []
    for law, users, own in product(_LAWS, _USERS, _TIMES):
        title = f"{_LAWS[law]}, {_USERS[users]}, {_TIMES[own]}"
        world = PiecewiseLinear(
            **linear, period=PERIOD, asynchronous=own, law=law, users=users,
        )  # fmt: skip
        like = _MAIN if users == "random" else _FIXED
        worlds.append(Case(title, world, T, like="" if like == title else like))
    still = PiecewiseLinear(**linear, period=None, law="sphere")
    clicks = PiecewiseLinear(
        n_arms=K, n_features=D, period=2 * PERIOD, law="sphere", rewards="bernoulli", rate=0.25
    )
    worlds += [
        Case("nothing changes", still, T, like=_MAIN),
        Case("clicks, at a rate of 25 %", clicks, 2 * T, alpha=0.2, clicks=True),
    ]
    if quick:
        titles = (_MAIN, _FIXED, "nothing changes", "clicks, at a rate of 25 %")
        return [case for case in worlds if case.title in titles]
    turning = DriftingLinear(**linear, law="sphere", turn=20_000)
    coming = RotatingLinear(
        n_arms=30, n_features=D, pool_size=K, noise=NOISE, law="sphere", returns="new"
    )
    both = PiecewiseLinear(**linear, n_item_features=5, period=PERIOD, law="sphere")
    news = NewsWorld(n_arms=30, pool_size=10)
    return [
        *worlds,
        Case("interests turn slowly and never jump", turning, T),
        Case("arms come and go, and return changed", coming, T, like=_MAIN),
        Case("hybrid payoffs, each arm at its own times", both, T, alpha=1.5),
        Case("a front page (NewsWorld)", news, 2 * T, alpha=0.2, clicks=True),
    ]


def detection(options: Options) -> ExperimentResult:
    """The tables and figures of ``beyond/detection``."""
    chosen = cases(quick=options.quick)
    runs, tries = options.choose(20, 3), 1 if options.quick else 4
    own = [case for case in chosen if not case.like]
    tuned = tune(
        own,
        options,
        tries,
        options.stage("beyond/detection: settings", len(own)),
        quick=options.quick,
    )
    advance = options.stage("beyond/detection", runs * len(chosen))
    results: dict[str, SimulationResult] = {}
    settings: dict[str, dict[str, dict[str, Any]]] = {}
    for case in chosen:
        tried = tuned[case.like or case.title]
        made = {}
        settings[case.title] = {}
        for label, competitor in competitors(case, quick=options.quick).items():
            best = tried[label][0][0] if label in tried else competitor.grid[0]
            made[label] = competitor.make(case, best)
            settings[case.title][label] = best
        results[case.title] = simulate(
            case.world, made, horizon=case.horizon, runs=runs, seed=options.seed, points=1,
            jobs=options.jobs, progress=after(advance, len(results) * runs),
        )  # fmt: skip
    main = results[_MAIN]
    return ExperimentResult(
        title="Which changes are detected, how soon, and at what cost",
        summary=_summary(main),
        settings={"runs": runs, "runs for settings": tries, "seed": options.seed}
        | {"worlds": {c.title: c.world.describe() | {"horizon": c.horizon} for c in chosen}}
        | {"chosen": settings},
        differences=_DIFFERENCES,
        tables=[
            _overview(results),
            *(_table(case, results[case.title]) for case in chosen),
            _settings(own, tuned),
        ],
        figures=[
            _delays(main, "random users"),
            _delays(results[_FIXED], "one user"),
            _operating(
                {**tuned[_MAIN], _AT_RATES: _rates(chosen[0], options, tries)},
                tries * chosen[0].horizon,
                _regret(main, ORACLE),
            ),
        ],
        headline=[
            (
                "Score test: changes detected, false alarms per 10,000 plays",
                "–",
                f"{share(total(main, OURS))}, {alarms(main, OURS):.2f}",
            )
        ],
    )


def _regret(result: SimulationResult, label: str) -> float:
    return float(result.regret[label][:, -1].mean())


def _two(delays: Sequence[int]) -> str:
    """Median and the value that nine in ten do not exceed."""
    if not delays:
        return "–"
    median, most = np.quantile(delays, [0.5, 0.9], method="inverted_cdf")
    return f"{median:,.0f} / {most:,.0f}"


def _table(case: Case, result: SimulationResult) -> Table:
    rows = []
    for label, competitor in competitors(case).items():
        if label not in result.regret:
            continue
        seen = total(result, label)
        cells = [
            share(seen), share(seen, seen.missed - seen.unplayed), share(seen, seen.unplayed),
            _two(seen.plays), _two(seen.delays), f"{alarms(result, label):.2f}",
        ]  # fmt: skip
        regret = fmt.final_regret(result, label)
        shown = cells if competitor.detects else [""] * len(cells)
        rows.append([label, regret, *shown])
    jumps = result.changes.any()
    return Table(
        title=f"World: {case.title}",
        columns=_COLUMNS,
        rows=rows,
        caption=(
            f"{result.changes.mean():.0f} changes in {case.horizon:,} steps. "
            if jumps
            else "No change to detect: every report counts as a false alarm. "
        )
        + "Delays are of the changes that were found.",
        highlight=[i for i, row in enumerate(rows) if "core test" in row[0]],
    )


def _settings(own: list[Case], tuned: dict[str, dict[str, Any]]) -> Table:
    rows = [
        [case.title, label, _say(tried[0][0])]
        for case in own
        for label, tried in tuned[case.title].items()
    ]
    return Table(
        title="Settings of competitors: the best of those tried, by regret in runs of other seeds",
        columns=["chosen for", "policy", "settings"],
        rows=rows,
        caption="Residual or square: what is watched. Other worlds take those of the first world "
        "with the same kind of users.",
    )


def _say(settings: dict[str, Any]) -> str:
    """Such as ``square, warmup 20, drift 1, threshold 10``."""
    flat = {k: v for k, v in settings.items() if k not in ("settings", "detector", "watch")}
    flat = {**flat, **settings.get("settings", {})}
    first = [settings["watch"]] if "watch" in settings else []
    return ", ".join(
        first + [f"{k} {v:.5g}" if isinstance(v, float) else f"{k} {v}" for k, v in flat.items()]
    )


def _overview(results: dict[str, SimulationResult]) -> Table:
    rows = []
    for title, result in results.items():
        oracle = _regret(result, ORACLE)
        others = [label for label in result.regret if label.startswith("Paper's test, δ")]
        names = [others[0] if label == PAPERS else label for label in _SHORT]
        shown = [name in result.regret for name in names]
        cells = [f"{_regret(result, name) / oracle:.2f}" for name in compress(names, shown)]
        rows.append([title, f"{oracle:,.0f}", *cells])
    columns = ["Paper's test, its δ" if label == PAPERS else label for label in _SHORT]
    columns = list(compress(columns, shown))
    return Table(
        title="Regret, as a multiple of the oracle's",
        columns=["world", "oracle: regret", *columns],
        rows=rows,
        caption="Oracle: LinUCB whose arms are restarted at the true change points. Where "
        "nothing jumps it is LinUCB itself, and detectors may do better than it. Means over runs; "
        "intervals are in the tables below.",
    )


def _delays(result: SimulationResult, users: str) -> Figure:
    """Share of the changes followed by plays that were detected within so many of them."""
    labels = [OURS, PAPERS, "Paper's test, tuned", "CUSUM", *RIVERS]
    labels = [label for label in labels if label in result.regret]
    curves = []
    most = max((p for label in labels for p in total(result, label).plays), default=1)
    x = np.unique(np.geomspace(1, max(most, 2), 80).astype(np.int64))
    for label in labels:
        seen = total(result, label)
        within = np.searchsorted(np.sort(seen.plays), x, side="right")
        could = max(seen.found + seen.missed - seen.unplayed, 1)
        curves.append(Curve(label, x.astype(float).tolist(), (100 * within / could).tolist()))
    return Figure(
        title=f"Changes detected against delay: {users}",
        x_label="plays of the changed arm since its change",
        y_label="share of changes detected, %",
        curves=curves,
        x_log=True,
        caption="Of the changes after which the arm was played at all. Unit sphere, each arm "
        "changing at its own times.",
    )


def _rates(case: Case, options: Options, runs: int) -> list[tuple[dict[str, Any], float, float]]:
    """What ``tune`` returns for a competitor, of the score test at other rates than its default."""
    advance = options.stage("beyond/detection: rates", 1)
    grid = [{"false_alarm": rate} for rate in (1e-3, 1e-4, 1e-5, 1e-6)]
    alone = Competitor(competitors(case)[OURS].make, grid)
    return tune([case], options, runs, advance, {OURS: alone})[case.title][OURS]


def _operating(tried: dict[str, Any], plays: int, oracle: float) -> Figure:
    """Regret against false alarms: the score test at some rates, each competitor's settings."""
    least = 0.5e4 / plays  # half an alarm in all runs: where none was raised
    curves = []
    for label in (_AT_RATES, "Paper's test, tuned", "CUSUM", *RIVERS):
        if label not in tried:
            continue
        points = sorted((max(1e4 * rate, least), regret) for _, regret, rate in tried[label])
        curves.append(Curve(label, [x for x, _ in points], [y for _, y in points], style="points"))
    x = sorted({value for curve in curves for value in curve.x})
    return Figure(
        title="Regret against false alarms: every setting tried",
        x_label="false alarms per 10,000 plays",
        y_label="regret",
        curves=[*curves, Curve(ORACLE, x, [oracle] * len(x), style="reference")],
        x_log=True,
        y_log=True,
        caption="Unit sphere, random users, each arm changing at its own times; means over the "
        "runs in which settings were chosen. The score test at the rates 1e-6, 1e-5 (its default), "
        "1e-4 and 1e-3. A setting without any false alarm is drawn at half a one.",
    )


def _summary(main: SimulationResult) -> str:
    ours = total(main, OURS)
    best = min(
        (label for label in main.regret if label not in (OURS, ADAPTIVE, ORACLE)),
        key=lambda label: _regret(main, label),
    )
    oracle = _regret(main, ORACLE)
    return (
        f"With nothing set, the score test detects {share(ours)} of the changes after "
        f"{_two(ours.plays).split(' /')[0]} plays (the median), with {alarms(main, OURS):.2f} "
        f"false alarms per 10,000 plays. Its regret is {_regret(main, OURS) / oracle:.2f} times "
        f"the oracle's; that of the best competitor, {best}, with settings chosen for this world, "
        f"{_regret(main, best) / oracle:.2f} times. That is with random users, each arm changing "
        f"at its own times."
    )


_DIFFERENCES = [
    "The paper does not score detection; worlds, measures and competitors are ours.",
    "Every competitor with a setting has the best of three to twelve, by regret in runs with "
    "other seeds: chosen anew for random users, for one user, for clicks, for slow turns, for "
    "hybrid payoffs and for the front page. The world in which nothing changes uses those "
    "chosen for random users: nobody knows beforehand that nothing will change. The score "
    "test has its defaults.",
    "CUSUM, Page-Hinkley and ADWIN watch an arm's residuals or their squares, whichever was "
    "better, and restart it from nothing; Page-Hinkley and ADWIN are river's (not with --quick).",
    "A change is detected by the first report of its arm before the arm changes again. "
    "Modified PSLinUCB, M-UCB, DenBand, dLinUCB and the GLR tests report and restart all arms at "
    "once: that is compared with the changes of all arms, and has no delay in plays.",
    "Forced exploration with GLR tests is the scheme of GLR-klUCB (Besson et al. 2022) and of DAL "
    "(Gerogiannis et al.) around LinUCB: bursts of forced plays, one for each candidate, a test "
    "per arm on what they earned, a restart of all arms. Testing squared residuals instead of "
    "rewards, which the papers do not do, is among its settings: a mean over random users hardly "
    "moves.",
    "An arm that is never played after a change cannot be tested: such changes are counted "
    "apart from those that were missed.",
]
