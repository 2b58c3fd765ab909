"""Rows of a table as decisions and rewards of a space, for ``whim spaces learn``.

What others showed is learnt by a space in shadow mode, whose log says so. A row's decision has one
candidate, what was shown: any policy would have chosen it, so no estimate gains anything from it.
A reward that the space refuses is found before the decisions of its request are sent: one that had
been decided would be learnt with the default. Ids that repeat are found before anything is sent.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from whim.errors import InvalidInputError, LogFileError

if TYPE_CHECKING:
    import polars as pl

    from whim.client import Client, Rewarded, ServiceError, SpaceConfig
    from whim.features import Features

_TOGETHER = 500  # decisions of a request
_MANY = 0.2  # share of rows without a reward from which they are hardly there by accident
_NAMED = 5  # rows that an error names


class Columns(NamedTuple):
    """Where a row has what was shown, its reward and, if it has one, its id."""

    arm: str
    reward: str
    id: str | None


class _Ids:
    """Names for rows without one: by their file, what they hold, and how many were alike before.

    Not by their number, so that a row may be removed before the same command goes on.
    """

    def __init__(self, file: Path) -> None:
        self._file, self._prefix = file.name[:100], str(file.resolve()).encode()
        self._alike: Counter[bytes] = Counter()

    def name(self, row: tuple[Any, ...]) -> str:
        """The next row's."""
        held = hashlib.blake2b(self._prefix + repr(row).encode(), digest_size=9)
        self._alike[held.digest()] += 1
        return f"{self._file}:{held.hexdigest()}:{self._alike[held.digest()]}"


class Learnt(NamedTuple):
    """What became of rewards, by their state, and of rows that were left out, by the reason."""

    states: Counter[str]
    dropped: Counter[str]
    noticed: Counter[str]


def check(file: Path, named: Columns) -> list[str]:
    """Refuse a table whose ids repeat; what is odd about its rewards, in sentences."""
    import polars as pl

    from whim.logs.frames import guarded, rewards_of

    lazy = _opened(file, named)
    if named.id is not None:
        _check_ids(lazy, file, named.id)
    reward = rewards_of(named.reward, lazy.collect_schema()[named.reward])
    told = lazy.select(
        pl.len(), reward.count().alias("usable"), reward.min().alias("least"),
        reward.max().alias("most"),
    )  # fmt: skip
    rows, usable, least, most = guarded(file, lambda: told.collect(engine="streaming")).row(0)
    odd = []
    if rows - usable > _MANY * rows:
        odd.append(
            f"{rows - usable:,} of {rows:,} rows have no reward in {named.reward!r} (a number, "
            "true or false, yes or no) and are left out. If blank means that nothing came, write "
            "0 there: without those rows every arm looks better than it is."
        )
    if usable > 1 and least == most:
        odd.append(
            f"all {usable:,} rewards in {named.reward!r} are {least:g}, from which no policy can "
            "learn what is liked more. Are the rows without a click missing?"
        )
    return odd


def _opened(file: Path, named: Columns) -> pl.LazyFrame:
    from whim.logs.frames import columns_of, matching, scan

    lazy = scan(file, "parquet" if file.suffix.lower() in (".parquet", ".pq") else "csv")
    have = columns_of(lazy, file)
    for what, name in named._asdict().items():
        if name is not None:
            matching([name], have, what, file)
    return lazy


def _check_ids(lazy: pl.LazyFrame, file: Path, name: str) -> None:
    """Raise if a column of ids holds one twice: a second decision of that id would be refused."""
    import polars as pl

    from whim.logs.frames import guarded

    number, text = pl.row_index("row"), pl.col(name).cast(pl.String).alias("id")
    told = lazy.select(number + 1, text).filter(pl.col("id") != "")
    counts = told.group_by("id").agg(pl.len(), pl.col("row").min()).filter(pl.col("len") > 1)
    totals = counts.select(pl.len().alias("ids"), pl.col("len").sum())
    ids, rows = guarded(file, lambda: totals.collect(engine="streaming")).row(0)
    if not ids:
        return
    first = guarded(file, lambda: counts.bottom_k(1, by="row").collect(engine="streaming"))
    repeated = first["id"][0]
    where = told.filter(pl.col("id") == repeated).head(_NAMED)
    at = sorted(guarded(file, lambda: where.collect())["row"].to_list())
    more = " …" if first["len"][0] > len(at) else ""
    raise LogFileError(
        f"{file}: id must be a column with another value in each row, got {name!r}, which has "
        f"{repeated!r} in rows {', '.join(map(str, at))}{more}; {ids:,} such values are in "
        f"{rows:,} rows. Nothing was sent. Without --id each row gets an id of its own."
    )


def learn(
    client: Client, space: str, file: Path, named: Columns, progress: Callable[[int], object]
) -> Learnt:
    """Send a table's rows, oldest first, to a space that is in shadow mode."""
    from whim.logs.encoding import Encoding
    from whim.logs.frames import columns_of, matching
    from whim.logs.tables import batches

    config = client.space(space).config
    encoding, ids = Encoding(_features(space, config)), _Ids(file)
    lazy = _opened(file, named)
    if encoding.columns:
        matching(encoding.columns, columns_of(lazy, file), "the context of the space", file)
    wanted = dict.fromkeys([*encoding.columns, *filter(None, named)])
    sender = _Sender(client, space, file)
    learnt, row = Learnt(sender.states, Counter(), encoding.noticed), 0
    for frame in batches(lazy.select(list(wanted)), file, progress):
        for start in range(0, len(frame), _TOGETHER):
            part = frame.slice(start, _TOGETHER)
            rows = _rows(part, encoding.rows(part), named, ids, row, learnt.dropped)
            _check_rewards(rows, space, config, file)
            if rows:
                sender.send(rows)
            row += len(part)
    if not learnt.states:
        reasons = "; ".join(f"{n} × {why}" for why, n in learnt.dropped.items()) or "it has none"
        raise LogFileError(f"{file} must have rows that can be learnt: {reasons}.")
    return learnt


def _features(space: str, config: SpaceConfig) -> Features:
    """How the space encodes contexts; refuse a space that cannot learn from a table."""
    import msgspec

    from whim.features import Features

    if not config.shadow:
        raise InvalidInputError(
            f"shadow of {space} must be true while it learns what others showed, got false: "
            f"whim spaces change {space} --set shadow=true --wait."
        )
    if not config.context.fields:
        raise InvalidInputError(
            f"context of {space} must have fields, which name the columns, got a vector of "
            f"{config.context.size}: whim spaces create NAME --features LOG makes such a space."
        )
    if config.items.size or config.items.fields or config.items.rest:
        raise InvalidInputError(
            f"items of {space} must have no features, which a row does not say, got some."
        )
    return Features.from_dict(msgspec.to_builtins(config.context))


class _Row(NamedTuple):
    number: int
    decision: dict[str, Any]
    reward: dict[str, Any]


def _rows(
    frame: pl.DataFrame,
    contexts: Sequence[dict[str, Any]],
    named: Columns,
    made: _Ids,
    first: int,
    dropped: Counter[str],
) -> list[_Row]:
    """The rows of a table that have all that is needed."""
    from whim.logs.frames import as_id, rewards_of

    arms = [as_id(cell) for cell in frame[named.arm].to_list()]
    reward = rewards_of(named.reward, frame.schema[named.reward])
    rewards = frame.select(reward).to_series().to_list()
    ids: list[Any]
    if named.id is None:
        ids = [made.name(row) for row in frame.iter_rows()]
    else:
        ids = frame[named.id].to_list()
    rows = []
    for i, (key, arm, reward, context) in enumerate(zip(ids, arms, rewards, contexts, strict=True)):
        if arm is None or arm == "":
            dropped["no arm"] += 1
        elif reward is None:
            dropped["no reward"] += 1
        elif key is None or key == "":
            dropped["no id"] += 1
        else:
            one = {"decision_id": str(key), "candidates": [arm], "context": context}
            # the reward has the same id, so that a row that is sent again is not learnt again
            said = {"decision_id": str(key), "reward_id": str(key), "value": reward}
            rows.append(_Row(first + i + 1, one, said))
    return rows


def _check_rewards(rows: Sequence[_Row], space: str, config: SpaceConfig, file: Path) -> None:
    """Raise, before anything is sent, if the space refuses a reward."""
    import msgspec

    allowed = config.rewards.range
    if isinstance(allowed, msgspec.UnsetType) or allowed.outside == "clip":
        return
    for row in rows:
        if not allowed.least <= row.reward["value"] <= allowed.most:
            raise LogFileError(
                f"{file}: the reward of row {row.number} must be from {allowed.least:g} to "
                f"{allowed.most:g}, as rewards.range of {space} says, got {row.reward['value']:g}. "
                + _goes_on(rows[0].number)
            )


def _goes_on(number: int) -> str:
    before = f"Rows before {number} are learnt" if number > 1 else "No row is learnt yet"
    return f"{before}; once it is mended or removed, the same command goes on."


class _Sender:
    """Sends rows, and counts what became of their rewards.

    A decision that was made before is answered as a new one is, but not counted again. Where none
    was new, the first and the last reward tell whether all came before, for they are sent in order.
    """

    def __init__(self, client: Client, space: str, file: Path) -> None:
        self._client, self._space, self._file = client, space, file
        self.states: Counter[str] = Counter()
        self._decisions = self._counted()

    def send(self, rows: Sequence[_Row]) -> None:
        """Decisions and then their rewards; those that are accepted count before one is refused."""
        from whim.client import ServiceError

        try:
            answers = self._client.decide_many([row.decision for row in rows], space=self._space)
        except ServiceError as error:  # of all, for what is wrong with one
            found = re.match(r"\$\.decisions\[(\d+)\]", error.path or "")
            if found is None:
                raise
            wrong = self._must_take(rows[int(found[1])].number, error)
            raise LogFileError(wrong + _goes_on(rows[0].number)) from None
        asked = list(zip(rows, answers, strict=True))
        refused = {row.number: it for row, it in asked if isinstance(it, ServiceError)}
        undecided, before = len(refused), self._decisions
        self._decisions = self._counted()
        taken = [row for row in rows if row.number not in refused]
        results = self._rewards(taken, known=self._decisions == before)
        for row, result in zip(taken, results, strict=True):
            if isinstance(result, ServiceError):
                refused[row.number] = result
            else:
                self.states[result.state] += 1
        if refused:
            raise LogFileError(self._refusal(rows, refused, len(refused) - undecided))

    def _counted(self) -> int:
        """How many decisions the space has had."""
        return int(self._client.stats(space=self._space)["counts"]["decisions"])

    def _rewards(self, rows: Sequence[_Row], known: bool) -> list[Rewarded | ServiceError]:
        """What becomes of rewards; those between two of closed decisions are not sent again."""
        if not known or len(rows) < 3:
            return self._sent(rows)
        first = self._sent(rows[:1])
        if not _came_before(first[0]):
            return first + self._sent(rows[1:])
        last = self._sent(rows[-1:])
        between = last * (len(rows) - 2) if _came_before(last[0]) else self._sent(rows[1:-1])
        return first + between + last

    def _sent(self, rows: Sequence[_Row]) -> list[Rewarded | ServiceError]:
        rewards = [row.reward for row in rows]
        return self._client.reward_many(rewards, space=self._space) if rewards else []

    def _must_take(self, number: int, error: ServiceError) -> str:
        return f"{self._file}: row {number} must be one that {self._space} takes: {error} "

    def _refusal(self, rows: Sequence[_Row], refused: dict[int, ServiceError], decided: int) -> str:
        """What was refused, what was learnt all the same, and what to do."""
        numbers = sorted(refused)
        error = refused[numbers[0]]
        named = ", ".join(map(str, numbers[:_NAMED])) + (" …" if len(numbers) > _NAMED else "")
        said = self._must_take(numbers[0], error)
        if error.code == "conflict":
            said += (
                "It was sent before with other content; a row that is another needs another id. "
            )
        said += (
            f"Of rows {rows[0].number} to {rows[-1].number}, {len(numbers):,} are refused "
            f"({named}); the others and all before them are learnt, none after them is sent. "
        )
        if decided:
            said += f"Of {decided:,} only the reward is refused: they get the default. "
        return said + "Once they are mended or removed, the same command goes on."


def _came_before(result: Rewarded | ServiceError) -> bool:
    """Whether a reward was for a decision that is closed, or the same came before."""
    from whim.client import ServiceError

    return not isinstance(result, ServiceError) and result.state in ("duplicate", "late")
