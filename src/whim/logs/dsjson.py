"""Decision-service JSON (VW's ``--dsjson``, Personalizer's logs): lines into a log."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from whim.checks import choice, integer
from whim.errors import InvalidInputError, LogFileError
from whim.logs.columns import LOGGING, Log, open
from whim.logs.dsjson_features import BadLine, Places, features_of, id_at, is_number, usual_id
from whim.logs.dsjson_lists import Slots, chance, is_list, joined, slots_of
from whim.logs.list_writer import ListWriter
from whim.logs.sources import Progress, Source, blocks, files_of, no_events
from whim.logs.writer import Writer
from whim.types import ArmId

_LINE = 1 << 24  # bytes of a line

EXPECTED = {  # what a sound log of a service holds, and a replay cannot use
    "dangling": "reward without its decision",
    "skipped": "not to be learnt from (_skipLearn)",
    "dropped": "dropped when it was logged (pdrop)",
    "slot_features": "slots with features of their own (ignore_slots=true takes lists without)",
    "slot_candidates": "slots with candidates of their own (ignore_slots=true takes all actions)",
}
BAD_LINE = {
    "json": "not a JSON object",
    "long": "line longer than 16 MB",
    "actions": "no actions",
    "action": "shown action missing or not among the actions",
    "cost": "cost missing or not a number",
    "time": "time not readable",
    "propensity": "probability missing or outside (0, 1]",
    "id": "action without an id",
    "repeated": "action twice among the actions",
    "features": "feature not a number of at most 1e10 in size",
    "length": "vector of another length",
    "outcomes": "outcomes that are not those of the slots, one for each",
    "slot_id": "action without the number of its slot",
    "twice": "action shown twice in a list",
    "prefix": "probability of a list rising from the top, or above the item's",
}
_NO_TIME = "no time: that of the line before"


class _Event(NamedTuple):
    time: int | None
    context: dict[str, float] | list[float]
    arms: list[ArmId]
    features: list[dict[str, float] | list[float]]
    shown: Slots
    listed: bool  # whether the line has slots


def convert(
    sources: Source | Sequence[Source],
    path: Source,
    *,
    arm: str | None = None,
    size: int | None = None,
    item_size: int | None = None,
    constant: bool = False,
    logging: str = "propensity",
    ignore_slots: bool = False,
    strict: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Log:
    r"""Read files of decision-service JSON, plain or gzip, in the order given.

    Lines of several slots (CCB, slates) make a log of lists, in which other lines are lists of one.

    Namespaces are flattened: ``{"user": {"age": 3, "device": "phone"}}`` has the features
    ``user.age`` (3) and ``user.device=phone`` (1), and a list of numbers under ``x`` has ``x[0]``,
    ``x[1]``. What a line lacks is 0. Names that begin with ``_`` are no features, as for VW. A
    reward is the cost with its sign turned.

    Parameters
    ----------
    arm
        Where an action's id stands, such as ``"i.id"`` or ``"article.slug"``. Without: ``_tag``,
        then ``i.id``, then all that the action says, as text. ``i`` is never a feature.
    size, item_size
        Hash the features of contexts, of actions, into so many places. Without, each feature
        has a place of its own, in order of first appearance; a first reading of the files finds
        them.
    constant
        Add a feature that is 1 to contexts and actions, as VW does by itself.
    logging
        ``"propensity"``; ``"uniform"`` if probabilities are missing and the service drew evenly.
    ignore_slots
        Take lists although their slots have features or candidates (``_inc``) of their own, which
        a log does not hold. Without, such lists are left out and counted.
    strict
        Stop at the first malformed line. Rewards without decisions and what was not to be learnt
        are counted all the same.

    Examples
    --------
    >>> import pathlib, tempfile, whim.logs
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> line = ('{"_label_cost": -1, "_label_probability": 0.5, "_label_Action": 2, "a": [2, 1],'
    ...         ' "c": {"user": {"age": 3}, "_multi": [{"_tag": "a"}, {"_tag": "b"}]}}\n')
    >>> _ = (folder / "day.json").write_text(line)
    >>> log = whim.logs.convert(folder / "day.json", folder / "day.whim", format="dsjson")
    >>> event = log.event(0)
    >>> event.shown, event.reward, event.x.tolist(), log.meta["context_names"]
    ('b', 1.0, [3.0], ['user.age'])
    """
    files = files_of(sources)
    choice("logging", logging, LOGGING)
    if logging == "full":
        raise InvalidInputError("logging must not be 'full': only the shown action has a cost.")
    for name, value in (("size", size), ("item_size", item_size)):
        if value is not None:
            integer(name, value, 1)
    reading = _Reading(files, arm, logging == "propensity", ignore_slots, strict)
    context, items = Places("size", size, constant), Places("item_size", item_size, constant)
    lists = _look(reading, context, items, size is not None and item_size is not None)
    context.settle(at_least=1)
    items.settle(at_least=0)
    source = {"reader": "dsjson", "files": [file.name for file in files],
              "options": {"arm": arm, "size": size, "item_size": item_size,
                          "ignore_slots": ignore_slots}}  # fmt: skip
    with (ListWriter if lists else Writer)(
        path, n_features=len(context.names), n_item_features=len(items.names), logging=logging,
        source=source, propensities=logging == "propensity", context_names=context.names,
        item_names=items.names or None, overwrite=overwrite,
    ) as writer:  # fmt: skip
        _write(reading, writer, context, items, progress)
    return open(path)


def _look(reading: _Reading, context: Places, items: Places, hashed: bool) -> bool:
    """Find the features, unless they are hashed; whether there are lists."""
    lists = False
    for event in reading.events(lists_only=hashed):
        lists = lists or event.listed
        if hashed and lists:
            break
        context.look(event.context)
        for features in event.features:
            items.look(features)
    return lists


def _write(
    reading: _Reading, writer: Writer, context: Places, items: Places, progress: Progress | None
) -> None:
    """All usable events into the log, in their order."""
    last = 0
    for event in reading.events(writer, progress):
        try:
            x = context.vector(event.context)
            Y = [items.vector(each) for each in event.features] if items.names else None
        except BadLine as why:
            reading.refuse(writer, str(why))
            continue
        for notice in (*event.shown.notices, *([_NO_TIME] if event.time is None else [])):
            writer.warn(notice)
        last = last if event.time is None else event.time
        _add(writer, {"time": last, "x": x, "arms": event.arms, "features": Y}, event)
    writer.read = reading.lines
    if not writer.n_events:
        raise no_events(reading.files, writer.dropped, "nothing but empty lines")


def _add(writer: Writer, same: dict[str, Any], event: _Event) -> None:
    """One event into a log of its kind."""
    shown = event.shown
    arms = [event.arms[place] for place in shown.places]
    if isinstance(writer, ListWriter):
        whole = {"reward": shown.reward} if shown.rewards is None else {"rewards": shown.rewards}
        writer.add_list(
            **same, **whole, shown=arms, probabilities=shown.probabilities,
            prefix_probabilities=shown.prefixes,
        )  # fmt: skip
        return
    propensity = None if shown.prefixes is None else shown.prefixes[0]
    writer.event(**same, shown=arms[0], reward=shown.reward, propensity=propensity)


# -- lines ------------------------------------------------------------------------------------


class _Reading:
    """The events of all files, and what became of the other lines."""

    def __init__(
        self, files: list[Path], arm: str | None, weighted: bool, ignore_slots: bool, strict: bool
    ) -> None:
        self.files, self._weighted, self._strict = files, weighted, strict
        self._ignore_slots = ignore_slots
        self._arm = usual_id if arm is None else id_at(arm)
        self.lines = 0
        self._where = (Path(), 0)

    def refuse(self, writer: Writer | None, reason: str) -> None:
        """Count a line that cannot be used, or stop at it."""
        if self._strict and reason in BAD_LINE:
            file, line = self._where
            raise LogFileError(f"{file}, line {line}: {BAD_LINE[reason]}.")
        if writer is not None:
            writer.drop(BAD_LINE.get(reason) or EXPECTED[reason])

    def events(
        self,
        writer: Writer | None = None,
        progress: Progress | None = None,
        *,
        lists_only: bool = False,
    ) -> Iterator[_Event]:
        """Every usable event; counts are the ``writer``'s, if there is one.

        With ``lists_only`` lines that cannot have slots are passed over unread.
        """
        self.lines = 0
        for file in self.files:
            number = 0
            for line in _lines(file, progress):
                number += 1
                self._where = (file, number)
                if lists_only and line is not None and not _may_be_list(line):
                    continue
                try:
                    if line is None:
                        raise BadLine("long")
                    event = None if line.isspace() or not line else self._event(line)
                except BadLine as why:
                    self.refuse(writer, str(why))
                    continue
                if event is not None:
                    yield event
                elif writer is not None:
                    writer.warn("empty line")
            self.lines += number

    def _event(self, line: bytes) -> _Event:
        try:
            entry = json.loads(line, parse_constant=_no_number)
            if b"\\u" in line:
                json.dumps(entry, ensure_ascii=False).encode()  # half a character cannot be kept
        except (ValueError, RecursionError):
            raise BadLine("json") from None
        if not isinstance(entry, dict):
            raise BadLine("json")
        about = entry.get("c")
        if not isinstance(about, dict):
            raise BadLine("dangling" if "RewardValue" in entry else "actions")
        if entry.get("_skipLearn") is True:
            raise BadLine("skipped")
        if entry.get("pdrop") == 1:
            raise BadLine("dropped")
        actions = about.get("_multi")
        if not isinstance(actions, list) or not actions:
            raise BadLine("actions")
        if not all(isinstance(action, dict) for action in actions):
            raise BadLine("actions")
        listed = is_list(entry, about)
        try:
            shown = self._slots(entry, about) if listed else self._only(entry, len(actions))
            arms = [self._arm(action) for action in actions]
            if len(set(arms)) < len(arms):
                raise BadLine("repeated")
            features = [features_of(action, "_y", ("i",)) for action in actions]
            context = joined(features_of(about, "_x", ()), shown.features)
        except RecursionError:
            raise BadLine("json") from None
        return _Event(_time(entry.get("Timestamp")), context, arms, features, shown, listed)

    def _slots(self, entry: dict[str, Any], about: dict[str, Any]) -> Slots:
        return slots_of(entry, about, weighted=self._weighted, ignore=self._ignore_slots)

    def _only(self, entry: dict[str, Any], n: int) -> Slots:
        """What a line without slots shows."""
        place, cost = _shown(entry, n), entry.get("_label_cost")
        if not is_number(cost):
            raise BadLine("cost")
        p = [_probability(entry, place)] if self._weighted else None
        return Slots([place], [0.0 - cost], 0.0 - cost, None if p is None else [*p], p)


def _may_be_list(line: bytes) -> bool:
    return b"_outcomes" in line or b"\\u" in line  # JSON may write any letter of it as \u...


def _lines(file: Path, progress: Progress | None) -> Iterator[bytes | None]:
    """The lines of a file; None for one too long."""
    for block in blocks(file, limit=_LINE, progress=progress):
        if block.data is None:
            yield None
            continue
        yield from block.data.tobytes().split(b"\n")[:-1]


def _no_number(text: str) -> None:
    raise ValueError(text)  # NaN and Infinity are no JSON


def _shown(entry: dict[str, Any], n: int) -> int:
    """The place of the action that was shown."""
    order = entry.get("a")
    for value, first in (
        (entry.get("_label_Action"), 1),
        (entry.get("_labelIndex"), 0),
        (order[0] if isinstance(order, list) and order else None, 1),
    ):
        if value is not None:
            if type(value) is int and first <= value < n + first:
                return value - first
            break
    raise BadLine("action")


def _probability(entry: dict[str, Any], place: int) -> float:
    """``_label_probability``, or that of the shown action in ``p``, in the order of ``a``."""
    found = entry.get("_label_probability")
    if found is None:
        order, chances = entry.get("a"), entry.get("p")
        if isinstance(order, list) and isinstance(chances, list) and place + 1 in order:
            at = order.index(place + 1)
            found = chances[at] if at < len(chances) else None
    return chance(found)


def _time(text: Any) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise BadLine("time") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return math.floor(moment.timestamp())
