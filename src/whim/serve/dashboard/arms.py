"""A page of a space's arms, in any order, without holding up decisions."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from typing import Any

from whim.serve.dashboard import rates
from whim.serve.dashboard.drawing import spark
from whim.serve.dashboard.views import arm_text
from whim.serve.state.engine import Engine
from whim.serve.state.stats import ArmCounts, Stats

PER_PAGE = 50
DEEPEST = 40  # pages that can be turned to; further arms: by name, or in another order
_CHUNK = 500  # arms looked at before others have their turn
_NEVER = ArmCounts()
Key = Callable[[str | int, ArmCounts], Any]


def _width(counts: ArmCounts) -> float | None:
    low, high = counts.interval()
    return None if low is None or high is None else high - low


SORTS: dict[str, Key] = {
    "arm": lambda arm, counts: arm_text(arm),
    "decisions": lambda arm, counts: counts.decisions,
    "plays": lambda arm, counts: counts.closed,
    "mean": lambda arm, counts: counts.mean(),
    "width": lambda arm, counts: _width(counts),
    "changed": lambda arm, counts: counts.changed,
}


async def arms(
    engine: Engine,
    name: str,
    sort: str = "decisions",
    down: bool = True,
    page: int = 1,
    q: str = "",
) -> dict[str, Any]:
    """The rows of a page; ``q`` is text that arms must have in their ids."""
    space = engine.space(name)
    stats = space.state.stats
    every = space.state.policy.arms
    sort = sort if sort in SORTS else "decisions"
    page = min(max(page, 1), DEEPEST)
    shown, count = await _first(every, stats, SORTS[sort], down, page * PER_PAGE, q.casefold())
    pages = min(max(1, math.ceil(count / PER_PAGE)), DEEPEST)
    page = min(page, pages)
    at = engine.now()
    rows = [_row(arm, stats, at) for arm in shown[(page - 1) * PER_PAGE : page * PER_PAGE]]
    return {
        "name": name, "rows": rows, "count": count, "all": len(every), "page": page,
        "pages": pages, "first": (page - 1) * PER_PAGE + 1, "sort": sort, "down": down, "q": q,
        "hidden": max(0, count - DEEPEST * PER_PAGE),
    }  # fmt: skip


async def _first(
    every: Any, stats: Stats, key: Key, down: bool, most: int, q: str
) -> tuple[list[Any], int]:
    """The first arms of an order, and how many there are; what has no place comes last."""
    pick = heapq.nlargest if down else heapq.nsmallest
    none = -math.inf if down else math.inf
    top: list[tuple[Any, Any]] = []
    count = 0
    for start in range(0, len(every), _CHUNK):
        some = []
        for arm in every[start : start + _CHUNK]:
            if q and q not in arm_text(arm).casefold():
                continue
            value = key(arm, stats.arms.get(arm, _NEVER))
            some.append((none if value is None else value, arm))
        count += len(some)
        top = pick(most, [*top, *some], key=lambda pair: pair[0])
        await asyncio.sleep(0)
    return [arm for _, arm in top], count


def _row(arm: Any, stats: Stats, at: int) -> dict[str, Any]:
    counts = stats.arms.get(arm, _NEVER)
    mean = rates.rate(counts.closed, counts.total, counts.squares)
    value, low, high = (None, None, None) if mean is None else mean
    if low is None or high is None or not math.isfinite(low):
        low = high = None
    return {
        "arm": arm_text(arm),
        "decisions": counts.decisions,
        "plays": counts.closed,
        "mean": value,
        "low": low,
        "high": high,
        "width": None if low is None or high is None else high - low,
        "changed": max(counts.changed, stats.changed) or None,
        "spark": spark(stats.trend(counts, at)) if counts.trend else "",
    }
