"""``Kernels``: from how a model scores and learns, everything that is compiled of it.

A model is two functions, and others where they pay:

- ``score(state, step, x, slots, cross, noise, out)`` writes score, mean and width of each
  candidate to ``out`` and returns the place of the best;
- ``learn(state, step, slot, x, z, r)`` learns a reward and returns a status. ``step`` is the number
  of updates before it. After TEST, ``finish(state, step, slot)`` looks for a change;
- ``decide``, as ``score``, returns place, score, mean and width of the best alone;
- ``decide_turn``, as ``decide``, takes a ``Turn``: it knows what the last events of a loop were;
- ``score_turn(state, turn, x, slots, noise, out, scores)`` is to lists what ``decide_turn`` is to
  decisions: the scores alone, of all candidates;
- ``prefers(state, a, b)``: whether slot ``a`` goes before ``b`` in a list if both score the same.

``cross`` has a row per candidate where the caller gives cross features, ``z`` is that of the played
arm; both are empty otherwise. Contexts have been checked to be finite. The functions below are
templates: ``Kernels`` binds a model's to these names, so that each text is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from whim.kernels import lists
from whim.kernels.jit import FastCall, Specialised, bind, inline, jit_live, jit_nonrt, splice
from whim.kernels.linalg.udu import aligned, finite
from whim.kernels.status import (
    CHANGED,
    GROW,
    NEED_NOISE,
    NO_CHANGE,
    NOT_FINITE,
    TEST,
    Turn,
)  # fmt: skip
from whim.types import F64, I64

MATCH, ONE, EACH = range(3)


class EventBatch(NamedTuple):
    """Events in order: contexts ``X``, and pools as slots.

    Event i's candidates are ``members[offsets[p] : offsets[p + 1]]`` with p = ``pool_of[i]``. How
    rewards are known (``mode``): MATCH, a log of one shown candidate: an event counts only if the
    choice is the place ``logged[i]``, else it leaves no trace; ONE, ``rewards[i, 0]`` at that place
    and 0 at all others; EACH, ``rewards[i, c]`` at place c. ``rewards`` has one column for MATCH
    and ONE.
    """

    mode: int
    X: F64
    pool_of: I64
    offsets: I64
    members: I64
    logged: I64
    rewards: F64


class Draws(NamedTuple):
    """Random numbers for decisions: each takes ``each`` from ``at`` on, -1 for one per candidate.

    Those of an event that left no trace are used again.
    """

    noise: F64
    at: int
    each: int


def decide(
    state: Any, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> tuple[int, float, float, float]:
    """Place, score, mean and width of the best candidate, for a model with no quicker way."""
    place = score(state, step, x, slots, cross, noise, out)
    return place, out[place, 0], out[place, 1], out[place, 2]


def decide_turn(
    state: Any, turn: Turn, x: F64, slots: I64, cross: F64, noise: F64, out: F64
) -> tuple[int, float, float, float]:
    """``decide``, for a model that makes nothing of the events before."""
    return decide(state, turn.step, x, slots, cross, noise, out)


def choose(state: Any, step: int, x: F64, slots: I64, out: F64) -> tuple[int, float, float, float]:
    """Slot, score, mean and width of the best candidate; slot -1 if x cannot be used."""
    if not (aligned(x) and finite(x)):
        return -1, 0.0, 0.0, 0.0
    place, value, mean, width = decide(state, step, x, slots, out[:0], x[:0], out)
    return slots[place], value, mean, width


def score_all(state: Any, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """``score``, or -1 if x is not finite."""
    if not finite(x):
        return -1
    place: int = score(state, step, x, slots, cross, noise, out)
    return place


def observe(state: Any, step: int, slot: int, x: F64, r: float) -> int:
    """``learn``, or NOT_FINITE if x cannot be used."""
    if not (aligned(x) and finite(x)):
        return NOT_FINITE
    status: int = learn(state, step, slot, x, x[:0], r)
    return status


def learn_fully(state: Any, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """``learn`` and, where it asks for it, ``finish``."""
    status: int = learn(state, step, slot, x, z, r)
    if status == TEST:
        status = finish(state, step, slot)
    return status


def observe_many(
    state: Any, step: int, start: int, slots: I64, X: F64, cross: F64, rewards: F64
) -> tuple[int, int]:
    """Plays in order from ``start``; stops after a change, or before a play the pool cannot hold.

    Returns where to go on and why it stopped.
    """
    for i in range(start, slots.shape[0]):
        z = cross[i] if cross.shape[0] > 0 else X[i, :0]
        status = learn_fully(state, step + i - start, slots[i], X[i], z, rewards[i])
        if status == GROW:
            return i, GROW
        if status == CHANGED:
            return i + 1, CHANGED
    return slots.shape[0], NO_CHANGE


def run_events(
    state: Any, events: EventBatch, draws: Draws, start: int, step: int, until: int, out: F64,
    chosen: I64,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Decide, be rewarded, learn, over events from ``start`` on; ``chosen`` takes the places.

    Stops where Python has something to do: after a change that must be reported, before a play
    that the windows cannot hold, when random numbers run out, and after step ``until``. Returns
    where to go on, the step, the place in the random numbers and why it stopped.
    """
    repeats, before, learnt, at = 0, -1, -1, draws.at
    for i in range(start, events.X.shape[0]):
        pool = events.pool_of[i]
        repeats = repeats + 1 if pool == before else 0
        before = pool
        slots = events.members[events.offsets[pool] : events.offsets[pool + 1]]
        drawn = draws.each if draws.each >= 0 else slots.shape[0]
        if at + drawn > draws.noise.shape[0]:
            return i, step, at, NEED_NOISE
        x = events.X[i]
        if not finite(x):
            return i, step, at, NOT_FINITE
        turn = Turn(step, repeats, learnt)
        best = decide_turn(state, turn, x, slots, events.rewards[:0], draws.noise[at:], out)[0]
        learnt = -1
        chosen[i] = best
        if events.mode == MATCH:
            if best != events.logged[i]:
                continue
            r = events.rewards[i, 0]
        elif events.mode == ONE:
            r = events.rewards[i, 0] if best == events.logged[i] else 0.0
        else:
            r = events.rewards[i, best]
        status = learn_fully(state, step, slots[best], x, x[:0], r)
        if status == GROW:
            return i, step, at, GROW
        step += 1
        at += drawn
        learnt = best
        if status != NO_CHANGE or step == until:
            return i + 1, step, at, status
    return events.X.shape[0], step, at, NO_CHANGE


def _placeholder(*arguments: Any) -> Any:
    raise NotImplementedError  # bound to a model's own by ``Kernels``


score = learn = finish = _placeholder


class Kernels:
    """What is compiled of a model, each when it is first used; cached under ``name``.

    ``packs`` marks a ``decide_turn`` that keeps models side by side in ``out`` (linalg.packed).
    """

    def __init__(
        self,
        name: str,
        score: Callable[..., int],
        learn: Callable[..., int],
        *,
        decide: Callable[..., Any] | None = None,
        decide_turn: Callable[..., Any] | None = None,
        score_turn: Callable[..., Any] | None = None,
        finish: Callable[..., int] | None = None,
        prefers: Callable[..., bool] | None = None,
        packs: bool = False,
    ) -> None:
        self.name, self.packs = name, packs
        self._score, self._learn, self._decide = score, learn, decide
        self._decide_turn, self._finish, self._prefers = decide_turn, finish, prefers
        self._score_turn = score_turn
        self._variants: dict[tuple[str, ...], Kernels] = {}

    @property
    def has_finish(self) -> bool:
        """Whether ``learn`` may return TEST."""
        return self._finish is not None

    @property
    def has_order(self) -> bool:
        """Whether equal scores have an order of the model's own."""
        return self._prefers is not None

    def __repr__(self) -> str:
        return f"Kernels({self.name!r})"

    def without(self, *switches: str) -> Kernels:
        """The same with these globals of the kernels False: what they stand for is not compiled.

        VECTORS: no vector has as many as ``udu.SHORT`` numbers. COPIES: decisions read the models
        themselves.
        """
        if switches and switches not in self._variants:
            name = "_".join(["without", *switches]).lower()
            copy = Specialised(name, dict.fromkeys(switches, False))
            self._variants[switches] = Kernels(
                f"{self.name}_{name}", copy(self._score), copy(self._learn),
                decide=copy(self._decide), decide_turn=copy(self._decide_turn),
                score_turn=copy(self._score_turn), finish=copy(self._finish),
                prefers=copy(self._prefers), packs=self.packs,
            )  # fmt: skip
        return self._variants.get(switches, self)

    @cached_property
    def _parts(self) -> dict[str, Any]:
        """The model's functions, by the names that the templates call."""
        parts: dict[str, Any] = {"score": splice(self._score), "learn": splice(self._learn)}
        parts["decide"] = splice(self._decide or bind(decide, self.name, **parts))
        turn = self._decide_turn or bind(decide_turn, self.name, **parts)
        parts["decide_turn"] = splice(turn)
        parts["learn_fully"] = parts["learn"]
        if self._finish is not None:
            parts["finish"] = self.finish.kernel
            parts["learn_fully"] = splice(bind(learn_fully, self.name, **parts))
        return parts

    def _made(self, template: Callable[..., Any]) -> Any:
        return bind(template, self.name, **self._parts)

    @cached_property
    def choose(self) -> FastCall:
        """``choose`` for live calls."""
        return FastCall(jit_live(self._made(choose)))

    @cached_property
    def observe(self) -> FastCall:
        """``observe`` for live calls."""
        return FastCall(jit_live(self._made(observe)))

    @cached_property
    def finish(self) -> FastCall:
        """``finish`` for live calls, after a status of TEST."""
        finish: Any = self._finish or _placeholder
        return FastCall(jit_live(getattr(finish, "py_func", finish)))

    @cached_property
    def score(self) -> FastCall:
        """``score_all``."""
        return FastCall(jit_live(self._made(score_all)))

    @cached_property
    def observe_many(self) -> Any:
        """``observe_many``, without the interpreter lock."""
        return jit_nonrt(self._made(observe_many))

    @cached_property
    def _list_parts(self) -> dict[str, Any]:
        """Beside the model's functions, those that lists are made of."""
        first = self._prefers or inline(lists.prefers)
        insert = splice(bind(lists.insert, self.name, prefers=first))
        turn = self._score_turn or bind(lists.score_visit, self.name, **self._parts)
        return self._parts | {
            "score_turn": splice(turn),
            "fill_top": inline(
                bind(
                    lists.top,
                    self.name,
                    prefers=first,
                    fill_by_insertion=insert,
                    highest=inline(lists.highest),
                )
            ),
            "answer": inline(lists.respond),
            "count_learnt": inline(lists.learnt),
        }

    @cached_property
    def choose_list(self) -> FastCall:
        """``lists.choose_list`` for live calls."""
        return FastCall(jit_live(bind(lists.choose_list, self.name, **self._list_parts)))

    @cached_property
    def run_lists(self) -> Any:
        """``lists.run_lists``, without the interpreter lock."""
        return jit_nonrt(bind(lists.run_lists, self.name, **self._list_parts))

    @cached_property
    def run_events(self) -> Any:
        """``run_events``, without the interpreter lock."""
        return jit_nonrt(self._made(run_events))
