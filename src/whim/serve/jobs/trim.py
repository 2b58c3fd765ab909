"""``trim``: rows past their time leave the log, and what they taught stays as a sealed base.

The base lies in the log's own database. It is written in small pieces that mean nothing until one
last small transaction says that they are there, and only then rows are deleted, a few at a time.
Rows stay that make, change and retire spaces, and decisions that still wait for a reward, so that
their ids stay known.

Trimming is work for another process than the one that serves, because it replays rows. It takes
the write lock for milliseconds and sleeps in between; the service's writer waits within its busy
timeout. Its commits are not synced one by one: the log is written in order, so that the next
commit of the service makes them safe too, and whatever is lost before that is lost from its end.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from whim.serve.log.base import SCHEMA, BaseBody, read_base, rows_of
from whim.serve.log.configs import config_histories
from whim.serve.log.reader import LogReader, StoreError
from whim.serve.log.rows import DECODERS, ArmFeatures, ConfigRow, Kind
from whim.serve.state.recovery import begin

_PAGE = 1 << 17
_WINDOW = 4000
_LOCK_SECONDS = 0.003  # of the write lock that batches aim at


class Trimmed(NamedTuple):
    """What ``trim`` did: the last row that went, how many, and the longest lock, in seconds.

    ``more``: it stopped at ``most`` rows. ``waits_for``: spaces that are being rebuilt from the
    rows; nothing goes until they are done.
    """

    seq: int
    rows: int
    longest_lock: float
    more: bool
    waits_for: list[str]


def trim(
    path: Path,
    before: int,
    *,
    most: int = 1_000_000,
    given_up: Mapping[int, int] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Trimmed:
    """Take rows from before a time, in microseconds, out of a log that may be in use.

    At most ``most`` rows are applied in one call. ``given_up`` has, by number of a space, the
    version that could not be built: nobody waits for it.
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
        self._longest = 0.0

    def run(self, before: int, most: int, given_up: Mapping[int, int]) -> Trimmed:
        done = self._reader.trimmed()
        histories = config_histories(self._reader)
        busy = [
            history.wanted.name
            for number, history in histories.items()
            if history.wanted.version not in (history.now.version, given_up.get(number))
        ]
        if busy:
            return Trimmed(done, 0, 0.0, False, busy)
        seq, more = self._last(before, done, most)
        if seq > done:
            self._connection.executescript(SCHEMA)
            at = self._connection.execute("SELECT at FROM log WHERE seq=?", (seq,)).fetchone()[0]
            sealed = [
                self._seal(number, history.now, seq, at)
                for number, history in histories.items()
                if history.now.config is not None
            ]
            self._locked(lambda: self._switch(seq, sealed))
            done = seq
        return Trimmed(done, self._sweep(done), self._longest, more, [])

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
        self, number: int, config_row: ConfigRow, seq: int, at: int
    ) -> tuple[int, int, int, int, bytes]:
        """Compute a space's state up to the row and write its base, which is not in use yet."""
        assert config_row.config is not None
        base, version = read_base(self._reader, number), config_row.version
        since = base.body.since if base is not None else 0
        if base is not None and base.version != version:
            since = base.body.at
        state = begin(base, config_row.config, version)
        arms = {arm.id: arm for arm in base.body.arms} if base is not None else {}
        places = {} if base is None else self._keys(base.kept)
        for block in rows_of(self._reader, number, state.seq, seq):
            state.apply_many(block)
            for row in block:
                if row[3] == Kind.DECISION:
                    places[row[4] or ""] = row[0]
                if state.items.size:
                    _learn_arms(row[3], row[5], arms)
            places = {key: place for key, place in places.items() if key in state.pending}
        state.seq = seq
        head, policy = state.to_bytes()
        kept = [places[key] for key in state.pending if key in places]
        body = BaseBody(at, head, policy, list(arms.values()), kept, since)
        data = msgspec.msgpack.encode(body)
        for page, low in enumerate(range(0, len(data), _PAGE)):
            self._execute(
                "INSERT OR REPLACE INTO base_page VALUES (?,?,?,?)",
                [(number, seq, page, data[low : low + _PAGE])],
            )
        return number, seq, version, len(data), hashlib.sha256(data).digest()

    def _keys(self, seqs: frozenset[int]) -> dict[str, int]:
        one = self._connection.execute
        rows = (one("SELECT key, seq FROM log WHERE seq=?", (seq,)).fetchone() for seq in seqs)
        return {row[0]: row[1] for row in rows if row is not None}

    def _switch(self, seq: int, sealed: list[tuple[int, int, int, int, bytes]]) -> None:
        """From now on the new bases count, and rows up to ``seq`` may go."""
        run = self._connection
        run.execute("DELETE FROM base")
        run.executemany("INSERT INTO base VALUES (?,?,?,?,?)", sealed)
        run.execute("INSERT OR REPLACE INTO meta VALUES ('trimmed', ?)", (str(seq),))

    def _sweep(self, trimmed: int) -> int:
        """Delete what the bases stand for, and bases that others stand for; how many rows."""
        if not trimmed:
            return 0
        run = self._connection
        kept: set[int] = set()
        for (number,) in run.execute("SELECT space FROM base").fetchall():
            base = read_base(self._reader, number)
            kept |= base.kept if base is not None else frozenset()
        after, count, size = 0, 0, 32
        while True:
            rows = run.execute(
                "SELECT seq, kind FROM log WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
                (after, trimmed, _WINDOW),
            ).fetchall()
            gone = [(seq,) for seq, kind in rows if kind > Kind.BUILT and seq not in kept]
            count += len(gone)
            while gone:
                batch, gone = gone[:size], gone[size:]
                took = self._execute("DELETE FROM log WHERE seq=?", batch)
                size = max(8, min(500, int(size * _LOCK_SECONDS / max(took, _LOCK_SECONDS / 2))))
            if len(rows) < _WINDOW:
                break
            after = rows[-1][0]
        old = run.execute(
            "SELECT space, seq, number FROM base_page WHERE (space, seq) NOT IN "
            "(SELECT space, seq FROM base)"
        ).fetchall()
        for page in old:
            self._execute("DELETE FROM base_page WHERE space=? AND seq=? AND number=?", [page])
        return count

    def _execute(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> float:
        return self._locked(lambda: self._connection.executemany(sql, rows))

    def _locked(self, work: Callable[[], object]) -> float:
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
        self._longest = max(self._longest, took)
        self._pause(max(took, 0.001))
        return took


def _learn_arms(kind: int, body: bytes, arms: dict[str | int, ArmFeatures]) -> None:
    """The features of arms as they came last."""
    if kind == Kind.DECISION:
        decision = DECODERS[kind].decode(body)
        for arm, features in zip(decision.arms, decision.features or (), strict=False):
            if features is not None:
                arms[arm] = ArmFeatures(arm, features)
    elif kind == Kind.ARMS:
        for arm in DECODERS[kind].decode(body).retired:
            arms.pop(arm, None)
