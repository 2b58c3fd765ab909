"""Open Bandit (ZOZOTOWN): a campaign's CSV and its items into a log with propensities."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from whim.checks import LARGEST, choice
from whim.errors import LogFileError
from whim.logs.columns import Log
from whim.logs.frames import Items, as_id, columns_of, guarded, numbers, scan
from whim.logs.sources import Progress, Source
from whim.logs.tables import Table, write_table
from whim.types import F64

if TYPE_CHECKING:
    import polars as pl

_ITEMS = "item_context.csv"


def convert(
    source: Source,
    path: Source,
    *,
    logging: str = "propensity",
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Log:
    """Read ``{campaign}.csv`` and the ``item_context.csv`` beside it, or the folder with both.

    Every item is a candidate of every event. A context is a constant, the position (1..3) and
    the hashed user features, each with one 0/1 feature a value. An item's features are the
    numeric ones and one 0/1 feature for each hashed value. The user-item affinities are left out.

    Parameters
    ----------
    logging
        ``"propensity"``, or ``"uniform"`` for the campaigns shown at random: every propensity
        must then be 1 / items.
    """
    choice("logging", logging, ("propensity", "uniform"))
    events, items = files_in(Path(source))
    about = _items(items)
    lazy = scan(events, "csv")
    columns = columns_of(lazy, events)
    hashed = [name for name in columns if name.startswith("user_feature")]
    for name in ("timestamp", "item_id", "position", "click", "propensity_score"):
        if name not in columns:
            raise LogFileError(f"{events} is not Open Bandit's: it has no column {name!r}.")
    if logging == "uniform":
        _check_uniform(lazy, events, len(about.features))
    values = _values(lazy, events, ["position", *hashed])

    def matrix(frame: pl.DataFrame) -> F64:
        return np.column_stack([np.ones(len(frame)), *_one_hot(frame, values)])

    names = ["constant", *(f"{name}={value}" for name, each in values.items() for value in each)]
    table = Table(
        events, "csv", "item_id", "click", "timestamp", "propensity_score", None, "|"
    )  # fmt: skip
    return write_table(
        lazy, table, path, names=names, matrix=matrix, arms=list(about.features), items=about,
        logging=logging, strict=strict, overwrite=overwrite, progress=progress,
        source={"reader": "open-bandit", "files": [events.name, items.name]},
    )  # fmt: skip


def files_in(source: Path) -> tuple[Path, Path]:
    """The events' file and the items' file."""
    folder = source if source.is_dir() else source.parent
    items = folder / _ITEMS
    others = [source] if source.is_file() else sorted(set(folder.glob("*.csv")) - {items})
    if not items.is_file():
        raise LogFileError(f"{folder} has no {_ITEMS}.")
    if len(others) != 1:
        raise LogFileError(f"{folder} must hold one campaign beside {_ITEMS}, got {len(others)}.")
    return others[0], items


def _check_uniform(lazy: pl.LazyFrame, file: Path, n_items: int) -> None:
    import polars as pl

    score = pl.col("propensity_score").cast(pl.Float64, strict=False)
    ends = guarded(file, lambda: lazy.select(low=score.min(), high=score.max()).collect())
    for value in ends.row(0):
        if value is None or abs(value * n_items - 1) > 1e-3:
            raise LogFileError(
                f"{file}: under uniform logging every propensity must be 1/{n_items}, got {value}."
            )


def _values(lazy: pl.LazyFrame, file: Path, names: list[str]) -> dict[str, list[str]]:
    """The different values of some columns, sorted, so that their order is always the same."""
    import polars as pl

    query = lazy.select(pl.col(name).drop_nulls().unique().sort().implode() for name in names)
    return {name: guarded(file, query.collect)[name][0].to_list() for name in names}


def _one_hot(frame: pl.DataFrame, values: dict[str, list[str]]) -> list[F64]:
    """A column for each value; a row without any value is nan, so that it is dropped."""
    blocks = []
    for name, each in values.items():
        cells = np.array(frame[name].to_list(), object)
        block = (cells[:, None] == np.array(each, object)[None, :]).astype(np.float64)
        block[~block.any(axis=1)] = np.nan
        blocks.append(block)
    return blocks


def _items(file: Path) -> Items:
    lazy = scan(file, "csv")
    columns = columns_of(lazy, file)
    if "item_id" not in columns:
        raise LogFileError(f"{file} is not Open Bandit's: it has no column 'item_id'.")
    features = [name for name in columns if name.startswith("item_feature")]
    frame = guarded(file, lazy.collect)
    if not len(frame):
        raise LogFileError(f"{file} holds no items.")
    rows, names = [np.ones((len(frame), 1))], ["constant"]
    for name in features:
        plain = numbers(frame, [name])
        if (np.abs(plain) <= LARGEST).all():
            rows.append(plain)
            names.append(name)
        else:
            each = sorted(frame[name].drop_nulls().unique().to_list())
            rows += _one_hot(frame, {name: each})
            names += [f"{name}={value}" for value in each]
    matrix = np.column_stack(rows)
    ids = [as_id(value) for value in frame["item_id"].to_list()]
    if None in ids or len(set(ids)) < len(ids) or not np.isfinite(matrix).all():
        raise LogFileError(f"{file}: every item must have one row without gaps.")
    return Items(dict(zip(ids, matrix, strict=True)), names)
