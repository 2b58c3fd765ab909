"""``run_lists``: one policy over visits that are shown lists, compiled; the same as live calls.

What ``simulate`` does in worlds of lists, and ``replay`` over logs of lists. A batch brings no new
arms, as in ``run_events``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.errors import InvalidInputError
from whim.kernels.lists import LOGGED, NO_ITEM, POSITIONS, ListBatch, ListRecord, respond
from whim.kernels.loops import Draws
from whim.kernels.status import CHANGED, GROW, NEED_NOISE, NO_CHANGE, NOT_FINITE
from whim.policies.base.compiled import CompiledPolicy
from whim.policies.base.lists import FEEDBACK
from whim.policies.base.policy import Policy
from whim.policies.oracle_restart import OracleRestart
from whim.policies.run_events import check_contexts, models_beside, numbers_ahead
from whim.types import F64, I64, ChangeEvent

_NAMES = {code: name for name, code in FEEDBACK.items()}


class ListOutcome(NamedTuple):
    """Of each visit the places shown (-1: none), what they gave, how many items were learnt.

    ``changes`` has each reported change with the visit that revealed it.
    """

    chosen: I64
    rewards: F64
    learnt: I64
    changes: list[tuple[int, ChangeEvent]]


def run_lists(policy: Policy, lists: ListBatch) -> ListOutcome:
    """Let ``policy`` show a list to every visit, and learn as ``lists.feedback`` has it."""
    check_contexts(policy, lists.X)
    n, widest = len(lists.X), int(np.diff(lists.offsets).max())
    record = ListRecord(
        np.full((n, lists.k), -1), np.zeros((n, lists.k)), np.zeros(n, np.int64),
        np.zeros(lists.X.shape[1]), np.zeros(widest), np.zeros(lists.k),
    )  # fmt: skip
    if isinstance(policy, CompiledPolicy) and _compiles(policy, lists):
        return ListOutcome(*record[:3], _compiled(policy, lists, record))
    return ListOutcome(*record[:3], _live(policy, lists, record))


def _compiles(policy: CompiledPolicy, lists: ListBatch) -> bool:
    if not policy._runs_compiled(lists=True):
        return False
    if lists.feedback != POSITIONS or not len(lists.X):
        return True
    # the loop scales contexts; where it is other features that count, live calls do
    return policy._scaled(lists.members[:1], lists.X[:1], None, lists.examine[0, :1])[1] is None


def _compiled(
    policy: CompiledPolicy, lists: ListBatch, record: ListRecord
) -> list[tuple[int, ChangeEvent]]:
    changes: list[tuple[int, ChangeEvent]] = []
    noise, at, start, item, status = np.zeros(0), 0, 0, -1, NO_CHANGE
    widest = len(record.scores)
    scratch = models_beside(policy, widest)
    while start < len(lists.X):
        if status == NEED_NOISE or (policy._draw and not len(noise)):
            noise, at = numbers_ahead(policy, at, widest, len(lists.X) - start), 0
        state = policy._current()
        before, first, done = policy._step, start, max(item, 0)
        start, item, step, at, status = policy._code.run_lists(
            state,
            lists,
            Draws(noise, at, policy._each),
            start,
            item,
            before,
            policy._out if scratch is None else scratch,
            record,
        )
        slots = _played(lists, record, (first, done), (start, max(item, 0)))
        for slot, count in enumerate(np.bincount(slots).tolist()):
            policy._plays[slot] += count
        policy._step += len(slots)
        assert policy._step == step
        if status == CHANGED:
            changes.append((start, policy._noted(policy._event(int(slots[-1])))))
        elif status == GROW:
            policy._grow_pool()
        elif status == NOT_FINITE:
            raise InvalidInputError(f"contexts must be finite, got {lists.X[start]}.")
    if at:
        getattr(policy._rng, policy._draw)(at)
    return changes


def _played(
    lists: ListBatch, record: ListRecord, start: tuple[int, int], stop: tuple[int, int]
) -> I64:
    """The slots learnt from (visit, item) on up to another, in order."""
    last = stop[0] + (stop[1] > 0)
    rows = slice(start[0], last)
    item = np.arange(lists.k)
    learnt = item < record.learnt[rows, None]
    if len(learnt):
        if stop[1] > 0:
            learnt[-1] &= item < stop[1]
        learnt[0] &= item >= start[1]
    first = lists.offsets[lists.pool_of[rows]]
    slots: I64 = lists.members[(first[:, None] + record.chosen[rows])[learnt]]
    return slots


def _live(policy: Policy, lists: ListBatch, record: ListRecord) -> list[tuple[int, ChangeEvent]]:
    """The same by live calls: ties at random, oracles, and policies of the user's own."""
    inner = policy.policy if isinstance(policy, OracleRestart) else policy
    ids = inner._table.id_of
    changes: list[tuple[int, ChangeEvent]] = []
    feedback = _NAMES[lists.feedback]
    for i, x in enumerate(lists.X):
        pool = lists.pool_of[i]
        slots = lists.members[lists.offsets[pool] : lists.offsets[pool + 1]].tolist()
        arms = [ids[slot] for slot in slots]
        # with equal scores shared out, a shorter list draws less
        k = int((lists.seen[i] != NO_ITEM).sum()) if lists.user >= LOGGED else lists.k
        shown = policy.select_list(x, arms, k).arms
        record.chosen[i, : len(shown)] = [arms.index(arm) for arm in shown]
        n = respond(
            lists.user, lists.rewards[i], lists.seen[i], record.chosen[i], record.rewards[i]
        )
        depth = min(n, lists.depth)
        if not depth:
            continue
        examine = lists.examine[i] if lists.feedback == POSITIONS else None
        before = policy.step
        events = policy.update_list(
            shown[:depth], x, record.rewards[i, :depth], feedback=feedback, examine=examine
        )
        record.learnt[i] = policy.step - before
        changes += [(i, event) for event in events]
    return changes
