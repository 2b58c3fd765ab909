"""``whim simulate``: policies in a world whose interests change, and a table of regret."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whim.cli.options import Baseline, Jobs, Json, Plot, Policies, SaveFolder, WorldSettings

if TYPE_CHECKING:
    from whim.cli.specs import Source

# steps of a run: clicks are rare, and what changes between them shows late
_HORIZON = {"news": 50_000}
# α, ω, δ of the paper: synthetic rewards; clicks, disjoint and hybrid (Yahoo)
_LINEAR = (1.0, 100, 0.35)
_CLICKS = {"disjoint": (0.2, 1000, 0.025), "hybrid": (0.15, 1200, 0.03)}


def simulate(
    policy: Policies = None,
    world: Annotated[
        str, typer.Option(help="piecewise, drifting, rotating, reversing, grouped or news.")
    ] = "piecewise",
    set_: WorldSettings = None,
    runs: Annotated[int, typer.Option(min=1, help="Independent runs.")] = 10,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Steps of a run, T. Default: 20,000; news: 50,000.")
    ] = None,
    arms: Annotated[int | None, typer.Option(min=1, help="Arms, K. Default: 10.")] = None,
    features: Annotated[
        int | None, typer.Option(min=1, help="Length of a context, d. Default: 5.")
    ] = None,
    period: Annotated[
        int | None, typer.Option(min=1, help="Steps between an arm's changes. Default: 2000.")
    ] = None,
    law: Annotated[
        str | None,
        typer.Option(help="Contexts drawn from a ball, sphere or nonnegative. Default: ball."),
    ] = None,
    users: Annotated[
        str | None,
        typer.Option(
            help="random users, or one fixed user. Default: fixed if piecewise, else random."
        ),
    ] = None,
    synchronous: Annotated[
        bool, typer.Option("--synchronous", help="All arms change together.")
    ] = False,
    noise: Annotated[
        float | None, typer.Option(min=0, help="Standard deviation of rewards. Default: 0.2.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(min=0, help="Exploration α, without --policy. Default: 1.")
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(min=2, help="Window ω of the paper's test, without --policy. Default: 100."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Threshold δ of the paper's test, without --policy. Default: 0.35."),
    ] = None,
    baseline: Baseline = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the worlds.")] = 0,
    jobs: Jobs = -1,
    as_json: Json = False,
    save: SaveFolder = None,
    plot: Plot = None,
) -> None:
    """Run policies in a world whose true rewards are known, and compare their regret.

    Without --policy: LinUCB, PSLinUCB with its defaults and with the paper's test,
    AdaptiveLinUCB, and an oracle. The world is by default that of the paper's synthetic
    experiment (ten runs of its hundred) with each arm changing at its own times.
    """
    from whim import checks
    from whim.cli import show, specs
    from whim.cli.forecast import say_how_long
    from whim.cli.progress import bar, processes
    from whim.errors import InvalidInputError
    from whim.evaluate import simulate as play

    flags: dict[str, Any] = {
        "n_arms": arms, "n_features": features, "period": period, "law": law, "users": users,
        "noise": noise, "asynchronous": False if synchronous else None,
    }  # fmt: skip
    chosen = {name: value for name, value in flags.items() if value is not None}
    more = specs.settings("set", set_ or [])
    for name in chosen.keys() & more.keys():
        raise InvalidInputError(f"{name} must be given once, got it by its option and by --set.")
    made, params, source = specs.world(world, chosen | more)
    own = {"alpha": alpha, "window": window, "threshold": threshold}
    own = {name: value for name, value in own.items() if value is not None}
    if policy and own:
        raise InvalidInputError(
            f"{', '.join(own)} must be given within --policy, as in NAME:{next(iter(own))}=VALUE."
        )
    policies = specs.make(policy or _usual(source, params, own), source)
    first = checks.choice("baseline", baseline or next(iter(policies)), tuple(policies))
    show.check_targets(save=save, plot=plot)
    horizon = horizon or _HORIZON.get(world, 20_000)
    jobs = processes(jobs, runs * horizon * len(policies))
    trial = functools.partial(play, made, policies, seed=seed)
    say_how_long(trial, horizon=horizon, runs=runs, policies=len(policies), jobs=jobs)
    with bar(f"{len(policies)} policies, run", runs) as progress:
        result = play(
            made, policies, horizon=horizon, runs=runs, seed=seed, jobs=jobs, progress=progress
        )
    show.keep(result, save=save, plot=plot)
    rows = result.rows(first)
    if as_json:
        show.print_json({"settings": result.settings, "baseline": first, "policies": rows})
        return
    _print_regret(rows, first)
    _print_changes(rows)
    words = [f"{name} {value}" for name, value in params.items() if name != "kind"]
    show.say(
        f"{runs} runs of {horizon:,} steps, seed {seed}, {world} world. "
        f"{result.settings['world']['what']} ({', '.join(words)})\n"
        f"Regret is expected reward lost against the best arm; saved is against {first}; "
        "[low, high] are 95 % intervals over runs. Detected, missed and false are changes per run; "
        "the delay is a median."
        + (
            "\nThe oracle restarts LinUCB at the true change points: the reference for "
            "every detector."
            if "oracle" in policies
            else ""
        )
    )


def _usual(source: Source, params: dict[str, Any], own: dict[str, Any]) -> list[str]:
    """LinUCB, PSLinUCB as by default and as in the paper, AdaptiveLinUCB and the oracle."""
    payoff = "hybrid" if source.n_item_features else "disjoint"
    clicks = params["kind"] == "news" or params.get("rewards") == "bernoulli"
    usual = _CLICKS[payoff] if clicks else _LINEAR
    alpha, window, threshold = (
        own.get(name, value)
        for name, value in zip(("alpha", "window", "threshold"), usual, strict=True)
    )
    policies = [
        f"LinUCB=linucb-{payoff}:alpha={alpha}",
        f"PSLinUCB=pslinucb-{payoff}:alpha={alpha}",
        f"PSLinUCB (paper)=pslinucb-{payoff}:alpha={alpha},window={window},threshold={threshold}",
        "AdaptiveLinUCB=adaptive-linucb",
    ]
    if params["kind"] != "drifting":  # it has no change points
        policies.append(f"oracle=oracle-restart:policy=linucb-{payoff},alpha={alpha}")
    return policies


def _print_regret(rows: list[dict[str, Any]], baseline: str) -> None:
    from whim.cli.show import estimate, percent, print_table

    cells = [
        [
            row["policy"],
            estimate(row, "regret", significant=4),
            "" if row["policy"] == baseline else percent(row, "saved"),
            estimate(row, "reward"),
        ]
        for row in rows
    ]
    print_table(("policy", "regret", "saved", "reward per step"), cells)


def _print_changes(rows: list[dict[str, Any]]) -> None:
    """How changes were detected, for the policies that reported any."""
    from whim.cli.show import count, print_table

    cells = [
        [
            row["policy"],
            f"{count(row['found'])} of {count(row['found'] + row['missed'])}",
            count(row["missed"]),
            count(row["false_alarms"]),
            count(row["delay_median"]),
            count(row["delay_plays_median"]),
        ]
        for row in rows
        if row["found"] or row["false_alarms"]
    ]
    if cells:
        typer.echo()
        heads = ("policy", "detected", "missed", "false", "delay in steps", "in plays")
        print_table(heads, cells)
