"""``Log``: logged feedback in columns on disk, memory-mapped; ``open`` checks it first.

A log is a folder: ``meta.json``, ``arms.json`` and one raw little-endian file per column;
``digest.json`` has the SHA-256 of each of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim.errors import LogFileError
from whim.features import Features
from whim.types import F64, I64, ArmId

FORMAT = 1
DIGEST = "digest.json"
LOGGING = ("uniform", "propensity", "full")
COLUMNS = {
    "time": "<i8", "context": "", "pool": "<i4", "logged": "<i4", "reward": "<f8",
    "propensity": "<f8", "pool_offsets": "<i8", "pool_items": "<i4", "item_arm": "<i4",
    "item_features": "<f8", "item_first": "<i8",
}  # fmt: skip
CONTEXT_DTYPES = {"float64": "<f8", "uint8": "|u1"}
_COUNTS = ("n_events", "n_arms", "n_items", "n_pools", "n_members", "n_features", "n_item_features")
_STRIDE = 1 << 20  # events checked at a time

I32 = npt.NDArray[np.int32]


class Event(NamedTuple):
    """One event of a log in plain form."""

    time: int
    x: npt.NDArray[Any]
    arms: list[ArmId]
    features: F64
    shown: ArmId
    reward: float
    propensity: float | None


class Log:
    """Logged feedback: who came, what could be shown, what was shown, what it earned.

    Made by ``open``. The columns are read-only arrays over the files and cost no memory until
    they are read. An *item* is an arm with one feature vector; a *pool* is a list of items; a
    *place* is a position in a pool.

    Attributes
    ----------
    time, context, pool, logged, reward
        One entry per event: its time, the user's (d,) features, the number of its pool, the
        place in it that was shown, and the reward.
    propensity
        The probability with which the shown arm was chosen, or ``None``.
    pool_offsets, pool_items
        Pool p holds the items ``pool_items[pool_offsets[p] : pool_offsets[p + 1]]``.
    item_arm, item_features, item_first
        An item's arm as a position in ``arms``, its (m,) features, and the first event in
        whose pool it stands.
    arms
        The ids, by first appearance.
    logging
        How the shown arm was chosen: ``"uniform"``, ``"propensity"``, ``"full"`` (the reward of
        every candidate is known: ``reward`` at the place shown, 0 at all others) or ``None``
        when the source does not say.
    meta
        All of ``meta.json``.
    path, address
        Its folder on this machine; and, of a log in a store, the address that it was opened by.
    """

    time: I64
    context: npt.NDArray[Any]
    pool: I32
    logged: I32
    reward: F64
    propensity: F64 | None
    pool_offsets: I64
    pool_items: I32
    item_arm: I32
    item_features: F64
    item_first: I64

    def __init__(self, path: Path, meta: dict[str, Any], arms: list[ArmId]) -> None:
        self.path = path
        self.address: str | None = None
        self.meta = meta
        self.arms = arms
        self.n_events: int = meta["n_events"]
        self.n_arms: int = meta["n_arms"]
        self.n_items: int = meta["n_items"]
        self.n_pools: int = meta["n_pools"]
        self.n_features: int = meta["n_features"]
        self.n_item_features: int = meta["n_item_features"]
        self.logging: str | None = meta["logging"]
        self.propensity = None
        for name, (dtype, shape) in shapes(meta).items():
            setattr(self, name, _column(path, name, dtype, shape))

    def __len__(self) -> int:
        return self.n_events

    def __repr__(self) -> str:
        return f"Log({str(self.path)!r}, n_events={self.n_events}, n_arms={self.n_arms})"

    def __reduce__(self) -> tuple[Callable[[Path], Log], tuple[Path]]:
        return open, (self.path,)  # another process maps the same files

    @property
    def features(self) -> Features | None:
        """How columns became contexts, for use with other rows; None if they were taken as is."""
        told = self.meta.get("encoding")
        return None if told is None else Features.from_dict(told)

    def event(self, i: int) -> Event:
        """Event ``i`` with ids instead of numbers: to look at, not to loop over."""
        p = self.pool[i]
        items = self.pool_items[self.pool_offsets[p] : self.pool_offsets[p + 1]]
        arms = [self.arms[a] for a in self.item_arm[items]]
        return Event(
            int(self.time[i]), self.context[i], arms, self.item_features[items],
            arms[self.logged[i]], float(self.reward[i]),
            None if self.propensity is None else float(self.propensity[i]),
        )  # fmt: skip


def shapes(meta: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The dtype and shape of every column that a log with this ``meta`` has."""
    n, d, m = meta["n_events"], meta["n_features"], meta["n_item_features"]
    items = meta["n_items"]
    sizes = {
        "time": (n,), "context": (n, d), "pool": (n,), "logged": (n,), "reward": (n,),
        "propensity": (n,), "pool_offsets": (meta["n_pools"] + 1,),
        "pool_items": (meta["n_members"],), "item_arm": (items,), "item_features": (items, m),
        "item_first": (items,),
    }  # fmt: skip
    if not meta["propensities"]:
        del sizes["propensity"]
    dtypes = COLUMNS | {"context": CONTEXT_DTYPES[meta["context_dtype"]]}
    return {name: (dtypes[name], shape) for name, shape in sizes.items()}


def open(path: str | os.PathLike[str]) -> Log:
    """Open a log made by ``whim convert`` or ``Writer``, after checking that it is whole.

    The sizes of all files and the range of all numbers are checked, so that later loops can
    trust them; contexts and rewards are not read.

    The log may be in a store that fsspec knows: ``open("s3://bucket/visits.whim")``. A copy of it
    is then kept on this machine, by its digest, and used as long as the log there is the same.

    Raises
    ------
    LogFileError
        When the folder is no log, of a newer format, cut short or altered.

    Examples
    --------
    >>> import tempfile, whim.logs
    >>> path = tempfile.mkdtemp() + "/tiny.whim"
    >>> with whim.logs.Writer(path, n_features=2) as w:
    ...     w.event(time=7, x=[1.0, 0.5], arms=["a", "b"], shown="b", reward=1.0)
    >>> log = whim.logs.open(path)
    >>> log.n_events, log.arms, log.event(0).shown
    (1, ['a', 'b'], 'b')
    """
    if isinstance(path, str) and "://" in path:
        from whim.logs.cached import open_cached

        return open_cached(path)
    folder = Path(path)
    if not folder.is_dir():
        raise LogFileError(f"{folder} is no log: there is no such folder.")
    meta = _meta(folder)
    arms = _json(folder, "arms.json")
    if not isinstance(arms, list) or len(arms) != meta["n_arms"]:
        raise LogFileError(f"{folder}: arms.json does not hold {meta['n_arms']} ids.")
    if not all(isinstance(arm, (int, str)) and not isinstance(arm, bool) for arm in arms):
        raise LogFileError(f"{folder}: arms.json holds ids that are neither numbers nor text.")
    log = Log(folder, meta, arms)
    _check_ranges(log)
    return log


def _json(folder: Path, name: str) -> Any:
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LogFileError(f"{folder} is no log: it has no {name}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise LogFileError(f"{folder}: {name} cannot be read: {error}.") from None


def _meta(folder: Path) -> dict[str, Any]:
    meta = _json(folder, "meta.json")
    if not isinstance(meta, dict) or not isinstance(meta.get("format"), int):
        raise LogFileError(f"{folder}: meta.json does not describe a log.")
    if meta["format"] != FORMAT:
        raise LogFileError(
            f"{folder}: this whim reads logs of format {FORMAT}, got {meta['format']}."
        )
    for name in _COUNTS:
        value = meta.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 48:
            raise LogFileError(f"{folder}: {name} in meta.json must be a count, got {value!r}.")
    if meta.get("context_dtype") not in CONTEXT_DTYPES:
        raise LogFileError(
            f"{folder}: context_dtype must be one of {', '.join(CONTEXT_DTYPES)}, "
            f"got {meta.get('context_dtype')!r}."
        )
    if meta.get("logging") not in (None, *LOGGING):
        raise LogFileError(
            f"{folder}: logging must be one of {', '.join(LOGGING)} or null, "
            f"got {meta['logging']!r}."
        )
    if not isinstance(meta.get("propensities"), bool):
        raise LogFileError(f"{folder}: propensities in meta.json must be true or false.")
    return meta


def _column(folder: Path, name: str, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    file = folder / f"{name}.bin"
    wanted = np.dtype(dtype).itemsize
    for side in shape:
        wanted *= side
    try:
        size = file.stat().st_size
        if size != wanted:
            raise LogFileError(
                f"{file} must have {wanted} bytes, got {size}: cut short or altered."
            )
        if not wanted:  # an empty file cannot be mapped
            empty = np.empty(shape, dtype)
            empty.flags.writeable = False
            return empty
        return np.memmap(file, dtype, "r", shape=shape).view(np.ndarray)
    except OSError as error:
        raise LogFileError(f"{file} cannot be read: {error.strerror or error}.") from None


def _check_ranges(log: Log) -> None:
    offsets, members = log.pool_offsets, log.meta["n_members"]
    sizes = np.diff(offsets)
    if offsets[0] != 0 or offsets[-1] != members or (sizes < 1).any():
        raise LogFileError(f"{log.path}: pool_offsets must rise from 0 to {members}.")
    for name, values, bound in (
        ("pool_items", log.pool_items, log.n_items),
        ("item_arm", log.item_arm, log.n_arms),
        ("item_first", log.item_first, log.n_events),
        ("pool", log.pool, log.n_pools),
    ):
        if not _within(values, bound):
            raise LogFileError(f"{log.path}: {name} must lie in 0..{bound - 1}.")
    for low in range(0, log.n_events, _STRIDE):
        logged = log.logged[low : low + _STRIDE]
        if ((logged < 0) | (logged >= sizes[log.pool[low : low + _STRIDE]])).any():
            raise LogFileError(f"{log.path}: logged must be a place within the event's pool.")


def _within(values: npt.NDArray[Any], bound: int) -> bool:
    parts = (values[low : low + _STRIDE] for low in range(0, len(values), _STRIDE))
    return all(part.min() >= 0 and part.max() < bound for part in parts)
