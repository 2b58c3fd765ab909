"""``lastfm/table`` and ``lastfm/sensitivity``: the artist that a listener hears next.

With the HetRec 2011 LastFM files under ``--data`` (a folder ``hetrec2011-lastfm-2k``, or the files
themselves) these are what is used; without them a made-up community stands in, and everything
that is shown says so. Choices that the paper leaves open are argued in docs/lastfm.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import whim.policies as whim
from whim.evaluate import ReplayResult
from whim.experiments import click_rates
from whim.experiments import formatting as fmt
from whim.experiments.options import Options, after
from whim.experiments.result import ExperimentResult, Table
from whim.logs import lastfm
from whim.worlds import Listeners

D = M = 10
PAPER = {
    "LinUCB-Disjoint": 0.03341, "PSLinUCB-Disjoint": 0.03408,
    "LinUCB-Hybrid": 0.04046, "PSLinUCB-Hybrid": 0.04143,
}  # fmt: skip
# clicks among 93,165 events that Wu et al. 2018 published for "Dense 10"
PUBLISHED = {"Random": 0.0397, "LinUCB-Uniform": 0.2208, "dLinUCB": 0.2365}
_PAIRS = [
    ("PSLinUCB-Disjoint", "LinUCB-Disjoint", "+2.0 %"),
    ("PSLinUCB-Hybrid", "LinUCB-Hybrid", "+2.4 %"),
]
_STAND_IN = (
    "Made with a stand-in: a made-up music community, not LastFM's data, which are not part of "
    "Whim. The numbers cannot be compared with the paper's; with your own copy of HetRec 2011 "
    "LastFM 2k: --data DIR."
)


def policies() -> dict[str, whim.Policy]:
    """The policies of the paper's Table 2 and random choice, with its parameters."""
    return {
        "Random": whim.Random(),
        "LinUCB-Disjoint": whim.LinUCBDisjoint(n_features=D, alpha=0.15),
        "PSLinUCB-Disjoint": whim.PSLinUCBDisjoint(
            n_features=D, alpha=0.15, window=1200, threshold=0.035
        ),
        "LinUCB-Hybrid": whim.LinUCBHybrid(n_features=D, n_item_features=M, alpha=0.2),
        "PSLinUCB-Hybrid": whim.PSLinUCBHybrid(
            n_features=D, n_item_features=M, alpha=0.2, window=1000, threshold=0.02
        ),
    }


def _wu() -> dict[str, whim.Policy]:
    """Policies of Wu et al. 2018, one model of the artists' features for all."""
    return {
        "Random": whim.Random(),
        "LinUCB-Uniform": whim.LinUCBUniform(n_item_features=25, alpha=0.3, ridge=0.1),
        "dLinUCB": whim.DynamicLinUCB(
            n_item_features=25, alpha=0.3, ridge=0.1, tau=30, delta1=0.1, sigma=0.2
        ),
    }


def source(
    options: Options, protocol: str, *, full: int, quick: int, order: str = "user"
) -> click_rates.Source:
    """Logs of one protocol, one per run: the order of users and the pools are drawn anew."""
    folder = _folder(options)
    real = folder is not None
    runs = options.choose(full, quick)
    if folder is None:
        folder = Listeners().write(options.work / "listeners", seed=options.seed)
    settings: dict[str, Any] = {"protocol": protocol, "order": order}
    if not real:  # as many candidates and events as the made-up community has
        settings |= {"min_listeners": 20} if protocol == "paper" else {"dense": 3}
    elif options.quick and protocol == "paper":
        settings["passes"] = 1
    made = []
    for run in range(runs):
        target = (
            options.work / f"lastfm-{'real' if real else 'made-up'}-{protocol}-{order}-{run}.whim"
        )
        made.append(
            lastfm.convert(
                folder, target, **settings, seed=1000 * options.seed + run, overwrite=True
            )
        )
    said = {"log": "HetRec 2011 LastFM 2k" if real else "stand-in", **settings, "logs": runs}
    said["events"] = made[0].n_events
    return click_rates.Source(made, 1.0, 1, "" if real else _STAND_IN, said)


def _folder(options: Options) -> Path | None:
    if options.data is None:
        return None
    files = sorted(options.data.rglob("user_artists.dat"))
    return files[0].parent if files else None


def table(options: Options) -> ExperimentResult:
    """Table 2 of the paper, and the published clicks of Wu et al. 2018."""
    origin, made = source(options, "paper", full=5, quick=3), policies()
    wu, theirs = source(options, "wu2018", full=5, quick=3), _wu()
    runs = len(origin.logs)
    advance = options.stage("lastfm/table", (len(made) + len(theirs)) * runs)
    result = click_rates.replay_all(origin, made, options, advance)
    other = click_rates.replay_all(wu, theirs, options, after(advance, len(made) * runs))
    where = "Made-up listeners" if origin.warning else "LastFM"
    gains, headline = click_rates.gain_rows(
        result, _PAIRS, where=where, telling_only=options.quick and bool(origin.warning)
    )
    gain, gain_h = (row[-1] for row in gains.rows)
    return ExperimentResult(
        title="Which artist next? Click rates on LastFM",
        summary=f"{where}: adapting moves the click rate by {gain} under disjoint and by {gain_h} "
        f"under hybrid payoffs ({runs} {'log' if runs == 1 else 'logs'}); the paper: +2.0 % and "
        "+2.4 %.",
        settings={"paper's protocol": origin.said, "Wu et al.'s protocol": wu.said}
        | {"runs": runs, "seed": options.seed}
        | {"policies": {label: repr(p) for label, p in (made | theirs).items()}},
        differences=_differences(bool(origin.warning)),
        warning=origin.warning,
        tables=[
            click_rates.rates(result, PAPER, "Random", "Table 2 of the paper"),
            gains,
            _published(other),
        ],
        figures=[click_rates.over_time(result, list(made), "Click rate over time")],
        headline=headline,
        targets=click_rates.paper_gains(result, _PAIRS, origin, where),
    )


def _published(result: ReplayResult) -> Table:
    rows = []
    for label, runs in result.runs.items():
        hits = sum(run.total for run in runs) / len(runs)
        events = sum(run.events for run in runs) / len(runs)
        rows.append(
            [
                label,
                f"{100 * PUBLISHED[label]:.1f} %",
                fmt.percent(result.rate(label), 1),
                f"{hits:,.0f} of {events:,.0f}",
            ]
        )
    return Table(
        title="The protocol of Wu et al. 2018: 25 candidates, users in sequence, one shared model",
        columns=["policy", "clicks, published", "clicks", "number"],
        rows=rows,
        caption="Published: “Dense 10”, 93,165 events; without the file of the original times "
        "there are a few less. dLinUCB's noise parameter is not published; ours was the best of "
        "five tried on such logs.",
    )


def sensitivity(options: Options) -> ExperimentResult:
    """Click rate against ω and δ."""
    origin = source(options, "paper", full=3, quick=1)
    return click_rates.sensitivity(
        origin, policies(),
        [100, 400, 1200] if options.quick else [100, 200, 400, 800, 1200],
        [0.02, 0.035] if options.quick else [0.015, 0.02, 0.025, 0.03, 0.035], first=1.0,
        options=options, name="lastfm/sensitivity", title="How much ω and δ matter on LastFM",
        difference=_differences(bool(origin.warning))[0],
    )  # fmt: skip


def _differences(stand_in: bool) -> list[str]:
    sentences = [
        "The paper does not say its pool size, its number of passes or its order: here all 126 "
        "artists are candidates, there are two passes (one with --quick), and users come one "
        "after the other, so that each new one is a change (docs/lastfm.md).",
        "Users' vectors are made, as in the paper, from the very records that a policy is then "
        "asked to guess: compare policies, do not read the rates as those of new users.",
        "Wu et al.'s events follow dates instead of instants for 1.9 % of the taggings.",
    ]
    if stand_in:
        sentences[0] = (
            "The community is made up: 400 users of eight tastes, 60 artists, in the files of the "
            "HetRec data and through the same steps (features, protocols, replay)."
        )
        del sentences[2]
    return sentences
