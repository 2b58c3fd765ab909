"""``whim rebuild``: the whole log replayed, compared with the last snapshot and the rest."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from whim.cli.options import DATA, DataDir, Json, Stores
from whim.errors import InvalidInputError
from whim.extras import require_all

if TYPE_CHECKING:
    from whim.serve.log.committed import CommittedLog
    from whim.serve.log.reader import LogReader
    from whim.serve.log.rows import ConfigRow


def rebuild(
    data: DataDir = DATA,
    store: Stores = None,
    space: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this space; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Replay the whole log and compare with the state of a restart; exit code 1 if they differ.

    Nothing is written, and the service may be running. A restart uses the last snapshot and the
    rows after it; both ways must give the same state, bit for bit. Where retention has removed
    rows, what was learnt from them is stored in the log as a base, from which the replay starts.

    With --store, the log in PostgreSQL is replayed, and compared with the state of the replica
    whose copy is in --data, if there is one. If it has shards in several databases, give all of
    them.
    """
    from whim.cli.progress import bar
    from whim.cli.serve import needed
    from whim.cli.show import print_json

    needed()
    from whim.serve.log.configs import open_spaces

    with contextlib.ExitStack() as opened:
        there = {
            name: (log, *found)
            for log in (_open_stores(data, store, opened) if store else _open(data, opened))
            for name, found in open_spaces(log.reader).items()
        }
        wanted = space or sorted(there)
        for name in wanted:
            if name not in there:
                known = ", ".join(sorted(there)) or "none"
                raise InvalidInputError(f"space must be one of {known}, got {name!r}.")
        rows = []
        for name in wanted:
            log, number, history = there[name]
            with bar(name, log.reader.last()[0]) as advance:
                rows.append(_compare(log, name, number, history.now, advance))
    if as_json:
        print_json({"spaces": rows})
    else:
        _print(rows)
    if any(row["equal"] is False for row in rows):
        raise typer.Exit(1)


class _Log(NamedTuple):
    """A log to replay, that from which a restart would go on, if there is one, and its folder."""

    reader: CommittedLog
    copy: LogReader | None
    data: Path


def _open(data: Path, opened: contextlib.ExitStack) -> list[_Log]:
    from whim.serve.log.origin import logs_of
    from whim.serve.log.reader import LogReader

    if not (data / "log.db").is_file():
        raise InvalidInputError(f"data must be a service's directory, got {str(data)!r}.")
    logs = []
    for folder in logs_of(data):
        reader = opened.enter_context(contextlib.closing(LogReader(folder / "log.db")))
        logs.append(_Log(reader, reader, folder))
    return logs


def _open_stores(data: Path, stores: list[str], opened: contextlib.ExitStack) -> list[_Log]:
    """Every shard of every database."""
    from whim.serve.log.origin import logs_of, origin_of
    from whim.serve.log.reader import LogReader

    require_all("postgres", "A log in PostgreSQL needs")
    from whim.serve.postgres.databases import existing_shards
    from whim.serve.postgres.reader import Reader

    copies = {origin_of(folder): folder for folder in logs_of(data)}
    logs = []
    for shard in existing_shards(stores):
        reader = opened.enter_context(contextlib.closing(Reader(shard.address, shard.number)))
        copy, folder = None, copies.get(shard.origin, data)
        if shard.origin in copies and (folder / "log.db").is_file():
            copy = opened.enter_context(contextlib.closing(LogReader(folder / "log.db")))
        logs.append(_Log(reader, copy, folder))
    return logs


def _compare(
    log: _Log, name: str, number: int, config_row: ConfigRow, advance: Callable[[int], None]
) -> dict[str, Any]:
    from whim.serve.log.base import read_base, rows_of
    from whim.serve.state.recovery import begin
    from whim.serve.state.snapshots import peek

    reader, copy, data = log
    snapshot = None if copy is None else peek(data / "snapshots.db", number)
    if snapshot is not None and snapshot.version != config_row.version:
        snapshot = None
    # after the snapshot, so that it is not ahead of these; a copy may be behind
    until = reader.last()[0]
    meeting = until if copy is None else min(until, copy.last()[0])
    base = read_base(reader, number)
    assert config_row.config is not None
    whole = begin(base, config_row.config, config_row.version)
    began, rows, digest = time.perf_counter(), 0, ""
    for end in (meeting, until):
        for block in rows_of(reader, number, whole.seq, end):
            whole.apply_many(block)
            rows += len(block)
            advance(block[-1][0])
        digest = digest or whole.digest()  # where both can be compared
    seconds = time.perf_counter() - began
    row: dict[str, Any] = {
        "space": name, "version": config_row.version, "until": until, "rows": rows,
        "seconds": seconds, "rows_per_second": rows / seconds if seconds > 0 else None,
        "base": None if base is None else base.seq, "digest": whole.digest(), "snapshot": None,
        "rest": None, "digest_of_snapshot": None, "equal": None,
    }  # fmt: skip
    if snapshot is not None and copy is not None:
        row["snapshot"] = snapshot.seq
        row["rest"] = 0
        for block in rows_of(copy, number, snapshot.seq, meeting):
            snapshot.apply_many(block)
            row["rest"] += len(block)
        row["digest_of_snapshot"] = snapshot.digest()
        row["equal"] = digest == row["digest_of_snapshot"]
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
