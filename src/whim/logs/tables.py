"""CSV and Parquet files with named columns into a log, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim.checks import LARGEST, choice
from whim.errors import InvalidInputError, LogFileError
from whim.features import Features
from whim.logs.columns import Log, open
from whim.logs.encoding import Cyclic, Encoding, contexts_of
from whim.logs.frames import (
    Items,
    as_id,
    columns_of,
    guarded,
    items_of,
    matching,
    numbers,
    rewards,
    rewards_of,
    roles_of,
    scan,
)
from whim.logs.pooling import Pooling
from whim.logs.sources import Progress, Source, no_events
from whim.logs.writer import Writer
from whim.types import F64, I64, ArmId

if TYPE_CHECKING:
    import polars as pl

BATCH = 50_000  # rows

BAD_ROW = {
    "time": "time missing or not readable",
    "arm": "arm missing",
    "reward": "reward missing or not a number",
    "context": "context missing or not a number",
    "propensity": "propensity missing or outside (0, 1]",
    "candidates": "no candidate",
    "repeated": "arm twice among the candidates",
    "shown": "shown arm not among the candidates",
    "features": "shown arm without features",
}
LEFT_OUT = "candidate without features left out"
SEEN = "arms seen so far"  # the feature that a part has more than its merged log


class Table(NamedTuple):
    """Which columns of a file mean what; ``separator`` stands between candidates in text."""

    file: Path
    kind: str
    arm: str
    reward: str
    time: str | None
    propensity: str | None
    candidates: str | None
    separator: str


def convert(
    source: Source,
    path: Source,
    *,
    arm: str,
    reward: str,
    context: Sequence[str],
    time: str | None = None,
    propensity: str | None = None,
    candidates: str | None = None,
    arms: str | Sequence[ArmId] = "all",
    separator: str = "|",
    items: Source | None = None,
    item_id: str | None = None,
    item_features: Sequence[str] | None = None,
    format: str | None = None,
    logging: str | None = None,
    raw: bool = False,
    categories: Sequence[str] = (),
    cyclic: Cyclic = (),
    features: Mapping[str, Any] | Features | Source | None = None,
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    _part: bool = False,
) -> Log:
    """Read a CSV or Parquet file whose rows are events, in the order of the file.

    The columns of the context become features as ``whim.features.fit`` finds them in the first
    100,000 rows: numbers scaled, categories and what is missing a dimension each, a constant.
    ``Log.features`` has what was done.

    Parameters
    ----------
    arm, reward, context, time, propensity
        Names of columns; ``context`` takes several, and patterns such as ``"user_*"``, which leave
        out the other columns named here, and dates. Without ``time`` the row's number stands for
        it. Dates become whole seconds since 1970.
    candidates
        A column with the ids that could be shown: a list in Parquet, or text joined by
        ``separator``.
    arms
        Without such a column: ``"all"`` arms of the file, those ``"seen"`` so far, or a list.
    items, item_id, item_features
        A second file with a row for each arm: the column of its id and those of its features. A
        candidate that it lacks is left out of the pool.
    logging
        ``"uniform"``, ``"propensity"``, ``"full"``; ``None`` is ``"propensity"`` when there is
        such a column and unknown otherwise.
    raw
        Take the columns as numbers as they are; a row with a gap is dropped, nothing is added.
    categories
        Columns of the context that are categories although they look like numbers.
    cyclic
        Columns that come round, with their period, as for ``whim.features.fit``.
    features
        Use these instead of fitting: ``Features``, their dict, or a log or JSON file with them.
    strict
        Stop at the first row that cannot be used.
    """
    file = Path(source)
    kind = format or ("parquet" if file.suffix.lower() in (".parquet", ".pq") else "csv")
    table = Table(
        file, choice("format", kind, ("csv", "parquet")), arm, reward, time, propensity, candidates,
        separator,
    )  # fmt: skip
    if items is not None and (item_id is None or not item_features):
        raise InvalidInputError("item_id and item_features must be given with items.")
    about = (
        None if items is None else items_of(Path(items), str(item_id), list(item_features or []))
    )
    if isinstance(arms, str) and candidates is None:
        choice("arms", arms, ("all", "seen"))
    lazy = scan(file, table.kind)
    options: dict[str, Any] = {
        "arm": arm, "reward": reward, "time": time, "propensity": propensity,
        "candidates": candidates, "arms": "given" if not isinstance(arms, str) else arms,
        "items": None if items is None else Path(items).name,
    }  # fmt: skip
    names, matrix, encoding = contexts_of(
        lazy, file, table.kind, context, roles=roles_of(options), raw=raw,
        categories=categories, cyclic=cyclic, features=features,
    )  # fmt: skip
    if encoding is not None and encoding.left_out:
        options["left_out"] = encoding.left_out
    return write_table(
        lazy, table, path, names=names, matrix=matrix, encoding=encoding, arms=arms,
        items=about, logging=logging or ("propensity" if propensity else None), strict=strict,
        overwrite=overwrite, progress=progress, part=_part,
        source={"reader": table.kind, "files": [file.name], "options": options},
    )  # fmt: skip


def write_table(
    lazy: pl.LazyFrame,
    table: Table,
    path: Source,
    *,
    names: Sequence[str],
    matrix: Callable[[pl.DataFrame], F64],
    encoding: Encoding | None = None,
    arms: str | Sequence[ArmId],
    items: Items | None,
    logging: str | None,
    strict: bool,
    overwrite: bool,
    progress: Progress | None,
    source: dict[str, Any],
    part: bool = False,
) -> Log:
    """The rows of ``lazy`` into a log; ``matrix`` makes contexts of a batch.

    With ``part`` the rows are some of a longer table, and the log is one for ``merge``: where the
    pool of an event depends on other parts it holds the shown arm alone, and the number of arms
    seen so far is one more feature; ``source`` says so, and which arms there are.
    """
    columns = columns_of(lazy, table.file)
    for what in ("arm", "reward", "time", "propensity", "candidates"):
        name = getattr(table, what)
        if name is not None:
            matching([name], columns, what, table.file)
    order = str(arms) if part and table.candidates is None and isinstance(arms, str) else None
    pools = None if order else _fixed(lazy, table, arms)
    pooling = Pooling(table.candidates, table.separator, pools, order)
    seen: list[ArmId] = []
    if part:  # the list is filled in below, before the writer writes it
        source = source | {"part": {"order": order, "rows": table.time is None, "arms": seen}}
    names = [*names, SEEN] if order == "seen" else names
    with Writer(
        path, n_features=len(names), n_item_features=0 if items is None else len(items.names),
        logging=logging, source=source, propensities=table.propensity is not None,
        context_names=names, item_names=None if items is None else items.names, overwrite=overwrite,
        encoding=None if encoding is None else encoding.features.to_dict(),
    ) as writer:  # fmt: skip
        for frame in batches(lazy, table.file, progress):
            _batch(writer, frame, table, matrix(frame), pooling, items, strict)
            writer.read += len(frame)
        for what, count in ({} if encoding is None else encoding.noticed).items():
            writer.warn(what, count)
        if order:
            seen += pooling.seen
        if not writer.n_events and not part:
            hint = _odd_reward(lazy, table) if writer.dropped.get(BAD_ROW["reward"]) else ""
            raise no_events([table.file], writer.dropped, "it is empty", hint)
    return open(path)


def _odd_reward(lazy: pl.LazyFrame, table: Table) -> str:
    """What stands where numbers should, in words."""
    import polars as pl

    cell, kind = pl.col(table.reward), lazy.collect_schema()[table.reward]
    odd = lazy.filter(cell.is_not_null() & rewards_of(table.reward, kind).is_null())
    found = guarded(table.file, lambda: odd.select(cell).head(1).collect())[table.reward].to_list()
    return f"; {table.reward} must hold numbers, got {found[0]!r}" if found else ""


def _fixed(
    lazy: pl.LazyFrame, table: Table, arms: str | Sequence[ArmId]
) -> tuple[ArmId, ...] | None:
    """The pool of every event, if it is one; ``None`` if events differ."""
    import polars as pl

    if table.candidates is not None or arms == "seen":
        return None
    if isinstance(arms, str):
        column = pl.col(table.arm)
        query = lazy.select(column.drop_nulls().unique(maintain_order=True))
        values = guarded(table.file, lambda: query.collect(engine="streaming"))[table.arm].to_list()
        return tuple(dict.fromkeys(as_id(value) for value in values))
    ids = tuple(as_id(arm) for arm in arms)
    if not ids or len(set(ids)) < len(ids):
        raise InvalidInputError(f"arms must be different ids, at least one, got {list(arms)!r}.")
    return ids


def batches(lazy: pl.LazyFrame, file: Path, progress: Progress | None) -> Iterator[pl.DataFrame]:
    import polars as pl

    total = guarded(file, lambda: lazy.select(pl.len()).collect(engine="streaming")).item()
    size, reported, done = file.stat().st_size, 0, 0
    batches = guarded(
        file, lambda: lazy.collect_batches(chunk_size=BATCH, maintain_order=True, lazy=True)
    )
    while (frame := guarded(file, lambda: next(batches, None))) is not None:
        yield frame
        done += len(frame)
        if progress is not None and total:
            progress(size * done // total - reported)
            reported = size * done // total


def _batch(
    writer: Writer,
    frame: pl.DataFrame,
    table: Table,
    context: F64,
    pooling: Pooling,
    items: Items | None,
    strict: bool,
) -> None:
    """Check the rows, find their pools, write those that are whole."""
    why = np.full(len(frame), "", object)

    def refuse(reason: str, bad: Any) -> None:
        why[np.asarray(bad, bool) & (why == "")] = BAD_ROW[reason]

    time = times(frame, table.time, writer.read)
    refuse("time", np.isnan(time))
    ids = [as_id(value) for value in frame[table.arm].to_list()]
    refuse("arm", [arm is None for arm in ids])
    reward = rewards(frame, table.reward)
    refuse("reward", ~(np.abs(reward) <= LARGEST))
    refuse("context", ~(np.abs(context) <= LARGEST).all(axis=1))
    propensity = None
    if table.propensity is not None:
        propensity = numbers(frame, [table.propensity])[:, 0]
        refuse("propensity", ~((propensity > 0) & (propensity <= 1)))
    pools, pool = pooling.pools(frame, ids)
    if pooling.counts is not None:
        context = np.column_stack([context, pooling.counts])
    known = _Known(items)
    places = [known.pool(members) for members in pools]
    logged = _logged(ids, [places[p] for p in pool.tolist()], why)
    keep = why == ""
    if strict and not keep.all():
        first = int(np.argmin(keep))
        raise LogFileError(f"{table.file}, row {writer.read + first + 1}: {why[first]}.")
    for reason in why[~keep].tolist():
        writer.drop(reason)
    writer.warn(LEFT_OUT, sum(len(places[p].lacking) for p in pool[keep].tolist()))
    used, local = np.unique(pool[keep], return_inverse=True)
    members = [list(places[p].places) for p in used.tolist()]
    writer.block(
        time=time[keep].astype(np.int64), context=context[keep], pool=local, logged=logged[keep],
        reward=reward[keep], propensity=None if propensity is None else propensity[keep],
        pool_offsets=np.cumsum([0, *map(len, members)]),
        pool_items=np.array([known.number[arm] for each in members for arm in each], np.int64),
        item_arm=list(known.number), item_features=known.features(),
    )  # fmt: skip


def _logged(ids: list[ArmId], pools: list[_Pool], why: npt.NDArray[Any]) -> I64:
    """The place of the shown arm in each row's pool; ``why`` is filled in where it has none."""
    logged = np.zeros(len(ids), np.int64)
    for i in np.flatnonzero(why == "").tolist():
        place = pools[i].places.get(ids[i])
        if pools[i].why or place is None:
            lacks = ids[i] in pools[i].lacking
            why[i] = BAD_ROW[pools[i].why or ("features" if lacks else "shown")]
        else:
            logged[i] = place
    return logged


class _Pool(NamedTuple):
    places: dict[ArmId, int]
    lacking: set[ArmId]
    why: str


class _Known:
    """A batch's items, numbered as its pools name them."""

    def __init__(self, items: Items | None) -> None:
        self.items = items
        self.number: dict[ArmId, int] = {}

    def pool(self, members: Sequence[ArmId]) -> _Pool:
        lacking: set[ArmId] = set()
        if self.items is not None:
            lacking = {arm for arm in members if arm not in self.items.features}
        kept = [arm for arm in members if arm not in lacking]
        places = {arm: place for place, arm in enumerate(kept)}
        if len(places) < len(kept):
            return _Pool({}, set(), "repeated")
        for arm in kept:
            self.number.setdefault(arm, len(self.number))
        return _Pool(places, lacking, "" if members else "candidates")

    def features(self) -> F64 | None:
        if self.items is None:
            return None
        rows = [self.items.features[arm] for arm in self.number]
        return np.array(rows).reshape(len(rows), len(self.items.names))


def times(frame: pl.DataFrame, name: str | None, row: int) -> F64:
    """Whole seconds or whatever whole numbers there are; nan where there is none."""
    import polars as pl

    if name is None:
        return np.arange(row, row + len(frame), dtype=np.float64)
    column = frame[name]
    if column.dtype == pl.String:
        numeric = column.cast(pl.Float64, strict=False)
        if numeric.null_count() < len(column):
            column = numeric
        else:
            column = column.str.to_datetime(strict=False, time_zone="UTC", time_unit="us")
    if column.dtype.is_temporal():
        column = column.cast(pl.Datetime("us")).dt.epoch("s")
    seconds: F64 = np.floor(column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy())
    seconds[~(np.abs(seconds) < 2**53)] = np.nan
    return seconds
