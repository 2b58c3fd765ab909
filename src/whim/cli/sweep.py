"""``whim sweep``: a policy over every combination of parameters; can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from whim.cli.options import Jobs, Json, Logging, WorldSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whim.cli.specs import Source, Spec
    from whim.evaluate import Interval, TaskStore

_STORE = Path(".whim-sweeps")
_HORIZON = 20_000


def sweep(
    policy: Annotated[
        str, typer.Option(metavar="SPEC", help="NAME[:param=value,...] with what does not vary.")
    ],
    vary: Annotated[
        list[str],
        typer.Option(metavar="NAME=VALUE,...", help="A parameter's values; may be repeated."),
    ],
    world: Annotated[
        str | None, typer.Option(help="piecewise, drifting, rotating, reversing, grouped or news.")
    ] = None,
    set_: WorldSettings = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Steps of a run in a world. Default: 20000.")
    ] = None,
    log: Annotated[
        str | None, typer.Option(metavar="LOG", help="Replay this log instead of a world.")
    ] = None,
    logging: Logging = None,
    sample: Annotated[
        float | None, typer.Option(help="Share of the log's events. Default: 1.")
    ] = None,
    first: Annotated[
        float | None, typer.Option(help="Share of the log, from its start. Default: 1.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each combination.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed; the same for all combinations.")] = 0,
    jobs: Jobs = -1,
    engine: Annotated[str, typer.Option(help="local, dask or ray.")] = "local",
    address: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Of the cluster, tcp://host:8786.")
    ] = None,
    store: Annotated[
        Path, typer.Option(metavar="DIR", help="Where finished runs are stored.")
    ] = _STORE,
    as_json: Json = False,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE.parquet", help="Write a row for each run.")
    ] = None,
) -> None:
    """Run a policy with every combination of parameters, in a world or over a log.

    Finished runs are stored in a folder and not repeated: after Ctrl-C the same command resumes,
    and a wider sweep runs only what is new.
    """
    from whim.cli import show, specs
    from whim.errors import InvalidInputError
    from whim.evaluate import TaskStore, grid

    _check_save(save)
    axes = specs.axes(vary)
    spec = specs.parse_policy(policy)
    for name in axes.keys() & spec.params.keys():
        raise InvalidInputError(f"{name} must be in --policy or in --vary, got both.")
    of_log = {"logging": logging, "sample": sample, "first": first}
    work = _work(world, {"set": set_ or None, "horizon": horizon}, log, of_log)
    combinations = grid(axes)
    tasks = [
        {**work.base, "policy": made, "seed": seed, "run": run}
        for made in _made(spec, combinations, work.source)
        for run in range(runs)
    ]
    kept = TaskStore(store)
    if store == _STORE:
        (store / ".gitignore").write_text("*\n")  # results are not for a repository
    results = _run(work, tasks, kept, jobs=jobs, engine=engine, address=address)
    groups = [results[i : i + runs] for i in range(0, len(results), runs)]
    each = [
        {**combination, "run_seed": seed, "run": run, **result}
        for combination, group in zip(combinations, groups, strict=True)
        for run, result in enumerate(group)
    ]
    if save is not None:
        _write(each, save)
    rows = [
        _summary(combination, group, work.metric, sample or 1.0)
        for combination, group in zip(combinations, groups, strict=True)
    ]
    best = _best(rows, work.metric)
    if as_json:
        about = {"policy": spec.name, "params": spec.params, "seed": seed, "store": str(store)}
        show.print_json({"settings": {**about, **work.base}, "best": best, "rows": rows})
        return
    _print(rows, list(axes), work.metric, best)
    _explain(spec, work, runs, seed)


class _Work(NamedTuple):
    """What every task does, the settings that all share, what they meet, and its length."""

    function: Callable[[dict[str, Any]], dict[str, Any]]
    base: dict[str, Any]
    source: Source
    steps: float
    metric: str


def _work(
    world: str | None, of_world: dict[str, Any], log: str | None, of_log: dict[str, Any]
) -> _Work:
    from whim import logs
    from whim.cli import specs
    from whim.errors import InvalidInputError
    from whim.evaluate.tasks import log_run, log_settings, world_run

    if (world is None) == (log is None):
        came = "neither" if log is None else "both"
        raise InvalidInputError(f"world or log must be given, one of the two, got {came}.")
    other, owner = (of_world, "world") if world is None else (of_log, "log")
    for name, value in other.items():
        if value is not None:
            raise InvalidInputError(f"{name} must come with --{owner}, got {value!r} without it.")
    if world is not None:
        _, params, source = specs.world(world, specs.settings("set", of_world["set"] or []))
        horizon = of_world["horizon"] or _HORIZON
        base = {"world": params, "horizon": horizon}
        return _Work(world_run, base, source, horizon, "regret")
    opened = logs.open(str(log))
    options = {name: value for name, value in of_log.items() if value is not None}
    base = log_settings(opened, **options)
    sizes = opened.n_features, opened.n_item_features
    source = specs.Source(opened.path.name, *sizes, knows_truth=False)
    steps = opened.n_events * base["sample"] * base["first"]
    return _Work(log_run, base, source, steps, "ctr")


def _made(spec: Spec, combinations: list[dict[str, Any]], source: Source) -> list[dict[str, Any]]:
    """The policy of each combination; all are tried before the first run."""
    from whim.cli import specs
    from whim.evaluate.tasks import make_policy

    policies = []
    for combination in combinations:
        params = specs.complete(spec.name, {**spec.params, **combination}, source)
        make_policy(spec.name, params)
        policies.append({"name": spec.name, "params": params})
    return policies


def _run(
    work: _Work, tasks: list[dict[str, Any]], kept: TaskStore, *, jobs: int, **where: Any
) -> list[Any]:
    """Run what is not in the store yet, and report how much was, also when stopped."""
    from whim.cli.progress import bar, processes
    from whim.evaluate import spread

    left = [task for task in tasks if kept.get(work.function, task) is None]
    done = len(tasks) - len(left)
    typer.echo(f"{len(tasks)} runs, {done} of them done already in {kept.path}", err=True)
    jobs = processes(jobs, work.steps * len(left))
    if left and work.metric == "regret" and where.get("engine", "local") == "local":
        _say_how_long(work, left, jobs)
    try:
        with bar(f"sweep in {work.source.what}", len(tasks)) as progress:
            return spread(work.function, tasks, jobs=jobs, store=kept, progress=progress, **where)
    except KeyboardInterrupt:
        typer.echo(f"stopped; what is done is in {kept.path}: the same command goes on", err=True)
        raise


def _say_how_long(work: _Work, left: list[dict[str, Any]], jobs: int) -> None:
    """Forecast the runs in a world that are left, by a short one in the middle of them."""
    from whim.cli.forecast import say_how_long

    task = left[len(left) // 2]

    def trial(*, horizon: int, runs: int) -> None:
        for _ in range(runs):
            work.function({**task, "horizon": horizon})

    say_how_long(trial, horizon=int(work.steps), runs=len(left), policies=1, jobs=jobs)


def _summary(
    combination: dict[str, Any], runs: Sequence[dict[str, Any]], metric: str, sample: float
) -> dict[str, Any]:
    """One row of the table: means over runs."""
    import numpy as np

    from whim.evaluate.simulation_result import columns

    row = {**combination, **columns(metric, _interval(runs, metric, sample)), "runs": len(runs)}
    more = ["reward", "changes"]
    more += ["found", "missed", "false_alarms"] if metric == "regret" else ["events", "matched"]
    return row | {name: float(np.mean([run[name] for run in runs])) for name in more}


def _interval(runs: Sequence[dict[str, Any]], metric: str, sample: float) -> Interval:
    """Over runs; of a single replay its own, from its events, which is in that of several too."""
    import numpy as np

    from whim.evaluate import Interval, mean_interval
    from whim.evaluate.intervals import of_one_log

    over_runs = mean_interval(np.array([run[metric] for run in runs]))
    if metric == "regret":
        return over_runs
    single = [Interval(*(run[f"ctr{end}"] for end in ("", "_low", "_high"))) for run in runs]
    return single[0] if len(runs) == 1 else of_one_log(over_runs, single, sample)


def _best(rows: list[dict[str, Any]], metric: str) -> int | None:
    """The row with the least regret or the highest rate."""
    sign = 1 if metric == "regret" else -1
    known = [(sign * row[metric], i) for i, row in enumerate(rows) if row[metric] == row[metric]]
    return min(known)[1] if known else None


def _print(rows: list[dict[str, Any]], names: list[str], metric: str, best: int | None) -> None:
    from whim.cli.show import compact, count, estimate, print_table

    cells = []
    for i, row in enumerate(rows):
        mark = "best" if i == best else ""
        line = [*(str(row[name]) for name in names), estimate(row, metric, significant=4), mark]
        if metric == "regret":
            there = count(row["found"] + row["missed"])
            line += [f"{count(row['found'])} of {there}", count(row["false_alarms"])]
        else:
            line.append(f"{compact(row['matched'])}/{compact(row['events'])}")
            line.append(count(row["changes"]))
        cells.append(line)
    last = ("found", "false") if metric == "regret" else ("matched", "changes")
    title = "regret" if metric == "regret" else "CTR"
    print_table((*names, title, "", *last), cells, left=len(names))


def _explain(spec: Spec, work: _Work, runs: int, seed: int) -> None:
    from whim.cli.show import say

    fixed = ", ".join(f"{name} {value}" for name, value in spec.params.items())
    over = "over runs" if runs > 1 or work.metric == "regret" else "of the events"
    say(
        f"{spec.name}{f' ({fixed})' if fixed else ''} in {work.source.what}; {runs} "
        f"run{'s' if runs > 1 else ''} each, seed {seed}; means with 95 % intervals {over}. All "
        "combinations meet the same runs. The best of many is flattered by chance: try it with "
        "another seed."
    )


def _check_save(save: Path | None) -> None:
    from whim.cli.show import check_writable
    from whim.errors import InvalidInputError

    if save is None:
        return
    if save.is_dir() or not save.parent.is_dir():
        raise InvalidInputError(f"save must be a file in a folder that exists, got {str(save)!r}.")
    check_writable("save", save, save.parent)


def _write(rows: list[dict[str, Any]], path: Path) -> None:
    from whim.extras import require
    from whim.files import write_atomic

    polars = require("polars", "logs", "Tables need")
    frame = polars.DataFrame(rows, infer_schema_length=None, strict=False)
    write_atomic(path, frame.write_parquet)
    typer.echo(f"saved: {path}", err=True)
