"""``Listing``: several arms at once for one context, and what is learnt from a list's rewards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.errors import InvalidInputError
from whim.policies.base.lists import Groups, Limits, Plays, Quotas, Spread, no_features, plays, top
from whim.policies.base.preview import Previewing
from whim.types import F64, I64, ArmId, ChangeEvent, ListDecision

_ARRAY, _F64 = np.ndarray, np.dtype(np.float64)
_new = tuple.__new__
_Room = tuple[object, F64, Any, Any]


def _room(k: int) -> _Room:
    """Arrays that a kernel fills with a list, and views that become Python's numbers quickly."""
    shown = np.zeros((4, k))  # the first row has slots, the others numbers
    return k, shown, shown[0].view(np.int64).data, shown[1:].data


_NO_ROOM: _Room = (object(), np.zeros((4, 0)), (), ())  # for no k
_rooms: list[_Room] = []  # who takes one has it alone, so that no lock is needed
_take, _give = _rooms.pop, _rooms.append


class Listing(Previewing):
    """Lists, for every policy that scores its candidates."""

    _last: Any  # the context of the last decision

    # -- what ``Policy`` has --------------------------------------------------------------------

    @abstractmethod
    def _check_many(
        self, arms: Any, X: Any, rewards: npt.ArrayLike, cross: npt.ArrayLike | None
    ) -> tuple[I64, F64, F64, F64 | None]:
        """Slots, contexts, rewards and cross features of plays, checked."""

    @abstractmethod
    def _learn_many(self, slots: I64, X: F64, r: F64, z: F64 | None) -> list[ChangeEvent]:
        """Learn plays in order."""

    @abstractmethod
    def _learn_quickly(
        self, arms: Any, x: Any, rewards: Any, feedback: str
    ) -> list[ChangeEvent] | None:
        """Learn a list by the kernel of live calls; None, and nothing touched, if it cannot."""

    def _scaled(self, slots: I64, X: F64, cross: F64 | None, scale: F64) -> tuple[F64, F64 | None]:
        """Contexts and cross features of plays times the chance that each was seen."""
        if self._d is None and cross is None:
            raise no_features(self)
        return scale[:, None] * X, None if cross is None else scale[:, None] * cross

    # -- decisions ------------------------------------------------------------------------------

    def select_list(
        self,
        x: npt.ArrayLike | None = None,
        arms: Iterable[ArmId] | None = None,
        k: int = 5,
        *,
        cross: npt.ArrayLike | None = None,
        limits: Limits | None = None,
        groups: Groups | None = None,
        diversity: float = 0.0,
        features: Mapping[Any, npt.ArrayLike] | npt.ArrayLike | None = None,
    ) -> ListDecision:
        """Choose ``k`` arms for a context, the best at the top.

        With ``k=1`` it is ``select``. Where the policy draws (``LinTS``, ``Random``), one draw
        orders the whole list, which for ``Random`` is a uniform one; with ``ties="random"`` each
        place among equals is drawn, from the top down. The list is shorter than ``k`` only if there
        are not enough candidates, or not enough that the limits let in.

        Parameters
        ----------
        x
            The context; or one row per item, where slots have features of their own that join
            it: slots are then filled one after another, each with the best arm left for its row.
        arms
            The candidates; every live arm by default.
        k
            Items to show.
        cross
            One row of cross features per candidate, as for ``select``.
        limits
            The most items that may share a group: ``{"topic": 2}`` is at most two of each topic,
            ``{"topic": {"ads": 1}}`` at most one of that topic. With limits on one kind of group
            no list within them has a better total score; with several kinds, places are filled
            from the top down with the best arm that keeps within all of them, which may leave
            fewer than ``k``.
        groups
            What ``limits`` is about: by its name, the group of each arm, as a mapping from arms or
            one value per candidate. None is a group without a limit.
        diversity
            What likeness costs, in units of reward: each place goes to the candidate whose score,
            less ``diversity`` times its largest cosine with an item above it, is best.
        features
            What likeness is measured on, where not on the policy's own item features: a mapping
            from arms, or one row per candidate.

        Examples
        --------
        >>> from whim.policies.linucb_disjoint import LinUCBDisjoint
        >>> policy = LinUCBDisjoint(n_features=1, alpha=0.0)
        >>> arms = policy.add_arms(["goal", "match", "vote", "film"])
        >>> events = policy.update_many(arms, [[1.0]] * 4, [0.9, 0.8, 0.7, 0.1])
        >>> policy.select_list([1.0], k=3).arms
        ['goal', 'match', 'vote']
        >>> topics = {"goal": "sport", "match": "sport", "vote": "news", "film": "arts"}
        >>> policy.select_list([1.0], k=3, limits={"topic": 1}, groups={"topic": topics}).arms
        ['goal', 'vote', 'film']
        """
        slots = self._everyone if arms is None else self._candidates(arms)
        if slots is None:
            slots = self._candidates(None)  # says that there is no arm
        own: Any = x  # an array as the kernels want it passes at once
        if own.__class__ is _ARRAY and own.dtype is _F64 and own.shape == self._shape:
            kernel = self._list_kernel
            plain = limits is None and groups is None and features is None and cross is None
            if plain and kernel is not None and diversity == 0.0:
                try:
                    room = _take()
                except IndexError:
                    room = _NO_ROOM
                n, shown, chosen, values = room
                if n is not k:  # the same object, so that True is not 1
                    room = _room(min(checks.integer("k", k, 1), len(slots)))
                    n, shown, chosen, values = room
                if kernel.call(self._bound, self._step, own, slots, self._room, shown) == n:
                    self._last, ids, items = own, self._id_of, []
                    for slot in chosen:  # no comprehension: it would cost as much as the kernel
                        items.append(ids[slot])  # noqa: PERF401
                    scores, means, widths = values.tolist()
                    _give(room)
                    return _new(ListDecision, (items, scores, means, widths))
        k = checks.integer("k", k, 1)
        ids = [self._id_of[slot] for slot in slots.tolist()]
        if limits is None and groups is not None:
            raise InvalidInputError(f"groups must come with limits, got {groups!r} alone.")
        quotas = None if limits is None else Quotas(limits, groups, ids)
        spread = self._spread(diversity, features, slots, ids)
        contexts = self._slot_contexts(x, k)
        rows = self._crossed(cross, len(slots))
        with self._lock:
            if self._bound is None:
                self._bind()
            places, numbers = self._fill(contexts, slots, rows, k, quotas, spread)
        scores, means, widths = ([part[i] for part in numbers] for i in range(3))
        return ListDecision([ids[place] for place in places], scores, means, widths)

    def _bind(self) -> Any:
        raise NotImplementedError

    def _slot_contexts(self, x: Any, k: int) -> list[F64]:
        """The context of the whole list, or of each of its items; all of them finite."""
        if self._shape is None and x is None:
            return [self._context(None)]
        if isinstance(x, Mapping):  # one row for the whole list, not columns by name
            return [self._context(self._by_name(x))]
        rows = self._table_by_name("x", x, self._encoding, self._d)
        if rows is not x and len(rows) == 1:  # a data frame, or a sparse matrix, of one row
            rows = rows[0]
        if np.ndim(rows) != 2:
            return [self._context(rows)]
        X = checks.matrix("x", rows, None, self._d)
        if len(X) != k:
            raise InvalidInputError(
                f"x must be a context, or one row for each of k = {k} items, got {len(X)} rows."
            )
        return list(X)

    def _many_contexts(self, X: Any, n: int | None) -> Sequence[Any]:
        """What ``x`` is for each of many lists, all of it checked."""
        if self._shape is None and (X is None or isinstance(X, int)):
            return [None] * (checks.integer("X", X, 0) if n is None else n)
        if np.ndim(X) != 3:
            return list(self._contexts(X, n))
        slots: F64 = np.asarray(X)
        if n is not None and len(slots) != n:
            raise InvalidInputError(f"X must have one entry for each of {n} lists, got {len(X)}.")
        checks.matrix("X", slots.reshape(-1, slots.shape[2]), None, self._d)
        return list(slots)

    def _fill(
        self, contexts: list[F64], slots: I64, cross: F64 | None, k: int, quotas: Quotas | None,
        spread: Spread | None,
    ) -> tuple[list[int], list[list[float]]]:  # fmt: skip
        """Places of the list's items, and score, mean and width of each."""
        draw = self._rng.integers if self._random_ties else None
        if len(contexts) == 1:
            self._evaluate(contexts[0], slots, cross, peek=False)
            order = self._ranked(slots)
            if quotas is None and spread is None and draw is None:
                places: list[int] = order[:k].tolist()
            else:
                places = top(order, self._out[: len(slots), 0], k, quotas, spread, draw)
            return places, self._out[places].tolist()
        places, numbers = [], []
        for x in contexts:
            self._evaluate(x, slots, cross, peek=False)
            scores = self._out[: len(slots), 0]
            one = top(self._ranked(slots), scores, 1, quotas, spread, draw, taken=places)
            places += one
            numbers += self._out[one].tolist()
        return places, numbers

    def _spread(
        self, diversity: float, features: Any, slots: I64, ids: Sequence[ArmId]
    ) -> Spread | None:
        weight = checks.number("diversity", diversity, least=0)
        if weight == 0.0:
            if features is not None:
                raise InvalidInputError("features must come with diversity above 0, got 0.")
            return None
        if features is None:
            if not self._m:
                raise InvalidInputError(
                    f"features must be given for diversity: {type(self).__name__} has no item "
                    "features, got None."
                )
            return Spread(weight, self._features[slots])
        if isinstance(features, Mapping):
            missing = [arm for arm in ids if arm not in features]
            if missing:
                raise InvalidInputError(
                    f"features must have every candidate, got none for {missing[0]!r}."
                )
            features = [features[arm] for arm in ids]
        return Spread(weight, checks.matrix("features", features, len(ids), None))

    def select_list_many(
        self, X: Any, arms: Iterable[ArmId] | None = None, k: int = 5, **how: Any
    ) -> list[ListDecision]:
        """``select_list`` for each row of X in turn, with the same candidates.

        X may be a table of rows by name, or for slots with features of their own an array of
        shape (lists, k, n_features); a policy that ignores contexts takes the number of lists.
        Everything else is as for one list.
        """
        ids = None if arms is None else self._id_list(arms, "arms")
        checks.integer("k", k, 1)
        return [self.select_list(x, ids, k, **how) for x in self._many_contexts(X, None)]

    # -- rewards --------------------------------------------------------------------------------

    def update_list(
        self,
        arms: Sequence[ArmId],
        x: npt.ArrayLike | None,
        rewards: npt.ArrayLike,
        *,
        feedback: str = "cascade",
        examine: npt.ArrayLike | None = None,
        cross: npt.ArrayLike | None = None,
    ) -> list[ChangeEvent]:
        """Learn from a list, whole or not at all; the changes that it revealed.

        The same as a loop of ``update`` over the plays that ``feedback`` says it amounts to, from
        the top down.

        Parameters
        ----------
        arms
            The items that were shown, the top first.
        x
            The context in which they were shown, or one row per item, as ``select_list`` was given.
        rewards
            One finite number per item, the top first.
        feedback
            ``"cascade"``: the user looked from the top down and stopped at the first click (a
            reward above 0); items below it are not learnt. ``"semi"``: every item was seen.
            ``"positions"``: item i was seen with the chance ``examine[i]``, by which its features
            are multiplied.
        examine
            Chances of being seen, the top first, for ``"positions"``.
        cross
            One row per item, if ``select_list`` was given cross features.

        Examples
        --------
        >>> from whim.policies.linucb_disjoint import LinUCBDisjoint
        >>> policy = LinUCBDisjoint(n_features=1)
        >>> arms = policy.add_arms(["a", "b", "c"])
        >>> policy.update_list(["c", "a", "b"], [1.0], [0, 1, 0])
        []
        >>> [policy.plays(arm) for arm in arms]
        [1, 0, 1]
        """
        if cross is None and examine is None:
            events = self._learn_quickly(arms, x, rewards, feedback)
            if events is not None:
                return events
        return self._learn_many(*self._plays_of(arms, x, rewards, cross, feedback, examine))

    def update_list_many(
        self,
        lists: Iterable[Sequence[ArmId]],
        X: Any,
        rewards: Iterable[npt.ArrayLike],
        *,
        feedback: str = "cascade",
        examine: npt.ArrayLike | None = None,
        cross: Sequence[npt.ArrayLike] | None = None,
    ) -> list[ChangeEvent]:
        """``update_list`` of many lists in order; all are checked before anything is learnt.

        ``rewards`` has one row per list, as long as the list is, and so has ``cross``; X is as for
        ``select_list_many``.
        """
        shown, values = self._rows_of("lists", lists), self._rows_of("rewards", rewards)
        extra = [None] * len(shown) if cross is None else self._rows_of("cross", cross)
        for name, rows in (("rewards", values), ("cross", extra)):
            if len(rows) != len(shown):
                raise InvalidInputError(
                    f"{name} must have a row for each of {len(shown)} lists, got {len(rows)}."
                )
        contexts = self._many_contexts(X, len(shown))
        checked = [
            self._plays_of(arms, x, r, z, feedback, examine)
            for arms, x, r, z in zip(shown, contexts, values, extra, strict=True)
        ]
        if not checked:
            return []
        slots, contexts, learnt, given = zip(*checked, strict=True)
        known = None if given[0] is None else np.concatenate(given)
        return self._learn_many(
            np.concatenate(slots), np.concatenate(contexts), np.concatenate(learnt), known
        )

    def _rows_of(self, name: str, rows: Any) -> list[Any]:
        if not isinstance(rows, Iterable) or isinstance(rows, (str, bytes)):
            raise InvalidInputError(f"{name} must have one row per list, got {rows!r}.")
        return list(rows)

    def _plays_of(
        self, arms: Any, x: Any, rewards: Any, cross: Any, feedback: str, examine: Any
    ) -> tuple[I64, F64, F64, F64 | None]:
        """What a list amounts to: slots, contexts, rewards and cross features, checked."""
        ids = self._id_list(arms, "arms")
        if not ids:
            raise InvalidInputError("arms must hold at least one item, got none.")
        learnt: Plays = plays(feedback, rewards, examine)
        contexts = self._slot_contexts(x, len(ids))
        X = np.stack(contexts if len(contexts) == len(ids) else contexts * len(ids))
        slots, X, _, z = self._check_many(ids, X, rewards, cross)
        if len(set(slots.tolist())) != len(slots):
            raise InvalidInputError(f"arms must not repeat, got {ids!r}.")
        n = learnt.n
        slots, X, z = slots[:n], X[:n], None if z is None else z[:n]
        if learnt.scale is not None:
            X, z = self._scaled(slots, X, z, learnt.scale)
        return slots, X, learnt.rewards, z
