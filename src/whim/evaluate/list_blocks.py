"""Lists of a log, a block at a time, in arrays with a row per list; and how they were drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.errors import InvalidInputError
from whim.evaluate.list_estimates import ListBlock
from whim.evaluate.pools import pools_of
from whim.logs import Log
from whim.types import F64, I64

SCHEMES = ("uniform", "propensity")
_BLOCK = 1 << 13
_CLOSE = 1e-6  # relative difference at which probabilities count as the same


class Lists(NamedTuple):
    """Some lists: what each could have shown, and what it did; ``block.chosen`` is to be filled."""

    at: I64  # numbers of the lists in the log
    X: F64
    pool_of: I64  # what each could have shown: items of a pool, as in ``ListBatch``
    offsets: I64
    members: I64
    block: ListBlock
    lengths: I64


def scheme_of(log: Log, logging: str | None) -> str:
    """How lists were shown: as declared, or as the log says."""
    scheme = logging or log.logging
    if scheme is None:
        raise InvalidInputError(
            f"logging must be declared, one of {', '.join(SCHEMES)}: {log.path.name} does not "
            "say how the shown lists were chosen."
        )
    checks.choice("logging", scheme, SCHEMES)
    if scheme == "propensity" and log.list_probability is None:
        raise InvalidInputError(f"logging must not be 'propensity': {log.path.name} has none.")
    return scheme


def longest(log: Log, k: int | None) -> int:
    """Positions that are looked at: ``k``, or those of the longest list."""
    if not log.has_lists:
        raise InvalidInputError(f"log must be one of lists, got {log.path.name} of single items.")
    most = int(np.diff(log.list_offsets).max()) if log.n_events else 1
    if k is None:
        return most
    checks.integer("k", k, 1)
    if k > most:
        raise InvalidInputError(
            f"k must be at most {most}, the items of the longest list, got {k}."
        )
    if log.n_events and bool(np.isnan(log.list_reward).any()):
        raise InvalidInputError("k must not be given where only whole lists have rewards.")
    return k


def blocks(
    log: Log, scheme: str, k: int, stop: int, *, keep: Sequence[Any] = ()
) -> Iterator[Lists]:
    """The first ``stop`` lists, each cut to its first ``k`` items.

    ``keep`` is empty or ``(share, random generator)``: each list is then kept with that chance.
    """
    for start in range(0, stop, _BLOCK):
        at = np.arange(start, min(start + _BLOCK, stop))
        if keep:
            share, coins = keep
            at = at[coins.random(len(at)) < share]
        if len(at):
            yield _lists(log, scheme, k, at)


def _lists(log: Log, scheme: str, k: int, at: I64) -> Lists:
    starts = log.list_offsets[at]
    full = log.list_offsets[at + 1] - starts
    lengths = np.minimum(full, k)
    within = np.arange(k)
    valid = within < lengths[:, None]
    where = np.where(valid, starts[:, None] + within, starts[:, None])

    def padded(column: npt.NDArray[Any], empty: float) -> npt.NDArray[Any]:
        return np.where(valid, column[where], empty)

    pools = pools_of(log, at)
    sizes = np.diff(pools.offsets)[pools.pool_of]
    rewards = padded(log.list_reward, 0.0)
    whole = log.reward[at].astype(np.float64)
    cut = full > lengths
    reward = np.where(cut, rewards.sum(1), whole)
    if scheme == "uniform":
        left = np.maximum(sizes[:, None] - within, 1)
        probabilities = np.where(valid, 1 / sizes[:, None], 1.0)
        prefixes = np.asarray(np.cumprod(np.where(valid, 1 / left, 1.0), axis=1), np.float64)
    else:
        assert log.list_probability is not None
        assert log.list_prefix_probability is not None
        probabilities = padded(log.list_probability, 1.0)
        prefixes = padded(log.list_prefix_probability, 1.0)
    shown = padded(log.list_place, -1).astype(np.int64)
    block = ListBlock(
        sizes, np.full_like(shown, -1), shown, rewards, reward, probabilities,
        prefixes, None if log.list_wanted is None else padded(log.list_wanted, -1).astype(np.int64),
        None if log.explore is None else log.explore[at].astype(np.float64),
    )  # fmt: skip
    return Lists(at, log.context[at].astype(np.float64), *pools, block, lengths)


def arms_at(log: Log, lists: Lists, places: I64) -> I64:
    """The numbers of the arms at places, -1 where there is none."""
    first = lists.offsets[lists.pool_of][:, None]
    there = places >= 0
    items = lists.members[first + np.where(there, places, 0)]
    return np.where(there, log.item_arm[items], -1).astype(np.int64)


def drawn(log: Log, scheme: str, k: int, stop: int) -> str | None:
    """How whole lists were drawn, which the pseudo-inverse must know; None if it cannot be told.

    ``"mixed"`` where the policy's own list and the chance of a uniform one are known and the
    probabilities are those that follow; ``"product"`` where each position was drawn by itself, so
    that all prefixes' probabilities are products.
    """
    if scheme == "uniform":
        return "uniform"
    mixed, product = log.explore is not None, True
    for lists in blocks(log, scheme, k, stop):
        block = lists.block
        product = product and _same(np.cumprod(block.probabilities, 1, np.float64), block)
        mixed = mixed and _same(_mixed_prefixes(block), block)
        if not (mixed or product):
            return None
    return "mixed" if mixed else "product"


def _same(prefixes: F64, block: ListBlock) -> bool:
    known = block.valid
    return bool((np.abs(prefixes - block.prefixes) <= _CLOSE * block.prefixes)[known].all())


def _mixed_prefixes(block: ListBlock) -> F64:
    assert block.wanted is not None
    assert block.explore is not None
    left = np.maximum(block.sizes[:, None] - np.arange(block.shown.shape[1]), 1)
    own = np.logical_and.accumulate(block.wanted == block.shown, axis=1)
    explore = block.explore[:, None]
    prefixes: F64 = explore * np.cumprod(1 / left, axis=1) + (1 - explore) * own
    return prefixes
