"""Replay of logs of lists: what policies' lists would have earned.

A policy makes a list for every visit, as long as the one that was shown. Where both agree, it
learns and its rewards count: all of the list, if the whole list is the same (``match="list"``), or
the items from the top down as far as the lists agree (``match="prefix"``). A user who looks from
the top and stops at the first click has then seen exactly what the policy would have shown, up to
there. Whether a position counts depends on what was drawn and not on its reward, so rewards per
position are not biased, which they would be if lists counted by whether they agree up to the click.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from whim import checks, logs
from whim.errors import InvalidInputError
from whim.evaluate.follow import Follower
from whim.evaluate.list_blocks import Lists, arms_at, blocks, drawn, longest, scheme_of
from whim.evaluate.list_estimates import ListEstimate, ListSums
from whim.evaluate.list_result import ListReplayResult, ListRun
from whim.evaluate.pools import doubted, pool_sizes
from whim.evaluate.simulate import fresh
from whim.evaluate.spread import spread
from whim.kernels.lists import LOGGED, LOGGED_WHOLE, UNUSED, ListBatch
from whim.logs import Log, Shown
from whim.policies import Policy
from whim.policies.base.lists import FEEDBACK, chances
from whim.types import F64, I64, ArmId

MATCHES = ("prefix", "list")
_COINS, _CHANCES = 104, 105  # random streams, apart from those of other replays


class ListPlan(NamedTuple):
    """How a log of lists is replayed, checked."""

    scheme: str
    drawn: str | None
    k: int
    match: str
    feedback: str
    examine: tuple[float, ...] | None
    sample: float
    seed: int
    bins: int
    end: int
    floors: tuple[float, ...]  # of the prefix at each position


def plan_lists(
    log: Log, *, k: int | None, match: str | None, feedback: str | None,
    examine: Sequence[float] | None, logging: str | None, sample: float, seed: int, bins: int,
    first: float, floor: float | None,
) -> ListPlan:  # fmt: skip
    """The plan for a log, from parameters as those of ``replay``."""
    positions = longest(log, k)
    scheme = scheme_of(log, logging)
    checks.number("sample", sample, above=0, most=1)
    checks.number("first", first, above=0, most=1)
    checks.integer("bins", bins, 1)
    checks.integer("seed", seed, 0)
    how = checks.choice("match", match or "prefix", MATCHES)
    kind = checks.choice("feedback", feedback or "cascade", tuple(FEEDBACK))
    seen = chances(kind, examine, positions)
    if log.n_events and bool(np.isnan(log.list_reward).any()):
        raise InvalidInputError(
            f"log must have the rewards of items for policies to learn from, {log.path.name} has "
            "those of whole lists: estimate_lists takes lists that are given."
        )
    end = max(1, round(log.n_events * first)) if log.n_events else 0
    return ListPlan(
        scheme, drawn(log, scheme, positions, end), positions, how, kind,
        None if seen is None else tuple(seen.tolist()), sample, seed, bins, end,
        _floors(log, scheme, positions, end, floor),
    )  # fmt: skip


def _floors(log: Log, scheme: str, k: int, end: int, floor: float | None) -> tuple[float, ...]:
    """Of each prefix's probabilities the 5th percentile, each list weighted by 1/p."""
    if floor is not None:
        return (checks.number("floor", floor, above=0, most=1),) * k
    if scheme == "uniform" or not end:
        return (1.0,) * k
    every = max(1, end >> 17)
    starts, sizes = log.list_offsets[:end:every], np.diff(log.list_offsets)[:end:every]
    floors: list[float] = []
    assert log.list_prefix_probability is not None
    for j in range(k):
        p = np.sort(log.list_prefix_probability[starts[sizes > j] + j])
        share = np.cumsum(1 / p)
        floors.append(float(p[np.searchsorted(share, 0.05 * share[-1])]))
    return tuple(floors)


def replay_lists(
    log: Log, policies: Mapping[str, Policy], data: dict[str, bytes], how: ListPlan, *, runs: int,
    jobs: int, engine: str, address: str | None, progress: Callable[[int], None] | None,
) -> ListReplayResult:  # fmt: skip
    """Replay every policy; ``replay`` has checked them."""
    tasks = [(label, run) for label in policies for run in range(runs)]
    outcomes = spread(
        partial(_task, os.fspath(log.path), data, how),
        tasks, jobs=jobs, engine=engine, address=address, progress=progress,
    )  # fmt: skip
    by_label: dict[str, list[ListRun]] = {label: [] for label in policies}
    for (label, _), outcome in zip(tasks, outcomes, strict=True):
        by_label[label].append(outcome)
    settings = {
        "log": log.path.name, "source": log.meta.get("source"), "events": how.end, "lists": True,
        "k": how.k, "match": how.match, "feedback": how.feedback, "examine": how.examine,
        "logging": how.scheme, "sample": how.sample, "runs": runs, "seed": how.seed,
        "first": how.end / max(log.n_events, 1), "floors": how.floors,
        "candidates": pool_sizes(log), "doubt": doubted(log, how.scheme, how.end),
        "policies": {label: repr(p) for label, p in policies.items()},
    }  # fmt: skip
    return ListReplayResult(settings, {label: list(runs) for label, runs in by_label.items()})


def _task(path: str, data: dict[str, bytes], how: ListPlan, task: tuple[str, int]) -> ListRun:
    label, run = task
    return replay_lists_once(logs.open(path), data[label], how, run)


def replay_lists_once(log: Log, data: bytes, how: ListPlan, run: int) -> ListRun:
    """One sealed policy over one sample of the log."""
    policy = fresh(data, run)
    follower = Follower(policy, log.arms, np.asarray(log.item_arm, np.int64), log.item_features)
    parts = [np.zeros(how.bins) for _ in range(4)]
    outcome = ListRun(parts[0], parts[1], parts[2], parts[3])
    outcome.moments = np.zeros((how.bins, *2 * (3 * how.k + 1,)))
    sums = ListSums(how.k, log.n_arms, log.n_features, how.drawn)
    coins = np.random.default_rng([how.seed, run, _COINS])
    luck = np.random.default_rng([how.seed, run, _CHANCES])
    keep = (how.sample, coins) if how.sample < 1 else ()
    for lists in blocks(log, how.scheme, how.k, how.end, keep=keep):
        accepted = _accepted(lists, how, luck)
        followed = follower.go_lists(_batch(lists, how, accepted), by_visits=False)
        block = lists.block
        block.chosen[:] = np.where(block.valid, followed.chosen, -1)
        learnt = np.minimum(_agreeing(lists, how.match), accepted)
        counted = np.arange(how.k) < learnt[:, None]
        outcome.note((lists.at * how.bins) // how.end, counted, block.rewards, block.valid)
        outcome.learnt += int(learnt.sum())
        sums.add(
            block, lists.X, arms_at(log, lists, block.chosen), arms_at(log, lists, block.shown)
        )
        outcome.changes += [
            (int(lists.at[i]), event.arm, event.step, event.statistic)
            for i, event in followed.changes
        ]
    outcome.listed = sums.estimates()
    return outcome


def _accepted(lists: Lists, how: ListPlan, luck: np.random.Generator) -> I64:
    """How many items from the top may be learnt from if they agree.

    A prefix of probability p counts with chance min(1, floor / p), which makes what is learnt
    uniform again; ``match="list"`` looks at the whole list alone.
    """
    if how.scheme == "uniform":
        return lists.lengths
    valid = lists.block.valid
    chance = np.where(valid, np.array(how.floors) / lists.block.prefixes, np.inf)
    if how.match == "list":
        chance = np.where(np.arange(how.k) == lists.lengths[:, None] - 1, chance, np.inf)
    drawn_ = luck.random(len(valid))[:, None] < chance
    through = np.logical_and.accumulate(drawn_ & valid, axis=1).sum(1)
    return np.asarray(np.where(
        (how.match == "list") & (through < lists.lengths), 0, through
    ), np.int64)  # fmt: skip


def _agreeing(lists: Lists, match: str) -> I64:
    """How many items from the top are the same in both lists; all or none under ``"list"``."""
    block = lists.block
    same = (block.chosen == block.shown) & block.valid
    agree = np.logical_and.accumulate(same, axis=1).sum(1)
    return np.where((match == "list") & (agree < lists.lengths), 0, agree)


def _batch(lists: Lists, how: ListPlan, accepted: I64) -> ListBatch:
    """The lists for a policy to follow; what was not accepted is never the same."""
    block, (n, k) = lists.block, lists.block.shown.shape
    unused = block.valid & (np.arange(k) >= accepted[:, None])
    examine = np.ones(k) if how.examine is None else np.array(how.examine)
    return ListBatch(
        k, LOGGED_WHOLE if how.match == "list" else LOGGED, FEEDBACK[how.feedback], k,
        lists.X, lists.pool_of, lists.offsets, lists.members, block.rewards,
        np.where(unused, UNUSED, block.shown.astype(np.float64)), np.tile(examine, (n, 1)),
    )  # fmt: skip


def estimate_lists(
    log: Log | str | os.PathLike[str],
    lists: Callable[[Shown], Sequence[ArmId]] | Sequence[Sequence[ArmId]],
    *,
    logging: str | None = None,
    k: int | None = None,
) -> dict[str, ListEstimate]:
    """The value of lists that are given, from a log of lists, by every estimate.

    Parameters
    ----------
    log
        A log of lists, or its folder.
    lists
        One list of arms per event, or a function that makes it of the event (whose rewards it
        must not look at); as many items as were shown are compared.
    logging
        ``"uniform"`` or ``"propensity"``, if the log does not say.
    k
        Look at the first ``k`` positions only.

    Examples
    --------
    >>> import tempfile, itertools, whim
    >>> path = tempfile.mkdtemp() + "/lists.whim"
    >>> with whim.logs.ListWriter(path, n_features=1, logging="uniform") as w:
    ...     for i, (a, b) in enumerate(50 * list(itertools.permutations("abc", 2))):
    ...         w.add_list(time=i, x=[1.0], arms=list("abc"), shown=[a, b],
    ...                    rewards=[int(a == "a"), int(b == "c" and i % 12 > 5)])
    >>> estimate = estimate_lists(path, lambda event: ["a", "c"])["slots"]
    >>> round(estimate.interval.value, 2), [round(p.value, 2) for p in estimate.positions]
    (1.5, [1.0, 0.5])
    """
    opened = log if isinstance(log, Log) else logs.open(log)
    positions, scheme = longest(opened, k), scheme_of(opened, logging)
    if not callable(lists) and len(lists) != opened.n_events:
        raise InvalidInputError(
            f"lists must be one for each of {opened.n_events} events, got {len(lists)}."
        )
    sums = ListSums(
        positions, opened.n_arms, opened.n_features,
        drawn(opened, scheme, positions, opened.n_events),
    )  # fmt: skip
    for some in blocks(opened, scheme, positions, opened.n_events):
        block = some.block
        for row, i in enumerate(some.at.tolist()):
            event = opened.shown_list(i)
            chosen = list(lists(event) if callable(lists) else lists[i])[: some.lengths[row]]
            block.chosen[row, : len(chosen)] = _places(chosen, event, int(some.lengths[row]))
        arms = arms_at(opened, some, block.chosen), arms_at(opened, some, block.shown)
        sums.add(block, some.X, *arms)
    return sums.estimates()


def _places(chosen: list[ArmId], event: Shown, k: int) -> F64 | list[int]:
    if len(chosen) < k or len(set(chosen)) < k or not set(chosen) <= set(event.arms):
        raise InvalidInputError(
            f"lists must have {k} different ones of the event's arms, got {chosen!r}."
        )
    return [event.arms.index(arm) for arm in chosen]
