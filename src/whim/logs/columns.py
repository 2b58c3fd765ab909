"""``Log``: logged feedback in columns on disk, memory-mapped; ``open`` checks it first.

A log is a folder: ``meta.json``, ``arms.json`` and one raw little-endian file per column;
``digest.json`` has the SHA-256 of each of them.

A log of lists (``meta["lists"]``, format 2, so that a Whim that knows no lists refuses it) has one
event per list and, instead of ``logged`` and ``propensity``:

- ``list_offsets``: event i shows the items ``list_offsets[i] : list_offsets[i + 1]`` of the columns
  below, from the top; an item's position is its number within the list, from 0;
- ``list_place``: the item's place in the event's pool, so the arm;
- ``list_reward``: what the item earned (1 if clicked); nan in all items of a list of which only the
  reward as a whole is known;
- ``list_probability``: the probability of this item at this position, over all lists; nan where
  only that of the list up to it is known;
- ``list_prefix_probability``: that of the list up to and including this item, in this order. Both
  only where known (``meta["propensities"]``);
- ``list_wanted``: the place that the logging policy itself had put at this position, and per event
  ``explore``, the probability with which an ordered uniform draw from the pool replaced the whole
  list; both only where known (``meta["wanted"]``).

``reward`` is that of the list as a whole: the sum of its items', unless it was given.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim.errors import InvalidInputError, LogFileError
from whim.features import Features
from whim.types import F64, I64, ArmId

FORMAT = 1
LIST_FORMAT = 2  # of logs of lists
DIGEST = "digest.json"
LOGGING = ("uniform", "propensity", "full")
COLUMNS = {
    "time": "<i8", "context": "", "pool": "<i4", "logged": "<i4", "reward": "<f8",
    "propensity": "<f8", "pool_offsets": "<i8", "pool_items": "<i4", "item_arm": "<i4",
    "item_features": "<f8", "item_first": "<i8",
}  # fmt: skip
LIST_COLUMNS = {
    "list_offsets": "<i8", "list_place": "<i4", "list_reward": "<f8", "list_probability": "<f8",
    "list_prefix_probability": "<f8", "list_wanted": "<i4", "explore": "<f8",
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


class Shown(NamedTuple):
    """One list of a log in plain form, an entry per item from the top."""

    time: int
    x: npt.NDArray[Any]
    arms: list[ArmId]
    features: F64
    shown: list[ArmId]
    rewards: list[float]
    reward: float
    probabilities: list[float] | None
    prefix_probabilities: list[float] | None
    wanted: list[ArmId] | None
    explore: float | None


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
    has_lists
        Whether events are lists. They have the columns ``list_offsets``, ``list_place``,
        ``list_reward``, ``list_probability``, ``list_prefix_probability``, ``list_wanted`` and
        ``explore`` (the module says what they mean), and neither ``logged`` nor ``propensity``.
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
    list_offsets: I64
    list_place: I32
    list_reward: F64
    list_probability: F64 | None
    list_prefix_probability: F64 | None
    list_wanted: I32 | None
    explore: F64 | None

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
        self.has_lists: bool = meta.get("lists", False)
        self.propensity = self.list_probability = self.list_prefix_probability = None
        self.list_wanted = self.explore = None
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
        if self.has_lists:
            raise InvalidInputError("event must not be called on a log of lists: shown_list is.")
        arms, items = self._pool_of(i)
        return Event(
            int(self.time[i]), self.context[i], arms, self.item_features[items],
            arms[self.logged[i]], float(self.reward[i]),
            None if self.propensity is None else float(self.propensity[i]),
        )  # fmt: skip

    def shown_list(self, i: int) -> Shown:
        """List ``i`` with ids instead of numbers: to look at, not to loop over."""
        if not self.has_lists:
            raise InvalidInputError("shown_list must be called on a log of lists: event is.")
        arms, items = self._pool_of(i)
        cut = slice(int(self.list_offsets[i]), int(self.list_offsets[i + 1]))

        def part(column: npt.NDArray[Any] | None) -> list[Any] | None:
            return None if column is None else column[cut].tolist()

        wanted = part(self.list_wanted)
        return Shown(
            int(self.time[i]), self.context[i], arms, self.item_features[items],
            [arms[place] for place in self.list_place[cut].tolist()],
            self.list_reward[cut].tolist(), float(self.reward[i]), part(self.list_probability),
            part(self.list_prefix_probability),
            None if wanted is None else [arms[place] for place in wanted],
            None if self.explore is None else float(self.explore[i]),
        )  # fmt: skip

    def _pool_of(self, i: int) -> tuple[list[ArmId], I32]:
        p = self.pool[i]
        items = self.pool_items[self.pool_offsets[p] : self.pool_offsets[p + 1]]
        return [self.arms[a] for a in self.item_arm[items]], items


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
    if meta.get("lists"):
        del sizes["logged"], sizes["propensity"]
        shown = (meta["n_shown"],)
        sizes |= {"list_offsets": (n + 1,), "list_place": shown, "list_reward": shown}
        if meta["propensities"]:
            sizes |= {"list_probability": shown, "list_prefix_probability": shown}
        if meta["wanted"]:
            sizes |= {"list_wanted": shown, "explore": (n,)}
    elif not meta["propensities"]:
        del sizes["propensity"]
    dtypes = COLUMNS | LIST_COLUMNS | {"context": CONTEXT_DTYPES[meta["context_dtype"]]}
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
    if folder.is_file():
        raise LogFileError(
            f"{folder} is no log but a file: whim convert {folder} --to "
            f"{folder.with_suffix('.whim').name} makes a log of it."
        )
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
    lists = meta.get("lists", False)
    if meta["format"] not in (FORMAT, LIST_FORMAT):
        raise LogFileError(
            f"{folder}: this whim reads logs of format {FORMAT} or {LIST_FORMAT}, "
            f"got {meta['format']}."
        )
    if lists is not (meta["format"] == LIST_FORMAT):
        raise LogFileError(
            f"{folder}: lists in meta.json must be true in format {LIST_FORMAT} alone, "
            f"got {lists!r}."
        )
    for name in (*_COUNTS, "n_shown") if lists else _COUNTS:
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
    if lists and not isinstance(meta.get("wanted"), bool):
        raise LogFileError(f"{folder}: wanted in meta.json must be true or false.")
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
    if log.has_lists:
        return _check_lists(log, sizes)
    for low in range(0, log.n_events, _STRIDE):
        logged = log.logged[low : low + _STRIDE]
        if ((logged < 0) | (logged >= sizes[log.pool[low : low + _STRIDE]])).any():
            raise LogFileError(f"{log.path}: logged must be a place within the event's pool.")


def _check_lists(log: Log, sizes: npt.NDArray[Any]) -> None:
    offsets, shown = log.list_offsets, log.meta["n_shown"]
    if offsets[0] != 0 or offsets[-1] != shown or (np.diff(offsets) < 1).any():
        raise LogFileError(f"{log.path}: list_offsets must rise from 0 to {shown}.")
    for low in range(0, log.n_events, _STRIDE):
        ends = offsets[low : low + _STRIDE + 1]
        size = np.repeat(sizes[log.pool[low : low + _STRIDE]], np.diff(ends))
        cut = slice(int(ends[0]), int(ends[-1]))
        for name, column in (("list_place", log.list_place), ("list_wanted", log.list_wanted)):
            if column is not None and ((column[cut] < 0) | (column[cut] >= size)).any():
                raise LogFileError(f"{log.path}: {name} must be places within the event's pool.")


def _within(values: npt.NDArray[Any], bound: int) -> bool:
    parts = (values[low : low + _STRIDE] for low in range(0, len(values), _STRIDE))
    return all(part.min() >= 0 and part.max() < bound for part in parts)
