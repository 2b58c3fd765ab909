"""``export``: a space's log for others: Parquet, the log that ``whim replay`` reads, dsjson.

The service may run meanwhile. Whatever goes wrong, nothing half-made is left under the name.
"""

from __future__ import annotations

import contextlib
import gzip
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from whim.checks import choice
from whim.errors import LogFileError
from whim.logs import Writer
from whim.serve import wire
from whim.serve.jobs.history import Decision, History, Share
from whim.serve.state.stats import MICRO
from whim.types import F64

__all__ = ["FORMATS", "chances", "export", "to_columns", "to_dsjson", "to_parquet"]

FORMATS = ("parquet", "log", "dsjson")
_BATCH = 20_000  # rows of Parquet at a time
_UNFIT = "does not fit the features that the space has now"
_json = msgspec.json.Encoder().encode


def export(
    data: Path,
    space: str,
    out: Path,
    *,
    format: str,
    since: int | None = None,
    until: int | None = None,
    overwrite: bool = False,
    progress: Share | None = None,
) -> dict[str, Any]:
    """Write what happened in a space to a file, or to a log's folder.

    Parameters
    ----------
    data
        The service's data directory; its log is only read.
    format
        ``"parquet"``: a row for each decision. ``"log"``: the log that ``whim replay`` reads, and
        ``"dsjson"``: lines as VW and Personalizer have them, both of decisions that are closed.
    since, until
        Decisions from one time and before another, in microseconds since 1970.
    overwrite
        Replace a file that is there already.
    progress
        Told the share that is done.

    Returns
    -------
    dict
        What was written: ``rows``, and how many decisions were ``left_out`` and why.
    """
    write = _WRITERS[choice("format", format, FORMATS)]
    return write(data, space, out, since=since, until=until, overwrite=overwrite, progress=progress)


# -- the log that replay reads ----------------------------------------------------------------


def to_columns(
    data: Path,
    space: str,
    out: Path,
    *,
    since: int | None = None,
    until: int | None = None,
    overwrite: bool = False,
    progress: Share | None = None,
) -> dict[str, Any]:
    """The log for ``whim replay``: decisions that were learnt from, in order, with propensities.

    Contexts are vectors as the space makes them now; a space without contexts has a constant 1.
    Where candidates have features, an item of the log is an arm with those that it came with
    last, so that other features make another item of the same arm. Times are whole seconds.
    """
    with _folder(out) as folder, History(data, space) as history:
        names = history.context.names or ["constant"]
        nothing = np.ones(1)
        with Writer(
            out,
            n_features=len(names),
            n_item_features=history.items.size,
            logging="propensity",
            source={"reader": "whim serve", "files": [], "space": space,
                    "version": history.version},
            propensities=True,
            context_names=names,
            item_names=history.items.names or None,
            overwrite=overwrite,
        ) as writer:  # fmt: skip
            left: Counter[str] = Counter()
            for d in _closed(history.decisions(
                folder, since=since, until=until, progress=progress
            ), left):  # fmt: skip
                assert d.x is not None
                ids = d.told.arms
                writer.event(
                    time=d.row.at // MICRO, x=d.x if history.context.size else nothing, arms=ids,
                    features=d.features, shown=ids[d.told.place], reward=d.reward or 0.0,
                    propensity=d.told.probability,
                )  # fmt: skip
            for reason, count in left.items():
                writer.drop(reason, count)
            _not_empty(space, writer.n_events, left)
            return _told(space, "log", out, writer.n_events, left)


# -- dsjson -----------------------------------------------------------------------------------


def to_dsjson(
    data: Path,
    space: str,
    out: Path,
    *,
    since: int | None = None,
    until: int | None = None,
    overwrite: bool = False,
    progress: Share | None = None,
) -> dict[str, Any]:
    """Lines as VW's ``--dsjson`` and Personalizer's logs have them; gzip if the name says so.

    A vector is the namespace ``x`` (an action's: ``y``). Named features are the namespace
    ``context`` (``item``), with the vector that the space makes of them beside it in ``_x``
    (``_y``), which VW does not look at and Whim's own reader takes.
    """
    _check_file(out, overwrite)
    with _folder(out) as folder, History(data, space) as history:
        left: Counter[str] = Counter()
        count = 0
        part = folder / "lines"
        with _opened(part, packed=out.suffix == ".gz") as file:
            found = history.decisions(folder, since=since, until=until, progress=progress)
            for d in _closed(found, left):
                file.write(_json(_line(history, space, d)) + b"\n")
                count += 1
        _not_empty(space, count, left)
        part.replace(out)
    return _told(space, "dsjson", out, count, left)


def _opened(path: Path, packed: bool) -> IO[bytes]:
    if packed:
        return gzip.open(path, "wb", compresslevel=6)  # type: ignore[return-value]
    return path.open("wb", buffering=1 << 18)


def _line(history: History, space: str, d: Decision) -> dict[str, Any]:
    row, told = d.row, d.told
    n, place = len(told.arms), told.place
    order = [place, *(i for i in range(n) if i != place)]
    p = chances(d.config, n, told.wanted)
    p[place] = told.probability
    reward = d.reward or 0.0
    about: dict[str, Any] = {}
    assert d.x is not None
    if history.context.by_name:
        about = {"context": _plain(told.context), "_x": d.x.tolist()}
    elif history.context.size:
        about = {"x": d.x.tolist()}
    about["_multi"] = [_action(history, d, i) for i in range(n)]
    return {
        "_label_cost": 0.0 - reward,
        "_label_probability": told.probability,
        "_label_Action": place + 1,
        "_labelIndex": place,
        "o": [{"v": reward, "EventId": told.id}] if d.state == "matched" else [],
        "Timestamp": _when(row.at),
        "Version": "1",
        "EventId": told.id,
        "a": [i + 1 for i in order],
        "c": about,
        "p": [p[i] for i in order],
        "VWState": {"m": f"{space}/{d.version}"},
    }


def _action(history: History, d: Decision, i: int) -> dict[str, Any]:
    arm = d.told.arms[i]
    found: dict[str, Any] = {"_tag": str(arm), "i": {"constant": 1, "id": str(arm)}}
    if not isinstance(arm, str):
        found["_arm"] = arm  # a tag is text, and 7 is not "7"
    if d.features is not None and d.raw is not None:
        vector = d.features[i].tolist()
        named = {"item": _plain(d.raw[i]), "_y": vector} if history.items.by_name else {"y": vector}
        found |= named
    return found


def _plain(given: Any) -> dict[str, Any]:
    """Named features as VW takes them: no lists of texts, no names that mean something to it."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = f".{key}" if key.startswith("_") else key
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, (bool, str)) and isinstance(value, list):
                found[f"{name}={part}"] = 1
            elif isinstance(part, (int, float)) and isinstance(value, list):
                found[name] = found.get(name, 0) + part
            elif part is not None:
                found[name] = part
    return found


def chances(config: wire.SpaceConfig, n: int, wanted: int) -> list[float]:
    """How likely each of ``n`` places was, when the policy wanted one of them.

    >>> chances(wire.SpaceConfig(explore=0.5, holdback=0.1), 2, wanted=1)
    [0.325, 0.675]
    """
    share = 1.0 if config.shadow else config.holdback
    own = [config.explore / n + (1 - config.explore) * (i == wanted) for i in range(n)]
    base = [1.0 / n if config.baseline == "random" else float(i == 0) for i in range(n)]
    return [share * b + (1 - share) * p for b, p in zip(base, own, strict=True)]


# -- Parquet ----------------------------------------------------------------------------------


def to_parquet(
    data: Path,
    space: str,
    out: Path,
    *,
    since: int | None = None,
    until: int | None = None,
    overwrite: bool = False,
    progress: Share | None = None,
) -> dict[str, Any]:
    """A row for each decision, whatever came of it."""
    import polars as pl

    _check_file(out, overwrite)
    with _folder(out) as folder, History(data, space) as history:
        schema = _schema(history)
        batch: list[tuple[Any, ...]] = []
        parts: list[Path] = []
        count = 0

        def put() -> None:
            parts.append(folder / f"{len(parts):08d}.parquet")
            pl.DataFrame(batch, schema, orient="row").write_parquet(parts[-1])
            batch.clear()

        for d in history.decisions(folder, since=since, until=until, progress=progress):
            batch.append(_record(history, d))
            count += 1
            if len(batch) >= _BATCH:
                put()
        if batch or not parts:
            put()
        whole = parts[0]
        if len(parts) > 1:
            whole = folder / "whole"
            pl.scan_parquet(parts).sink_parquet(whole)
        whole.replace(out)
    return _told(space, "parquet", out, count, Counter())


def _schema(history: History) -> dict[str, Any]:
    import polars as pl

    numbers, when = pl.List(pl.Float64), pl.Datetime("us", "UTC")
    found: dict[str, Any] = {"decision_id": pl.String, "at": when, "context": numbers}
    if history.context.by_name:
        found["context_json"] = pl.String
    found |= {"candidates": pl.List(pl.String)}
    if history.items.size:
        found["features"] = pl.List(numbers)
    return found | {
        "arm": pl.String, "place": pl.Int32, "probability": pl.Float64, "mode": pl.String,
        "wanted": pl.String, "version": pl.Int32, "reward": pl.Float64,
        "reward_state": pl.String, "reward_at": when, "rewards": pl.Int32,
    }  # fmt: skip


def _record(history: History, d: Decision) -> tuple[Any, ...]:
    told = d.told
    ids = [str(arm) for arm in told.arms]
    found: list[Any] = [told.id, _moment(d.row.at), _list(d.x)]
    if history.context.by_name:
        found.append(_json(told.context).decode())
    found.append(ids)
    if history.items.size:
        found.append(None if d.features is None else [y.tolist() for y in d.features])
    return (
        *found, ids[told.place], told.place, told.probability, told.mode, ids[told.wanted],
        d.version, d.reward, d.state, None if d.reward_at is None else _moment(d.reward_at),
        d.rewards,
    )  # fmt: skip


def _list(x: F64 | None) -> list[float] | None:
    return None if x is None else x.tolist()


# -- what all share ---------------------------------------------------------------------------


def _moment(at: int) -> datetime:
    seconds, micro = divmod(at, MICRO)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micro)


def _when(at: int) -> str:
    return _moment(at).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _closed(found: Iterator[Decision], left: Counter[str]) -> Iterator[Decision]:
    """Decisions that were learnt from; others are counted."""
    for d in found:
        if d.reward is None:
            left[d.state] += 1
        elif d.x is None:
            left[_UNFIT] += 1
        else:
            yield d


def _not_empty(space: str, count: int, left: Counter[str]) -> None:
    if not count:
        reasons = "; ".join(f"{n} × {why}" for why, n in left.items()) or "there are none at all"
        raise LogFileError(f"{space} must have decisions that were learnt from: {reasons}.")


def _check_file(out: Path, overwrite: bool) -> None:
    if out.is_dir():
        raise LogFileError(f"{out} must be a file to write, got a folder.")
    if out.exists() and not overwrite:
        raise LogFileError(f"{out} is there already; overwrite=True (--force) would replace it.")


@contextlib.contextmanager
def _folder(out: Path) -> Iterator[Path]:
    """A folder beside the result, gone at the end, whatever that is."""
    try:
        with tempfile.TemporaryDirectory(
            prefix=f".{out.name[:40]}.", suffix=".part", dir=out.parent, ignore_cleanup_errors=True
        ) as name:
            yield Path(name)
    except OSError as error:
        raise LogFileError(f"{out} cannot be written: {error.strerror or error}.") from None


def _told(space: str, format: str, out: Path, rows: int, left: Counter[str]) -> dict[str, Any]:
    return {
        "space": space, "format": format, "out": str(out), "rows": rows, "left_out": dict(left),
    }  # fmt: skip


_WRITERS: dict[str, Callable[..., dict[str, Any]]] = {
    "parquet": to_parquet,
    "log": to_columns,
    "dsjson": to_dsjson,
}
