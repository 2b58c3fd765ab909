"""Streams in which every arm's reward is known: contexts with the right class, or with rewards.

A classification problem is one: arms are the classes, the right one has reward 1, all others 0.
As a log its ``logging`` is ``"full"``: replay lets a policy choose any arm, and every event counts.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim.checks import LARGEST
from whim.errors import InvalidInputError, LogFileError
from whim.features import Features
from whim.logs.columns import Log, open
from whim.logs.encoding import Cyclic, contexts_of
from whim.logs.frames import columns_of, guarded, matching, roles_of, scan
from whim.logs.sources import Progress, Source
from whim.logs.tables import Table, write_table
from whim.logs.writer import Writer
from whim.types import F64, ArmId

if TYPE_CHECKING:
    import polars as pl

_ROWS = 8192  # events written at a time
_REWARD = "reward of the right class"


class Labelled(NamedTuple):
    """Contexts in order of time, the reward of every arm at each of them, and the arms' ids."""

    X: F64
    rewards: F64
    arms: list[ArmId]


def convert(
    source: Source,
    path: Source,
    *,
    constant: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Log:
    """Read an archive (see ``read_npz``) into a log with ``"full"`` rewards, the row as its time.

    A log keeps one reward per event, that of one arm: an ``R`` may have one other than 0 in a row.

    Parameters
    ----------
    constant
        Put a 1 in front of every context.
    """
    file = Path(source)
    X, R, arms = read_npz(file)
    several = np.count_nonzero(R, axis=1) > 1
    if several.any():
        raise LogFileError(
            f"{file}: R must have at most one reward other than 0 per row, got row "
            f"{int(np.argmax(several))} with more: a log keeps one per event."
        )
    if constant:
        X = np.column_stack([np.ones(len(X)), X])
    logged = np.argmax(R != 0, axis=1)
    reward = R[np.arange(len(R)), logged]
    options = {"constant": constant}
    with Writer(
        path, n_features=X.shape[1], logging="full", overwrite=overwrite,
        source={"reader": "npz", "files": [file.name], "options": options},
    ) as writer:  # fmt: skip
        for start in range(0, len(X), _ROWS):
            part = slice(start, min(start + _ROWS, len(X)))
            writer.block(
                time=np.arange(part.start, part.stop), context=X[part],
                pool=np.zeros(part.stop - start, np.int64), logged=logged[part],
                reward=reward[part], pool_offsets=np.array([0, len(arms)]),
                pool_items=np.arange(len(arms)), item_arm=arms,
            )  # fmt: skip
    if progress is not None:
        progress(file.stat().st_size)
    return open(path)


def convert_table(
    source: Source,
    path: Source,
    *,
    label: str,
    context: Sequence[str] | None = None,
    time: str | None = None,
    constant: bool = False,
    format: str | None = None,
    raw: bool = False,
    categories: Sequence[str] = (),
    cyclic: Cyclic = (),
    features: Mapping[str, Any] | Features | Source | None = None,
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    _part: bool = False,
) -> Log:
    """Read a CSV or Parquet file of labelled rows into a log with ``"full"`` rewards.

    Parameters
    ----------
    label
        The column of the right class: one arm per class, in the order in which they first appear.
    context
        Columns and patterns; ``None`` takes every other column of numbers. A column counts as
        such if most of its cells are numbers; the others are named in the log's ``source``.
    time
        A column; without it the row's number stands for it.
    constant
        Put a 1 in front of every context; only where ``raw``, else there is one at the end.
    raw, categories, cyclic, features
        As for ``tables.convert``.
    strict
        Stop at the first row that cannot be used.
    """
    import polars as pl

    file = Path(source)
    kind = format or ("parquet" if file.suffix.lower() in (".parquet", ".pq") else "csv")
    lazy = scan(file, kind)
    columns = columns_of(lazy, file)
    matching([label], columns, "label", file)
    if context is None:
        names, left_out = numeric([count_numbers(file, kind, label, time)], str(file), label)
    else:
        names, left_out = list(context), []
    options: dict[str, Any] = {"label": label, "time": time, "constant": constant}
    table = Table(file, kind, label, _REWARD, time, None, None, "|")
    places, taken, encoding = contexts_of(
        lazy, file, kind, names, roles=roles_of(options), raw=raw, categories=categories,
        cyclic=cyclic, features=features,
    )  # fmt: skip
    options["left_out"] = left_out if encoding is None else left_out + encoding.left_out

    def matrix(frame: pl.DataFrame) -> F64:
        X = taken(frame)
        return np.column_stack([np.ones(len(X)), X]) if constant and raw else X

    return write_table(
        lazy.with_columns(pl.lit(1.0).alias(_REWARD)), table,
        path, names=["constant", *places] if constant and raw else places, matrix=matrix,
        encoding=encoding, arms="all",
        items=None, logging="full", strict=strict, overwrite=overwrite, progress=progress,
        part=_part, source={"reader": kind, "files": [file.name], "options": options},
    )  # fmt: skip


# of a column: how many cells are not empty, and how many of them are numbers
Counts = dict[str, tuple[int, int]]


def count_numbers(file: Path, kind: str, label: str, time: str | None) -> Counts:
    """Count the numbers in every column but the label and the time."""
    import polars as pl

    lazy = scan(file, kind)
    columns = columns_of(lazy, file)
    matching([label], columns, "label", file)
    names = [name for name in columns if name not in (label, time)]
    if not names:
        return {}
    there = [pl.col(name).count().alias(f"{i} there") for i, name in enumerate(names)]
    good = [
        pl.col(name).cast(pl.Float64, strict=False).count().alias(f"{i} good")
        for i, name in enumerate(names)
    ]
    schema = guarded(file, lazy.collect_schema)
    castable = [schema[name].is_numeric() or schema[name] in (pl.String, pl.Boolean)
                for name in names]  # fmt: skip
    query = lazy.select(*there, *(g for g, fine in zip(good, castable, strict=True) if fine))
    counts = guarded(file, lambda: query.collect(engine="streaming")).row(0, named=True)
    return {
        name: (counts[f"{i} there"], counts.get(f"{i} good", -1)) for i, name in enumerate(names)
    }


def numeric(counts: Sequence[Counts], name: str, label: str) -> tuple[list[str], list[str]]:
    """The columns most of whose cells, over all parts, are numbers; and the others.

    >>> numeric([{"age": (2, 2), "city": (2, 0)}, {"age": (1, 0), "city": (1, 1)}], "a", "rain")
    (['age'], ['city'])
    """
    names: list[str] = []
    left_out: list[str] = []
    for column in counts[0]:
        there, good = (sum(count[column][i] for count in counts) for i in (0, 1))
        (names if 2 * good > there else left_out).append(column)
    if not names:
        raise InvalidInputError(
            f"context must name at least one column: {name} has none of numbers besides the "
            f"label {label!r}."
        )
    return names, left_out


def read_npz(file: Path) -> Labelled:
    """A NumPy archive with ``X`` and either ``y``, the right class, or ``R``, a column per arm.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "tiny.npz"
    >>> np.savez(file, X=[[1.0, 0.5], [1.0, -0.5]], y=["rain", "dry"])
    >>> stream = read_npz(file)
    >>> stream.arms, stream.rewards.tolist()
    (['dry', 'rain'], [[0.0, 1.0], [1.0, 0.0]])
    """
    arrays = _arrays(file)
    if "X" not in arrays or ("y" in arrays) == ("R" in arrays):
        there = ", ".join(sorted(arrays)) or "nothing"
        raise LogFileError(f"{file} must hold X and either y or R, got {there}.")
    X = _matrix(file, "X", arrays["X"])
    if "y" in arrays:
        y = arrays["y"]
        if y.ndim != 1 or len(y) != len(X) or y.dtype.kind not in "biufU":
            raise LogFileError(
                f"{file}: y must be {len(X)} classes, one per row of X, "
                f"got shape {y.shape} of {y.dtype}."
            )
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise LogFileError(f"{file}: y must hold classes, got numbers that are not finite.")
        return Labelled(X, *one_hot(y))
    R = _matrix(file, "R", arrays["R"])
    if len(R) != len(X):
        raise LogFileError(f"{file}: R must have {len(X)} rows as X has, got {len(R)}.")
    return Labelled(X, R, list(range(R.shape[1])))


def one_hot(y: npt.NDArray[Any]) -> tuple[F64, list[ArmId]]:
    """Reward 1 for the right class and 0 for the others; classes in their order, as ids."""
    classes, places = np.unique(y, return_inverse=True)
    rewards = np.zeros((len(y), len(classes)))
    rewards[np.arange(len(y)), places.reshape(-1)] = 1.0
    whole = classes.dtype.kind in "biu" or (
        classes.dtype.kind == "f" and bool((classes == np.floor(classes)).all())
    )
    return rewards, [int(c) if whole else str(c) for c in classes.tolist()]


def _arrays(file: Path) -> dict[str, npt.NDArray[Any]]:
    try:
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise LogFileError(
                f"{file} must be an archive with named arrays (.npz), got one array."
            )
        with loaded:
            return {name: loaded[name] for name in loaded.files if name in ("X", "y", "R")}
    except FileNotFoundError:
        raise LogFileError(f"{file}: there is no such file.") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise LogFileError(f"{file} cannot be read: {str(error).rstrip('.')}.") from None


def _matrix(file: Path, name: str, values: npt.NDArray[Any]) -> F64:
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "biuf":
        raise LogFileError(
            f"{file}: {name} must be a matrix of numbers with a row per step, "
            f"got shape {values.shape} of {values.dtype}."
        )
    numbers = values.astype(np.float64)
    bad = ~(np.abs(numbers) <= LARGEST).all(axis=1)
    if bad.any():
        raise LogFileError(
            f"{file}: {name} must be finite and at most {LARGEST:g} in size, "
            f"got row {int(np.argmax(bad))}, which is not."
        )
    return numbers
