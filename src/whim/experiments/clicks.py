"""``beyond/clicks``: click rates of the score test as it comes, against the paper's tuned δ.

LastFM (or its stand-in, see ``lastfm``) is replayed; the front page is the simulated ``NewsWorld``
itself, in which every choice is answered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import whim.policies as whim
from whim.evaluate import Interval, mean_interval, simulate
from whim.evaluate.intervals import ratio_interval
from whim.experiments import click_rates, lastfm, yahoo
from whim.experiments import formatting as fmt
from whim.experiments.options import Options
from whim.experiments.result import ExperimentResult, Table
from whim.types import F64
from whim.worlds import NewsWorld

# visits of the front page: as many as replay keeps of the paper's sample of Yahoo's log
VISITS, QUICK_VISITS = 229_059, 8_000
_PAYOFFS = ("Disjoint", "Hybrid")


class _Rates(NamedTuple):
    """Of one place: for each policy the click rate of each run, and changes reported per run."""

    where: str
    rate: dict[str, F64]
    reports: dict[str, float]


def clicks(options: Options) -> ExperimentResult:
    """Click rates of both tests, with disjoint and hybrid payoffs."""
    origin = lastfm.source(options, "paper", full=10, quick=2)
    made = _policies(lastfm.policies(), lastfm.D, lastfm.M)
    advance = options.stage("beyond/clicks: LastFM", len(made) * len(origin.logs))
    replayed = click_rates.replay_all(origin, made, options, advance)
    heard = _Rates(
        "made-up listeners" if origin.warning else "LastFM",
        {b: np.array([run.rate for run in runs]) for b, runs in replayed.runs.items()},
        {b: float(np.mean([len(r.changes) for r in runs])) for b, runs in replayed.runs.items()},
    )
    world = NewsWorld(n_arms=yahoo.QUICK_ARTICLES) if options.quick else NewsWorld()
    visits, runs = QUICK_VISITS if options.quick else VISITS, options.choose(20, 10)
    pages = _policies(yahoo.policies(), yahoo.D, yahoo.D)
    page = simulate(
        world, pages, horizon=visits, runs=runs, seed=options.seed, jobs=options.jobs,
        progress=options.stage("beyond/clicks: front page", runs),
    )  # fmt: skip
    seen = page.detections.items()
    reports = {b: float(np.mean([d.found + d.false_alarms for d in some])) for b, some in seen}
    read = _Rates("front page", page.reward, reports)
    table, gains = _table([heard, read])
    return ExperimentResult(
        title="Clicks without tuning: the score test against the paper's δ",
        summary=_summary(gains),
        settings={"LastFM": origin.said, "front page": world.describe() | {"visits": visits}}
        | {"runs on the front page": runs, "seed": options.seed}
        | {"policies": {f"LastFM, {b}": repr(p) for b, p in made.items()}}
        | {"policies on the front page": {b: repr(p) for b, p in pages.items()}},
        differences=[
            "The paper's test has the ω and δ that the paper reports for LastFM and for Yahoo; "
            "the score test has none.",
            "The front page is simulated and answers every choice, so that no visit is wasted: as "
            "many visits as replay keeps of the paper's sample of Yahoo's log (fewer with "
            "--quick). Runs are paired: both tests meet the same visits.",
        ],
        warning=origin.warning,
        tables=[table],
        figures=[
            click_rates.over_time(replayed, list(made), f"Click rate over time: {heard.where}"),
            fmt.regret_over_time(
                page,
                ": front page",
                x_label="visit",
                y_label="clicks lost against the best article",
            ),
        ],
        headline=[(f"CTR, score test over tuned δ: {label}", "–",
                   fmt.percent(i, 1, signed=True)) for label, i in gains
                  if fmt.is_telling(i) or not options.quick],
    )  # fmt: skip


def _summary(gains: list[tuple[str, Interval]]) -> str:
    verdicts = [_verdict(gain) for _, gain in gains]
    each = "; ".join(f"{label} {fmt.percent(i, 1, signed=True)}" for label, i in gains)
    return (
        f"With nothing set, the score test earns more clicks than the paper's test with its tuned "
        f"ω and δ in {verdicts.count('better')} of {len(gains)} comparisons, fewer in "
        f"{verdicts.count('worse')}, and no fewer as far as the runs can tell in "
        f"{verdicts.count('no worse')}. Click rates differ by: {each}."
    )


def _name(payoff: str, test: str) -> str:
    return f"{payoff}, {test}"


def _policies(papers: dict[str, whim.Policy], d: int, m: int) -> dict[str, whim.Policy]:
    """The paper's policies, and the same with the score test."""
    made = {}
    for payoff in _PAYOFFS:
        tuned = papers[f"PSLinUCB-{payoff}"]
        alpha = tuned.params["alpha"]
        made[_name(payoff, "tuned δ")] = tuned
        made[_name(payoff, "score test")] = (
            whim.PSLinUCBDisjoint(n_features=d, alpha=alpha)
            if payoff == "Disjoint"
            else whim.PSLinUCBHybrid(n_features=d, n_item_features=m, alpha=alpha)
        )
    return made


def _table(places: list[_Rates]) -> tuple[Table, list[tuple[str, Interval]]]:
    rows, gains = [], []
    for where, rate, reports in places:
        for payoff in _PAYOFFS:
            tuned, ours = _name(payoff, "tuned δ"), _name(payoff, "score test")
            ratio = ratio_interval(rate[ours], rate[tuned])
            beyond = Interval(*(part - 1 for part in ratio))
            gains.append((f"{where}, {payoff.lower()}", beyond))
            rows.append(
                [
                    where, payoff.lower(), _verdict(beyond), fmt.percent(beyond, 1, signed=True),
                    fmt.rate(mean_interval(rate[tuned])), fmt.rate(mean_interval(rate[ours])),
                    _points(mean_interval(rate[ours] - rate[tuned])),
                    fmt.count(reports[tuned]), fmt.count(reports[ours]),
                ]
            )  # fmt: skip
    table = Table(
        title="Click rates",
        columns=[
            "where", "payoff", "score test", "relative difference", "CTR, tuned δ",
            "CTR, score test", "difference", "changes reported, tuned δ",
            "changes reported, score test",
        ],
        rows=rows,
        caption="Means over runs with 95 % intervals; differences are over paired runs. Changes "
        "reported are means of a run. No worse: the interval of the relative difference reaches 0.",
    )  # fmt: skip
    return table, gains


def _points(i: Interval) -> str:
    """A difference of click rates, such as ``+0.0012 [−0.0003, +0.0027]``."""
    value, low, high = (f"{part:+.4f}".replace("-", "−") for part in i)
    return value + fmt.between("nan" if "nan" in low else low, high)


def _verdict(beyond: Interval) -> str:
    if beyond.low != beyond.low:
        return "–"  # one run has no interval
    if beyond.low > 0:
        return "better"
    return "worse" if beyond.high < 0 else "no worse"
