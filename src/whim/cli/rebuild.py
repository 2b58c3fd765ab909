"""``whim rebuild``: the whole log replayed, compared with the last snapshot and the rest."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whim.cli.options import DATA, DataDir, Json
from whim.errors import InvalidInputError

if TYPE_CHECKING:
    from whim.serve.log.reader import LogReader
    from whim.serve.log.rows import ConfigRow


def rebuild(
    data: DataDir = DATA,
    space: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this space; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay the whole log and compare with the state of a restart; exit code 1 if they differ.

    Nothing is written, and the service may be running. A restart uses the last snapshot and the
    rows after it; both ways must give the same state, bit for bit. Where retention has removed
    rows, what was learnt from them is stored in the log as a base, from which the replay starts.
    """
    from whim.cli.progress import bar
    from whim.cli.serve import needed
    from whim.cli.show import print_json

    needed()
    from whim.serve.log.configs import open_spaces
    from whim.serve.log.reader import LogReader

    if not (data / "log.db").is_file():
        raise InvalidInputError(f"data must be a service's directory, got {str(data)!r}.")
    with contextlib.closing(LogReader(data / "log.db")) as reader:
        there = open_spaces(reader)
        wanted = space or sorted(there)
        for name in wanted:
            if name not in there:
                known = ", ".join(sorted(there)) or "none"
                raise InvalidInputError(f"space must be one of {known}, got {name!r}.")
        rows = []
        for name in wanted:
            number, history = there[name]
            with bar(name, reader.last()[0]) as advance:
                rows.append(_compare(data, reader, name, number, history.now, advance))
    if as_json:
        print_json({"spaces": rows})
    else:
        _print(rows)
    if any(row["equal"] is False for row in rows):
        raise typer.Exit(1)


def _compare(
    data: Path,
    reader: LogReader,
    name: str,
    number: int,
    config_row: ConfigRow,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    from whim.serve.log.base import read_base, rows_of
    from whim.serve.state.recovery import begin
    from whim.serve.state.snapshots import peek

    snapshot = peek(data / "snapshots.db", number)
    until = reader.last()[0]  # after the snapshot, so that it is not ahead of this
    base = read_base(reader, number)
    assert config_row.config is not None
    whole = begin(base, config_row.config, config_row.version)
    began = time.perf_counter()
    rows = 0
    for block in rows_of(reader, number, whole.seq, until):
        whole.apply_many(block)
        rows += len(block)
        advance(block[-1][0])
    seconds = time.perf_counter() - began
    row: dict[str, Any] = {
        "space": name, "version": config_row.version, "until": until, "rows": rows,
        "seconds": seconds, "rows_per_second": rows / seconds if seconds > 0 else None,
        "base": None if base is None else base.seq, "digest": whole.digest(), "snapshot": None,
        "rest": None, "digest_of_snapshot": None, "equal": None,
    }  # fmt: skip
    if snapshot is not None and snapshot.version == config_row.version:
        row["snapshot"] = snapshot.seq
        row["rest"] = 0
        for block in rows_of(reader, number, snapshot.seq, until):
            snapshot.apply_many(block)
            row["rest"] += len(block)
        row["digest_of_snapshot"] = snapshot.digest()
        row["equal"] = row["digest"] == row["digest_of_snapshot"]
    return row


def _print(rows: list[dict[str, Any]]) -> None:
    from whim.cli.show import compact, print_table

    if not rows:
        typer.echo("no spaces")
        return
    words = {True: "equal", False: "DIFFERENT", None: "no snapshot yet"}
    cells = [
        [
            row["space"],
            words[row["equal"]],
            row["digest"][:16],
            (row["digest_of_snapshot"] or "–")[:16],
            compact(row["rows"]),
            compact(row["rows_per_second"] or 0),
        ]
        for row in rows
    ]
    heads = ("space", "state", "whole log", "snapshot + rest", "rows", "rows per second")
    print_table(heads, cells, left=4)
