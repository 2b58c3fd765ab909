"""``merge``: logs of the parts of a table, or of a row of files, into the log of all of them.

Bit for bit the log that one conversion of the concatenated parts would write. What a part could not
know is put in here: the row at which it begins, and the arms that earlier and later parts show.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from whim.logs.columns import Log, open
from whim.logs.frames import Items
from whim.logs.sources import no_events
from whim.logs.tables import LEFT_OUT
from whim.logs.writer import EARLIER, Writer
from whim.types import F64, I64, ArmId

_ROWS = 1 << 16  # events at a time


def merge(
    parts: Sequence[Path],
    path: str | Path,
    *,
    source: Mapping[str, Any],
    items: Items | None = None,
    warnings: Mapping[str, int] | None = None,
    overwrite: bool = False,
    progress: Callable[[int], object] | None = None,
) -> Log:
    """The events of all parts, in their order, as one log.

    Parameters
    ----------
    parts
        Logs that a reader made as parts; each is opened, and so checked, when its turn comes.
    source
        What the log is made of, for its ``meta.json``.
    items
        The arms' features, where a table came with such a file.
    warnings
        Counts to add to those of the parts.
    progress
        Called with the number of parts merged so far.
    """
    first = open(parts[0])
    order = _about(first.meta).get("order")
    pools = _Order(items)
    if order == "all":
        for part in parts:
            pools.add(_about(json.loads((part / "meta.json").read_text("utf-8")))["arms"])
    d = first.n_features - (order == "seen")
    names = first.meta["context_names"]
    with Writer(
        path, n_features=d, n_item_features=first.n_item_features, logging=first.logging,
        source=source, propensities=first.propensity is not None,
        context_dtype=first.meta["context_dtype"], context_names=names and names[:d],
        item_names=first.meta["item_names"], encoding=first.meta.get("encoding"),
        overwrite=overwrite,
    ) as writer:  # fmt: skip
        for what, count in (warnings or {}).items():
            writer.warn(what, count)
        for done, part in enumerate(parts):
            _copy(open(part), writer, d, order, pools)
            if progress is not None:
                progress(done + 1)
        if not writer.n_events:
            raise no_events([Path(name) for name in source["files"]], writer.dropped, "no rows")
    return open(path)


def _about(meta: dict[str, Any]) -> dict[str, Any]:
    """What a reader said about a part; nothing where parts do not depend on each other."""
    about: dict[str, Any] = meta["source"].get("part", {})
    return about


def _copy(log: Log, writer: Writer, d: int, order: str | None, pools: _Order) -> None:
    """The events of one part, and its counts."""
    about = _about(log.meta)
    base = writer.read if about.get("rows") else 0  # its times are row numbers
    counts = pools.add(about["arms"]) if order == "seen" else None
    places = None if order is None else pools.places(log.arms)
    for rows in _slices(log):
        if places is None:
            columns = _own_pools(log, rows["pool"]) | {"logged": rows["logged"]}
        else:
            shown = log.item_arm[log.pool_items[log.pool_offsets[rows["pool"]]]]
            so_far = None if counts is None else counts[rows["context"][:, d].astype(np.int64)]
            columns = pools.columns(places[shown], so_far)
            writer.warn(LEFT_OUT, columns.pop("left_out"))
        writer.block(
            time=rows["time"] + base, context=rows["context"][:, :d], reward=rows["reward"],
            propensity=rows.get("propensity"), **columns,
        )  # fmt: skip
    for reason, count in log.meta["dropped"].items():
        writer.drop(reason, count)
    for what, count in log.meta["warnings"].items():
        if what != EARLIER:  # which the writer counts itself, between parts too
            writer.warn(what, count)
    writer.read += log.meta["read"]


def _slices(log: Log) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """The columns that have a row per event, so many events at a time.

    Read rather than mapped: pages of a mapped file count as this process's memory.
    """
    names = ("time", "context", "pool", "logged", "reward", "propensity")
    columns = {name: each for name in names if (each := getattr(log, name)) is not None}
    with contextlib.ExitStack() as opened:
        files = {
            name: opened.enter_context((log.path / f"{name}.bin").open("rb")) for name in columns
        }
        for low in range(0, log.n_events, _ROWS):
            n = min(_ROWS, log.n_events - low)
            yield {
                name: np.fromfile(files[name], each.dtype, n * each[:1].size).reshape(
                    n, *each.shape[1:]
                )
                for name, each in columns.items()
            }


def _own_pools(log: Log, pools: npt.NDArray[Any]) -> dict[str, Any]:
    """The pools of some events and their items, numbered from 0."""
    used, pool = np.unique(pools, return_inverse=True)
    starts = log.pool_offsets[used]
    sizes = log.pool_offsets[used + 1] - starts
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
    items, members = np.unique(
        log.pool_items[np.repeat(starts, sizes) + within], return_inverse=True
    )
    return {
        "pool": pool,
        "pool_offsets": offsets,
        "pool_items": members,
        "item_arm": [log.arms[arm] for arm in log.item_arm[items].tolist()],
        "item_features": log.item_features[items],
    }


class _Order:
    """Arms by first appearance over all parts: every pool holds the first so many of them."""

    def __init__(self, items: Items | None) -> None:
        self._items = items
        self._place: dict[ArmId, int] = {}  # among those with features; -1 without
        self._arms: list[ArmId] = []  # with features
        self._with_features = [0]  # among the first 0, 1, 2, … arms

    def add(self, arms: Sequence[ArmId]) -> I64:
        """Arms in the order of a part; gives how many there are in all up to each of them."""
        counts = [len(self._place)]
        for arm in arms:
            if arm not in self._place:
                there = self._items is None or arm in self._items.features
                self._place[arm] = len(self._arms) if there else -1
                self._arms += [arm] * there
                self._with_features.append(len(self._arms))
            counts.append(len(self._place))
        return np.array(counts)

    def places(self, arms: Sequence[ArmId]) -> I64:
        """The place of each arm in every pool that holds it."""
        return np.array([self._place[arm] for arm in arms], np.int64)

    def columns(self, logged: npt.NDArray[Any], so_far: I64 | None) -> dict[str, Any]:
        """Pools of events that hold all arms, or those up to ``so_far``."""
        known = np.array(self._with_features)
        seen = np.full(len(logged), len(self._place)) if so_far is None else so_far
        sizes, pool = np.unique(known[seen], return_inverse=True)
        arms = self._arms[: sizes[-1]]
        features: F64 | None = None
        if self._items is not None:
            rows = [self._items.features[arm] for arm in arms]
            features = np.array(rows).reshape(len(rows), len(self._items.names))
        return {
            "pool": pool,
            "logged": logged,
            "pool_offsets": np.concatenate([[0], np.cumsum(sizes)]),
            "pool_items": np.concatenate([np.arange(size) for size in sizes]),
            "item_arm": arms,
            "item_features": features,
            "left_out": int((seen - known[seen]).sum()),
        }
