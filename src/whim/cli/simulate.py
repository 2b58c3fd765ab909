"""``whim simulate``: PSLinUCB against LinUCB where interests change, and a table of regret."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from whim.evaluate import SimulationResult

__all__ = ["simulate"]

_BASELINE = "LinUCB"


def simulate(
    runs: Annotated[int, typer.Option(min=1, help="Independent runs.")] = 10,
    horizon: Annotated[int, typer.Option(min=1, help="Steps of a run, T.")] = 20_000,
    arms: Annotated[int, typer.Option(min=1, help="Arms, K.")] = 10,
    features: Annotated[int, typer.Option(min=1, help="Length of a context, d.")] = 5,
    period: Annotated[int, typer.Option(min=1, help="Steps between an arm's changes.")] = 2000,
    law: Annotated[str, typer.Option(help="ball, sphere or nonnegative vectors.")] = "ball",
    users: Annotated[str, typer.Option(help="random users, or one fixed user.")] = "fixed",
    synchronous: Annotated[
        bool, typer.Option("--synchronous", help="All arms change together.")
    ] = False,
    noise: Annotated[float, typer.Option(min=0, help="Standard deviation of rewards.")] = 0.2,
    alpha: Annotated[float, typer.Option(min=0, help="Exploration α of every policy.")] = 1.0,
    window: Annotated[int, typer.Option(min=2, help="PSLinUCB's window ω.")] = 100,
    threshold: Annotated[float, typer.Option(help="PSLinUCB's threshold δ.")] = 0.35,
    seed: Annotated[int, typer.Option(min=0, help="Of the worlds.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="For a script to read.")] = False,
) -> None:
    """Play PSLinUCB, LinUCB and a policy that is told the truth on the paper's disjoint world.

    The defaults are the paper's synthetic experiment (ten runs of its hundred) with each arm
    changing at its own times.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    import whim
    from whim.evaluate import simulate as play
    from whim.worlds import PiecewiseLinear

    world = PiecewiseLinear(
        n_arms=arms,
        n_features=features,
        period=period,
        asynchronous=not synchronous,
        law=law,
        users=users,
        noise=noise,
    )
    policies: dict[str, Any] = {
        _BASELINE: whim.LinUCBDisjoint(n_features=features, alpha=alpha),
        "PSLinUCB": whim.PSLinUCBDisjoint(
            n_features=features, alpha=alpha, window=window, threshold=threshold
        ),
        "told the truth": lambda episode: whim.OracleRestart(
            policy=whim.LinUCBDisjoint(n_features=features, alpha=alpha), changes=episode.changes
        ),
    }
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        steps = runs * len(policies) * horizon
        task = bar.add_task(f"{runs} runs × {len(policies)} policies", total=steps)
        result = play(
            world,
            policies,
            horizon=horizon,
            runs=runs,
            seed=seed,
            progress=lambda steps: bar.advance(task, steps),
        )
    rows = _rows(result)
    if as_json:
        settings = {"runs": runs, "horizon": horizon, "seed": seed, "world": str(world)}
        typer.echo(json.dumps({"settings": settings, "policies": rows}, indent=2))
        return
    kind = "one fixed user" if users == "fixed" else "random users"
    when = "together" if synchronous else "each at its own times"
    _print(
        rows,
        result,
        f"{runs} runs of {horizon:,} steps, seed {seed}: {arms} arms, {features} features "
        f"({law}), {kind}, noise {noise:g}; arms change every {period:,} steps, {when}",
    )


def _rows(result: SimulationResult) -> list[dict[str, Any]]:
    from whim.evaluate import gain, mean_interval

    rows = []
    for label, curve in result.regret.items():
        final, baseline = curve[:, -1], result.regret[_BASELINE][:, -1]
        rows.append(
            {
                "policy": label,
                "regret": mean_interval(final)._asdict(),
                "saved": None if label == _BASELINE else gain(final, baseline)._asdict(),
                "found": float(result.found[label].mean()),
                "false_alarms": float(result.false_alarms[label].mean()),
            }
        )
    return rows


def _print(rows: list[dict[str, Any]], result: SimulationResult, title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, padding=(0, 1), show_edge=False)
    for heading in ("policy", "regret", "saved", "found", "false"):
        table.add_column(heading, justify="left" if heading == "policy" else "right", no_wrap=True)
    there_were = result.changes.mean()
    for row in rows:
        regret, saved = row["regret"], row["saved"]
        cells = ["", "", ""]
        if saved is not None:
            low, high = 100 * saved["low"], 100 * saved["high"]
            cells[0] = f"{100 * saved['value']:.0f} % [{low:.0f}, {high:.0f}]"
        if row["policy"].startswith("PS"):
            cells[1:] = [f"{row['found']:.1f} of {there_were:.0f}", f"{row['false_alarms']:.1f}"]
        spread = f"{regret['value']:,.0f} [{regret['low']:,.0f}, {regret['high']:,.0f}]"
        table.add_row(row["policy"], spread, *cells)
    console = Console()
    console.print(table)
    console.print(
        f"\n{title}.\nRegret is expected reward lost against the best arm; saved is against "
        f"{_BASELINE}; [low, high] are 95 % intervals over runs. Found and false: changes reported "
        "that there were, and that there were not.\n'told the truth' restarts "
        "LinUCB at the true change points: the reference for every detector.",
        highlight=False,
        markup=False,
    )
