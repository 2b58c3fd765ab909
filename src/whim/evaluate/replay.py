"""``replay``: what policies would have earned, from a log of what another one showed.

The method of Li et al. (2010, 2011): a policy decides at every event in order of time, and an
event counts, for its click rate and for its learning, only if it chooses what the log shows. On a
log of uniformly random choices the events that count are distributed as if the policy had been
online. All other events leave no trace in it, not even in its random stream.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from whim import checks, logs
from whim.errors import InvalidInputError
from whim.evaluate.estimates import CERTAIN
from whim.evaluate.follow import Follower
from whim.evaluate.pools import doubted, pool_sizes, pools_of
from whim.evaluate.replay_lists import ListPlan, plan_lists, replay_lists
from whim.evaluate.replay_result import ReplayResult, ReplayRun
from whim.evaluate.simulate import check_by_label, fresh, sealed
from whim.evaluate.spread import spread
from whim.kernels.linalg import udu
from whim.kernels.loops import MATCH, ONE, EventBatch
from whim.kernels.models import doubly
from whim.logs import Log
from whim.policies import Policy
from whim.types import F64, I64

BINS = 40
_COINS, _CHANCES = 102, 103  # random streams, apart from those of worlds and policies
_BLOCK = 1 << 16
_LOOKED_AT = 1 << 20  # propensities that the default floor is taken from, evenly over the log
_SCHEMES = ("uniform", "propensity", "full")


def replay(
    log: Log | str | os.PathLike[str],
    policies: Mapping[str, Policy],
    *,
    logging: str | None = None,
    sample: float = 1.0,
    runs: int = 1,
    seed: int = 0,
    bins: int = BINS,
    first: float = 1.0,
    floor: float | None = None,
    k: int | None = None,
    match: str | None = None,
    feedback: str | None = None,
    examine: Sequence[float] | None = None,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> ReplayResult:
    """Replay a log with every policy.

    Parameters
    ----------
    log
        A log, or its folder.
    policies
        By label: policies with no arms yet; arms are added as pools bring them.
    logging
        How the shown arm was chosen, if the log does not say, or to overrule it (but ``"full"``
        cannot be overruled, nor overrule). ``"uniform"``:
        at random from the pool. ``"propensity"``: with the probabilities in the log; an event
        that matches is then learnt with probability min(1, floor / p), which makes what is
        learnt uniform again, and the value is estimated from all events; a policy whose choices
        the log does not support has no estimates (``ReplayRun.support``). ``"full"``: the reward
        of every candidate is known, so every event counts.
    sample
        Each event is kept with this probability, before replay and in order (the paper: 0.1).
    runs, seed
        Replays of samples drawn anew, with policies' random streams anew; the seed of both.
    bins
        Parts of equal length, in events of the log, for the rate over time.
    first
        Use this share of the log, from its beginning.
    floor
        For ``"propensity"``: see there; the 5th percentile of the propensities,
        each event weighted by 1/p, if None.
    k, match, feedback, examine
        For logs of lists: look at the first ``k`` positions (all); learn from the ``"prefix"`` of
        a list that agrees with what was shown, or from whole lists only (``"list"``); ``feedback``
        and ``examine`` as those of ``Policy.update_list``. See ``replay_lists``.
    jobs, engine, address
        Where runs are spread: see ``spread``. The result does not depend on it.
    progress
        Called with the number of (policy, run) pairs done.

    Examples
    --------
    >>> import tempfile, whim
    >>> path = tempfile.mkdtemp() + "/tiny.whim"
    >>> with whim.logs.Writer(path, n_features=1, logging="uniform") as w:
    ...     for i in range(6):
    ...         w.event(time=i, x=[1.0], arms=["a", "b"], shown="ab"[i % 2], reward=i % 2)
    >>> result = replay(path, {"greedy": whim.LinUCBDisjoint(n_features=1, alpha=0)})
    >>> run = result.runs["greedy"][0]
    >>> run.matched, run.rate
    (3, 0.0)
    """
    opened = log if isinstance(log, Log) else logs.open(log)
    checks.integer("runs", runs, 1)
    shared = {"logging": logging, "sample": sample, "seed": seed, "bins": bins, "first": first,
              "floor": floor}  # fmt: skip
    by_list = {"k": k, "match": match, "feedback": feedback, "examine": examine}
    how = _plan_of(opened, shared, by_list)
    check_by_label(policies)
    data: dict[str, bytes] = {}
    for label, policy in policies.items():
        if not isinstance(policy, Policy):
            raise InvalidInputError(f"policies must be policies, got {policy!r} for {label!r}.")
        _fits(opened, label, policy)
        data[label] = sealed(label, policy)  # type: ignore[assignment]
    if isinstance(how, ListPlan):
        return replay_lists(
            opened, policies, data, how, runs=runs, jobs=jobs, engine=engine, address=address,
            progress=progress,
        )  # fmt: skip
    tasks = [(label, run) for label in policies for run in range(runs)]
    outcomes = spread(
        partial(_task, os.fspath(opened.path), data, how),
        tasks, jobs=jobs, engine=engine, address=address, progress=progress,
    )  # fmt: skip
    by_label: dict[str, list[ReplayRun]] = {label: [] for label in policies}
    for (label, _), outcome in zip(tasks, outcomes, strict=True):
        by_label[label].append(outcome)
    settings = {
        "log": opened.path.name, "source": opened.meta.get("source"), "events": how.end,
        "logging": how.scheme, "sample": sample, "runs": runs, "seed": seed, "first": first,
        "floor": how.floor, "candidates": pool_sizes(opened),
        "doubt": doubted(opened, how.scheme, how.end),
        "policies": {label: repr(p) for label, p in policies.items()},
    }  # fmt: skip
    return ReplayResult(settings, by_label)


def _plan_of(log: Log, shared: dict[str, Any], by_list: dict[str, Any]) -> Plan | ListPlan:
    """The plan for a log of lists or of single items."""
    if log.has_lists:
        return plan_lists(log, **shared, **by_list)
    for name, value in by_list.items():
        if value is not None:
            raise InvalidInputError(
                f"{name} must not be given: {log.path.name} has single items, got {value!r}."
            )
    return plan(log, **shared)


class Plan(NamedTuple):
    """How one log is replayed, checked; ``end`` is the first event that is not."""

    scheme: str
    sample: float
    seed: int
    bins: int
    end: int
    floor: float


def plan(
    log: Log,
    *,
    logging: str | None = None,
    sample: float = 1.0,
    seed: int = 0,
    bins: int = BINS,
    first: float = 1.0,
    floor: float | None = None,
) -> Plan:
    """The plan for a log, from parameters as those of ``replay``."""
    if log.has_lists:
        raise InvalidInputError(f"log must be one of single items, got {log.path.name} of lists.")
    scheme = _scheme(log, logging)
    checks.number("sample", sample, above=0, most=1)
    checks.number("first", first, above=0, most=1)
    checks.integer("bins", bins, 1)
    checks.integer("seed", seed, 0)
    end = max(1, round(log.n_events * first)) if log.n_events else 0
    return Plan(scheme, sample, seed, bins, end, _floor(log, scheme, floor))


def _scheme(log: Log, logging: str | None) -> str:
    scheme = logging or log.logging
    if scheme is None:
        raise InvalidInputError(
            f"logging must be declared, one of {', '.join(_SCHEMES)}: {log.path.name} does not "
            "say how the shown arms were chosen."
        )
    checks.choice("logging", scheme, _SCHEMES)
    if scheme == "propensity" and log.propensity is None:
        raise InvalidInputError(f"logging must not be 'propensity': {log.path.name} has none.")
    if log.logging not in (None, scheme) and "full" in (scheme, log.logging):
        known = "every candidate" if scheme != "full" else "what was shown alone"
        raise InvalidInputError(
            f"logging must be {log.logging!r} or be left out, got {scheme!r}: {log.path.name} "
            f"says that it has the reward of {known}."
        )
    return scheme


def _floor(log: Log, scheme: str, floor: float | None) -> float:
    if scheme != "propensity" or log.propensity is None or not log.n_events:
        return 0.0
    if floor is not None:
        return checks.number("floor", floor, above=0, most=1)
    every = -(-log.n_events // _LOOKED_AT)
    p = np.sort(log.propensity[::every])
    share = np.cumsum(1 / p)  # as if the log were uniform: rare choices count for what they are
    return float(p[np.searchsorted(share, 0.05 * share[-1])])


def _fits(log: Log, label: str, policy: Policy) -> None:
    for name, wanted, there in (
        ("n_features", policy.n_features, log.n_features),
        ("n_item_features", policy.n_item_features or None, log.n_item_features),
    ):
        if wanted is not None and wanted != there:
            raise InvalidInputError(
                f"policies must fit the log's {name} = {there}, got {label!r} with {wanted}."
            )


def _task(path: str, data: dict[str, bytes], how: Plan, task: tuple[str, int]) -> ReplayRun:
    label, run = task
    return replay_once(logs.open(path), data[label], how, run)


def replay_once(log: Log, data: bytes, how: Plan, run: int) -> ReplayRun:
    """One sealed policy over one sample of the log."""
    policy = fresh(data, run)
    follower = Follower(policy, log.arms, np.asarray(log.item_arm, np.int64), log.item_features)
    d = log.n_features
    modelled = log.n_arms if how.scheme == "propensity" else 0
    model = np.tile(udu.prior(d, 1.0), (modelled, 1))
    chances = np.random.default_rng([how.seed, run, _CHANCES])
    outcome = ReplayRun.empty(how.bins)
    for block in _blocks(log, how, run):
        batch, kept, at = block
        if how.scheme == "propensity":
            accepted = chances.random(len(at)) < how.floor / kept
            batch = batch._replace(logged=np.where(accepted, batch.logged, -1))
        followed = follower.go(batch)
        rewards = batch.rewards[:, 0]
        shown = block.batch.logged
        hits = followed.chosen == shown
        counted = followed.chosen == batch.logged if how.scheme != "full" else np.ones_like(hits)
        earned = np.where(hits, rewards, 0.0)
        outcome.count((at * how.bins) // how.end, counted, earned)
        if how.scheme != "full":
            outcome.weigh(1 / kept[hits], rewards[hits])
            outcome.back(hits | (kept < CERTAIN), rewards)
        if how.scheme == "propensity":
            arms = _arms(log, batch, followed.chosen), _arms(log, batch, shown)
            terms = np.empty(len(at))
            doubly.terms(batch.X, *arms, rewards, kept, model, np.zeros(d), terms)
            outcome.correct(terms)
        outcome.changes += [
            (int(at[i]), event.arm, event.step, event.statistic) for i, event in followed.changes
        ]
    return outcome


class _Block(NamedTuple):
    batch: EventBatch
    propensity: F64
    at: I64


def _blocks(log: Log, how: Plan, run: int) -> Iterator[_Block]:
    """The sampled events, a block at a time, with the pools that each block uses."""
    coins = np.random.default_rng([how.seed, run, _COINS])
    mode = ONE if how.scheme == "full" else MATCH
    for start in range(0, how.end, _BLOCK):
        stop = min(start + _BLOCK, how.end)
        at = np.arange(start, stop)
        rows: slice | I64 = slice(start, stop)
        if how.sample < 1:
            rows = at = at[coins.random(stop - start) < how.sample]
        if not len(at):
            continue
        pools = pools_of(log, rows)
        batch = EventBatch(
            mode,
            log.context[rows].astype(np.float64),
            *pools,
            log.logged[rows].astype(np.int64),
            log.reward[rows].astype(np.float64)[:, None],
        )
        if how.scheme == "propensity" and log.propensity is not None:
            chance = log.propensity[rows].astype(np.float64)
        else:
            chance = 1.0 / np.diff(pools.offsets)[pools.pool_of]
        yield _Block(batch, chance, at)


def _arms(log: Log, batch: EventBatch, places: I64) -> I64:
    items = batch.members[batch.offsets[batch.pool_of] + places]
    arms: I64 = log.item_arm[items].astype(np.int64)
    return arms
