"""``rotation``: a pool of fixed size in which arms make room for others."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from whim.types import F64, I64


@dataclass(frozen=True, slots=True)
class Rotation:
    """Pools one after the other."""

    starts: I64  # (P,): the first step of each pool; 0 at first
    pools: I64  # (P, W): the arms of each pool, by place
    stays: list[list[tuple[int, int]]]  # of each arm: (first step, step after the last)

    def pool_of(self, horizon: int) -> I64:
        """(T,): the pool of each step."""
        pools: I64 = np.searchsorted(self.starts, np.arange(horizon), side="right") - 1
        return pools

    @property
    def offsets(self) -> I64:
        """Where each pool begins in ``pools.ravel()``, and the end."""
        ends: I64 = np.arange(len(self.pools) + 1) * self.pools.shape[1]
        return ends


def jittered(rng: np.random.Generator, n: int) -> F64:
    """Times in (0, 1), one at random in each n-th part: neither in step nor in bursts."""
    times: F64 = (np.arange(n) + rng.random(n)) / max(n, 1)
    return times


def rotation(
    rng: np.random.Generator, arrivals: list[int], *, n_arms: int, pool_size: int, horizon: int
) -> Rotation:
    """Let one arm in at each of ``arrivals``: the one that was away longest.

    It takes the place of an arm of the pool's older half, chosen at random, so that lives
    differ but none is cut at once.
    """
    pool, waiting = list(range(pool_size)), deque(range(pool_size, n_arms))
    since = [0] * pool_size
    pools = [list(pool)]
    stays: list[list[tuple[int, int]]] = [[] for _ in range(n_arms)]
    for step in arrivals:
        older = np.argsort(since, kind="stable")[: (pool_size + 1) // 2]
        place = int(rng.choice(older))
        stays[pool[place]].append((since[place], step))
        waiting.append(pool[place])
        pool[place], since[place] = waiting.popleft(), step
        pools.append(list(pool))
    for arm, low in zip(pool, since, strict=True):
        stays[arm].append((low, horizon))
    return Rotation(np.array([0, *arrivals]), np.array(pools), stays)
