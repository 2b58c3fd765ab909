"""``move``: a log from a data directory to PostgreSQL, or back, bit for bit, with all around it.

The new place is filled first and compared with the old one, row by row and by the digests of all
states, while the old one stays as it is. Then the old one says where its log has gone, and only
then the new one may be served from: whenever it is interrupted, at most one of them serves, and
the same command goes on or begins anew.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from whim.errors import InvalidInputError
from whim.files import sync_folder, write_atomic
from whim.serve.backup import CURSORS, KEYS, LOG, SNAPSHOTS
from whim.serve.jobs.cursors import Cursors
from whim.serve.log import origin
from whim.serve.log.committed import CommittedLog, StoreError
from whim.serve.log.configs import config_histories
from whim.serve.log.log_writer import lock_out_others
from whim.serve.log.migrate import migrate
from whim.serve.log.reader import LogReader
from whim.serve.log.rows import Raw, Row
from whim.serve.log.store import DataLock
from whim.serve.postgres import schema
from whim.serve.postgres.moving import Claim, claimed
from whim.serve.postgres.reader import Reader
from whim.serve.state import fetched, recovery
from whim.serve.state.snapshots import peek
from whim.serve.state.space_state import SpaceState

Stage = Callable[[str, int], Callable[[int], None]]  # begins a stage; gives what takes its parts
_ARRIVING = "arriving"  # the folder, inside the data directory, in which a log is put together
_MOVING = "moving"  # the file with the token of a move that has begun
_SCHEMES = ("postgresql://", "postgres://")


class Done(NamedTuple):
    """What was moved: the number of the last row, and a digest of the state of every space."""

    rows: int
    digests: dict[str, str]


def is_store(place: str) -> bool:
    """Whether a place is an address of PostgreSQL; else it is a directory."""
    return place.startswith(_SCHEMES)


def move(source: str, target: str, stage: Stage = lambda what, total: lambda done: None) -> Done:
    """Move a log from a data directory to PostgreSQL, or back; no service may run on either."""
    if is_store(source) == is_store(target):
        raise InvalidInputError(
            "one of from and to must be a directory and the other an address of PostgreSQL, got "
            f"two {'addresses' if is_store(source) else 'directories'}."
        )
    if is_store(target):
        data = Path(source)
        if not (data / LOG).is_file():
            raise InvalidInputError(f"from must be a service's directory, got {source!r}.")
        with _alone(data), claimed(target, make=True) as claim:
            claim.must_be_alone()
            return _ToStore(data, target, claim, stage).run()
    with _alone(Path(target)), claimed(source, make=False) as claim:
        claim.must_be_alone()
        return _ToDirectory(Path(target), source, claim, stage).run()


@contextlib.contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Let no service use a directory, nor the writer of one that has just died."""
    lock = DataLock(data)
    try:
        origin.refuse_copy(data)
        writer = lock_out_others(str(data / "scribe.lock"))
        try:
            yield
        finally:
            os.close(writer)
    finally:
        lock.release()


def _here(data: Path) -> str:
    return f"{data.resolve()} on {socket.gethostname()}"


# -- comparing --------------------------------------------------------------------------------


class _Watched:
    """A reader that says how far it was read."""

    def __init__(self, reader: Any, progress: Callable[[int], None]) -> None:
        self._reader, self._progress = reader, progress

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def blocks(self, *where: Any) -> Iterator[list[Raw]]:
        for block in self._reader.blocks(*where):
            self._progress(block[-1][0])
            yield block


def digests(
    reader: CommittedLog, progress: Callable[[int], None], snapshots: Path | None = None
) -> dict[str, str]:
    """The digest of every space's state: of the last snapshot and the rest, or of all rows."""
    histories = config_histories(reader)
    states: dict[int, SpaceState] = {}
    for number, history in histories.items():
        if history.now.config is not None:
            snapshot = None if snapshots is None else peek(snapshots, number)
            states[number] = recovery.start(reader, number, history.now, snapshot)
    watched = cast("LogReader", _Watched(reader, progress))
    recovery.advance_all(watched, states, histories.keys())
    return {histories[number].now.name: state.digest() for number, state in states.items()}


def _compare(
    source: CommittedLog,
    target: CommittedLog,
    last: int,
    stage: Stage,
    snapshots: Path | None = None,
) -> Done:
    """Raise unless both hold the same rows, and the same states follow from them."""
    if source.last() != target.last() or source.trimmed() != target.trimmed():
        raise StoreError(f"{target.path.name} must end as {source.path.name} does, and does not.")
    progress = stage("comparing rows", last)
    for one, other in zip(source.blocks(), target.blocks(), strict=True):
        if [row[:6] for row in one] != [row[:6] for row in other]:
            raise StoreError(f"rows up to {one[-1][0]} must be the same in both places.")
        progress(one[-1][0])
    ours = digests(source, stage("folding the old log", last), snapshots)
    theirs = digests(target, stage("folding the new log", last))
    for name, digest in ours.items():
        if theirs.get(name) != digest:
            raise StoreError(f"the state of {name} must be the same in both places, and is not.")
    return Done(last, ours)


# -- to PostgreSQL ----------------------------------------------------------------------------


class _ToStore:
    """One run from a directory to a database."""

    def __init__(self, data: Path, address: str, claim: Claim, stage: Stage) -> None:
        self._data, self._address, self._claim, self._stage = data, address, claim, stage

    def run(self) -> Done:
        moved, there = origin.moved_of(self._data), self._claim.state
        if moved is not None and (
            there is None or (there.kind, there.token) != ("arriving", moved.token)
        ):
            origin.refuse_moved(self._data)
        migrate(self._data / LOG)
        with (
            contextlib.closing(LogReader(self._data / LOG)) as reader,
            contextlib.closing(Reader(self._address)) as shared,
        ):
            last, token = reader.last()[0], self._token()
            if moved is None:
                self._must_be_free(reader, there, token)
                self._fill(reader, last, schema.Away("arriving", _here(self._data), token))
            snapshots = self._data / SNAPSHOTS
            done = _compare(reader, shared, last, self._stage, snapshots)
        to = origin.Moved(self._claim.store, self._claim.log_id, token)
        origin.say_moved(self._data, to)
        self._claim.arrived()
        (self._data / _MOVING).unlink(missing_ok=True)
        return done

    def _token(self) -> str:
        """What this directory is known by at a database that it was being moved to before."""
        path = self._data / _MOVING
        if not path.exists():
            write_atomic(path, secrets.token_hex(16), mode=0o600)
        return path.read_text()

    def _must_be_free(self, reader: LogReader, there: schema.Away | None, token: str) -> None:
        last, claim = self._claim.last(), self._claim
        if there is not None and there.kind == "arriving":
            if there.token != token:
                raise StoreError(
                    f"to must be empty, got {claim.store}, to which the log of {there.other} is "
                    "being moved: run that `whim move` again."
                )
        elif there is None and last is not None:
            raise StoreError(
                f"to must be empty, got {claim.store}, which has a log of {last[0]} rows."
            )
        elif there is not None:
            _must_be_part(last, reader, claim.store)
        elif claim.any_keys and (self._data / KEYS).exists():
            raise StoreError(
                f"to must have no keys if from has some, got {claim.store}, which has: `whim keys` "
                "lists both."
            )

    def _fill(self, reader: LogReader, last: int, away: schema.Away) -> None:
        progress, keys = self._stage("copying rows", last), self._kept_keys()
        spaces = list(config_histories(reader))
        with self._claim.filling(away):
            self._claim.put_log(_counted(reader.rows(), progress), reader, spaces)
            self._claim.put("change", _numbered(reader.query(
                "SELECT space, version, seq, at, body FROM change ORDER BY space, version, seq, "
                "rowid"
            )))  # fmt: skip
            self._claim.put("document", keys)
            if (self._data / CURSORS).exists():
                with contextlib.closing(sqlite3.connect(self._data / CURSORS)) as cursors:
                    ask = cursors.execute
                    self._claim.put("hook", ask("SELECT url, since, spaces FROM hook"))
                    self._claim.put("hook_cursor", ask("SELECT url, space, seq, done FROM cursor"))

    def _kept_keys(self) -> list[tuple[str, int, bytes]]:
        """The API keys: of the directory, else those that the database has already."""
        path = self._data / KEYS
        sql = "SELECT name, version, body FROM whim.document WHERE name = 'keys'"
        row = self._claim.connection.execute(sql).fetchone()
        version = 0 if row is None else row[1]
        if path.exists():
            return [("keys", version + 1, path.read_bytes())]
        return [] if row is None or self._claim.state is not None else [row]


def _counted(rows: Iterable[Row], progress: Callable[[int], None]) -> Iterator[Row]:
    for row in rows:
        if not row.seq % 1000:
            progress(row.seq)
        yield row


def _numbered(changes: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Changes with their places among those of the same row."""
    before, i = None, 0
    for space, version, seq, at, body in changes:
        i = i + 1 if (space, version, seq) == before else 0
        before = space, version, seq
        yield space, version, seq, i, at, body


def _must_be_part(last: tuple[int, int, int] | None, reader: LogReader, place: str) -> None:
    """Raise unless a log that was left behind, which ends with row ``last``, went on in another."""
    if last is None:
        return
    rows = reader.query("SELECT seq, at, crc FROM log WHERE seq = ?", (last[0],))
    if (tuple(rows[0]) == last) if rows else (last[0] <= reader.trimmed()):
        return
    raise StoreError(
        f"to must be empty or where this log was before, got {place}, whose row {last[0]} is not "
        "one of it."
    )


# -- to a directory ---------------------------------------------------------------------------


class _ToDirectory:
    """One run from a database to a directory."""

    def __init__(self, data: Path, address: str, claim: Claim, stage: Stage) -> None:
        self._data, self._address, self._claim, self._stage = data, address, claim, stage
        self._folder = data / _ARRIVING

    def run(self) -> Done:
        moved, there, data = origin.moved_of(self._data), self._claim.state, self._data
        if there is not None:
            if moved is None or (there.kind, there.token) != ("moved", moved.token):
                schema.refuse_away(self._claim.connection)
            return self._finish()
        self._claim.must_be_one_shard()
        log_id = self._claim.log_id
        for name in (LOG, CURSORS, SNAPSHOTS, KEYS):
            if moved is None and (data / name).exists():
                raise InvalidInputError(
                    f"to must be a new directory, or that from which the log came, got one that "
                    f"has {name}."
                )
        if moved is not None and moved.log != log_id:
            origin.refuse_moved(data)
        token = secrets.token_hex(16)
        origin.say_moved(data, origin.Moved(self._claim.store, log_id, token, arriving=True))
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700)
        with contextlib.closing(Reader(self._address)) as shared:
            done = self._fetch(shared)
        self._claim.gone(schema.Away("moved", _here(data), token), done.rows)
        self._install()
        return done

    def _fetch(self, shared: Reader) -> Done:
        """Put together and compare, all in a folder beside what is there."""
        last = shared.last()[0]
        path = self._folder / LOG
        fetched.fetch(shared, path, self._stage("copying rows", last))
        self._fetch_cursors(shared)
        rows = shared.query("SELECT body FROM whim.document WHERE name = 'keys'")
        if rows:
            write_atomic(self._folder / KEYS, bytes(rows[0][0]), mode=0o600)
        with contextlib.closing(LogReader(path)) as reader:
            if (self._data / LOG).exists():
                with contextlib.closing(LogReader(self._data / LOG)) as old:
                    _must_be_part(_last(old), reader, str(self._data))
            done = _compare(shared, reader, last, self._stage)
        if left := [name.name for name in self._folder.glob("*-wal") if name.stat().st_size]:
            raise StoreError(f"{left[0]} must be empty before its database is put in its place.")
        sync_folder(self._folder)
        return done

    def _fetch_cursors(self, shared: Reader) -> None:
        hooks = shared.query("SELECT url, since, spaces FROM whim.hook")
        places = shared.query("SELECT url, space, seq, done FROM whim.hook_cursor")
        path = self._folder / CURSORS
        Cursors(path).close()  # makes the tables
        with contextlib.closing(sqlite3.connect(path)) as cursors, cursors:
            cursors.executemany("INSERT INTO hook VALUES (?,?,?)", hooks)
            cursors.executemany("INSERT INTO cursor VALUES (?,?,?,?)", places)

    def _finish(self) -> Done:
        """Go on with a move that was interrupted after the database had let the log go."""
        self._install()
        with contextlib.closing(LogReader(self._data / LOG)) as reader:
            last = reader.last()[0]
            return Done(last, digests(reader, self._stage("folding the log", last)))

    def _install(self) -> None:
        """Put the files where they belong, the log last; it can be done again."""
        data, folder = self._data, self._folder
        if (folder / LOG).exists():
            for name in (SNAPSHOTS, CURSORS, LOG):  # what was left here is a part of the new log
                for ending in ("-wal", "-shm"):
                    (data / (name + ending)).unlink(missing_ok=True)
            (data / SNAPSHOTS).unlink(missing_ok=True)
            for name in (KEYS, CURSORS, LOG):
                if (folder / name).exists():
                    (folder / name).replace(data / name)
            sync_folder(data)
        shutil.rmtree(folder, ignore_errors=True)
        origin.say_moved(data, None)


def _last(reader: LogReader) -> tuple[int, int, int] | None:
    rows = reader.query("SELECT seq, at, crc FROM log ORDER BY seq DESC LIMIT 1")
    return tuple(rows[0]) if rows else None
