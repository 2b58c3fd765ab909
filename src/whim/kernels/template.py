"""The loop that every compiled policy runs: decide, be rewarded, learn, over a stretch of events.

It is written once, as ``walk``, and ``loop`` binds a policy's ``decide`` and ``learn`` to it and
compiles. A loop stops where Python has something to do and is called again: after a change that
must be reported, before a play that the windows cannot hold, when random numbers run out.

A stretch has contexts ``X``, and pools as slots: event i's candidates are
``members[offsets[p] : offsets[p + 1]]`` with p = ``pool_of[i]``. How rewards are known (``mode``):
MATCH, a log of one shown candidate: an event counts only if the choice is the place ``logged[i]``,
else it leaves no trace; ONE, ``rewards[i, 0]`` at that place and 0 at all others; EACH,
``rewards[i, c]`` at place c.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from whim.kernels.jit import jit
from whim.types import F64, I64

__all__ = [
    "CHANGED", "DRY", "EACH", "GROW", "MATCH", "NOT_FINITE", "ONE", "QUIET", "State", "loop",
]  # fmt: skip

QUIET, CHANGED, GROW, NOT_FINITE, DRY = range(5)
MATCH, ONE, EACH = range(3)

State = tuple[Any, ...]


def decide(
    state: State, step: int, x: F64, slots: I64, again: int, learnt: int, noise: F64, out: F64
) -> int:
    """Stands for a policy's choice: the best candidate's place, -1 if x is not finite.

    ``again`` counts the events just before with the same candidates; ``learnt`` is the place of
    the one whose reward was learnt at the last of them, or -1.
    """
    raise NotImplementedError


def learn(state: State, step: int, row: int, x: F64, r: float) -> int:
    """Stands for a policy's observe step."""
    raise NotImplementedError


def walk(
    start: int, step: int, until: int, mode: int, X: F64, pool_of: I64, offsets: I64,
    members: I64, logged: I64, rewards: F64, noise: F64, at: int, each: int, state: State,
    out: F64, chosen: I64,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Events from ``start`` on; where to go on, the step, the place in ``noise``, why it stopped.

    ``chosen`` takes the place of each choice. A decision uses ``each`` random numbers, or one a
    candidate if that is negative; those of an event that left no trace are used again. Stops
    after step ``until`` as well.
    """
    again, before, learnt = 0, -1, -1
    for i in range(start, X.shape[0]):
        pool = pool_of[i]
        again = again + 1 if pool == before else 0
        before = pool
        slots = members[offsets[pool] : offsets[pool + 1]]
        drawn = each if each >= 0 else slots.shape[0]
        if at + drawn > noise.shape[0]:
            return i, step, at, DRY
        x = X[i]
        best = decide(state, step, x, slots, again, learnt, noise[at:], out)
        if best < 0:
            return i, step, at, NOT_FINITE
        learnt = -1
        chosen[i] = best
        if mode == MATCH:
            if best != logged[i]:
                continue
            r = rewards[i, 0]
        elif mode == ONE:
            r = rewards[i, 0] if best == logged[i] else 0.0
        else:
            r = rewards[i, best]
        status = learn(state, step, slots[best], x, r)
        if status == GROW:
            return i, step, at, GROW
        step += 1
        at += drawn
        learnt = best
        if status != QUIET or step == until:
            return i + 1, step, at, status
    return X.shape[0], step, at, QUIET


def loop(name: str, decide: Any, learn: Any, compiler: Any = jit) -> Any:
    """``walk`` with these two in place of the stand-ins, compiled and cached under ``name``.

    ``compiler`` may be ``lean`` where neither allocates: 5 % less time, for PSLinUCB-Disjoint
    with 20 candidates.
    """
    bound = FunctionType(walk.__code__, {**globals(), "decide": decide, "learn": learn}, name)
    bound.__qualname__ = f"walk_{name}"
    bound.__module__ = __name__
    return compiler(bound)
