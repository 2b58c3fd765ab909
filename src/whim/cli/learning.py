"""Rows of a table as decisions and rewards of a space, for ``whim spaces learn``.

What others showed is learnt by a space in shadow mode, whose log says so. A row's decision has one
candidate, what was shown: any policy would have chosen it, so no estimate gains anything from it.
A reward that the space refuses is found before the decisions of its request are sent: one that had
been decided would be learnt with the default.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from whim.checks import LARGEST
from whim.errors import InvalidInputError, LogFileError

if TYPE_CHECKING:
    import polars as pl

    from whim.client import Answer, Client, Rewarded, SpaceConfig
    from whim.features import Features

_TOGETHER = 500  # decisions of a request


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


def learn(
    client: Client, space: str, file: Path, named: Columns, progress: Callable[[int], object]
) -> Learnt:
    """Send a table's rows, oldest first, to a space that is in shadow mode."""
    from whim.logs.encoding import Encoding
    from whim.logs.frames import columns_of, matching, scan
    from whim.logs.tables import batches

    config = client.space(space).config
    encoding, ids = Encoding(_features(space, config)), _Ids(file)
    kind = "parquet" if file.suffix.lower() in (".parquet", ".pq") else "csv"
    lazy = scan(file, kind)
    have = columns_of(lazy, file)
    for what, name in named._asdict().items():
        if name is not None:
            matching([name], have, what, file)
    if encoding.columns:
        matching(encoding.columns, have, "the context of the space", file)
    wanted = dict.fromkeys([*encoding.columns, *filter(None, named)])
    learnt, row = Learnt(Counter(), Counter(), encoding.noticed), 0
    for frame in batches(lazy.select(list(wanted)), file, progress):
        for start in range(0, len(frame), _TOGETHER):
            part = frame.slice(start, _TOGETHER)
            rows = _rows(part, encoding.rows(part), named, ids, row, learnt.dropped)
            _check_rewards(rows, space, config, file)
            _send(client, space, file, rows, learnt.states)
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
    from whim.logs.frames import as_id, numbers

    arms = [as_id(cell) for cell in frame[named.arm].to_list()]
    rewards = numbers(frame, [named.reward])[:, 0]
    ids: list[Any]
    if named.id is None:
        ids = [made.name(row) for row in frame.iter_rows()]
    else:
        ids = frame[named.id].to_list()
    rows = []
    for i, (key, arm, reward, context) in enumerate(zip(ids, arms, rewards, contexts, strict=True)):
        if arm is None or arm == "":
            dropped["no arm"] += 1
        elif not np.abs(reward) <= LARGEST:
            dropped["no reward"] += 1
        elif key is None or key == "":
            dropped["no id"] += 1
        else:
            one = {"decision_id": str(key), "candidates": [arm], "context": context}
            # the reward has the same id, so that a row that is sent again is not learnt again
            said = {"decision_id": str(key), "reward_id": str(key), "value": float(reward)}
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
    return (
        f"Rows before {number} are learnt; once it is mended or removed, the same command goes on."
    )


def _send(
    client: Client, space: str, file: Path, rows: Sequence[_Row], states: Counter[str]
) -> None:
    """Decisions and then their rewards; those that are accepted count before one is refused."""
    from whim.client import ServiceError

    if not rows:
        return
    answers = client.decide_many([row.decision for row in rows], space=space)
    said: list[tuple[_Row, Answer | Rewarded | ServiceError]]
    said = [*zip(rows, answers, strict=True)]
    taken = [row for row, answer in said if not isinstance(answer, ServiceError)]
    results = client.reward_many([row.reward for row in taken], space=space) if taken else []
    said += zip(taken, results, strict=True)
    for result in results:
        if not isinstance(result, ServiceError):
            states[result.state] += 1
    for row, error in said:
        if isinstance(error, ServiceError):
            raise LogFileError(
                f"{file}: row {row.number} must be one that {space} takes: {error} "
                + _goes_on(rows[0].number)
            )
