"""``walk``: one policy over a stretch of events, in compiled loops; the same as live calls.

What ``simulate`` and ``replay`` are made of. A stretch holds no new arms: whoever calls adds them
between stretches.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np

from whim.errors import InvalidInputError
from whim.kernels import loops, packed, template
from whim.policies.base import Loop, Policy
from whim.policies.oracle_restart import OracleRestart
from whim.types import F64, I64, ChangeEvent

__all__ = ["EACH", "MATCH", "ONE", "Stretch", "Walked", "walk"]

MATCH, ONE, EACH = template.MATCH, template.ONE, template.EACH
_NEVER = -1
_NUMBERS = 1 << 16  # random numbers drawn at a time
_DECISIVE = frozenset(("_score", "_observe", "_noise", "_choose", "select", "update"))


class Stretch(NamedTuple):
    """Events in order. ``members`` holds slots; see ``kernels.loops`` for the rest.

    ``rewards`` is (n, 1) for the modes MATCH and ONE, and (n, W) for EACH.
    """

    mode: int
    X: F64
    pool_of: I64
    offsets: I64
    members: I64
    logged: I64
    rewards: F64


class Walked(NamedTuple):
    """The place of each choice, and each reported change with the event that revealed it."""

    chosen: I64
    changes: list[tuple[int, ChangeEvent]]


def walk(policy: Policy, stretch: Stretch) -> Walked:
    """Let ``policy`` decide at every event and learn what the mode lets it learn.

    An event that does not count (MATCH) leaves every bit of the policy as it was, its random
    stream included.
    """
    if policy.n_cross_features and not policy.n_item_features:
        raise InvalidInputError(
            f"policies must make their own cross features here: {policy!r} wants rows of "
            f"{policy.n_cross_features} from its caller."
        )
    if policy.n_features not in (None, stretch.X.shape[1]):
        raise InvalidInputError(
            f"policies must have n_features = {stretch.X.shape[1]}, as the contexts here, "
            f"got {policy!r}."
        )
    inner = policy.policy if isinstance(policy, OracleRestart) else policy
    if _loop(inner) is None:
        return _live(policy, stretch)
    return _compiled(policy, inner, stretch)


def _loop(policy: Policy) -> Loop | None:
    """The policy's way into a compiled loop, if it is of the class that decides and learns."""
    if policy._random_ties:
        return None
    for cls in type(policy).__mro__:
        if "_loop" in vars(cls):
            return policy._loop()
        if _DECISIVE & vars(cls).keys():
            return None
    return None


def _compiled(policy: Policy, inner: Policy, stretch: Stretch) -> Walked:
    due = sorted(policy._due) if isinstance(policy, OracleRestart) else []
    chosen = np.full(len(stretch.X), -1)
    changes: list[tuple[int, ChangeEvent]] = []
    noise, at, draw = np.zeros(0), 0, ""
    scratch = _scratch(_loop(inner), stretch)
    start, status = 0, template.QUIET
    while start < len(stretch.X):
        loop = _loop(inner)
        assert loop is not None  # whoever called has looked
        draw, before = loop.draw, inner.step
        if status == template.DRY or (draw and not len(noise)):
            noise, at = _numbers(inner, loop, at, stretch, len(stretch.X) - start), 0
        until = next((step for step in due if step > inner.step), _NEVER)
        stop, step, at, status = getattr(loops, loop.name)(
            start, inner._step, until, *stretch, noise, at, loop.each, loop.state,
            inner._out if scratch is None else scratch, chosen,
        )  # fmt: skip
        _count(inner, stretch, chosen, start, stop)
        assert inner._step == step
        start = stop
        if status == template.CHANGED:
            slot = _slots(stretch, chosen, stop - 1, stop)[0]
            changes.append((stop - 1, inner._event(int(slot))))
        elif status == template.GROW:
            inner._grow_pool()
        elif status == template.NOT_FINITE:
            raise InvalidInputError(f"contexts must be finite, got {stretch.X[stop]}.")
        if isinstance(policy, OracleRestart) and inner.step > before:
            policy._restart()
    if at:
        getattr(inner._rng, draw)(at)
    return Walked(chosen, changes)


def _scratch(loop: Loop | None, stretch: Stretch) -> F64 | None:
    """Room for the models of the widest pool side by side, if the loop wants it."""
    if loop is None or loop.name not in loops.PACKED:
        return None
    widest = packed.columns(int(np.diff(stretch.offsets).max()))
    return np.zeros((loop.state[0].shape[1] + packed.WORK, widest))


def _numbers(policy: Policy, loop: Loop, used: int, stretch: Stretch, events: int) -> F64:
    """Random numbers ahead, from a copy of the stream, which moves by what was used.

    Enough for one event at least, and for no more events than are left.
    """
    draw = getattr(policy._rng, loop.draw)
    if used:
        draw(used)
    most = int(np.diff(stretch.offsets).max()) if loop.each < 0 else loop.each
    count = max(min(_NUMBERS, most * events), most)
    ahead: F64 = getattr(copy.deepcopy(policy._rng), loop.draw)(count)
    return ahead


def _slots(stretch: Stretch, chosen: I64, start: int, stop: int) -> I64:
    """The slots that were played in events ``start`` to ``stop``."""
    places, pools = chosen[start:stop], stretch.pool_of[start:stop]
    if stretch.mode == MATCH:
        counted = places == stretch.logged[start:stop]
        places, pools = places[counted], pools[counted]
    slots: I64 = stretch.members[stretch.offsets[pools] + places]
    return slots


def _count(policy: Policy, stretch: Stretch, chosen: I64, start: int, stop: int) -> None:
    played = np.bincount(_slots(stretch, chosen, start, stop))
    for slot in np.flatnonzero(played).tolist():
        policy._plays[slot] += int(played[slot])
    policy._step += int(played.sum())


def _live(policy: Policy, stretch: Stretch) -> Walked:
    """The same by ``select`` and ``update``: for ties at random and policies of the user's own."""
    mode, X, pool_of, offsets, members, logged, rewards = stretch
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
    return Walked(chosen, changes)
