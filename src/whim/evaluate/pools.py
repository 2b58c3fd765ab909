"""The pools of some events of a log, as loops take them: each once, and which event has which.

And whether what was shown can have been drawn from them uniformly, as a log says.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.logs import Log
from whim.types import F64, I64, ArmId

_LOOKED_AT = 1 << 18  # events, spread over the log
_MEMBERS = 1 << 24  # of their pools, about
_CHANCE = 1e-6  # that a uniform log is doubted


class Pools(NamedTuple):
    """Event i may show items ``members[offsets[p]:offsets[p + 1]]``, where p is ``pool_of[i]``."""

    pool_of: I64
    offsets: I64
    members: I64


def pools_of(log: Log, rows: slice | I64) -> Pools:
    """The pools of these events; copies, for loops are not compiled for read-only arrays."""
    pools, pool_of = np.unique(log.pool[rows], return_inverse=True)
    sizes = log.pool_offsets[pools + 1] - log.pool_offsets[pools]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
    members = log.pool_items[np.repeat(log.pool_offsets[pools], sizes) + within]
    return Pools(pool_of, offsets, members.astype(np.int64))


def pool_sizes(log: Log) -> tuple[int, int]:
    """The fewest and the most candidates that an event of the log has."""
    sizes = np.diff(log.pool_offsets)
    return (int(sizes.min()), int(sizes.max())) if len(sizes) else (0, 0)


class Doubt(NamedTuple):
    """The arm whose count is least likely if what was shown was drawn uniformly.

    It was ``shown`` so often in ``events`` that could show it, where ``expected`` is the number
    that uniform draws come to. Of lists it is the top that counts.
    """

    arm: ArmId
    shown: int
    expected: float
    events: int

    def sentence(self, log: str) -> str:
        """For a user of the log, which has this name."""
        return (
            f"{log} says that its logging is uniform, but {self.arm!r} was shown first in "
            f"{self.shown:,} of {self.events:,} events that could show it, and uniform draws would "
            f"have come to about {self.expected:,.0f}. Either they were not uniform, or other arms "
            "could be shown than the log says; estimates from it are then wrong, and their "
            "intervals, too."
        )


def doubt_uniform(log: Log, end: int | None = None) -> Doubt | None:
    """Why the first ``end`` events were certainly not drawn uniformly; None if they may be.

    Each arm's count is compared with Σ 1/(size of the pool) over events whose pool has it. What
    uniform draws exceed by chance is bounded by Bernstein's inequality, which holds for arms that
    are hardly ever shown, too.
    """
    rows = _spread(log, log.n_events if end is None else end)
    if log.has_lists:
        rows = rows[log.list_offsets[rows] < log.list_offsets[rows + 1]]
    if not len(rows):
        return None
    pools = pools_of(log, rows)
    place = log.list_place[log.list_offsets[rows]] if log.has_lists else log.logged[rows]
    arm_of = log.item_arm[pools.members]
    shown = np.bincount(arm_of[pools.offsets[pools.pool_of] + place], minlength=log.n_arms)
    sizes, times = np.diff(pools.offsets), np.bincount(pools.pool_of)

    def summed(each: F64 | I64) -> F64:
        """Over events, what each arm of its pool gets."""
        weights = np.repeat(times * each, sizes)
        return np.bincount(arm_of, weights, log.n_arms).astype(np.float64, copy=False)

    expected = summed(1 / np.maximum(sizes, 1))
    variance = expected - summed(1 / np.maximum(sizes, 1) ** 2)
    apart = np.abs(shown - expected)
    # chance lets it be so far apart with at most twice the exponential of minus this
    unlikely = apart**2 / np.maximum(2 * (variance + apart / 3), 1e-300)
    worst = int(np.argmax(unlikely))
    if unlikely[worst] <= np.log(2 * log.n_arms / _CHANCE):
        return None
    events = int(summed(np.ones(len(sizes)))[worst])
    return Doubt(log.arms[worst], int(shown[worst]), float(expected[worst]), events)


def doubted(log: Log, scheme: str | None, end: int | None = None) -> str | None:
    """Why it is doubted, in a sentence or two, that a log is uniform, if that is its scheme."""
    doubt = doubt_uniform(log, end) if scheme == "uniform" else None
    return None if doubt is None else doubt.sentence(log.path.name)


def _spread(log: Log, end: int) -> I64:
    """Events of the first ``end``, all or one at random of each stretch, in their order."""
    size = log.meta["n_members"] / max(log.n_pools, 1)
    n = min(end, _LOOKED_AT, int(_MEMBERS / max(size, 1)) + 1)
    if n == end:
        return np.arange(end)
    steps = np.arange(n) + np.random.default_rng(0).random(n)
    return np.minimum((steps * (end / n)).astype(np.int64), end - 1)
