"""``Policy``: the contract. Decisions and rewards, checked once, with the arithmetic left open.

A subclass declares its arrays (``_rows``, ``_keep``) and fills two hooks: ``_score`` writes
score, mean and width of each candidate into ``_out`` and returns the best one's place;
``_observe`` takes one reward and says whether a change was detected. See CONTRIBUTING.md. The
policies of the library fill them by kernels: ``CompiledPolicy``.
"""

from __future__ import annotations

import copy
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.errors import InvalidInputError, UnknownArmError
from whim.kernels.jit import FastCall
from whim.kernels.status import CHANGED, GROW, NO_CHANGE, NOT_FINITE, TEST
from whim.policies.base.arms import ArmArrays
from whim.types import F64, I64, ArmId, ChangeEvent, Decision

_ARRAY, _F64 = np.ndarray, np.dtype(np.float64)
_LARGEST = checks.LARGEST
_NAMES = frozenset((str, int))  # ids that can be looked up without a further check
_NOTHING: F64 = np.zeros(0)
_FEW = 64
_new = tuple.__new__


class Policy(ArmArrays, ABC):
    """What every policy does: choose, rank and score arms, and learn from rewards.

    The constructor's parameters are those of ``ArmArrays``.
    """

    # the kernels of live calls, where a policy has them (``_bind``)
    _choose_kernel: FastCall | None = None
    _observe_kernel: FastCall | None = None
    _last: Any = None  # the context of the last decision

    # -- what a subclass fills in ---------------------------------------------------------------

    @abstractmethod
    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        """Fill ``_out[:n]``; the best candidate's place, or -1 if the context is not finite."""

    @abstractmethod
    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        """Learn one reward; NO_CHANGE, CHANGED, or (nothing touched) GROW or NOT_FINITE."""

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        """Learn in order from ``start``; stop after a change or before GROW."""
        for i in range(start, len(slots)):
            row = None if cross is None else cross[i]
            status = self._observe(int(slots[i]), X[i], row, float(rewards[i]))
            if status == GROW:
                return i, GROW
            if status == CHANGED:
                return i + 1, CHANGED
        return len(slots), NO_CHANGE

    def _event(self, slot: int) -> ChangeEvent:
        """Describe the change that ``_observe`` has just reported."""
        raise NotImplementedError

    def _noise(self, rng: np.random.Generator, n: int) -> F64 | None:
        """The random numbers that one decision among ``n`` candidates uses; none by default."""
        return None

    def _grow_pool(self) -> None:
        """Make room after GROW."""
        raise NotImplementedError

    def _bind(self) -> Any:
        """The one place where state and kernels are put together for live calls."""
        self._bound = ()
        return self._bound

    def _finish(self, slot: int) -> int:
        """After a status of TEST: whether there was a change."""
        raise NotImplementedError

    # -- decisions ------------------------------------------------------------------------------

    def _candidates(self, arms: Iterable[ArmId] | None) -> I64:
        if arms is None:
            slots = self._table.live
            if not len(slots):
                raise InvalidInputError("arms must hold at least one arm: none has been added.")
            return slots
        ids = arms if arms.__class__ is list else self._id_list(arms, "arms")
        ids = cast("list[ArmId]", ids)
        if not ids:
            raise InvalidInputError("arms must hold at least one candidate, got none.")
        # a page's candidates stay for a while: those of the last call need no look-up
        if self._table.same(ids, self._last_ids):
            return self._last_slots
        slots = self._table.slots(ids)
        if len(set(ids)) != len(ids):
            twice = next(a for i, a in enumerate(ids) if a in ids[:i])
            raise InvalidInputError(f"arms must not repeat, got {twice!r} twice.")
        self._last_ids, self._last_slots = ids.copy(), slots
        return slots

    def _context(self, x: npt.ArrayLike | None) -> F64:
        """A vector that the kernel can take; whether it is finite is the kernel's own check."""
        if self._shape is None and x is None:
            return _NOTHING
        return checks.vector("x", x, self._d)

    def _crossed(self, cross: npt.ArrayLike | None, rows: int) -> F64 | None:
        if cross is None:
            if self._k and not self._m:
                raise InvalidInputError(
                    f"cross must be given: {type(self).__name__} was made without item features."
                )
            return None
        if not self._k:
            raise InvalidInputError(
                f"cross must be None: {type(self).__name__} takes no cross features."
            )
        return checks.matrix("cross", cross, rows, self._k)

    def _evaluate(self, x: F64, slots: I64, cross: F64 | None, peek: bool) -> int:
        rng = copy.deepcopy(self._rng) if peek and self._draws else self._rng
        noise = self._noise(rng, len(slots)) if self._draws else None
        best = self._score(x, slots, cross, noise)
        if best < 0:
            checks.vector("x", x, self._d)
        return best

    def select(
        self,
        x: npt.ArrayLike | None = None,
        arms: Iterable[ArmId] | None = None,
        *,
        cross: npt.ArrayLike | None = None,
    ) -> Decision:
        """Choose an arm for a context.

        Parameters
        ----------
        x
            The context, a vector of length ``n_features``.
        arms
            The candidates; every live arm by default.
        cross
            One row of cross features per candidate, instead of those made from item features.
        """
        slots = self._everyone if arms is None else self._candidates(arms)
        if slots is None:
            slots = self._candidates(None)  # says that there is no arm
        context: Any = x  # an array as the kernels want it passes at once
        fits = context.__class__ is _ARRAY and context.dtype is _F64
        if not fits or context.shape != self._shape:
            context = self._context(x)
        state = self._bound
        if state is None:
            state = self._bind()
        kernel = self._choose_kernel
        if kernel is not None and cross is None:
            slot, score, mean, width = kernel.call(state, self._step, context, slots, self._out)
            if slot < 0:  # not finite; or it lies badly, and is copied
                context = checks.vector("x", context, self._d)
                slot, score, mean, width = kernel.call(state, self._step, context, slots, self._out)
        else:
            z = self._crossed(cross, len(slots))
            slot, score, mean, width = self._choose(context, slots, z)
        self._last = context
        # tuple.__new__: half the cost of the NamedTuple's own constructor
        return _new(Decision, (self._id_of[slot], score, mean, width))

    def _choose(self, x: F64, slots: I64, cross: F64 | None) -> tuple[int, float, float, float]:
        """The best candidate's slot, score, mean and width; ties as the policy was asked to."""
        if self._draws:
            checks.vector("x", x, self._d)  # before the random stream moves on
        best = self._evaluate(x, slots, cross, peek=False)
        if self._random_ties:
            column = self._out[: len(slots), 0]
            equal = np.flatnonzero(column == column[best])
            if len(equal) > 1:
                best = int(equal[self._rng.integers(len(equal))])
        score, mean, width = self._out[best].tolist()
        return slots.item(best), score, mean, width

    def scores(
        self,
        x: npt.ArrayLike | None = None,
        arms: Iterable[ArmId] | None = None,
        *,
        cross: npt.ArrayLike | None = None,
    ) -> F64:
        """What ``select`` would order the candidates by, in their order; changes nothing."""
        slots = self._candidates(arms)
        self._evaluate(self._context(x), slots, self._crossed(cross, len(slots)), True)
        return self._out[: len(slots), 0].copy()

    def rank(
        self,
        x: npt.ArrayLike | None = None,
        arms: Iterable[ArmId] | None = None,
        k: int | None = None,
        *,
        cross: npt.ArrayLike | None = None,
    ) -> list[Decision]:
        """The best ``k`` candidates (all by default), best first; changes nothing.

        Equal scores keep the order of the candidate list.
        """
        slots = self._candidates(arms)
        if k is not None:
            checks.integer("k", k, 1)
        self._evaluate(self._context(x), slots, self._crossed(cross, len(slots)), True)
        out = self._out[: len(slots)]
        order = self._ranked(slots)[:k]
        ids = self._table.id_of
        return [Decision(ids[slots[i]], *out[i].tolist()) for i in order.tolist()]

    def ranked(
        self,
        x: npt.ArrayLike | None = None,
        arms: Iterable[ArmId] | None = None,
        *,
        draw: bool = False,
    ) -> tuple[list[int], list[float]]:
        """``rank`` without objects: places of the candidates, best first; what each scores.

        The second has score, mean and width of each candidate in turn, in their order.
        With ``draw`` a policy that draws decides, as ``select`` would, and its stream moves on;
        its choice comes first.
        """
        slots = self._candidates(arms)
        context, cross = self._context(x), self._crossed(None, len(slots))
        if draw and self._draws:
            slot = self._choose(context, slots, cross)[0]
            order = self._ranked(slots).tolist()
            order.sort(key=lambda i: slots[i] != slot)
        else:
            self._evaluate(context, slots, cross, True)
            return self._listed(slots)
        return order, self._out[: len(slots)].ravel().tolist()

    def ranked_many(
        self, X: npt.ArrayLike | None, lists: Sequence[list[ArmId]]
    ) -> list[tuple[list[int], list[float]] | None]:
        """``ranked`` of many contexts, each with candidates of its own, for a policy without draws.

        None stands for a list that is not of live arms, each once.
        """
        if self._draws:
            raise InvalidInputError(f"{type(self).__name__} draws: its decisions have an order.")
        n = len(lists)
        contexts = None if self._shape is None else checks.matrix("X", X, n, self._d)
        self._crossed(None, 0)
        rankings: list[tuple[list[int], list[float]] | None] = []
        for i, slots in enumerate(self._slots_of(lists)):
            if slots is not None:
                self._score(_NOTHING if contexts is None else contexts[i], slots, None, None)
            rankings.append(None if slots is None else self._listed(slots))
        return rankings

    def _slots_of(self, lists: Sequence[list[ArmId]]) -> list[I64 | None]:
        """Slots of each list; None: it is not of live arms, each once."""
        try:
            flat = self._table.slots([*itertools.chain.from_iterable(lists)])
        except (InvalidInputError, UnknownArmError):
            if len(lists) == 1:
                return [None]
            return [slots for one in lists for slots in self._slots_of([one])]
        parts: list[I64 | None] = []
        at = 0
        for ids in lists:
            n = len(ids)
            parts.append(flat[at : at + n] if n and len(set(ids)) == n else None)
            at += n
        return parts

    def _listed(self, slots: I64) -> tuple[list[int], list[float]]:
        """Of candidates that were just scored: their places, best first, and all numbers."""
        numbers = self._out[: len(slots)].ravel().tolist()
        # few are sorted sooner than an array is made, unless a policy has an order of its own
        if len(slots) <= _FEW and type(self)._ranked is Policy._ranked:
            worth = numbers[::3]
            return sorted(range(len(worth)), key=worth.__getitem__, reverse=True), numbers
        return self._ranked(slots).tolist(), numbers

    def _ranked(self, slots: I64) -> I64:
        """Places of the candidates that were just scored, best first."""
        return np.argsort(-self._out[: len(slots), 0], kind="stable")

    def scores_many(self, X: npt.ArrayLike, arms: Iterable[ArmId] | None = None) -> F64:
        """Scores of many contexts: (n, K) for the candidates, in ``policy.arms`` order by default.

        Row i is what ``scores(X[i])`` gives, to rounding; a policy that draws does so anew for
        each row. Changes nothing.
        """
        slots = self._candidates(arms)
        contexts = checks.matrix("X", X, None, self._d)
        return self._score_many(contexts, slots) if len(contexts) else np.empty((0, len(slots)))

    def _score_many(self, X: F64, slots: I64) -> F64:
        self._crossed(None, len(slots))
        result = np.empty((len(X), len(slots)))
        rng = copy.deepcopy(self._rng) if self._draws else self._rng
        for i, x in enumerate(X):
            self._score(x, slots, None, self._noise(rng, len(slots)))
            result[i] = self._out[: len(slots), 0]
        return result

    # -- rewards --------------------------------------------------------------------------------

    def update(
        self,
        arm: ArmId,
        x: npt.ArrayLike | None,
        reward: float,
        *,
        cross: npt.ArrayLike | None = None,
    ) -> ChangeEvent | None:
        """Learn the reward of one play; the change that it revealed, if any.

        Parameters
        ----------
        arm
            The arm that was played.
        x
            The context in which it was played.
        reward
            A finite number (a bool counts as 0 or 1).
        cross
            The played arm's row, if ``select`` was given cross features.
        """
        slot = self._slot_of.get(arm) if arm.__class__ in _NAMES else None
        if slot is None:
            slot = self._table.slot(arm)
        context: Any = x
        # the array of the last decision has been looked at; kernels see if it has changed since
        seen = context is self._last and context.dtype is _F64 and len(context) == self._d
        if not seen:
            fits = context.__class__ is _ARRAY and context.dtype is _F64
            if not fits or context.shape != self._shape:
                context = self._context(x)
        if reward.__class__ is not float or not -_LARGEST <= reward <= _LARGEST:
            reward = checks.real("reward", reward)
        state = self._bound
        if state is None:
            state = self._bind()
        kernel = self._observe_kernel
        if kernel is not None and cross is None:
            status = kernel.call(state, self._step, slot, context, reward)
            if status:
                status = self._settle(status, slot, context, None, reward)
        else:
            z = self._cross_row(cross)
            status = self._settle(self._observe(slot, context, z, reward), slot, context, z, reward)
        self._step += 1
        self._plays[slot] += 1
        return self._event(slot) if status else None

    def _settle(self, status: int, slot: int, x: F64, z: F64 | None, reward: float) -> int:
        """Do what a status asks for; NO_CHANGE or CHANGED in the end."""
        if status == NOT_FINITE:  # which is said; or it lies badly, and is copied
            x = checks.vector("x", x, self._d)
            status = self._observe(slot, x, z, reward)
        if status == GROW:
            self._grow_pool()
            status = self._observe(slot, x, z, reward)
        return self._finish(slot) if status == TEST else status

    def _cross_row(self, cross: npt.ArrayLike | None) -> F64 | None:
        row = None if cross is None else checks.vector("cross", cross, self._k or None)[None]
        z = self._crossed(row, 1)
        return None if z is None else z[0]

    def update_many(
        self,
        arms: Sequence[ArmId] | npt.NDArray[Any],
        X: npt.ArrayLike | None,
        rewards: npt.ArrayLike,
        *,
        cross: npt.ArrayLike | None = None,
    ) -> list[ChangeEvent]:
        """Learn many plays in order: the same as a loop of ``update``, much faster.

        All input is checked before anything is learnt.
        """
        return self._learn_many(*self._check_many(arms, X, rewards, cross))

    def _check_many(
        self,
        arms: Sequence[ArmId] | npt.NDArray[Any],
        X: npt.ArrayLike | None,
        rewards: npt.ArrayLike,
        cross: npt.ArrayLike | None,
    ) -> tuple[I64, F64, F64, F64 | None]:
        if isinstance(arms, np.ndarray) and arms.ndim == 1 and arms.dtype.kind in "iu":
            slots = self._table.slots_of_numbers(arms)
        else:
            slots = self._table.slots(self._id_list(arms, "arms"))
        n = len(slots)
        if X is None and self._shape is None:
            contexts = np.zeros((n, 0))
        else:
            contexts = checks.matrix("X", X, n, self._d)
        r = np.asarray(rewards)
        r = checks.vector("rewards", r.astype(np.float64) if r.dtype == bool else r, n)
        return slots, contexts, r, self._crossed(cross, n)

    def _learn_many(self, slots: I64, X: F64, r: F64, z: F64 | None) -> list[ChangeEvent]:
        events: list[ChangeEvent] = []
        at, n = 0, len(slots)
        while at < n:
            stop, status = self._observe_many(at, slots, X, z, r)
            counts = np.bincount(slots[at:stop])
            for slot in np.flatnonzero(counts).tolist():
                self._plays[slot] += int(counts[slot])
            self._step += stop - at
            at = stop
            if status == CHANGED:
                events.append(self._event(int(slots[at - 1])))
            elif status == GROW:
                self._grow_pool()
        return events
