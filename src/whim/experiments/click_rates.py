"""What the experiments on logs share: tables of click rates, rates over time, sensitivity."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from whim.evaluate import ReplayResult, replay
from whim.experiments import formatting as fmt
from whim.experiments.options import Options, after
from whim.experiments.result import Curve, ExperimentResult, Figure, Table
from whim.logs import Log
from whim.policies import Policy


class Source(NamedTuple):
    """Logs to replay: one, sampled in each run, or one per run, made by a world.

    ``warning`` says that a stand-in took the place of data; ``said`` describes the logs.
    """

    logs: list[Log]
    sample: float
    runs: int
    warning: str
    said: dict[str, object]


def replay_all(
    source: Source,
    policies: Mapping[str, Policy],
    options: Options,
    advance: Callable[[int], None],
    first: float = 1.0,
) -> ReplayResult:
    """Replay every log; the runs of all logs stand side by side."""
    results = [
        replay(
            log,
            policies,
            sample=source.sample,
            runs=source.runs,
            first=first,
            seed=options.seed,
            jobs=options.jobs,
            progress=after(advance, i * len(policies) * source.runs),
        )
        for i, log in enumerate(source.logs)
    ]
    runs = {label: [run for r in results for run in r.runs[label]] for label in policies}
    return ReplayResult(results[0].settings, runs, separate=len(source.logs) > 1)


def rates(result: ReplayResult, paper: Mapping[str, float], baseline: str, title: str) -> Table:
    """Click rates beside the paper's, in absolute terms and relative to a baseline."""
    base = paper.get(baseline)
    paper_column = [] if base is None else [f"× {baseline}, paper"]
    rows = []
    for label, runs in result.runs.items():
        matched = sum(run.matched for run in runs) / len(runs)
        changes = sum(len(run.changes) for run in runs) / len(runs)
        theirs = paper.get(label)
        multiple = [] if base is None else [f"{theirs / base:.2f}" if theirs else ""]
        rows.append(
            [
                label,
                f"{theirs:.5f}" if theirs else "",
                fmt.rate(result.rate(label)),
                *multiple,
                times(result, label, baseline),
                f"{matched:,.0f}",
                fmt.count(changes) if changes or label.startswith("PS") else "",
            ]
        )
    births = " The changes of DenBand are births of experts." if "DenBand" in result.runs else ""
    return Table(
        title=title,
        columns=[
            "policy", "CTR, paper", "CTR", *paper_column, f"× {baseline}", "events that counted",
            "changes reported",
        ],
        rows=rows,
        caption="Click rate (CTR) with its 95 % interval, and as a multiple of the rate of "
        f"{baseline}. Events that counted and changes reported are means over runs.{births}",
        highlight=[i for i, label in enumerate(result.runs) if label.startswith("PS")],
    )  # fmt: skip


def times(result: ReplayResult, label: str, baseline: str) -> str:
    """A rate as a multiple of another, such as ``1.59 [1.55, 1.63]``."""
    i = result.relative(label, baseline)
    return f"{1 + i.value:.2f} [{1 + i.low:.2f}, {1 + i.high:.2f}]"


def gain_rows(
    result: ReplayResult, pairs: Sequence[tuple[str, str, str]], *, where: str, telling_only: bool
) -> tuple[Table, list[tuple[str, str, str]]]:
    """For each (policy, its stationary twin, the paper's gain): a table and headlines.

    Headlines are of PSLinUCB; ``telling_only`` leaves out gains whose interval says nothing.
    """
    rows, headline = [], []
    for ours, base, paper in pairs:
        gain = result.relative(ours, base)
        rows.append([ours, base, paper, fmt.percent(gain, 1, signed=True)])
        if "PSLinUCB" in ours and (fmt.is_telling(gain) or not telling_only):
            headline.append((f"{where}: {ours} over {base}", paper, rows[-1][3]))
    table = Table(
        title="What adapting to changes is worth",
        columns=["policy", "against", "gain in CTR, paper", "gain in CTR"],
        rows=rows,
        caption="Intervals are 95 %, over paired runs if there are several, else from the events "
        "of the one run.",
        highlight=[i for i, (ours, _, _) in enumerate(pairs) if ours.startswith("PS")],
    )
    return table, headline


def paper_gains(
    result: ReplayResult, pairs: Sequence[tuple[str, str, str]], source: Source, where: str
) -> list[tuple[str, bool]]:
    """Whether PSLinUCB gains what the paper says; none where a stand-in replaced the data."""
    return [
        (
            f"{where}: {ours} over {base} by {paper}, as in the paper",
            100 * result.relative(ours, base).value >= float(paper.rstrip(" %")),
        )
        for ours, base, paper in pairs
        if "PSLinUCB" in ours and not source.warning
    ]


def over_time(result: ReplayResult, labels: Sequence[str], title: str) -> Figure:
    """The average click rate so far against the share of the log, for some policies."""
    curves = []
    for label in labels:
        points = [p for p in result.over_time(label) if p["matched"] >= 100]
        x, y, low, high = ([p[k] for p in points] for k in ("share", "ctr", "ctr_low", "ctr_high"))
        inside = [max(0.0, end) for end in low], [min(1.0, end) for end in high]  # of clicks
        curves.append(Curve(label, [100 * share for share in x], y, *inside))
    return Figure(
        title=title, x_label="share of the log, %", y_label="average CTR so far", curves=curves,
        caption="Average over the events that counted so far, with 95 % bands." + _hidden(curves),
    )  # fmt: skip


def _hidden(curves: Sequence[Curve]) -> str:
    """Says of a line that cannot be seen where it lies."""
    under = [
        f" {b.label} lies on {a.label}: the same choices."
        for a, b in itertools.combinations(curves, 2)
        if a.y == b.y
    ]
    return "".join(under)


def sensitivity(
    source: Source,
    policies: Mapping[str, Policy],
    windows: Sequence[int],
    thresholds: Sequence[float],
    *,
    first: float,
    options: Options,
    name: str,
    title: str,
    difference: str,
) -> ExperimentResult:
    """Vary ω of PSLinUCB at its own δ, and δ at its own ω; LinUCB is its stationary twin."""
    twins = {f"PSLinUCB-{payoff}": f"LinUCB-{payoff}" for payoff in ("Disjoint", "Hybrid")}
    bases = {base: policies[base] for base in twins.values()}
    made: dict[str, Policy] = dict(bases)
    by_window: dict[str, list[tuple[float, str]]] = {}
    by_threshold: dict[str, list[tuple[float, str]]] = {}
    for label in twins:
        own = policies[label].params
        pairs = [(w, own["threshold"], w, by_window) for w in windows]
        pairs += [(own["window"], t, t, by_threshold) for t in thresholds]  # type: ignore[misc]
        for w, t, value, series in pairs:
            one = f"{label}, ω = {w}, δ = {t:g}"
            made[one] = type(policies[label])(**own | {"window": w, "threshold": t})
            series.setdefault(label, []).append((value, one))
    advance = options.stage(name, len(made) * source.runs * len(source.logs))
    result = replay_all(source, made, options, advance, first)
    spans = []
    for label in twins:
        rates = [result.rate(one).value for _, one in by_window[label] + by_threshold[label]]
        least, most = min(rates), max(rates)
        spans.append(f"{most - least:.4f} for {label} ({least:.4f} to {most:.4f})")
    rows = [[one, fmt.rate(result.rate(one)), _gain(result, one, bases)] for one in made]
    return ExperimentResult(
        title=title,
        summary="Over the values of ω and δ tried, click rates differ by at most "
        f"{' and '.join(spans)}.",
        settings=source.said
        | {"first": first, "sample": source.sample, "seed": options.seed}
        | {"windows": list(windows), "thresholds": list(thresholds)},
        differences=[
            "The paper does not say which values it tried; ω is varied at its δ, and δ at its ω.",
            difference,
        ],
        warning=source.warning,
        tables=[Table("Click rates", ["policy", "CTR", "against LinUCB"], rows, "95 % intervals.")],
        figures=[
            _sensitivity(result, "the window ω", "ω, plays", by_window, twins),
            _sensitivity(result, "the threshold δ", "δ", by_threshold, twins),
        ],
    )


def _gain(result: ReplayResult, label: str, bases: Mapping[str, Policy]) -> str:
    if label in bases:
        return ""
    payoff = label.split(",")[0].removeprefix("PS")
    return fmt.percent(result.relative(label, payoff), 1, signed=True)


def _sensitivity(
    result: ReplayResult,
    axis: str,
    symbol: str,
    series: Mapping[str, Sequence[tuple[float, str]]],
    bases: Mapping[str, str],
) -> Figure:
    """Click rate against one parameter; each series is (value, label of its replay)."""
    curves = []
    for name, points in series.items():
        x = [float(value) for value, _ in points]
        curves.append(fmt.points(name, x, [result.rate(label) for _, label in points]))
        base = result.rate(bases[name])
        curves.append(Curve(bases[name], x, [base.value] * len(x), style="reference"))
    return Figure(
        title=f"Click rate against {axis}",
        x_label=symbol,
        y_label="CTR",
        curves=curves,
        caption="Markers: PSLinUCB with 95 % intervals. Lines: LinUCB with the same payoff, "
        "which has no such parameter.",
    )
