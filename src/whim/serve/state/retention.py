"""Retention: rows past their time leave the log, and what they taught stays as a sealed base.

State is then the fold of the base and the rest. The base lies in the log's own database, is
written in small pieces that mean nothing until one last small transaction says that they are
there, and only then rows go, a few at a time.

Kept beside the rows after the base's: those that make, change and retire spaces, and the decisions
that still wait for a reward, so that their ids stay known.

Trimming is work for another process than the one that serves: it folds. It takes the write lock
for milliseconds and sleeps in between; the service's writer waits within its busy timeout. Its
commits are not synced one by one: the log is written in order, so that the next commit of the
service makes them safe too, and whatever is lost before that is lost from its end.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from whim.errors import InvalidInputError
from whim.serve import wire
from whim.serve.log.store import LogReader, StoreError
from whim.serve.state.space_state import ARMS, BUILT, DECISION, DECODERS, Fold, Raw

__all__ = [
    "Base", "Trimmed", "begin", "connect", "read", "stretches", "trim", "trimmed", "wanted",
]  # fmt: skip

SCHEMA = """
CREATE TABLE IF NOT EXISTS base (
  space INTEGER PRIMARY KEY, seq INTEGER NOT NULL, version INTEGER NOT NULL, size INTEGER NOT NULL,
  seal BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS base_page (
  space INTEGER NOT NULL, seq INTEGER NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (space, seq, number)
) STRICT, WITHOUT ROWID;
"""
_PAGE = 1 << 17
_STRETCH = 1 << 15  # rows a look, so that no reader keeps the log from being tidied
_WINDOW = 4000
_HOLD = 0.003  # seconds of the write lock that batches aim at


class Base(NamedTuple):
    """What a space had learnt when its earlier rows went.

    ``arms`` are those with features as they were told last, and ``kept`` the rows before ``seq``
    that are still there. ``since`` is the time of the first row that it has learnt from, if there
    were earlier ones (microseconds), else 0.
    """

    seq: int
    at: int
    fold: Fold
    arms: list[wire.Choice]
    kept: frozenset[int]
    since: int


class _Body(msgspec.Struct, array_like=True):
    at: int
    head: bytes
    policy: bytes
    arms: list[wire.Choice]
    kept: list[int]
    since: int


class Trimmed(NamedTuple):
    """What ``trim`` did: the last row that went, how many, and the longest lock, in seconds.

    ``more``: it stopped at ``most`` rows. ``waits_for``: spaces that are being rebuilt from the
    rows; nothing goes until they are done.
    """

    seq: int
    rows: int
    held: float
    more: bool
    waits_for: list[str]


# -- reading ----------------------------------------------------------------------------------


def connect(path: Path) -> sqlite3.Connection:
    """A connection that only reads."""
    try:
        made = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None
        )
        for pragma in ("busy_timeout=10000", "query_only=ON"):
            made.execute(f"PRAGMA {pragma}")
    except sqlite3.Error as error:
        raise StoreError(f"{path.name} must be a readable log: {error}.") from None
    return made


def stretches(reader: LogReader, after: int, until: int, space: int) -> Iterator[list[Raw]]:
    """A space's rows in order, with a new look at the log now and then: none lasts long."""
    for low in range(after, until, _STRETCH):
        yield from reader.blocks(low, min(low + _STRETCH, until), space)


def _has(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type='table' AND name='base'"
    return connection.execute(query).fetchone() is not None


def trimmed(connection: sqlite3.Connection) -> int:
    """The row up to which others may be missing; 0 in a log that is whole."""
    query = "SELECT value FROM meta WHERE name='trimmed'"
    found = connection.execute(query).fetchone()
    return 0 if found is None else int(found[0])


def read(connection: sqlite3.Connection, space: int) -> Base | None:
    """The base of a space, if rows of it have gone."""
    if not _has(connection):
        return None
    connection.execute("BEGIN")  # pages and what is said of them at one moment
    try:
        found = connection.execute(
            "SELECT seq, size, seal FROM base WHERE space=?", (space,)
        ).fetchone()
        if found is None:
            return None
        seq, size, seal = found
        pages = connection.execute(
            "SELECT data FROM base_page WHERE space=? AND seq=? ORDER BY number", (space, seq)
        ).fetchall()
    finally:
        connection.execute("COMMIT")
    data = b"".join(page for (page,) in pages)
    if len(data) != size or hashlib.sha256(data).digest() != seal:
        raise StoreError(
            f"the base of space {space} in log.db must match its seal: it was altered."
        )
    body = msgspec.msgpack.decode(data, type=_Body)
    held = Fold.from_bytes(body.head, body.policy)
    held.seq = seq
    return Base(seq, body.at, held, body.arms, frozenset(body.kept), body.since)


def begin(base: Base | None, config: wire.SpaceConfig, version: int) -> Fold:
    """Where the fold of a space begins: at its base, or with nothing learnt.

    What a base learnt is of one version. Another one learns from the rows that are still there.
    """
    if base is None:
        return Fold(config, version)
    if base.fold.version == version:
        return base.fold
    held = Fold(config, version)
    for arm in base.arms if held.items.size else ():
        try:
            held.meet([arm.id], [arm.features], lenient=True)
        except InvalidInputError:  # features of another kind than the space has now
            continue
    return held


def wanted(seq: int, upto: int, base: Base | None) -> bool:
    """Whether a row counts: after row ``upto``, or a decision that waited when others went."""
    return seq > upto or (base is not None and seq in base.kept)


# -- trimming ---------------------------------------------------------------------------------


def trim(
    path: Path,
    before: int,
    *,
    most: int = 1_000_000,
    given_up: Mapping[int, int] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Trimmed:
    """Take rows from before a time, in microseconds, out of a log that may be in use.

    Parameters
    ----------
    most
        Rows to fold in one call at most; ``Trimmed.more`` says that there are others.
    given_up
        By number of a space, the version that could not be built: nobody waits for it.
    """
    reader = LogReader(path)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for pragma in ("synchronous=NORMAL", "busy_timeout=10000"):
            connection.execute(f"PRAGMA {pragma}")
        return _Trim(reader, connection, pause).run(before, most, given_up or {})
    except sqlite3.Error as error:
        raise StoreError(f"{path.name} cannot be trimmed: {error}.") from None
    finally:
        connection.close()
        reader.close()


class _Trim:
    """One run over one connection."""

    def __init__(
        self, reader: LogReader, connection: sqlite3.Connection, pause: Callable[[float], None]
    ) -> None:
        self._reader, self._connection, self._pause = reader, connection, pause
        self._held = 0.0

    def run(self, before: int, most: int, given_up: Mapping[int, int]) -> Trimmed:
        run = self._connection
        done = trimmed(run)
        force, busy = self._configs(given_up)
        if busy:
            return Trimmed(done, 0, 0.0, False, busy)
        seq, more = self._last(before, done, most)
        if seq > done:
            if not _has(run):
                run.executescript(SCHEMA)
            at = run.execute("SELECT at FROM log WHERE seq=?", (seq,)).fetchone()[0]
            sealed = [self._seal(number, *told, seq, at) for number, told in force.items()]
            self._hold(lambda: self._say(seq, sealed))
            done = seq
        return Trimmed(done, self._sweep(done), self._held, more, [])

    def _configs(
        self, given_up: Mapping[int, int]
    ) -> tuple[dict[int, tuple[wire.SpaceConfig, int]], list[str]]:
        """What is in force in each space that lives, and those that are being rebuilt."""
        force: dict[int, wire.ConfigRow] = {}
        last: dict[int, wire.ConfigRow] = {}
        for row in self._reader.configs():
            told = last[row.space] = DECODERS[row.kind].decode(row.body)
            if row.kind == BUILT or told.version == 1 or told.config is None:
                force[row.space] = told
        busy = [
            told.name
            for number, told in last.items()
            if told.version not in (force[number].version, given_up.get(number))
        ]
        return {n: (t.config, t.version) for n, t in force.items() if t.config is not None}, busy

    def _last(self, before: int, done: int, most: int) -> tuple[int, bool]:
        """The last row to go. The last of all never does: numbers go on from it."""
        one = self._connection.execute
        (last,) = one("SELECT max(seq) FROM log").fetchone()
        low, high = done, max(done, int(last or 0) - 1)
        end = min(high, done + most)
        while low < end:  # times never go back, so look where they pass the limit
            middle = (low + end + 1) // 2
            if one("SELECT at FROM log WHERE seq=?", (middle,)).fetchone()[0] < before:
                low = middle
            else:
                end = middle - 1
        return low, low == done + most and low < high

    def _seal(
        self, number: int, config: wire.SpaceConfig, version: int, seq: int, at: int
    ) -> tuple[int, int, int, int, bytes]:
        """Fold a space up to the row and write its base, which nobody heeds yet."""
        base, upto = read(self._connection, number), trimmed(self._connection)
        since = base.since if base is not None else 0
        if base is not None and base.fold.version != version:
            since = base.at
        held = begin(base, config, version)
        arms = {c.id: c for c in base.arms} if base is not None else {}
        places = {} if base is None else self._keys(base.kept)
        for block in stretches(self._reader, 0, seq, number):
            some = [row for row in block if row[0] > held.seq and wanted(row[0], upto, base)]
            held.apply_many(some)
            for row in some:
                if row[3] == DECISION:
                    places[row[4] or ""] = row[0]
                if held.items.size:
                    _learn_arms(row[3], row[5], arms)
            places = {key: at for key, at in places.items() if key in held.pending}
        held.seq = seq
        head, policy = held.to_bytes()
        kept = [places[key] for key in held.pending if key in places]
        data = msgspec.msgpack.encode(_Body(at, head, policy, list(arms.values()), kept, since))
        for page, low in enumerate(range(0, len(data), _PAGE)):
            piece = (number, seq, page, data[low : low + _PAGE])
            self._hold(
                lambda piece=piece: self._connection.execute(  # type: ignore[misc]
                    "INSERT OR REPLACE INTO base_page VALUES (?,?,?,?)", piece
                )
            )
        return number, seq, version, len(data), hashlib.sha256(data).digest()

    def _keys(self, seqs: frozenset[int]) -> dict[str, int]:
        one = self._connection.execute
        found = (one("SELECT key, seq FROM log WHERE seq=?", (seq,)).fetchone() for seq in seqs)
        return {each[0]: each[1] for each in found if each is not None}

    def _say(self, seq: int, sealed: list[tuple[int, int, int, int, bytes]]) -> None:
        run = self._connection
        run.execute("DELETE FROM base")
        run.executemany("INSERT INTO base VALUES (?,?,?,?,?)", sealed)
        run.execute("INSERT OR REPLACE INTO meta VALUES ('trimmed', ?)", (str(seq),))

    def _sweep(self, upto: int) -> int:
        """Delete what the bases stand for, and bases that others stand for."""
        if not upto:
            return 0
        run = self._connection
        kept: set[int] = set()
        for (number,) in run.execute("SELECT space FROM base").fetchall():
            base = read(run, number)
            kept |= base.kept if base is not None else frozenset()
        after, count, size = 0, 0, 32
        while True:
            found = run.execute(
                "SELECT seq, kind FROM log WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
                (after, upto, _WINDOW),
            ).fetchall()
            gone = [(seq,) for seq, kind in found if kind > BUILT and seq not in kept]
            while gone:
                batch, gone = gone[:size], gone[size:]
                took = self._hold(
                    lambda batch=batch: run.executemany("DELETE FROM log WHERE seq=?", batch)  # type: ignore[misc]
                )
                count += len(batch)
                size = max(8, min(500, int(size * _HOLD / max(took, _HOLD / 2))))
            if len(found) < _WINDOW:
                break
            after = found[-1][0]
        old = run.execute(
            "SELECT space, seq, number FROM base_page WHERE (space, seq) NOT IN "
            "(SELECT space, seq FROM base)"
        ).fetchall()
        for page in old:
            self._hold(
                lambda page=page: run.execute(  # type: ignore[misc]
                    "DELETE FROM base_page WHERE space=? AND seq=? AND number=?", page
                )
            )
        return count

    def _hold(self, work: Callable[[], object]) -> float:
        """Do a little under the write lock, and leave it to others for as long again."""
        run = self._connection
        run.execute("BEGIN IMMEDIATE")
        start = time.perf_counter()
        try:
            work()
            run.execute("COMMIT")
        except BaseException:
            run.execute("ROLLBACK")
            raise
        took = time.perf_counter() - start
        self._held = max(self._held, took)
        self._pause(max(took, 0.001))
        return took


def _learn_arms(kind: int, body: bytes, arms: dict[str | int, wire.Choice]) -> None:
    """The features of arms as they were told last."""
    if kind == DECISION:
        told = DECODERS[DECISION].decode(body)
        for arm, features in zip(told.arms, told.features or (), strict=False):
            if features is not None:
                arms[arm] = wire.Choice(arm, features)
    elif kind == ARMS:
        for arm in DECODERS[ARMS].decode(body).retired:
            arms.pop(arm, None)
