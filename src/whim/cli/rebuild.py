"""``whim rebuild``: the log folded from nothing, held against the last snapshot and the rest."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whim.errors import InvalidInputError

if TYPE_CHECKING:
    from whim.serve.fold import Fold
    from whim.serve.store import LogReader
    from whim.serve.wire import ConfigRow

__all__ = ["rebuild"]


def rebuild(
    data: Annotated[Path, typer.Option(metavar="DIR", help="The service's data directory.")] = Path(
        "whim-data"
    ),
    space: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this one; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For a script to read.")] = False,
) -> None:
    """Fold the whole log and compare with what a restart would use; exit code 1 if they differ.

    Reads only; the service may run meanwhile. A restart takes the last snapshot and the rows since
    then: both ways must give the same state, bit for bit. Where retention has taken rows, what they
    taught is a sealed base in the log, and the fold begins with it.
    """
    from whim.cli.progress import bar
    from whim.cli.serve import needed
    from whim.cli.show import print_json

    needed()
    from whim.serve import behind
    from whim.serve.store import LogReader

    if not (data / "log.db").is_file():
        raise InvalidInputError(f"data must be a service's directory, got {str(data)!r}.")
    reader = LogReader(data / "log.db")
    try:
        there = behind.open_spaces(reader)
        wanted = space or sorted(there)
        for name in wanted:
            if name not in there:
                known = ", ".join(sorted(there)) or "none"
                raise InvalidInputError(f"space must be one of {known}, got {name!r}.")
        found = []
        for name in wanted:
            with bar(name, reader.last()[0]) as advance:
                found.append(_compare(data, reader, name, *there[name], advance))
    finally:
        reader.close()
    if as_json:
        print_json({"spaces": found})
    else:
        _print(found)
    if any(row["equal"] is False for row in found):
        raise typer.Exit(1)


def _compare(
    data: Path,
    reader: LogReader,
    name: str,
    number: int,
    told: ConfigRow,
    advance: Callable[[int], None],
) -> dict[str, Any]:
    from whim.serve import retention

    held = _snapshot(data, number, told.version)
    until = reader.last()[0]  # after the snapshot, so that it is not ahead of this
    with contextlib.closing(retention.connect(reader.path)) as connection:
        base, upto = retention.read(connection, number), retention.trimmed(connection)
    assert told.config is not None
    whole = retention.begin(base, told.config, told.version)
    began = time.perf_counter()
    rows = 0
    for block in retention.stretches(reader, whole.seq, until, number):
        found = [row for row in block if retention.wanted(row[0], upto, base)]
        whole.apply_many(found)
        rows += len(found)
        advance(block[-1][0])
    seconds = time.perf_counter() - began
    row: dict[str, Any] = {
        "space": name, "version": told.version, "until": until, "rows": rows,
        "seconds": seconds, "rows_per_second": rows / seconds if seconds > 0 else None,
        "base": None if base is None else base.seq, "digest": whole.digest(), "snapshot": None,
        "rest": None, "digest_of_snapshot": None, "equal": None,
    }  # fmt: skip
    if held is not None:
        row["snapshot"] = held.seq
        row["rest"] = 0
        for block in retention.stretches(reader, held.seq, until, number):
            held.apply_many(block)
            row["rest"] += len(block)
        row["digest_of_snapshot"] = held.digest()
        row["equal"] = row["digest"] == row["digest_of_snapshot"]
    return row


def _snapshot(data: Path, number: int, version: int) -> Fold | None:
    """The last snapshot, read as it is and at one moment; None if a restart would not use it."""
    from whim.serve.pages import Snapshots

    class Seen(Snapshots):
        """Snapshots that nobody writes to."""

        def _open(self) -> None:
            where = f"{self.path.absolute().as_uri()}?mode=rw"
            self._connection = sqlite3.connect(where, uri=True, isolation_level=None)
            self._connection.execute("PRAGMA busy_timeout=10000")
            self._connection.execute("PRAGMA query_only=ON")

        def _set_aside(self) -> None:
            raise sqlite3.DatabaseError

    try:
        seen = Seen(data / "snapshots.db")
    except sqlite3.Error:
        return None
    try:
        seen._connection.execute("BEGIN")
        held = seen.read(number)
    except sqlite3.Error:
        return None
    finally:
        seen.close()
    return held if held is not None and held.version == version else None


def _print(found: list[dict[str, Any]]) -> None:
    from whim.cli.show import compact, print_table

    if not found:
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
        for row in found
    ]
    heads = ("space", "state", "whole log", "snapshot + rest", "rows", "rows a second")
    print_table(heads, cells, left=4)
