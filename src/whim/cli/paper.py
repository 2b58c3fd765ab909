"""``whim paper``: the paper's experiments, from one command to one report."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from whim.cli.options import Jobs, Json


def paper(
    experiment: Annotated[
        str, typer.Argument(help="An id such as synthetic/disjoint, a group such as yahoo, or all.")
    ] = "all",
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Fewer runs, shorter logs, no beyond/groups: takes minutes."),
    ] = False,
    runs: Annotated[int | None, typer.Option(min=1, help="Runs, instead of the usual.")] = None,
    jobs: Jobs = -1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of worlds, samples and policies.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results, logs made on the way and the report. Default: whim-paper, "
            "or whim-paper-quick."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with your copies of Yahoo R6A, HetRec LastFM and streams (*.npz). "
            "Default: $WHIM_DATA."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a long run.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    as_json: Json = False,
) -> None:
    """Run the paper's experiments and make one page of the results.

    Each experiment is stored when it is done, and the page is made of what is stored: after an
    interruption nothing that was finished is lost.
    """
    from rich.console import Console

    from whim.cli import show
    from whim.cli.progress import stages
    from whim.errors import InvalidInputError
    from whim.experiments import EXPERIMENTS, ExperimentResult, Options, compile_loops, run, select
    from whim.extras import require_all
    from whim.report import headline_table, read_folder, write_report

    if listed:
        typer.echo("\n".join(EXPERIMENTS))
        return
    require_all("report", "The report needs")  # rather now than after an hour
    ids = select(experiment, quick=quick)
    out = out or Path("whim-paper-quick" if quick else "whim-paper")
    if data is None and os.environ.get("WHIM_DATA"):
        data = Path(os.environ["WHIM_DATA"])
    if data is not None and not data.is_dir():
        raise InvalidInputError(f"data must be a folder, got {data}.")
    show.check_folder("out", out)
    _agree(ids, quick=quick, out=out, yes=yes)
    results: list[ExperimentResult] = []
    with stages() as bar:
        options = Options(
            quick=quick, runs=runs, jobs=jobs, seed=seed, data=data, work=out / "logs",
            stage=bar.stage,
        )  # fmt: skip
        (out / "logs").mkdir(parents=True, exist_ok=True)
        page = out / "report.html"
        for name in ids:
            if len(ids) > 1 and len(results) < 2:
                compile_loops(options, first=not results)
            result = run(name, options)
            result.save(out / f"{name.replace('/', '-')}.json")
            results.append(result)
            bar.say(f"{name}: {result.summary} ({result.seconds:.0f} s)")
            if len(results) in (1, len(ids)):  # the first figures early, all at the end
                bar.stage("writing the report", 1)
                write_report(read_folder(out), page)
                bar.say(f"figures so far: {page}" if len(results) < len(ids) else "")
    if as_json:
        rows = [
            {"experiment": f.id, "what": what, "paper": theirs, "ours": ours}
            for f in results
            for what, theirs, ours in f.headline
        ]
        typer.echo(json.dumps({"report": str(page), "headline": rows}, indent=2))
        return
    Console().print(headline_table(results))
    typer.echo(f"\nReport: {page}")


def _agree(ids: list[str], *, quick: bool, out: Path, yes: bool) -> None:
    """Say how long it takes in full; on a terminal, begin only if that is welcome."""
    if quick:
        return
    from whim.cli.forecast import in_words

    known = [_seconds(out / f"{name.replace('/', '-')}.json") for name in ids]
    if all(seconds is not None for seconds in known):
        took = in_words(sum(seconds or 0.0 for seconds in known))
        said = f"this took {took} when {out} was made"
    elif len(ids) > 1:
        said = f"{len(ids)} experiments in full take about an hour on two cores"
    else:
        said = f"{ids[0]} in full may take a quarter of an hour"
    typer.echo(f"{said}; --quick takes minutes. What is finished is kept after Ctrl-C.", err=True)
    if len(ids) > 1 and not yes and sys.stdin.isatty() and sys.stderr.isatty():
        typer.confirm("Begin?", default=True, abort=True, err=True)


def _seconds(file: Path) -> float | None:
    """What an experiment took that was run before."""
    try:
        return float(json.loads(file.read_text(encoding="utf-8"))["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
