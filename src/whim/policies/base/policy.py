"""``Policy``: the contract. Decisions and rewards, checked once, with the arithmetic left open.

A subclass declares its arrays (``_rows``, ``_keep``) and fills two hooks: ``_score`` writes
score, mean and width of each candidate into ``_out`` and returns the best one's place;
``_observe`` takes one reward and says whether a change was detected. See CONTRIBUTING.md. The
policies of the library fill them by kernels: ``CompiledPolicy``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.kernels.lists import learnt
from whim.kernels.status import CHANGED, GROW, NO_CHANGE, NOT_FINITE, TEST
from whim.policies.base.explaining import Explaining
from whim.policies.base.listing import Listing
from whim.policies.base.lists import FEEDBACK
from whim.types import F64, I64, ArmId, ChangeEvent, Decision

_ARRAY, _F64 = np.ndarray, np.dtype(np.float64)
_LARGEST = checks.LARGEST
_NAMES = frozenset((str, int))  # ids that can be looked up without a further check
_NUMBERS = frozenset((float, int))
_NO_CONTEXT = object()
_new = tuple.__new__


class Policy(Explaining, Listing):
    """What every policy does: choose, rank and score arms, and learn from rewards.

    The constructor's parameters are those of ``ArmArrays``. Threads may share a policy for reads:
    whatever learns nothing and changes no arms, but ``preview``. That one and writes need a lock of
    the caller's around them and around the reads beside them (docs/policies.md).
    """

    _last: Any = _NO_CONTEXT  # the context of the last decision

    # -- what a subclass fills in ---------------------------------------------------------------

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

    def _changed(self, slot: int, **fields: Any) -> ChangeEvent:
        """A change that the last play of an arm revealed; ``fields`` are what the test says."""
        play = {"arm": self._id_of[slot], "step": self._step, "plays": self._plays[slot]}
        return ChangeEvent(**{**play, "window": 0, **fields})

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
        if context.__class__ is _ARRAY and context.dtype is _F64 and context.shape == self._shape:
            kernel = self._choose_kernel
            if kernel is not None and cross is None:
                slot, score, mean, width = kernel.call(
                    self._bound, self._step, context, slots, self._room
                )
                if slot >= 0:
                    self._last = context
                    # tuple.__new__: half the cost of the NamedTuple's own constructor
                    return _new(Decision, (self._id_of[slot], score, mean, width))
        else:
            context = self._context(x)
        slot, score, mean, width = self._choose_otherwise(context, slots, cross)
        return Decision(self._id_of[slot], score, mean, width)

    def _choose_otherwise(
        self, x: F64, slots: I64, cross: npt.ArrayLike | None
    ) -> tuple[int, float, float, float]:
        """Where nothing is bound yet, no kernel chooses, or x is not finite or lies badly."""
        if self._bound is None:
            with self._lock:
                if self._bound is None:
                    self._bind()
        kernel = self._choose_kernel
        if kernel is None or cross is not None:
            return self._choose(x, slots, self._crossed(cross, len(slots)))
        x = checks.vector("x", x, self._d)
        best: tuple[int, float, float, float] = kernel.call(
            self._bound, self._step, x, slots, self._room
        )
        return best

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
        kernel = self._observe_kernel
        plain = reward.__class__ is float and -_LARGEST <= reward <= _LARGEST
        z = None
        # the array of the last decision has been looked at; kernels see if it has changed since
        seen = context is self._last and context.dtype is _F64 and len(context) == self._d
        if kernel is not None and cross is None and seen and plain:
            status = kernel.call(self._bound, self._step, slot, context, reward)
        else:
            context, reward = self._context(x), checks.real("reward", reward)
            z = self._cross_row(cross)
            status = self._observe(slot, context, z, reward)
        if status > CHANGED:
            status = self._settle(status, slot, context, z, reward)
        self._step += 1
        self._plays[slot] += 1
        return self._noted(self._event(slot)) if status else None

    def _learn_quickly(
        self, arms: Any, x: Any, rewards: Any, feedback: str
    ) -> list[ChangeEvent] | None:
        seen = x is self._last and x.dtype is _F64 and len(x) == self._d
        if self._observe_kernel is None or not seen or feedback not in ("cascade", "semi"):
            return None
        values: Any = rewards.tolist() if rewards.__class__ is _ARRAY else rewards
        if arms.__class__ is not list or values.__class__ is not list or len(arms) != len(values):
            return None
        slots: list[int] = []
        for i, arm in enumerate(arms):
            r, kind = values[i], values[i].__class__
            slot = self._slot_of.get(arm) if arm.__class__ in _NAMES else None
            if slot is None or kind not in _NUMBERS or not -_LARGEST <= r <= _LARGEST:
                return None
            slots.append(slot)
        if not slots or len(set(slots)) != len(slots):
            return None
        n = learnt(FEEDBACK[feedback], values, len(slots))
        events = []
        for slot, r in zip(slots[:n], values, strict=False):
            event = self._learn_one(slot, x, float(r))
            if event is not None:
                events.append(event)
        return events

    def _learn_one(self, slot: int, x: F64, reward: float) -> ChangeEvent | None:
        """``update`` of what has been checked."""
        kernel = self._observe_kernel
        if kernel is None:  # an array was replaced
            status = self._observe(slot, x, None, reward)
        else:
            status = kernel.call(self._bound, self._step, slot, x, reward)
        if status > CHANGED:
            status = self._settle(status, slot, x, None, reward)
        self._step += 1
        self._plays[slot] += 1
        return self._noted(self._event(slot)) if status else None

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
        free = X is None and self._shape is None
        contexts = np.zeros((n, 0)) if free else self._contexts(X, n)
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
                events.append(self._noted(self._event(int(slots[at - 1]))))
            elif status == GROW:
                self._grow_pool()
        return events
