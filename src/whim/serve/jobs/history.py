"""``History``: a space's decisions with what came of them, read from the log beside a service.

The log is read twice: first what closed decisions, into a table on disk, then the decisions.
Memory grows with arms, and with decisions that wait at the same time.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from whim.errors import InvalidInputError
from whim.features.encoder import Encoder
from whim.serve import wire
from whim.serve.log.base import read_base, rows_of
from whim.serve.log.configs import config_histories
from whim.serve.log.origin import logs_of
from whim.serve.log.reader import LogReader, StoreError
from whim.serve.log.rows import DECODERS, DecisionRow, Kind, Row
from whim.serve.state.ledger import Learn, Ledger
from whim.serve.state.lists import contexts_of
from whim.serve.state.recovery import state_of
from whim.serve.state.space import NotFoundError
from whim.serve.state.stats import Pending
from whim.serve.state.waiting import WaitingList, list_rules
from whim.serve.wire import RewardState
from whim.types import F64

Progress = Callable[[float], object]
_BATCH = 5000
_SPOOL = """
CREATE TABLE outcome (
  id TEXT PRIMARY KEY, closed INTEGER NOT NULL, learn REAL, at INTEGER, came INTEGER NOT NULL,
  taken INTEGER NOT NULL, late INTEGER NOT NULL, items TEXT
) STRICT, WITHOUT ROWID;
"""
_TAKE = """
INSERT INTO outcome VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET
  learn = CASE closed WHEN 0 THEN excluded.learn ELSE learn END,
  items = CASE closed WHEN 0 THEN excluded.items ELSE items END,
  at = CASE closed WHEN 0 THEN excluded.at ELSE at END,
  closed = max(closed, excluded.closed), came = came + excluded.came,
  taken = taken + excluded.taken, late = late + excluded.late
"""


class Decision(NamedTuple):
    """A decision, the configuration it was made under, and what came of it.

    ``x``, ``features`` and ``raw`` are of the space as it is now: its context as a vector, and
    what is known of each candidate, encoded and as it came; None where they do not fit.
    ``state`` is ``matched``, ``default``, ``late`` (the default was learnt, then a reward came),
    ``never shown`` or ``waiting``; ``reward`` is what was learnt. Of a list that is the sum over
    its items, ``items`` are their rewards from the top, None for one that was not seen, and
    ``contexts`` has the vector of each slot where slots have features.
    """

    row: Row
    body: DecisionRow
    version: int
    config: wire.SpaceConfig
    x: F64 | None
    features: list[F64] | None
    raw: list[Any] | None
    state: str
    reward: float | None
    reward_at: int | None
    rewards: int
    items: list[float | None] | None
    contexts: list[F64] | None


class History:
    """The past of a space, retired or not, up to the row that is the last when this is opened."""

    def __init__(self, data: Path, space: str) -> None:
        if not (data / "log.db").is_file():
            raise StoreError(f"data must be the directory of a service, got {data}: no log.db.")
        path = _holding(data, space) / "log.db"
        self._reader = LogReader(path)
        try:
            self.number, self._in_force = _find(self._reader, space)
            self.version, self.config = self._in_force[-1][1:]
            self.context = Encoder(self.config.context, "$.context")
            self.items = Encoder(self.config.items, "$.features")
            self.last = self._reader.last()[0]
            self.base = read_base(self._reader, self.number)
            self.has_lists = False  # known once the first decision is given out
            first = self._in_force[0][2]
            self._rules = first.rewards, list_rules(first)
        except BaseException:
            self._reader.close()
            raise

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    @property
    def configs(self) -> list[wire.SpaceConfig]:
        """All that were in force."""
        return [config for _, _, config in self._in_force]

    def _rows(self, progress: Progress, low: float, high: float) -> Iterator[Row]:
        first = self._in_force[0][0]
        for block in rows_of(self._reader, self.number, 0, self.last):
            for row in block:
                yield Row(*row[:6])
            done = (block[-1][0] - first) / max(1, self.last - first)
            progress(low + (high - low) * done)

    def decisions(
        self,
        folder: Path,
        *,
        since: int | None = None,
        until: int | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Decision]:
        """Decisions in order; ``folder`` takes a table for the time being.

        ``since`` and ``until`` are microseconds, the first within, the second not.
        """
        report = _whole_percents(progress)
        spool = sqlite3.connect(folder / "outcomes.db", isolation_level=None)
        try:
            spool.execute("PRAGMA journal_mode=OFF")
            spool.execute("PRAGMA synchronous=OFF")
            spool.executescript(_SPOOL)
            self._fill(spool, report)
            arms = _Arms(self)
            for row in self._rows(report, 0.4, 1.0):
                if row.kind == Kind.ARMS:
                    arms.retire(DECODERS[row.kind].decode(row.body).retired)
                if row.kind != Kind.DECISION:
                    continue
                body = DECODERS[row.kind].decode(row.body)
                encoded = arms.encode(body)
                if (since is None or row.at >= since) and (until is None or row.at < until):
                    version, config = self._version_at(row.seq)
                    outcome = _outcome(spool, row.key)
                    x, features, raw, slots = encoded
                    yield Decision(row, body, version, config, x, features, raw, *outcome, slots)
            report(1.0)
        except sqlite3.Error as error:
            raise StoreError(f"{folder.parent} must have room for a while: {error}.") from None
        finally:
            spool.close()

    def _version_at(self, seq: int) -> tuple[int, wire.SpaceConfig]:
        for since, version, config in reversed(self._in_force):
            if since <= seq:
                return version, config
        return self._in_force[0][1:]

    def _fill(self, spool: sqlite3.Connection, report: Progress) -> None:
        batch: list[tuple[Any, ...]] = []
        ledger = Ledger(*self._rules)
        if self.base is not None:  # what had come of them before the log begins
            ledger = state_of(self.base).ledger
            batch = [
                (key, 0, None, None, waiting.count, waiting.count, 0, None)
                for key, waiting in ledger.pending.items()
                if waiting.count
            ]
        for row in self._rows(report, 0.0, 0.4):
            batch += _closings(row, ledger)
            self.has_lists = self.has_lists or bool(ledger.lists)
            if len(batch) >= _BATCH:
                spool.execute("BEGIN")
                spool.executemany(_TAKE, batch)
                spool.execute("COMMIT")
                batch = []
        spool.executemany(_TAKE, batch)


class _Arms:
    """Arms and their features as the log goes on, the way that a state knows them."""

    def __init__(self, history: History) -> None:
        self._context, self._items = history.context, history.items
        self._known: dict[str | int, tuple[F64, Any]] = {}
        for arm in history.base.body.arms if history.base is not None else ():
            with contextlib.suppress(InvalidInputError):
                self._known[arm.id] = self._items(arm.features, lenient=True), arm.features

    def retire(self, arms: list[str | int]) -> None:
        for arm in arms:
            self._known.pop(arm, None)

    def encode(
        self, body: DecisionRow
    ) -> tuple[F64 | None, list[F64] | None, list[Any] | None, list[F64] | None]:
        """The context and the candidates' features; nothing if a state would leave this out."""
        try:
            slots = [self._context(one, lenient=True) for one in contexts_of(body)]
            x, contexts = slots[0], slots if len(slots) > 1 else None
            if not self._items.size:
                return x, None, None, contexts
            came = {
                arm: (self._items(features, lenient=True), features)
                for arm, features in zip(body.arms, body.features or (), strict=False)
                if features is not None
            }
        except InvalidInputError:
            return None, None, None, None
        if any(arm not in came and arm not in self._known for arm in body.arms):
            return None, None, None, None
        self._known.update(came)
        pairs = [self._known[arm] for arm in body.arms]
        return x, [vector for vector, _ in pairs], [raw for _, raw in pairs], contexts


def _holding(data: Path, space: str) -> Path:
    """The directory whose log has a space: a replica has several, where there are shards."""
    for folder in logs_of(data)[1:]:
        with contextlib.closing(LogReader(folder / "log.db")) as reader:
            if any(one.wanted.name == space for one in config_histories(reader).values()):
                return folder
    return data


def _find(reader: LogReader, space: str) -> tuple[int, list[tuple[int, int, wire.SpaceConfig]]]:
    """A space's number, and since which row which version was in force."""
    histories = config_histories(reader)
    numbers = [number for number, history in histories.items() if history.wanted.name == space]
    if not numbers:
        names = {history.wanted.name for history in histories.values()}
        there = ", ".join(sorted(names)[:20]) or "none"
        raise NotFoundError(f"space must be one that the log has ({there}), got {space!r}.")
    return numbers[-1], histories[numbers[-1]].served  # of several that had the name, the last


def _closings(row: Row, ledger: Ledger) -> list[tuple[Any, ...]]:
    """What a row closed, or a reward that came; the ledger takes it."""
    body = DECODERS[row.kind].decode(row.body)
    if row.kind in (Kind.CONFIG, Kind.BUILT):
        ledger.configured(row.kind, body)
    elif row.kind == Kind.DECISION and body.id not in ledger.pending:
        due = ledger.due(row.at, body.due)
        ledger.pending[body.id] = Pending(
            row.at, due, body.arms[body.place], b"", body.probability, body.mode, True,
            body.deferred,
        )  # fmt: skip
        if body.items is not None:
            ledger.lists[body.id] = WaitingList.of(body.items, body.arms, [])
    elif row.kind == Kind.ACTIVATION:
        ledger.activated(row.at, body)
    elif row.kind == Kind.REWARD:
        state = ledger.rewarded(row.at, body)
        over, late = state is RewardState.LEARNT, state is RewardState.LATE
        at, taken = row.at if over else None, over or state is RewardState.KEPT
        learn, items = _closed(ledger, body.id, ledger.learnt(body)) if over else (None, None)
        return [(body.id, int(over), learn, at, 1, int(taken), int(late), items)]
    elif row.kind == Kind.EXPIRY:
        ended = [(key, *_closed(ledger, key, learn)) for key, learn in ledger.ended(row.at, body)]
        return [
            (key, 1 if learn is not None else 2, learn, row.at, 0, 0, 0, items)
            for key, learn, items in ended
        ]
    return []


def _closed(ledger: Ledger, key: str, learn: Learn) -> tuple[float | None, str | None]:
    """Take out a decision that is closed; what was learnt, and of a list also by item, as JSON."""
    ledger.pending.pop(key, None)
    items = ledger.lists.pop(key, None)
    if not isinstance(learn, list):
        return learn, None
    assert items is not None
    rewards: list[float | None] = [None] * len(learn)
    for play in items.plays(learn, ledger.list_rules):
        rewards[play.item] = play.reward
    return math.fsum(r for r in rewards if r is not None), msgspec.json.encode(rewards).decode()


def _outcome(
    spool: sqlite3.Connection, key: str | None
) -> tuple[str, float | None, int | None, int, list[float | None] | None]:
    row = spool.execute(
        "SELECT closed, learn, at, came, taken, late, items FROM outcome WHERE id=?", (key,)
    ).fetchone()
    if row is None:
        return "waiting", None, None, 0, None
    closed, learn, at, came, taken, late, text = row
    if closed == 0:
        return "waiting", None, None, came, None
    if closed == 2:
        return "never shown", None, None, came, None
    items = None if text is None else msgspec.json.decode(text)
    return ("matched" if taken else "late" if late else "default"), learn, at, came, items


def _whole_percents(progress: Progress | None) -> Progress:
    """Report whole percents only."""
    if progress is None:
        return lambda share: None
    last = -1

    def report(share: float) -> None:
        nonlocal last
        if int(share * 100) > last:
            last = int(share * 100)
            progress(share)

    return report
