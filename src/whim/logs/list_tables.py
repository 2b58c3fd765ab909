"""CSV and Parquet files with one row per shown item into a log of lists.

Rows of a list stand together and share its id; their order, or a column of positions, is the order
from the top. What belongs to the list as a whole (time, context, candidates) is its first row's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from whim.checks import LARGEST, choice
from whim.errors import InvalidInputError, LogFileError
from whim.logs.columns import Log, open
from whim.logs.frames import (
    as_id,
    columns_of,
    guarded,
    matching,
    numbers,
    rewards,
    roles_of,
    scan,
)
from whim.logs.list_writer import ListWriter
from whim.logs.sources import Progress, Source, no_events
from whim.logs.tables import BAD_ROW, batches, times
from whim.types import ArmId

if TYPE_CHECKING:
    import polars as pl

BAD_LIST = BAD_ROW | {
    "position": "position missing, not a number or twice in a list",
    "twice": "arm twice in a list",
    "prefix": "prefix probability missing, outside (0, 1], rising or above the item's",
}


class _Names(NamedTuple):
    list: str
    arm: str
    reward: str
    position: str | None
    time: str | None
    propensity: str | None
    prefix_propensity: str | None
    candidates: str | None
    separator: str


class _Bad(Exception):  # noqa: N818 - never leaves this module
    """A list that cannot be used, by the reason's name."""


def convert(
    source: Source,
    path: Source,
    *,
    list: str,
    arm: str,
    reward: str,
    context: Sequence[str],
    position: str | None = None,
    time: str | None = None,
    propensity: str | None = None,
    prefix_propensity: str | None = None,
    candidates: str | None = None,
    arms: str | Sequence[ArmId] = "all",
    separator: str = "|",
    format: str | None = None,
    logging: str | None = None,
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Log:
    """Read a file whose rows are shown items; a list is dropped whole if one of its rows is bad.

    Parameters
    ----------
    list, position
        Columns: the list's id, and the item's position (the least is the top). Without positions
        rows are in order from the top.
    arm, reward, context, time, candidates, separator
        As those of ``tables.convert``; without ``time`` the list's number stands for it.
    propensity, prefix_propensity
        Columns: the probability of the item at its position, and that of the list up to and
        including it; both or neither.
    arms
        Without candidates: ``"all"`` arms of the file, or a list.
    logging
        ``"uniform"`` or ``"propensity"``; None is ``"propensity"`` when there are such columns.
    """
    file = Path(source)
    kind = format or ("parquet" if file.suffix.lower() in (".parquet", ".pq") else "csv")
    choice("format", kind, ("csv", "parquet"))
    if (propensity is None) != (prefix_propensity is None):
        raise InvalidInputError("propensity and prefix_propensity must be given both or neither.")
    if isinstance(arms, str) and candidates is None:
        choice("arms", arms, ("all",))
    names = _Names(
        list, arm, reward, position, time, propensity, prefix_propensity, candidates, separator
    )
    lazy = scan(file, kind)
    columns = columns_of(lazy, file)
    for what, name in names._asdict().items():
        if what != "separator" and name is not None:
            matching([name], columns, what, file)
    features = matching(context, columns, "context", file, roles_of(names._asdict()))
    _check_together(lazy, list, file)
    fixed = None if candidates is not None else _all_arms(lazy, arm, arms, file)
    about = {"reader": kind, "files": [file.name], "options": names._asdict()}
    with ListWriter(
        path, n_features=len(features), logging=logging or ("propensity" if propensity else None),
        propensities=propensity is not None, source=about, context_names=features,
        overwrite=overwrite,
    ) as writer:  # fmt: skip
        row = 0
        for frame in _whole_lists(batches(lazy, file, progress), list):
            writer.read += len(frame)
            for rows in frame.partition_by(list, maintain_order=True):
                try:
                    writer.add_list(**_one(rows, names, features, fixed, writer.n_events))
                except _Bad as why:
                    if strict:
                        raise LogFileError(
                            f"{file}, row {row + 1}: {BAD_LIST[str(why)]}."
                        ) from None
                    writer.drop(BAD_LIST[str(why)], len(rows))
                row += len(rows)
        if not writer.n_events:
            raise no_events([file], writer.dropped, "it is empty")
    return open(path)


def _check_together(lazy: pl.LazyFrame, name: str, file: Path) -> None:
    import polars as pl

    column = pl.col(name)
    query = lazy.select(
        missing=column.null_count(), unique=column.n_unique(),
        runs=(column != column.shift()).fill_null(True).sum(),
    )  # fmt: skip
    missing, unique, runs = guarded(file, lambda: query.collect()).row(0)
    if missing:
        raise LogFileError(f"{file}: {name} must name the list of every row, got {missing} empty.")
    if runs > unique:
        raise LogFileError(f"{file}: rows of a list must stand together: sort by {name} first.")


def _all_arms(lazy: pl.LazyFrame, arm: str, arms: str | Sequence[ArmId], file: Path) -> list[ArmId]:
    import polars as pl

    if isinstance(arms, str):
        query = lazy.select(pl.col(arm).drop_nulls().unique(maintain_order=True))
        arms = guarded(file, lambda: query.collect())[arm].to_list()
    return [*dict.fromkeys(as_id(each) for each in arms)]


def _whole_lists(frames: Iterator[pl.DataFrame], name: str) -> Iterator[pl.DataFrame]:
    """Batches cut between lists: the last list of a batch waits for the next one."""
    import polars as pl

    rest: pl.DataFrame | None = None
    for batch in frames:
        frame = batch if rest is None else pl.concat([rest, batch])
        last = frame[name] == frame[name][-1]
        cut = len(frame) - int(last.sum())
        rest = frame[cut:]
        if cut:
            yield frame[:cut]
    if rest is not None and len(rest):
        yield rest


def _one(
    rows: pl.DataFrame, names: _Names, features: Sequence[str], fixed: list[ArmId] | None, n: int
) -> dict[str, Any]:
    """The rows of one list as ``add_list`` takes them."""
    if names.position is not None:
        at = numbers(rows, [names.position])[:, 0]
        if np.isnan(at).any() or len(set(at.tolist())) < len(at):
            raise _Bad("position")
        rows = rows[np.argsort(at)]
    when = times(rows[:1], names.time, n)
    x = numbers(rows[:1], features)[0]
    shown = [as_id(value) for value in rows[names.arm].to_list()]
    earned = rewards(rows, names.reward)
    pool = fixed
    if pool is None:
        cell = rows[str(names.candidates)][0]
        texts = cell.split(names.separator) if isinstance(cell, str) else cell
        pool = [
            as_id(c.strip() if isinstance(c, str) else c) for c in (() if texts is None else texts)
        ]
    for reason, bad in (
        ("time", np.isnan(when).any()),
        ("arm", None in shown),
        ("reward", not (np.abs(earned) <= LARGEST).all()),
        ("context", not (np.abs(x) <= LARGEST).all()),
        ("twice", len(set(shown)) < len(shown)),
        ("candidates", not pool),
        ("repeated", len(set(pool)) < len(pool)),
        ("shown", not set(shown) <= set(pool)),
    ):
        if bad:
            raise _Bad(reason)
    found = {"time": int(when[0]), "x": x, "arms": pool, "shown": shown, "rewards": earned}
    if names.propensity is not None:
        p, prefixes = numbers(rows, [names.propensity, str(names.prefix_propensity)]).T
        if not ((p > 0) & (p <= 1)).all():
            raise _Bad("propensity")
        above = np.minimum(p, np.concatenate([[1.0], prefixes[:-1]]))
        if not ((prefixes > 0) & (prefixes <= above * (1 + 1e-9))).all():
            raise _Bad("prefix")
        found |= {"probabilities": p, "prefix_probabilities": prefixes}
    return found
