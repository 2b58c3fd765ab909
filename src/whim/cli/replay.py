"""``whim replay``: what policies would have earned on a log, with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from whim.cli.options import Baseline, Jobs, Json, Logging, Plot, Policies, SaveFolder

if TYPE_CHECKING:
    from whim.cli.specs import Source

_WIDEST = 400  # cross features beyond which the usual policies leave the hybrid pair out


def replay(
    log: Annotated[
        str, typer.Argument(metavar="LOG", help="A log's folder, NAME.whim, or its address.")
    ],
    policy: Policies = None,
    logging: Logging = None,
    sample: Annotated[float, typer.Option(help="Share of the events to keep.")] = 1.0,
    runs: Annotated[int, typer.Option(min=1, help="Replays, each of a new sample.")] = 1,
    first: Annotated[float, typer.Option(help="Use this share of the log, from its start.")] = 1.0,
    bins: Annotated[int, typer.Option(min=1, help="Time bins for the rate over time.")] = 40,
    seed: Annotated[int, typer.Option(min=0, help="Seed of samples and policies.")] = 0,
    jobs: Jobs = -1,
    baseline: Baseline = None,
    as_json: Json = False,
    save: SaveFolder = None,
    plot: Plot = None,
) -> None:
    """Replay a log: an event counts where a policy chooses what was shown.

    Without --policy: random, and LinUCB and PSLinUCB with the paper's parameters for Yahoo's
    front page; with disjoint payoffs, and with hybrid ones if the log has item features.
    """
    from whim import checks, logs
    from whim.cli import show, specs
    from whim.cli.progress import bar, processes
    from whim.evaluate import replay as play

    opened = logs.open(log)
    sizes = opened.n_features, opened.n_item_features
    source = specs.Source(opened.path.name, *sizes, knows_truth=False)
    policies: dict[str, Any] = dict(specs.make(policy or _usual(source), source))
    base = checks.choice("baseline", baseline or next(iter(policies)), tuple(policies))
    show.check_targets(save=save, plot=plot)
    jobs = processes(jobs, opened.n_events * first * sample * runs * len(policies))
    with bar(f"replay {opened.path.name}", runs * len(policies)) as progress:
        result = play(
            opened, policies, logging=logging, sample=sample, runs=runs, seed=seed, bins=bins,
            first=first, jobs=jobs, progress=progress,
        )  # fmt: skip
    show.keep(result, save=save, plot=plot)
    rows = result.rows(base)
    if as_json:
        show.print_json({"settings": result.settings, "baseline": base, "policies": rows})
        return
    _print_rates(rows, base)
    scheme = result.settings["logging"]
    if scheme == "propensity":
        _print_estimates(rows)
        for row in rows:
            if row["unknown"]:
                show.say(f"{row['policy']}: unknown, since {row['unknown']}.")
    kept = "" if sample == 1 else f", {100 * sample:g} % of them kept"
    means = {
        "uniform": "CTR is the mean reward of the events in which a policy chose what was shown.",
        "propensity": "CTR is the mean reward of matched events that were learnt; IPS, SNIPS and "
        "DR estimate the value from all events. Effective is their effective sample size, in "
        "events of equal weight; support is the share of events in which a policy's choice could "
        "have been shown.",
        "full": "CTR is the mean reward of all events: the log has every candidate's.",
    }
    over = "over runs" if runs > 1 else "of this run"
    show.say(
        f"{opened.path.name}: {result.settings['events']:,} events{kept}, {opened.n_arms} arms, "
        f"logging {scheme}, {runs} run{'s' if runs > 1 else ''}, seed {seed}. {means[scheme]}\n"
        f"Relative is against {base}; [low, high] are 95 % intervals {over}. Changes are those "
        "that a policy reported, per run."
    )


def _usual(source: Source) -> list[str]:
    usual = [
        "random",
        "LinUCB=linucb-disjoint:alpha=0.2",
        "PSLinUCB=pslinucb-disjoint:alpha=0.2,window=1000,threshold=0.025",
    ]
    if 0 < source.n_features * source.n_item_features <= _WIDEST:
        usual += [
            "LinUCB hybrid=linucb-hybrid:alpha=0.15",
            "PSLinUCB hybrid=pslinucb-hybrid:alpha=0.15,window=1200,threshold=0.03",
        ]
    return usual


def _print_rates(rows: list[dict[str, Any]], baseline: str) -> None:
    from whim.cli.show import compact, count, estimate, percent, print_table

    cells = [
        [
            row["policy"],
            estimate(row, "ctr"),
            "" if row["policy"] == baseline else percent(row, "relative"),
            f"{compact(row['matched'])}/{compact(row['events'])}",
            count(row["changes"]),
        ]
        for row in rows
    ]
    print_table(("policy", "CTR", "relative", "matched", "changes"), cells)


def _print_estimates(rows: list[dict[str, Any]]) -> None:
    from whim.cli.show import compact, estimate, print_table

    names = ("ips", "snips", "dr")
    cells = [
        [
            row["policy"],
            *(estimate(row, n, apart="\n") if n in row else "–" for n in names),
            compact(row["effective"]),
            f"{100 * row['support']:.3g} %",
        ]
        for row in rows
    ]
    typer.echo()
    heads = ("policy", *(name.upper() for name in names), "effective", "support")
    print_table(heads, cells)
