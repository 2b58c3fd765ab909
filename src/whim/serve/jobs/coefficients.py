"""``run``: an arm's coefficients over time, by replaying the log as the space itself learnt it.

The state of a space holds only its coefficients of now; those of before are computed anew from the
log, in a process of its own.
"""

from __future__ import annotations

import inspect
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

from whim.policies import Policy
from whim.serve.log.base import rows_of
from whim.serve.log.reader import LogReader
from whim.serve.log.rows import ConfigRow, Raw
from whim.serve.state.recovery import start
from whim.serve.state.space_state import SpaceState
from whim.serve.state.stats import MICRO

_POINTS = 60  # of a line
_LINES = 8  # features that are drawn, those that moved most


def run(
    reader: LogReader,
    number: int,
    config_row: ConfigRow,
    arm: str | int,
    span: tuple[int, int],
    progress: Callable[[float], None],
) -> dict[str, Any]:
    """Lines of the features that moved most between two times, microseconds, and all of them now.

    ``lines`` is None for a policy that has no coefficients of its arms' features.
    """
    state = start(reader, number, config_row)
    last, until = reader.last()
    first = _first_time(reader, number, state.seq)
    since, until = max(span[0], first), max(min(span[1], until), first + 1)
    times = [since + (until - since) * i // (_POINTS - 1) for i in range(_POINTS)]
    stops = _stops(reader, state, number, times, lambda seq: progress(min(1.0, seq / last)))
    samples = [_coefficients(state.policy, arm) for _ in stops]
    known = [one for one in samples if one is not None]
    result: dict[str, Any] = {"t": [t / MICRO for t in times], "lines": None, "now": []}
    if not known:
        return result
    names = _names(state, len(known[-1]))
    moved = [max(one[i] for one in known) - min(one[i] for one in known) for i in range(len(names))]
    order = sorted(range(len(names)), key=lambda i: (-moved[i], -abs(known[-1][i])))
    result["lines"] = [
        {"name": names[i], "values": [None if one is None else one[i] for one in samples]}
        for i in sorted(order[:_LINES])
    ]
    result["now"] = [
        {"name": names[i], "first": known[0][i], "last": known[-1][i]} for i in order[:_LINES]
    ]
    result["more"] = len(names) - len(result["now"])
    return result


def _first_time(reader: LogReader, number: int, after: int) -> int:
    for block in rows_of(reader, number, after):
        return block[0][1]
    return 0


def _stops(
    reader: LogReader,
    state: SpaceState,
    number: int,
    times: list[int],
    reached: Callable[[int], None],
) -> Iterator[None]:
    """Replay the log; stop at each time, after the rows up to it."""
    left = iter(times)
    stop = next(left, None)
    for block in rows_of(reader, number, state.seq):
        rows: list[Raw] = block
        while stop is not None and rows and rows[-1][1] > stop:
            n = bisect_left(rows, stop + 1, key=lambda row: row[1])
            if n:
                state.apply_many(rows[:n])
                rows = rows[n:]
            yield
            stop = next(left, None)
        if stop is None:
            return
        if rows:
            state.apply_many(rows)
        reached(state.seq)
    while stop is not None:
        yield
        stop = next(left, None)


def _coefficients(policy: Policy, arm: str | int) -> list[float] | None:
    """Those of an arm, or of the one model of all arms; None: it is not there yet, or has none."""
    ask = getattr(policy, "coefficients", None)
    if ask is None or arm not in policy.arms:
        return None
    values = ask(arm) if "arm" in inspect.signature(ask).parameters else ask()
    if values.ndim != 1:  # of several experts, none of which is the arm's
        return None
    return [float(v) if math.isfinite(v) else 0.0 for v in values]


def _names(state: SpaceState, n: int) -> list[str]:
    context, items = state.context.names, state.items.names
    crossed = [f"{item} · {of}" for item in items for of in context]
    for names in (context, items, crossed, [*context, *items]):
        if len(names) == n:
            return names
    return [f"θ[{i}]" for i in range(n)]
