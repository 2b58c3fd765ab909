"""Lists: the best k candidates, what a user does with them, and what is learnt from that.

``top``, ``choose_list`` and ``run_lists`` are templates, as those of ``loops``. The plain functions
are compiled into them, and are what live calls use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from whim.kernels.jit import inline
from whim.kernels.linalg.udu import aligned, finite
from whim.kernels.status import GROW, NEED_NOISE, NO_CHANGE, NOT_FINITE, ListTurn
from whim.types import F64, I64

# who looks at a list, and how one learns from it; the last two are logs of lists, where a user has
# seen what was shown, and an item counts if it stands there too, with those above it or the whole
SEMI, CASCADE, POSITIONS, LOGGED, LOGGED_WHOLE = range(5)
_FEW = 2048  # candidates times items, up to which ``top`` looks through all for each item
NO_ITEM, UNUSED = -1.0, -2.0  # in a log: beyond a list's end; an item that must not count


class ListBatch(NamedTuple):
    """Visits in order: contexts ``X``, and pools as slots, as in ``EventBatch``.

    Each is shown a list of ``k``, or of its whole pool if that is smaller. ``rewards[i, c]`` is
    what place c of the pool gives if it is seen, ``user`` who looks, and ``seen[i, j]`` whether
    item j of the list is looked at, for POSITIONS (else it has no columns). In a log,
    ``rewards[i, j]`` is that of the item shown at j, and ``seen[i, j]`` its place, NO_ITEM or
    UNUSED. What is learnt follows from ``feedback``: of the first ``depth`` items at most, their
    features times ``examine[i, j]`` for POSITIONS.
    """

    k: int
    user: int
    feedback: int
    depth: int
    X: F64
    pool_of: I64
    offsets: I64
    members: I64
    rewards: F64
    seen: F64
    examine: F64


class ListRecord(NamedTuple):
    """What became of visits: places shown (-1: none), what they gave, how many were learnt.

    ``room`` is for a context, ``scores`` for those of a pool, ``best`` for those of a list.
    """

    chosen: I64
    rewards: F64
    learnt: I64
    room: F64
    scores: F64
    best: F64


def learnt(feedback: int, rewards: F64 | Sequence[float], k: int) -> int:
    """How many of a list's ``k`` items are learnt from, from the top down.

    Under CASCADE those up to and including the first click (a reward above 0), all where there is
    none; else all.
    """
    if feedback == CASCADE:
        for i in range(k):
            if rewards[i] > 0.0:
                return i + 1
    return k


def respond(user: int, worth: F64, seen: F64, shown: I64, given: F64) -> int:
    """What a user gives to the items of a list, into ``given``; how many items that is.

    ``worth`` has the reward of each place of the pool if it is seen. A user who scans (CASCADE)
    stops at the first click. A log gives what it has of the items that are the same in its list.
    """
    n, stopped = 0, False
    for j in range(shown.shape[0]):
        if shown[j] < 0 or (user >= LOGGED and seen[j] != shown[j]):
            break
        r = 0.0 if stopped else worth[j if user >= LOGGED else shown[j]]
        if user == POSITIONS:
            r *= seen[j]
        stopped = user == CASCADE and (stopped or r > 0.0)
        given[j] = r
        n += 1
    if user == LOGGED_WHOLE and n < shown.shape[0] and seen[n] != NO_ITEM:
        return 0
    return n


def prefers(state: Any, a: int, b: int) -> bool:
    """Whether, of two candidates with equal scores, the later one's slot ``a`` comes first."""
    return False


def score_visit(
    state: Any, turn: ListTurn, x: F64, slots: I64, noise: F64, out: F64, scores: F64
) -> None:
    """Scores of the candidates, for a model that makes nothing of the visits before."""
    score(state, turn.step, x, slots, out[:0], noise, out)
    take_scores(out, slots.shape[0], scores)


@inline
def take_scores(out: F64, n: int, scores: F64) -> None:
    """The first numbers of ``n`` rows."""
    for c in range(n):
        scores[c] = out[c, 0]


def highest(scores: F64, n: int) -> float:
    """The highest of ``n`` scores; four at a time, none of which waits for another."""
    best_0 = best_1 = best_2 = best_3 = -np.inf
    whole = n - n % 4
    for c in range(0, whole, 4):
        best_0 = scores[c] if scores[c] > best_0 else best_0
        best_1 = scores[c + 1] if scores[c + 1] > best_1 else best_1
        best_2 = scores[c + 2] if scores[c + 2] > best_2 else best_2
        best_3 = scores[c + 3] if scores[c + 3] > best_3 else best_3
    for c in range(whole, n):
        best_0 = scores[c] if scores[c] > best_0 else best_0
    best_0 = best_1 if best_1 > best_0 else best_0
    best_2 = best_3 if best_3 > best_2 else best_2
    return best_2 if best_2 > best_0 else best_0


def insert(state: Any, slots: I64, scores: F64, places: I64) -> None:
    """``top`` by insertion: best for long lists, or many candidates."""
    n, k = 0, places.shape[0]
    for c in range(slots.shape[0]):
        value = scores[c]
        j = n if n < k else k - 1
        if n == k:
            last = places[j]
            behind = scores[last]
            if not (value > behind or (value == behind and prefers(state, slots[c], slots[last]))):
                continue
        else:
            n += 1
        while j > 0:
            ahead = places[j - 1]
            other = scores[ahead]
            if not (value > other or (value == other and prefers(state, slots[c], slots[ahead]))):
                break
            places[j] = ahead
            j -= 1
        places[j] = c


def top(state: Any, slots: I64, scores: F64, places: I64, values: F64) -> int:
    """The places of the candidates with the best scores, best first; how many there are.

    Equal ones keep their order, unless the model prefers one. ``values`` may take their scores.
    """
    n: int = slots.shape[0]
    k: int = min(places.shape[0], n)
    usual = k * n <= _FEW
    for c in range(n if usual else 0):
        usual &= scores[c] > -np.inf
    if not usual:
        fill_by_insertion(state, slots, scores, places)
        return k
    for i in range(k):  # the best of those that are left, which the processor foresees better
        value = highest(scores, n)
        at = 0
        while scores[at] != value:
            at += 1
        for c in range(at + 1, n):
            if scores[c] == value and prefers(state, slots[c], slots[at]):
                at = c
        places[i], values[i], scores[at] = at, value, -np.inf
    for i in range(k):
        scores[places[i]] = values[i]
    return k


def choose_list(state: Any, step: int, x: F64, slots: I64, out: F64, shown: F64) -> int:
    """The best, as many as ``shown`` has columns: slot (as the bits of an int64) and numbers.

    How many there are; -1 if x cannot be used.
    """
    if not (aligned(x) and finite(x)):
        return -1
    score(state, step, x, slots, out[:0], x[:0], out)
    places = shown[0].view(np.int64)
    n: int = fill_top(state, slots, out[:, 0], places, shown[1])
    for j in range(n):
        for i in range(3):
            shown[i + 1, j] = out[places[j], i]
        places[j] = slots[places[j]]
    return n


def run_lists(
    state: Any, lists: ListBatch, draws: Any, start: int, item: int, step: int, out: F64,
    record: ListRecord,
) -> tuple[int, int, int, int, int]:  # fmt: skip
    """Show a list, be rewarded, learn, over visits from ``start`` on; ``record`` has what happens.

    ``item`` is -1, or the item of that visit's list to go on with. Stops as ``loops.run_events``
    does; returns visit and item to go on with, step, place in the random numbers, and why.
    """
    at, before, repeats = draws.at, -1, 0
    for i in range(start, lists.X.shape[0]):
        pool = lists.pool_of[i]
        repeats = repeats + 1 if pool == before else 0
        before = pool
        slots = lists.members[lists.offsets[pool] : lists.offsets[pool + 1]]
        x, places, given = lists.X[i], record.chosen[i], record.rewards[i]
        if item < 0:
            drawn = draws.each if draws.each >= 0 else slots.shape[0]
            if at + drawn > draws.noise.shape[0]:
                return i, -1, step, at, NEED_NOISE
            if not finite(x):
                return i, -1, step, at, NOT_FINITE
            last = record.chosen[i - 1, : record.learnt[i - 1]] if repeats > 0 else places[:0]
            turn = ListTurn(step, repeats, last)
            score_turn(state, turn, x, slots, draws.noise[at:], out, record.scores)
            at += drawn
            fill_top(state, slots, record.scores, places, record.best)
            n = answer(lists.user, lists.rewards[i], lists.seen[i], places, given)
            record.learnt[i] = min(count_learnt(lists.feedback, given, n), lists.depth)
            item = 0
        for j in range(item, record.learnt[i]):
            features = x
            if lists.feedback == POSITIONS:
                features = record.room
                for f in range(x.shape[0]):
                    features[f] = lists.examine[i, j] * x[f]
            status = learn_fully(state, step, slots[places[j]], features, x[:0], given[j])
            if status == GROW:
                return i, j, step, at, GROW
            step += 1
            if status != NO_CHANGE:
                return i, j + 1, step, at, status
        item = -1
    return lists.X.shape[0], -1, step, at, NO_CHANGE


def _placeholder(*arguments: Any) -> Any:
    raise NotImplementedError  # bound by ``Kernels``


score: Callable[..., Any]
score = score_turn = learn_fully = fill_top = fill_by_insertion = _placeholder
answer = count_learnt = _placeholder
