"""``whim replay``: what policies would have earned on a log, with intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from whim.cli.options import Baseline, Jobs, Json, Logging, Plot, Policies, SaveFolder

if TYPE_CHECKING:
    from whim.cli.specs import Source
    from whim.logs import Log

_LISTS = "Logs of lists"
# beyond them the usual policies leave out those whose models would take hours or gigabytes
_WIDEST = 400  # cross features, for the hybrid pair
_LONGEST = 100  # features of a context, for AdaptiveLinUCB: it has ten models per arm
_UNEVEN = 1.5  # times as many candidates, from which the click rate of a uniform log leans


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
    k: Annotated[
        int | None,
        typer.Option(
            "--k", min=1, help="Lists: look at the first k positions.", rich_help_panel=_LISTS
        ),
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            help="Lists: prefix (as far as lists agree) or list (whole ones). Default: prefix.",
            rich_help_panel=_LISTS,
        ),
    ] = None,
    feedback: Annotated[
        str | None,
        typer.Option(
            help="Lists: cascade, semi or positions. Default: cascade.", rich_help_panel=_LISTS
        ),
    ] = None,
    examine: Annotated[
        str | None,
        typer.Option(
            metavar="1,0.6,…",
            help="For positions: chances of being seen, from the top.",
            rich_help_panel=_LISTS,
        ),
    ] = None,
    jobs: Jobs = -1,
    baseline: Baseline = None,
    as_json: Json = False,
    save: SaveFolder = None,
    plot: Plot = None,
) -> None:
    """Replay a log: an event counts where a policy chooses what was shown.

    Without --policy: random; LinUCB and PSLinUCB with the paper's parameters for Yahoo's front
    page, with disjoint payoffs, and with hybrid ones if the log has item features; and
    AdaptiveLinUCB, up to 100 context features.
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
            first=first, jobs=jobs, progress=progress, k=k, match=match, feedback=feedback,
            examine=_numbers(examine),
        )  # fmt: skip
    show.keep(result, save=save, plot=plot)
    rows = result.rows(base)
    if as_json:
        show.print_json({"settings": result.settings, "baseline": base, "policies": rows})
        return
    _print_rates(rows, base)
    _say_if_overruled(opened, result.settings["logging"])
    if result.settings["doubt"]:
        show.say(f"WARNING: {result.settings['doubt']}")
    if opened.has_lists:
        _print_list_estimates(rows)
        _say_about_lists(opened, result.settings, base)
        _say_about_pools(result.settings, "slots")
        return
    scheme = result.settings["logging"]
    if scheme == "propensity" or _leans(result.settings):
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
    _say_about_pools(result.settings, "SNIPS")


def _say_if_overruled(log: Log, scheme: str) -> None:
    from whim.cli.show import say

    if log.logging == "propensity" != scheme:
        say(
            f"{log.path.name} says that its logging is propensity. As {scheme} these numbers lean "
            "towards what it showed often, unless all probabilities in it are alike."
        )


def _leans(settings: dict[str, Any]) -> bool:
    """Whether counting what matches gives events with few candidates much more weight."""
    fewest, most = settings["candidates"]
    return bool(settings["logging"] == "uniform" and most > _UNEVEN * fewest)


def _say_about_pools(settings: dict[str, Any], name: str) -> None:
    from whim.cli.show import say

    if _leans(settings):
        fewest, most = settings["candidates"]
        say(
            f"Events have {fewest} to {most} candidates. With few a policy's choice matches more "
            f"often, so CTR leans towards them; {name} weighs that out."
        )


def _numbers(text: str | None) -> list[float] | None:
    from whim.errors import InvalidInputError

    try:
        return None if text is None else [float(word) for word in text.split(",")]
    except ValueError:
        raise InvalidInputError(
            f"examine must be numbers with commas between them, got {text!r}."
        ) from None


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
    if source.n_features <= _LONGEST:
        usual.append("AdaptiveLinUCB=adaptive-linucb")
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


_LIST_NAMES = {
    "slots": "slots", "rips": "RIPS", "cdr": "cascade DR", "pi": "pseudo-inverse", "ips": "IPS",
}  # fmt: skip


def _print_list_estimates(rows: list[dict[str, Any]]) -> None:
    from whim.cli.show import compact, estimate, print_table, say

    cells = [
        [
            row["policy"] if name == "slots" else "",
            shown,
            "unknown" if row[f"{name}_unknown"] else estimate(row, name),
            compact(row[f"{name}_effective"]),
            f"{100 * row[f'{name}_support']:.3g} %",
        ]
        for row in rows
        for name, shown in _LIST_NAMES.items()
    ]
    typer.echo()
    print_table(("policy", "estimate", "reward of a list", "effective", "support"), cells, left=2)
    for row in rows:
        why: dict[str, list[str]] = {}
        for name, shown in _LIST_NAMES.items():
            if row[f"{name}_unknown"]:
                why.setdefault(row[f"{name}_unknown"], []).append(shown)
        for reason, names in why.items():
            say(f"{row['policy']}: {', '.join(names)} unknown, since {reason}.")


def _say_about_lists(log: Log, settings: dict[str, Any], base: str) -> None:
    from whim.cli.show import say

    counted = {
        "prefix": "Items count from the top down as far as a policy's list agrees with the one "
        "shown; CTR is the sum over positions of their mean reward.",
        "list": "Lists count that a policy would have shown just so; CTR is their mean reward.",
    }
    say(
        f"{log.path.name}: {settings['events']:,} lists of up to {settings['k']} items, "
        f"{log.n_arms} arms, logging {settings['logging']}, feedback {settings['feedback']}, "
        f"seed {settings['seed']}. {counted[settings['match']]}\n"
        "The estimates are of the reward of a list, from all lists, each with its effective sample "
        "size. They are right if an item's reward depends on: itself and its position (slots); "
        "also on the items above it (RIPS, cascade DR); if a list's reward is a sum over its "
        "positions (pseudo-inverse); always (IPS).\n"
        f"Relative is against {base}; [low, high] are 95 % intervals."
    )
