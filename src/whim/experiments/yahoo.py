"""``yahoo/table`` and ``yahoo/sensitivity``: ten policies replayed on a front page's log.

Yahoo's log R6A may not be redistributed: with the user's own copy under ``--data`` it is what is
replayed, a tenth of its visits as in the paper; without one a log of ``NewsWorld`` stands in, and
everything that is shown says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

import whim.policies as whim
from whim import logs
from whim.evaluate.store import code_digest
from whim.experiments import click_rates
from whim.experiments.options import Options
from whim.experiments.result import ExperimentResult
from whim.logs import yahoo
from whim.worlds import NewsWorld

D = 6
PAPER = {
    "Random": 0.03541, "UCB": 0.04002, "MUCB": 0.04058, "LinUCB-Uniform": 0.04121,
    "DenBand": 0.04353, "LinUCB-Disjoint": 0.05491, "PSLinUCB-Disjoint": 0.05639,
    "LinUCB-Hybrid": 0.05638, "PSLinUCB-Hybrid": 0.05711,
}  # fmt: skip
_PAIRS = [
    ("MUCB", "UCB", "+1.4 %"),
    ("DenBand", "LinUCB-Uniform", "+5.6 %"),
    ("PSLinUCB-Disjoint", "LinUCB-Disjoint", "+2.7 %"),
    ("PSLinUCB-Hybrid", "LinUCB-Hybrid", "+1.3 %"),
]
# events of a stand-in: as many as the paper's sample of visits, or a fraction
EVENTS, QUICK_EVENTS = 4_581_188, 600_000
QUICK_ARTICLES = 60  # of 271, so that an article is shown about as often
_STAND_IN = (
    "Made with a stand-in: a simulated front page (NewsWorld), not Yahoo's log, which may not be "
    "redistributed. Compare the order of policies with the paper's, not the numbers; with your "
    "own copy of R6A: --data DIR."
)


def policies() -> dict[str, whim.Policy]:
    """The paper's policies: those of its Table 1, with its parameters, and the theorem's."""
    return {
        "Random": whim.Random(),
        "UCB": whim.UCB(),
        "MUCB": whim.MUCB(window=500, threshold=21.0, gamma=0.02),
        "LinUCB-Uniform": whim.LinUCBUniform(n_item_features=D, alpha=0.2),
        "DenBand": whim.DenBand(
            n_item_features=D, alpha=0.2, ridge=1.0, tau=1000, delta_l=0.04, sigma=0.19,
            kappa=3.0, gate_window=500, gate_threshold=0.06, max_experts=20,
        ),
        "LinUCB-Disjoint": whim.LinUCBDisjoint(n_features=D, alpha=0.2),
        "PSLinUCB-Disjoint": whim.PSLinUCBDisjoint(
            n_features=D, alpha=0.2, window=1000, threshold=0.025
        ),
        "LinUCB-Hybrid": whim.LinUCBHybrid(n_features=D, n_item_features=D, alpha=0.15),
        "PSLinUCB-Hybrid": whim.PSLinUCBHybrid(
            n_features=D, n_item_features=D, alpha=0.15, window=1200, threshold=0.03
        ),
        "Modified PSLinUCB": whim.ModifiedPSLinUCB(
            n_features=D, alpha=0.2, window=1000, b=0.025, c=0.025, gamma=0.02
        ),
    }  # fmt: skip


def source(options: Options, *, full: int, quick: int) -> click_rates.Source:
    """The user's log if there is one, else logs of the news world; so many runs."""
    files = _files(options.data)
    runs = options.choose(full, quick)
    if files:
        log = _converted(files, options)
        said = {"log": "Yahoo R6A", "files": [f.name for f in files], "events": log.n_events}
        said["dropped"] = log.meta["dropped"]
        return click_rates.Source([log], 0.02 if options.quick else 0.1, runs, "", said)
    events = QUICK_EVENTS if options.quick else EVENTS
    world = NewsWorld(n_arms=QUICK_ARTICLES) if options.quick else NewsWorld()
    made = [_stand_in(world, events, options, run) for run in range(runs)]
    said = {"log": "stand-in", "world": world.describe(), "events": events, "logs": runs}
    return click_rates.Source(made, 1.0, 1, _STAND_IN, said)


def _files(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    days: dict[str, Path] = {}
    for path in sorted(folder.rglob("ydata-fp-td-clicks-v1_0.*")):
        named = re.fullmatch(r"ydata-fp-td-clicks-v1_0\.(\d{8})(\.gz)?", path.name)
        if named and path.is_file():
            days.setdefault(named[1], path)  # a day that is there twice is read once
    return [days[day] for day in sorted(days)]


def _converted(files: list[Path], options: Options) -> logs.Log:
    """The columns of these files; kept, and made anew only if the files change."""
    marks = [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files]
    stamp = json.dumps([code_digest(), marks])
    target = options.work / f"yahoo-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}.whim"
    if target.is_dir():
        return logs.open(target)
    advance = options.stage("converting R6A", sum(f.stat().st_size for f in files))
    done = [0]

    def more(read: int) -> None:
        done[0] += read
        advance(done[0])

    jobs = os.cpu_count() or 1 if options.jobs == -1 else options.jobs
    return yahoo.convert(files, target, format="r6a", jobs=jobs, progress=more)


def _stand_in(world: NewsWorld, events: int, options: Options, run: int) -> logs.Log:
    """A log of the news world; kept, and made anew only if the world or the seed changes."""
    target = options.work / f"news-{run}.whim"
    source = {
        "reader": "NewsWorld", "world": world.describe(), "events": events, "seed": options.seed,
        "run": run, "code": code_digest(),
    }  # fmt: skip
    if target.is_dir():
        log = logs.open(target)
        if log.meta["source"] == source:
            return log
    made = world.columns(events=events, seed=options.seed, run=run)
    with logs.Writer(
        target, n_features=D, n_item_features=D, logging="uniform", source=source, overwrite=True
    ) as writer:
        writer.block(
            time=made.time, context=made.contexts, pool=made.pool_of, logged=made.logged,
            reward=made.clicks, pool_offsets=made.offsets, pool_items=made.members,
            item_arm=made.ids.tolist(), item_features=made.features,
        )  # fmt: skip
    return logs.open(target)


def table(options: Options) -> ExperimentResult:
    """Table 1 and the figure of click rate over time."""
    origin, made = source(options, full=5, quick=3), policies()
    advance = options.stage("yahoo/table", len(made) * origin.runs * len(origin.logs))
    result = click_rates.replay_all(origin, made, options, advance)
    where = "Simulated front page" if origin.warning else "Yahoo"
    gains, headline = click_rates.gain_rows(
        result, _PAIRS, where=where, telling_only=options.quick and bool(origin.warning)
    )
    replays = len(result.runs["Random"])
    plain = ["Random", "UCB", "MUCB", "LinUCB-Uniform", "DenBand"]
    shown = ["Random", *(label for label in made if label not in plain)]
    best = max(made, key=lambda label: result.rate(label).value)
    multiple = click_rates.times(result, best, "Random")
    return ExperimentResult(
        title="Click rates on a front page",
        summary=f"{where}: the highest click rate is that of {best}, {multiple} "
        f"times that of random choice ({replays} {'replay' if replays == 1 else 'replays'}).",
        settings=origin.said
        | {"sample": origin.sample, "runs": len(result.runs["Random"]), "seed": options.seed}
        | {"policies": {label: repr(p) for label, p in made.items()}},
        differences=_differences(origin),
        warning=origin.warning,
        tables=[click_rates.rates(result, PAPER, "Random", "Table 1 of the paper"), gains],
        figures=[
            click_rates.over_time(
                result, shown, "Click rate over time: disjoint and hybrid payoffs"
            ),
            click_rates.over_time(
                result, plain, "Click rate over time: no context, uniform payoffs"
            ),
        ],
        headline=headline,
        targets=click_rates.paper_gains(result, _PAIRS, origin, where),
    )


def sensitivity(options: Options) -> ExperimentResult:
    """Click rate against ω and δ on the first half of the log."""
    origin = source(options, full=3, quick=1)
    return click_rates.sensitivity(
        origin, policies(),
        [600, 1000, 1400] if options.quick else [400, 600, 800, 1000, 1200, 1400],
        [0.02, 0.03, 0.04] if options.quick else [0.015, 0.02, 0.025, 0.03, 0.035, 0.04], first=0.5,
        options=options, name="yahoo/sensitivity", title="How much ω and δ matter on a front page",
        difference=_differences(origin)[0],
    )  # fmt: skip


def _differences(origin: click_rates.Source) -> list[str]:
    sentences = [
        "Each visit counts once, in time order, and only if a policy chooses what was shown.",
        "The paper gives no parameters for UCB, M-UCB and DenBand: UCB is UCB1, M-UCB has a "
        "window of 500 and a threshold of 21 clicks (five standard deviations at a rate of 3.5 %; "
        "its theory's threshold could never be reached), DenBand is the version that averages "
        "residuals over a window.",
        "The uniform payoff is one coefficient vector over the articles' features, without the "
        "user's, as the paper's text implies.",
        "An arm's first full window is not counted as a change.",
        "The modified PSLinUCB, which the paper analyses and does not measure, is added, with "
        "ω = 1,000, b + c = 0.05 and γ = 0.02 of our choice.",
    ]
    if origin.warning:
        sentences[0] = (
            "The log is simulated: as many visits as the paper's sample of Yahoo's log (a fraction "
            "of them, and 60 of 271 articles, with --quick), 20 articles at a time, each article's "
            "appeal changing at times of its own. Each run has a log of its own."
        )
    return sentences
