"""The pools of some events of a log, as loops take them: each once, and which event has which."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.logs import Log
from whim.types import I64


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
