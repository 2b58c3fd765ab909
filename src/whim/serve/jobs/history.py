"""``History``: a space's decisions with what came of them, read from the log beside a service.

The log is read twice: first what closed decisions, into a table on disk, then the decisions.
Memory grows with arms alone.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from whim.errors import InvalidInputError
from whim.serve import wire
from whim.serve.log.store import LogReader, StoreError
from whim.serve.state import retention
from whim.serve.state.encode import Encoder
from whim.serve.state.space import NotFoundError
from whim.serve.state.space_state import ARMS, BUILT, DECISION, DECODERS, EXPIRY, REWARD, Row
from whim.types import F64

__all__ = ["Decision", "History", "Share"]

Share = Callable[[float], object]
_BATCH = 5000
_SPOOL = """
CREATE TABLE outcome (
  id TEXT PRIMARY KEY, closed INTEGER NOT NULL, learn REAL, at INTEGER, came INTEGER NOT NULL,
  taken INTEGER NOT NULL, late INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""
_TAKE = """
INSERT INTO outcome VALUES (?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET
  learn = CASE closed WHEN 0 THEN excluded.learn ELSE learn END,
  at = CASE closed WHEN 0 THEN excluded.at ELSE at END,
  closed = max(closed, excluded.closed), came = came + excluded.came,
  taken = taken + excluded.taken, late = late + excluded.late
"""


class Decision(NamedTuple):
    """A decision, the configuration it was made under, and what came of it.

    ``x``, ``features`` and ``raw`` are of the space as it is now: its context as a vector, and
    what is known of each candidate, encoded and as it was told; None where they do not fit.
    ``state`` is ``matched``, ``default``, ``late`` (the default was learnt, then a reward came),
    ``never shown`` or ``waiting``; ``reward`` is what was learnt.
    """

    row: Row
    told: wire.DecisionRow
    version: int
    config: wire.SpaceConfig
    x: F64 | None
    features: list[F64] | None
    raw: list[Any] | None
    state: str
    reward: float | None
    reward_at: int | None
    rewards: int


class History:
    """The past of a space, up to the row that is the last when this is opened.

    Parameters
    ----------
    data
        The data directory of a service, running or not.
    space
        A space's name; of a retired one the log is still there.
    """

    def __init__(self, data: Path, space: str) -> None:
        path = data / "log.db"
        if not path.is_file():
            raise StoreError(f"data must be the directory of a service, got {data}: no log.db.")
        self._reader = LogReader(path)
        try:
            self.number, self._forces = _timeline(self._reader, space)
            self.version, self.config = self._forces[-1][1:]
            self.context = Encoder(self.config.context, "$.context")
            self.items = Encoder(self.config.items, "$.features")
            self.last = self._reader.last()[0]
            with contextlib.closing(retention.connect(path)) as connection:
                self.base = retention.read(connection, self.number)
                self._trimmed = retention.trimmed(connection)
        except BaseException:
            self._reader.close()
            raise

    def __enter__(self) -> History:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reader.close()

    def _rows(self, tell: Share, low: float, high: float) -> Iterator[Row]:
        first = self._forces[0][0]
        for block in retention.stretches(self._reader, 0, self.last, self.number):
            for row in block:
                if retention.wanted(row[0], self._trimmed, self.base):
                    yield Row(*row[:6])
            done = (block[-1][0] - first) / max(1, self.last - first)
            tell(low + (high - low) * done)

    def decisions(
        self,
        folder: Path,
        *,
        since: int | None = None,
        until: int | None = None,
        progress: Share | None = None,
    ) -> Iterator[Decision]:
        """Decisions in order; ``folder`` takes a table for the time being.

        ``since`` and ``until`` are microseconds, the first within, the second not.
        """
        tell = _seldom(progress)
        spool = sqlite3.connect(folder / "outcomes.db", isolation_level=None)
        try:
            spool.execute("PRAGMA journal_mode=OFF")
            spool.execute("PRAGMA synchronous=OFF")
            spool.executescript(_SPOOL)
            self._fill(spool, tell)
            known = _Known(self)
            for row in self._rows(tell, 0.4, 1.0):
                if row.kind == ARMS:
                    known.retire(DECODERS[ARMS].decode(row.body).retired)
                if row.kind != DECISION:
                    continue
                told = DECODERS[DECISION].decode(row.body)
                about = known.take(told)
                if (since is None or row.at >= since) and (until is None or row.at < until):
                    version, config = self._in_force(row.seq)
                    found = _outcome(spool, row.key)
                    yield Decision(row, told, version, config, *about, *found)  # type: ignore[arg-type]
            tell(1.0)
        except sqlite3.Error as error:
            raise StoreError(f"{folder.parent} must have room for a while: {error}.") from None
        finally:
            spool.close()

    def _in_force(self, seq: int) -> tuple[int, wire.SpaceConfig]:
        for since, version, config in reversed(self._forces):
            if since <= seq:
                return version, config
        return self._forces[0][1:]

    def _fill(self, spool: sqlite3.Connection, tell: Share) -> None:
        batch: list[tuple[Any, ...]] = []
        if self.base is not None:  # what had come of them before the log begins
            batch = [
                (key, 0, None, None, waiting.count, waiting.count, 0)
                for key, waiting in self.base.fold.pending.items()
                if waiting.count
            ]
        for row in self._rows(tell, 0.0, 0.4):
            batch += _closings(row)
            if len(batch) >= _BATCH:
                spool.execute("BEGIN")
                spool.executemany(_TAKE, batch)
                spool.execute("COMMIT")
                batch = []
        spool.executemany(_TAKE, batch)


class _Known:
    """What is known of arms as the log goes on, the way that a fold knows it."""

    def __init__(self, history: History) -> None:
        self._context, self._items = history.context, history.items
        self._arms: dict[str | int, tuple[F64, Any]] = {}
        for choice in history.base.arms if history.base is not None else ():
            try:
                self._arms[choice.id] = (
                    self._items(choice.features, lenient=True),
                    choice.features,
                )
            except InvalidInputError:
                continue

    def retire(self, arms: list[str | int]) -> None:
        for arm in arms:
            self._arms.pop(arm, None)

    def take(self, told: wire.DecisionRow) -> tuple[F64 | None, list[F64] | None, list[Any] | None]:
        """The context and the candidates' features; nothing if a fold would leave this out."""
        try:
            x = self._context(told.context, lenient=True)
            if not self._items.size:
                return x, None, None
            given = {
                arm: (self._items(features, lenient=True), features)
                for arm, features in zip(told.arms, told.features or (), strict=False)
                if features is not None
            }
        except InvalidInputError:
            return None, None, None
        if any(arm not in given and arm not in self._arms for arm in told.arms):
            return None, None, None
        self._arms.update(given)
        found = [self._arms[arm] for arm in told.arms]
        return x, [vector for vector, _ in found], [raw for _, raw in found]


def _timeline(reader: LogReader, space: str) -> tuple[int, list[tuple[int, int, wire.SpaceConfig]]]:
    """A space's number, and since which row which version was in force."""
    forces: dict[int, list[tuple[int, int, wire.SpaceConfig]]] = {}
    names: set[str] = set()
    number = 0
    for row in reader.configs():
        told = DECODERS[row.kind].decode(row.body)
        names.add(told.name)
        if told.name != space or told.config is None:
            continue
        number = row.space  # of several that had the name, the last
        if row.kind == BUILT or told.version == 1:
            forces.setdefault(number, []).append((row.seq, told.version, told.config))
    if not number:
        there = ", ".join(sorted(names)[:20]) or "none"
        raise NotFoundError(f"space must be one that the log has ({there}), got {space!r}.")
    return number, forces[number]


def _closings(row: Row) -> list[tuple[Any, ...]]:
    if row.kind == REWARD:
        told = DECODERS[REWARD].decode(row.body)
        over, taken = told.state == "learnt", told.state in ("learnt", "kept")
        at = row.at if over else None
        return [(told.id, int(over), told.learn, at, 1, int(taken), int(told.state == "late"))]
    if row.kind == EXPIRY:
        return [
            (key, 1 if learn is not None else 2, learn, row.at, 0, 0, 0)
            for key, learn in DECODERS[EXPIRY].decode(row.body).closed
        ]
    return []


def _outcome(
    spool: sqlite3.Connection, key: str | None
) -> tuple[str, float | None, int | None, int]:
    found = spool.execute(
        "SELECT closed, learn, at, came, taken, late FROM outcome WHERE id=?", (key,)
    ).fetchone()
    if found is None:
        return "waiting", None, None, 0
    closed, learn, at, came, taken, late = found
    if closed == 0:
        return "waiting", None, None, came
    if closed == 2:
        return "never shown", None, None, came
    return ("matched" if taken else "late" if late else "default"), learn, at, came


def _seldom(progress: Share | None) -> Share:
    """Tell of whole percents only."""
    if progress is None:
        return lambda share: None
    told = -1

    def tell(share: float) -> None:
        nonlocal told
        if int(share * 100) > told:
            told = int(share * 100)
            progress(share)

    return tell
