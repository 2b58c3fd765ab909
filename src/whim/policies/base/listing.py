"""``Listing``: several arms at once for one context, and what is learnt from a list's rewards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.errors import InvalidInputError
from whim.policies.base.lists import Groups, Limits, Quotas, Spread, no_features, plays, top
from whim.policies.base.preview import Previewing
from whim.types import F64, I64, ArmId, ChangeEvent, ListDecision


class Listing(Previewing):
    """Lists, for every policy that scores its candidates."""

    # -- what ``Policy`` has ----------------------------------------------------------------------

    @abstractmethod
    def _check_many(
        self, arms: Any, X: Any, rewards: npt.ArrayLike, cross: npt.ArrayLike | None
    ) -> tuple[I64, F64, F64, F64 | None]:
        """Slots, contexts, rewards and cross features of plays, checked."""

    @abstractmethod
    def _learn_many(self, slots: I64, X: F64, r: F64, z: F64 | None) -> list[ChangeEvent]:
        """Learn plays in order."""

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
            The context.
        arms
            The candidates; every live arm by default.
        k
            Items to show.
        cross
            One row of cross features per candidate, as for ``select``.
        limits
            The most items that may share a group: ``{"topic": 2}`` is at most two of each topic,
            ``{"topic": {"ads": 1}}`` at most one of that topic.
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
        checks.integer("k", k, 1)
        slots = self._candidates(arms)
        ids = [self._id_of[slot] for slot in slots.tolist()]
        quotas = None if limits is None else Quotas(limits, groups, ids)
        if limits is None and groups is not None:
            raise InvalidInputError(f"groups must come with limits, got {groups!r} alone.")
        spread = self._spread(diversity, features, slots, ids)
        context, rows = self._context(x), self._crossed(cross, len(slots))
        if self._draws:
            checks.vector("x", context, self._d)  # before the random stream moves on
        with self._lock:
            self._evaluate(context, slots, rows, peek=False)
            places = self._places(slots, k, quotas, spread)
            numbers = self._out[places].T.tolist()
        return ListDecision([ids[place] for place in places], *numbers)

    def _places(
        self, slots: I64, k: int, quotas: Quotas | None, spread: Spread | None
    ) -> list[int]:
        """Places of the list's items among candidates that were just scored."""
        order = self._ranked(slots)
        if quotas is None and spread is None and not self._random_ties:
            best: list[int] = order[:k].tolist()
            return best
        draw = self._rng.integers if self._random_ties else None
        return top(order, self._out[: len(slots), 0], k, quotas, spread, draw)

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
            The context in which they were shown.
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
        ids = self._id_list(arms, "arms")
        if not ids:
            raise InvalidInputError("arms must hold at least one item, got none.")
        learnt = plays(feedback, rewards, examine)
        context = self._context(x)
        X = np.repeat(context[None], len(ids), 0)
        slots, X, _, z = self._check_many(ids, X, rewards, cross)
        if len(set(slots.tolist())) != len(slots):
            raise InvalidInputError(f"arms must not repeat, got {ids!r}.")
        n = learnt.n
        slots, X, z = slots[:n], X[:n], None if z is None else z[:n]
        if learnt.scale is not None:
            X, z = self._scaled(slots, X, z, learnt.scale)
        return self._learn_many(slots, X, learnt.rewards, z)
