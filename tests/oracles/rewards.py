"""What becomes of rewards, literally: every row is judged by all rows before it, one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from whim.serve.log.rows import DECODERS, Kind, Row

Fate = tuple[str, str]  # a decision and what became of its reward, or that its time ended


class _Told(NamedTuple):
    at: int
    kind: int
    body: Any


def fates(rows: Iterable[Row]) -> list[Fate]:
    """Of the rows of one space: each reward's state, and each end of waiting as ``ended``."""
    told = [_Told(row.at, row.kind, DECODERS[row.kind].decode(row.body)) for row in rows]
    found: list[tuple[int, Fate, str | None]] = []  # row, fate, id of the reward
    for i, one in enumerate(told):
        if one.kind == Kind.REWARD:
            state = one.body.state or _state(told[:i], found, one)
            found.append((i, (one.body.id, state), one.body.reward_id))
        elif one.kind == Kind.EXPIRY:
            for entry in one.body.closed:
                key = entry if isinstance(entry, str) else entry[0]
                due, _ = _due(told[:i], key)
                over = not isinstance(entry, str) or (due is not None and due <= one.at)
                if over and not _closed(found, key):
                    found.append((i, (key, "ended"), None))
    return [fate for _, fate, _ in found]


def _rules(before: list[_Told]) -> Any:
    """Those of the last configuration that is in force."""
    in_force = [
        one.body.config.rewards
        for one in before
        if one.kind == Kind.BUILT or (one.kind == Kind.CONFIG and one.body.version == 1)
    ]
    return in_force[-1]


def _due(before: list[_Told], key: str) -> tuple[int | None, bool]:
    """When the waiting for a decision's reward ends, and whether it was not shown yet."""
    due, deferred = None, False
    for i, one in enumerate(before):
        is_decision = one.kind == Kind.DECISION and one.body.id == key
        if is_decision or (one.kind == Kind.ACTIVATION and one.body.id == key and deferred):
            wait = round(_rules(before[:i]).wait_seconds * 1_000_000)
            due, deferred = one.body.due or one.at + wait, is_decision and one.body.deferred
    return due, deferred


def _closed(found: list[tuple[int, Fate, str | None]], key: str) -> bool:
    return any(fate in ((key, "learnt"), (key, "ended")) for _, fate, _ in found)


def _state(before: list[_Told], found: list[tuple[int, Fate, str | None]], one: _Told) -> str:
    key, name = one.body.id, one.body.reward_id
    due, deferred = _due(before, key)
    taken = [(fate, known) for _, fate, known in found if fate[0] == key]
    if due is None or _closed(found, key) or (one.at >= due and not deferred):
        again = name is not None and ((key, "learnt"), name) in taken
        return "duplicate" if again else "late"
    kept = [known for fate, known in taken if fate[1] == "kept"]
    if name is not None and name in kept:
        return "duplicate"
    if _rules(before).combine == "sum":
        return "kept"
    if kept:
        return "duplicate"
    return "kept" if deferred else "learnt"
