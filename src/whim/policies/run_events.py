"""``run_events``: one policy over a batch of events, in compiled loops; the same as live calls.

What ``simulate`` and ``replay`` are made of. A batch brings no new arms: whoever calls adds them
between batches.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np

from whim.errors import InvalidInputError
from whim.kernels.linalg import lanes, packed
from whim.kernels.loops import EACH, MATCH, Draws, EventBatch
from whim.kernels.status import CHANGED, GROW, NEED_NOISE, NO_CHANGE, NOT_FINITE
from whim.policies.base.compiled import CompiledPolicy
from whim.policies.base.policy import Policy
from whim.policies.oracle_restart import OracleRestart
from whim.types import F64, I64, ChangeEvent

_NEVER = -1
_NUMBERS = 1 << 16  # random numbers drawn at a time


class Outcome(NamedTuple):
    """The place of each choice, and each reported change with the event that revealed it."""

    chosen: I64
    changes: list[tuple[int, ChangeEvent]]


def run_events(policy: Policy, events: EventBatch) -> Outcome:
    """Let ``policy`` decide at every event and learn what the mode lets it learn.

    An event that does not count (MATCH) leaves every bit of the policy as it was, its random
    stream included.
    """
    check_contexts(policy, events.X)
    inner = policy.policy if isinstance(policy, OracleRestart) else policy
    if isinstance(inner, CompiledPolicy) and inner._runs_compiled():
        return _compiled(policy, inner, events)
    return _live(policy, events)


def check_contexts(policy: Policy, X: F64) -> None:
    """Refuse a policy that cannot be run over these contexts."""
    if policy.n_cross_features and not policy.n_item_features:
        raise InvalidInputError(
            f"policies must make their own cross features here: {policy!r} wants rows of "
            f"{policy.n_cross_features} from its caller."
        )
    if policy.n_features not in (None, X.shape[1]):
        raise InvalidInputError(
            f"policies must have n_features = {X.shape[1]}, as the contexts here, got {policy!r}."
        )


def _compiled(policy: Policy, inner: CompiledPolicy, events: EventBatch) -> Outcome:
    due = sorted(policy._due) if isinstance(policy, OracleRestart) else []
    chosen = np.full(len(events.X), -1)
    changes: list[tuple[int, ChangeEvent]] = []
    noise, at = np.zeros(0), 0
    widest = int(np.diff(events.offsets).max())
    scratch = models_beside(inner, widest)
    start, status = 0, NO_CHANGE
    while start < len(events.X):
        before = inner.step
        if status == NEED_NOISE or (inner._draw and not len(noise)):
            noise, at = numbers_ahead(inner, at, widest, len(events.X) - start), 0
        until = next((step for step in due if step > inner.step), _NEVER)
        state = inner._current()
        stop, step, at, status = inner._code.run_events(
            state, events, Draws(noise, at, inner._each), start, inner._step, until,
            inner._out if scratch is None else scratch, chosen,
        )  # fmt: skip
        _count(inner, events, chosen, start, stop)
        assert inner._step == step
        start = stop
        if status == CHANGED:
            slot = _slots(events, chosen, stop - 1, stop)[0]
            changes.append((stop - 1, inner._noted(inner._event(int(slot)))))
        elif status == GROW:
            inner._grow_pool()
        elif status == NOT_FINITE:
            raise InvalidInputError(f"contexts must be finite, got {events.X[stop]}.")
        if isinstance(policy, OracleRestart) and inner.step > before:
            policy._restart()
    if at:
        getattr(inner._rng, inner._draw)(at)
    return Outcome(chosen, changes)


def models_beside(policy: CompiledPolicy, widest: int) -> F64 | None:
    """Room for the models of the widest pool side by side, if the loop wants it, or its scores."""
    if not policy._kernels.packs:
        return None
    model = policy._current().model.cum.shape[1] + packed.WORK
    return np.zeros((max(model, widest), lanes.columns_for(widest)))


def numbers_ahead(policy: CompiledPolicy, used: int, widest: int, left: int) -> F64:
    """Random numbers ahead, from a copy of the stream, which moves by what was used.

    Enough for one event at least, of a pool as wide as the widest, and for no more events than are
    left.
    """
    if used:
        getattr(policy._rng, policy._draw)(used)
    most = widest if policy._each < 0 else policy._each
    count = max(min(_NUMBERS, most * left), most)
    ahead: F64 = getattr(copy.deepcopy(policy._rng), policy._draw)(count)
    return ahead


def _slots(events: EventBatch, chosen: I64, start: int, stop: int) -> I64:
    """The slots that were played in events ``start`` to ``stop``."""
    places, pools = chosen[start:stop], events.pool_of[start:stop]
    if events.mode == MATCH:
        counted = places == events.logged[start:stop]
        places, pools = places[counted], pools[counted]
    slots: I64 = events.members[events.offsets[pools] + places]
    return slots


def _count(policy: Policy, events: EventBatch, chosen: I64, start: int, stop: int) -> None:
    played = np.bincount(_slots(events, chosen, start, stop))
    for slot in np.flatnonzero(played).tolist():
        policy._plays[slot] += int(played[slot])
    policy._step += int(played.sum())


def _live(policy: Policy, events: EventBatch) -> Outcome:
    """The same by ``select`` and ``update``: for ties at random and policies of the user's own."""
    mode, X, pool_of, offsets, members, logged, rewards = events
    ids = policy._table.id_of
    chosen = np.full(len(X), -1)
    changes: list[tuple[int, ChangeEvent]] = []
    inner = policy.policy if isinstance(policy, OracleRestart) else policy
    stream = inner._rng.bit_generator
    for i, x in enumerate(X):
        pool = members[offsets[pool_of[i]] : offsets[pool_of[i] + 1]].tolist()
        arms = [ids[slot] for slot in pool]
        before = stream.state
        arm = policy.select(x, arms).arm
        place = chosen[i] = arms.index(arm)
        hit = place == logged[i] if mode != EACH else True
        if mode == MATCH and not hit:
            stream.state = before
            continue
        reward = float(rewards[i, place if mode == EACH else 0]) if hit else 0.0
        event = policy.update(arm, x, reward)
        if event is not None:
            changes.append((i, event))
    return Outcome(chosen, changes)
