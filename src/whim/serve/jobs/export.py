"""``export``: a space's log for others: Parquet, the log that ``whim replay`` reads, dsjson.

The service may be running. If anything goes wrong, no incomplete file is left behind.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np

from whim.checks import choice
from whim.errors import LogFileError
from whim.logs import ListWriter, Writer
from whim.serve.jobs.export_lists import (
    as_list,
    drawn_from,
    draws_uniformly,
    not_in_columns,
    unknown_list,
    unlogged,
)
from whim.serve.jobs.history import Decision, History, Progress
from whim.serve.state.drawing import probabilities
from whim.serve.state.stats import MICRO

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
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write what happened in a space to a file, or to a log's folder; its own log is only read.

    ``format`` is ``"parquet"``: a row for each decision, ``"log"``: the log that ``whim replay``
    reads, or ``"dsjson"``: lines as VW and Personalizer have them, the latter two of decisions that
    are closed. ``since`` and ``until`` are microseconds since 1970, the first within, the second
    not. Returns the number of ``rows``, and how many decisions were ``left_out`` and why.
    """
    write = _WRITERS[choice("format", format, FORMATS)]
    if format != "log":  # whose writer checks it
        _check_file(out, overwrite)
    left: Counter[str] = Counter()
    with _folder(out) as folder, History(data, space) as history:
        decisions = history.decisions(folder, since=since, until=until, progress=progress)
        if format != "parquet":
            decisions = _closed(decisions, left)
        rows = write(_Job(history, space, out, folder, overwrite, left), decisions)
    return {
        "space": space, "format": format, "out": str(out), "rows": rows, "left_out": dict(left),
    }  # fmt: skip


class _Job(NamedTuple):
    history: History
    space: str
    out: Path
    folder: Path
    overwrite: bool
    left: Counter[str]

    def check(self, rows: int) -> None:
        """Refuse to write a file of nothing."""
        if not rows:
            reasons = "; ".join(f"{n} × {why}" for why, n in self.left.items())
            raise LogFileError(
                f"{self.space} must have decisions that were learnt from: "
                f"{reasons or 'there are none at all'}."
            )


# -- the log that replay reads ----------------------------------------------------------------


def _to_log(job: _Job, decisions: Iterator[Decision]) -> int:
    """The log for ``whim replay``: decisions that were learnt from, in order, with propensities.

    Draws of a policy whose probability is not known are left out and counted. Contexts are vectors
    as the space makes them now; a space without contexts has a constant 1. Where candidates have
    features, an item of the log is an arm with those that it came with last, so that other features
    make another item of the same arm. Times are whole seconds.

    If there are lists, the log is one of lists, and a decision about one arm is a list of one.
    """
    history = job.history
    names = history.context.names or ["constant"]
    nothing = np.ones(1)
    options: dict[str, Any] = {
        "n_features": len(names), "n_item_features": history.items.size, "logging": "propensity",
        "source": {"reader": "whim serve", "files": [], "space": job.space,
                   "version": history.version},
        "propensities": True, "context_names": names, "item_names": history.items.names or None,
        "overwrite": job.overwrite,
    }  # fmt: skip
    first = list(itertools.islice(decisions, 1))  # then it is known whether there are lists
    wanted = all(draws_uniformly(config) for config in history.configs)
    made = ListWriter(job.out, wanted=wanted, **options) if history.has_lists else None
    with made or Writer(job.out, **options) as writer:
        for d in itertools.chain(first, decisions):
            assert d.x is not None
            problem = not_in_columns(d)
            if problem is not None:
                job.left[problem] += 1
                continue
            x = d.x if history.context.size else nothing
            same: dict[str, Any] = {
                "time": d.row.at // MICRO,
                "x": x,
                "arms": d.body.arms,
                "features": d.features,
            }
            if made is not None:
                made.add_list(**same, **as_list(d), **(drawn_from(d) if wanted else {}))
            else:
                writer.event(
                    **same, shown=d.body.arms[d.body.place], reward=d.reward or 0.0,
                    propensity=d.body.probability,
                )  # fmt: skip
        for reason, count in job.left.items():
            writer.drop(reason, count)
        job.check(writer.n_events)
        return writer.n_events


# -- dsjson -----------------------------------------------------------------------------------


def _to_dsjson(job: _Job, decisions: Iterator[Decision]) -> int:
    """Lines as VW's ``--dsjson`` and Personalizer's logs have them; gzip if the name says so.

    A vector is the namespace ``x`` (an action's: ``y``). Named features are the namespace
    ``context`` (``item``), with the vector that the space makes of them beside it in ``_x``
    (``_y``), which VW does not look at and Whim's own reader takes. A list is a line of a
    conditional contextual bandit (``--ccb_explore_adf``).
    """
    count = 0
    part = job.folder / "lines"
    with _open(part, packed=job.out.suffix == ".gz") as file:
        for d in decisions:
            problem = unknown_list(d)
            if problem is not None:
                job.left[problem] += 1
                continue
            line = _line if d.body.items is None else _list_line
            file.write(_json(line(job.history, job.space, d)) + b"\n")
            count += 1
    job.check(count)
    part.replace(job.out)
    return count


def _open(path: Path, packed: bool) -> IO[bytes]:
    if packed:
        return gzip.open(path, "wb", compresslevel=6)  # type: ignore[return-value]
    return path.open("wb", buffering=1 << 18)


def _line(history: History, space: str, d: Decision) -> dict[str, Any]:
    row, body = d.row, d.body
    n, place = len(body.arms), body.place
    order = [place, *(i for i in range(n) if i != place)]
    draws = body.drawn is not None
    p = probabilities(d.config, body.wanted, n, place, body.probability, draws)
    reward = d.reward or 0.0
    return {
        "_label_cost": 0.0 - reward,
        "_label_probability": body.probability,
        "_label_Action": place + 1,
        "_labelIndex": place,
        "o": [{"v": reward, "EventId": body.id}] if d.state == "matched" else [],
        "Timestamp": _moment(row.at).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "Version": "1",
        "EventId": body.id,
        "a": [i + 1 for i in order],
        "c": _about(history, d),
        "p": [p[i] for i in order],
        "VWState": {"m": f"{space}/{d.version}"},
    }


def _about(history: History, d: Decision) -> dict[str, Any]:
    """The context and the candidates."""
    about: dict[str, Any] = {}
    assert d.x is not None
    if history.context.by_name:
        about = {"context": _plain(d.body.context), "_x": d.x.tolist()}
    elif history.context.size:
        about = {"x": d.x.tolist()}
    about["_multi"] = [_action(history, d, i) for i in range(len(d.body.arms))]
    return about


def _list_line(history: History, space: str, d: Decision) -> dict[str, Any]:
    """A list: what stands in each slot, with its probability given the slots before it.

    An item that was not seen has no cost, and VW learns nothing from it. VW does not look at
    ``_probability`` (of the item at its position, over all lists) and ``_prefix_probability``.
    """
    row, body, part = d.row, d.body, d.body.items
    assert part is not None
    assert d.items is not None
    about, before, outcomes = _about(history, d), 1.0, []
    ids = [str(i) for i in part.slots or range(len(part.places))]
    about["_slots"] = [{"_id": slot} for slot in ids]
    for i, place in enumerate(part.places):
        own = about["_slots"][i]
        if d.contexts is not None:
            own["_x"] = d.contexts[i].tolist()
            own |= {"slot": _plain(features)} if isinstance(
                features := (part.features or [None] * len(ids))[i], dict) else {}  # fmt: skip
        if part.exclude is not None:
            own["_inc"] = [p for p in range(len(body.arms)) if p not in part.exclude[i]]
        prefix = part.prefixes[i]
        assert prefix is not None  # such lists are left out
        reward = d.items[i]
        cost = {} if reward is None else {"_label_cost": 0.0 - reward}
        outcomes.append({
            **cost, "_id": ids[i], "_a": [place], "_p": [prefix / before],
            "_probability": part.probabilities[i], "_prefix_probability": prefix,
        })  # fmt: skip
        before = prefix
    return {
        "Timestamp": _moment(row.at).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "Version": "1",
        "EventId": body.id, "c": about, "_outcomes": outcomes,
        "VWState": {"m": f"{space}/{d.version}"},
    }  # fmt: skip


def _action(history: History, d: Decision, i: int) -> dict[str, Any]:
    arm = d.body.arms[i]
    action: dict[str, Any] = {"_tag": str(arm), "i": {"constant": 1, "id": str(arm)}}
    if not isinstance(arm, str):
        action["_arm"] = arm  # a tag is text, and 7 is not "7"
    if d.features is not None and d.raw is not None:
        vector = d.features[i].tolist()
        named = {"item": _plain(d.raw[i]), "_y": vector} if history.items.by_name else {"y": vector}
        action |= named
    return action


def _plain(features: Any) -> dict[str, Any]:
    """Named features as VW takes them: no lists of texts, no names that mean something to it."""
    plain: dict[str, Any] = {}
    for key, value in features.items():
        name = f".{key}" if key.startswith("_") else key
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, (bool, str)) and isinstance(value, list):
                plain[f"{name}={part}"] = 1
            elif isinstance(part, (int, float)) and isinstance(value, list):
                plain[name] = plain.get(name, 0) + part
            elif part is not None:
                plain[name] = part
    return plain


# -- Parquet ----------------------------------------------------------------------------------


def _to_parquet(job: _Job, decisions: Iterator[Decision]) -> int:
    """A row for each decision, whatever came of it."""
    import polars as pl

    schema = _schema(job.history)
    parts: list[Path] = []
    count = 0
    while (batch := list(itertools.islice(decisions, _BATCH))) or not parts:
        parts.append(job.folder / f"{len(parts):08d}.parquet")
        rows = [_record(job.history, d) for d in batch]
        pl.DataFrame(rows, schema, orient="row").write_parquet(parts[-1])
        count += len(batch)
    whole = parts[0]
    if len(parts) > 1:
        whole = job.folder / "whole"
        pl.scan_parquet(parts).sink_parquet(whole)
    whole.replace(job.out)
    return count


def _schema(history: History) -> dict[str, Any]:
    import polars as pl

    numbers, when = pl.List(pl.Float64), pl.Datetime("us", "UTC")
    schema: dict[str, Any] = {"decision_id": pl.String, "at": when, "context": numbers}
    if history.context.by_name:
        schema["context_json"] = pl.String
    schema |= {"candidates": pl.List(pl.String)}
    if history.items.size:
        schema["features"] = pl.List(numbers)
    return schema | {
        "arm": pl.String, "place": pl.Int32, "probability": pl.Float64, "mode": pl.String,
        "wanted": pl.String, "version": pl.Int32, "reward": pl.Float64,
        "reward_state": pl.String, "reward_at": when, "rewards": pl.Int32,
        "slots": pl.List(pl.String), "items": pl.List(pl.String), "item_rewards": numbers,
        "item_probabilities": numbers, "prefix_probabilities": numbers,
    }  # fmt: skip


def _record(history: History, d: Decision) -> tuple[Any, ...]:
    body = d.body
    ids = [str(arm) for arm in body.arms]
    record: list[Any] = [body.id, _moment(d.row.at), None if d.x is None else d.x.tolist()]
    if history.context.by_name:
        record.append(_json(body.context).decode())
    record.append(ids)
    if history.items.size:
        record.append(None if d.features is None else [y.tolist() for y in d.features])
    known = not unlogged(d) and body.probability == body.probability
    items: tuple[Any, ...] = (None,) * 5
    if (part := body.items) is not None:
        slots = [str(i) for i in part.slots or range(len(part.places))]
        shown = [ids[place] for place in part.places]
        items = slots, shown, d.items, part.probabilities, part.prefixes
    return (
        *record, ids[body.place], body.place, body.probability if known else None,
        body.mode, ids[body.wanted], d.version, d.reward, d.state,
        None if d.reward_at is None else _moment(d.reward_at), d.rewards, *items,
    )  # fmt: skip


# -- what all share ---------------------------------------------------------------------------


def _moment(at: int) -> datetime:
    seconds, micro = divmod(at, MICRO)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=micro)


def _closed(decisions: Iterator[Decision], left: Counter[str]) -> Iterator[Decision]:
    """Decisions that were learnt from; others are counted."""
    for d in decisions:
        if d.reward is None:
            left[d.state] += 1
        elif d.x is None:
            left[_UNFIT] += 1
        else:
            yield d


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


_WRITERS: dict[str, Callable[[_Job, Iterator[Decision]], int]] = {
    "parquet": _to_parquet,
    "log": _to_log,
    "dsjson": _to_dsjson,
}
FORMATS = tuple(_WRITERS)
