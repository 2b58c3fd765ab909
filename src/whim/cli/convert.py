"""``whim convert``: logged feedback of others' formats into a log that replays fast."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from whim.cli.options import Json

if TYPE_CHECKING:
    from whim.logs import Log

_FORMATS = ("r6a", "r6b", "lastfm", "movielens", "open-bandit", "dsjson", "csv", "parquet", "npz")


def _column(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel="Columns of a CSV or Parquet file")


def _drawn(text: str, least: int | None = None) -> Any:
    return typer.Option(min=least, help=text, rich_help_panel="MovieLens and LastFM")


Text: TypeAlias = str | None
Number: TypeAlias = int | None


def convert(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Files, folders, patterns or addresses such as 's3://bucket/day=*/*.parquet', "
            "read in this order."
        ),
    ],
    to: Annotated[str, typer.Option("--to", help="The log to make, such as r6a.whim.")],
    format: Annotated[
        Text, typer.Option(help=f"{', '.join(_FORMATS)}. Default: auto-detected.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first bad line.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a log that is there already.")
    ] = False,
    jobs: Annotated[
        Number,
        typer.Option(
            help="Processes that convert parts; -1, the default, for one per core. For R6A and "
            "R6B on this machine: threads that parse, 2 by default."
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="What converts parts: local, dask or ray.")] = "local",
    address: Annotated[
        Text, typer.Option(metavar="ADDRESS", help="Of the cluster, tcp://host:8786.")
    ] = None,
    logging: Annotated[
        Text,
        typer.Option(help="How arms were chosen: uniform, propensity or full. Default: by format."),
    ] = None,
    label: Annotated[
        Text,
        _column(
            "The true class, instead of --arm and --reward: one arm per class, 1 for the true."
        ),
    ] = None,
    arm: Annotated[Text, _column("The arm shown.")] = None,
    reward: Annotated[Text, _column("Its reward.")] = None,
    context: Annotated[Text, _column("Features of the user: a,b,c or user_*.")] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            rich_help_panel="Columns of a CSV or Parquet file",
            help="Take those columns as numbers as they are: nothing scaled, no categories, no "
            "constant, rows with gaps dropped.",
        ),
    ] = False,
    category: Annotated[
        Text, _column("Context columns with categories written as numbers.")
    ] = None,
    cyclic: Annotated[
        Text, _column("Cyclic context columns: angle=360,hour. Hours and such are recognised.")
    ] = None,
    features: Annotated[
        Text, _column("Reuse the encoding of a log, or of a JSON file of whim.features.")
    ] = None,
    time: Annotated[Text, _column("The time of the event. Default: the row number.")] = None,
    propensity: Annotated[Text, _column("Probability of the arm shown.")] = None,
    prefix_propensity: Annotated[
        Text, _column("Of lists: probability of the list up to and including the item.")
    ] = None,
    list_id: Annotated[
        Text,
        typer.Option(
            "--list",
            help="The id of the list that a row is part of: one row per shown item.",
            rich_help_panel="Columns of a CSV or Parquet file",
        ),
    ] = None,
    position: Annotated[
        Text, _column("The item's position in its list. Default: the rows' order.")
    ] = None,
    candidates: Annotated[Text, _column("The arms that could be shown: a list, or text.")] = None,
    separator: Annotated[Text, _column("Between them in text. Default: |.")] = None,
    arms: Annotated[
        Text, _column("Without --candidates: all (of the file), seen (so far), or a,b,c.")
    ] = None,
    items: Annotated[Text, _column("A file with a row per arm.")] = None,
    item_id: Annotated[Text, _column("Its column of ids.")] = None,
    item_features: Annotated[Text, _column("Its features: a,b,c or f_*.")] = None,
    seed: Annotated[Number, _drawn("Seed of what is drawn.", 0)] = None,
    n_others: Annotated[Number, _drawn("MovieLens: candidates besides the liked movie.", 1)] = None,
    min_ratings: Annotated[Number, _drawn("MovieLens: leave out rarer movies.", 1)] = None,
    protocol: Annotated[Text, _drawn("LastFM: paper or wu2018.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Anything else that the reader takes: name=value.", metavar="NAME=VALUE"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read logged feedback into a log on disk, and show what was dropped and why.

    If anything goes wrong, no incomplete log is left behind. Several CSV or Parquet files, and
    files at an address, are converted part by part: after Ctrl-C or an error the same command
    resumes with the parts that are done.
    """
    from whim.cli.progress import bar
    from whim.errors import InvalidInputError
    from whim.logs.readers import convert as read
    from whim.logs.readers import format_of, in_parts
    from whim.logs.remote import expand

    flags: dict[str, Any] = {
        "logging": logging, "label": label, "arm": arm, "reward": reward, "time": time,
        "propensity": propensity, "prefix_propensity": prefix_propensity, "list": list_id,
        "position": position,
        "candidates": candidates, "separator": separator, "items": items, "item_id": item_id,
        "context": _list(context), "item_features": _list(item_features), "seed": seed,
        "arms": arms if arms in ("all", "seen", None) else _list(arms), "n_others": n_others,
        "min_ratings": min_ratings, "protocol": protocol, "strict": strict or None,
        "raw": raw or None, "categories": _list(category), "features": features,
        "cyclic": None if cyclic is None else dict(map(_period, _list(cyclic) or [])),
    }  # fmt: skip
    options = {name: value for name, value in flags.items() if value is not None}
    options |= dict(_named(text) for text in option or [])
    kind = format_of(sources) if format is None else format
    files, parts = expand(sources), in_parts(sources, kind)
    if parts:
        jobs = 1 if len(files) == 1 and engine == "local" else -1 if jobs is None else jobs
        options["spread"] = _spread(jobs, engine, address)
    elif engine != "local" or address is not None:
        raise InvalidInputError("engine and address must come with several parts, got one file.")
    elif jobs is not None or kind in ("r6a", "r6b"):
        options["jobs"] = jobs or 2
    try:
        with bar(Path(to).name, sum(file.size or 0 for file in files), in_bytes=True) as advance:
            done = 0

            def more(n: int) -> None:
                nonlocal done
                done += n
                advance(done)

            log = read(sources, to, format=kind, overwrite=overwrite, progress=more, **options)
    except KeyboardInterrupt:
        if parts:
            typer.echo(
                f"stopped; what is done is in {to}.parts: the same command goes on", err=True
            )
        raise
    for line in what_was_done(log, options.get("features")):
        typer.echo(line, err=True)
    if log.logging == "uniform":
        from whim.evaluate.pools import doubted

        if doubt := doubted(log, log.logging):
            typer.echo(f"WARNING: {doubt}", err=True)
    made = summary(log)
    typer.echo(json.dumps(made, indent=2, ensure_ascii=False) if as_json else _text(made))


def _spread(jobs: int, engine: str, address: str | None) -> Callable[..., Any] | None:
    """How parts are converted; ``None`` is one after the other, with finer progress."""
    from whim.cli.progress import processes
    from whim.evaluate import spread

    if engine == "local" and address is None and processes(jobs, math.inf) == 1:
        return None
    return functools.partial(spread, jobs=jobs, engine=engine, address=address)


def what_was_done(log: Log, given: Any = None) -> list[str]:
    """What became of the columns of the context: fitted, or encoded as was ``given``."""
    features = log.features
    if features is None:
        return []
    from whim.logs.encoding import FIT_ROWS

    rows = f"by the first {min(log.meta['read'], FIT_ROWS):,} rows"
    return [
        f"context: {len(features.fields)} columns made {features.size} features, "
        f"{rows if given is None else f'as {given} has them'} (--raw takes columns as they are)",
        *(f"  {line}" for line in features.describe()),
        *_left_out(log, given),
        f"kept in the log: whim.features.load({str(log.path)!r}) encodes other rows the same way",
    ]


def _left_out(log: Log, given: Any) -> list[str]:
    """The columns that nobody named, and that are no features."""
    options = log.meta["source"].get("options", {})
    names = options.get("left_out")
    if not names:
        return []
    why = "dates and times of day, of which hours and weekdays can be made"
    if given is not None:
        why = f"not among the features of {given}"
    elif "label" in options:
        why = "no numbers"
    return [f"  left out: {', '.join(names)}: {why}"]


def summary(log: Log) -> dict[str, Any]:
    """What a conversion made."""
    return {
        "log": str(log.path),
        "reader": log.meta["source"].get("reader"),
        "events": log.n_events,
        "arms": log.n_arms,
        "items": log.n_items,
        "pools": log.n_pools,
        **({"shown_items": log.meta["n_shown"]} if log.has_lists else {}),
        "features": log.n_features,
        "item_features": log.n_item_features,
        "logging": log.logging,
        "read": log.meta["read"],
        "dropped": log.meta["dropped"],
        "warnings": log.meta["warnings"],
    }


def _text(made: dict[str, Any]) -> str:
    lines = [
        f"{made['log']}: {made['events']:,} {_what(made)}, {made['arms']:,} arms, "
        f"{made['pools']:,} pools; logging {made['logging'] or 'unknown'}",
        f"read {made['read']:,} lines as {made['reader']}",
    ]
    dropped: dict[str, int] = made["dropped"]
    lines.append(f"dropped {sum(dropped.values()):,}" + (":" if dropped else ""))
    lines += [f"  {count:>9,}  {reason}" for reason, count in dropped.items()]
    if made["warnings"]:
        lines.append("noticed:")
        lines += [f"  {count:>9,}  {what}" for what, count in made["warnings"].items()]
    return "\n".join(lines)


def _period(text: str) -> tuple[str, float | None]:
    """``hour`` or ``angle=360``."""
    name, equals, period = text.partition("=")
    try:
        return name, float(period) if equals else None
    except ValueError:
        raise typer.BadParameter(f"--cyclic takes NAME=PERIOD, got {text!r}") from None


def _what(made: dict[str, Any]) -> str:
    return f"lists of {made['shown_items']:,} items" if "shown_items" in made else "events"


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _named(text: str) -> tuple[str, Any]:
    """``name=value``: a value that is JSON is that, any other is text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"--option takes NAME=VALUE, got {text!r}")
    try:
        return name.replace("-", "_"), json.loads(value)
    except ValueError:
        return name.replace("-", "_"), value
