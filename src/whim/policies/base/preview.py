"""``Previewing``: what a policy would think of candidates that it does not know yet.

A service decides on what it has learnt so far, and adds arms only when the decision is in its log.
So new arms are ranked as if they had just been added, and features that come with a request as if
they had been set: in rows that no arm has, which are put back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim.errors import InvalidInputError
from whim.policies.base.scoring import Scoring
from whim.types import F64, I64, ArmId


class Preview(NamedTuple):
    """Places of the candidates, best first; score, mean and width of each in turn.

    ``chances`` says of a policy that draws how likely it was to choose each, else it is None.
    """

    order: list[int]
    numbers: list[float]
    chances: F64 | None


class Previewing(Scoring):
    """Rankings with arms that are not there; none of its calls changes anything."""

    def preview(
        self,
        x: npt.ArrayLike | None,
        arms: Sequence[ArmId],
        features: Mapping[Any, npt.ArrayLike] | None = None,
        *,
        seed: int = 0,
    ) -> Preview:
        """``ranked`` as if new candidates had been added, with these features; changes nothing.

        It borrows spare rows for a moment: unlike other reads it needs a lock of the caller's where
        threads share the policy.

        Parameters
        ----------
        x
            The context.
        arms
            The candidates, each once.
        features
            By arm: needed for the new ones of a policy that takes item features; those of a known
            arm count in place of its own.
        seed
            Of the draws of a policy that draws: its own stream stays where it is. What it draws
            comes first.

        Examples
        --------
        >>> from whim.policies.linucb_disjoint import LinUCBDisjoint
        >>> policy = LinUCBDisjoint(n_features=1)
        >>> policy.add_arms(["a"])
        ['a']
        >>> policy.update("a", [1.0], 2.0)
        >>> policy.preview([1.0], ["new", "a"]).order, policy.arms
        ([1, 0], ['a'])
        """
        context = self._context(x)
        with self._lock, self._visited(arms, features or {}) as slots:
            cross = self._crossed(None, len(slots))
            if not self._draws:
                self._evaluate(context, slots, cross, peek=True)
                return Preview(*self._listed(slots), None)
            own, self._rng = self._rng, np.random.Generator(np.random.PCG64(seed))
            try:
                chances = self._probabilities(context, slots, cross)
                slot = self._choose(context, slots, cross)[0]
            finally:
                self._rng = own
            order = self._ranked(slots).tolist()
            order.sort(key=lambda i: slots[i] != slot)
            return Preview(order, self._out[: len(slots)].ravel().tolist(), chances)

    @contextlib.contextmanager
    def _visited(
        self, ids: Sequence[ArmId], features: Mapping[ArmId, npt.ArrayLike]
    ) -> Iterator[I64]:
        """Slots of candidates; those of new arms, and of known ones with features, are spare."""
        known = self._table.slot_of
        new = [i for i, arm in enumerate(ids) if arm not in known]
        moved = [i for i, arm in enumerate(ids) if arm in features and arm in known]
        if not new and not moved:
            yield self._candidates(list(ids))
            return
        new_ids, moved_ids = [ids[i] for i in new], [ids[i] for i in moved]
        Y = self._item_features(new_ids, self._came_with(new_ids, features)) if new else None
        used, n = len(self._table.id_of), len(new) + len(moved)
        self.make_room(n, seconds=np.inf)
        spare = np.arange(used, used + n)
        of_new, of_moved = spare[: len(new)], spare[len(new) :]
        slots = np.array([known.get(arm, -1) for arm in ids])
        live = self._live
        try:
            for name in self._priors:
                getattr(self, name)[of_moved] = getattr(self, name)[slots[moved]]
            slots[new], slots[moved] = of_new, of_moved
            if moved:
                self._refeature(of_moved, np.array([features[a] for a in moved_ids], np.float64))
            self._settle_in(of_new, Y)
            if new:
                self._list(np.append(live, of_new))
            yield slots
        finally:
            for name, prior in self._priors.items():
                getattr(self, name)[of_moved] = prior
            self._leave(of_new)
            self._list(live)

    def _came_with(self, ids: Sequence[ArmId], features: Mapping[ArmId, npt.ArrayLike]) -> Any:
        bare = [arm for arm in ids if arm not in features]
        if bare and self._m:
            raise InvalidInputError(
                f"features must hold those of every new arm, got none for {bare[0]!r}."
            )
        return [features[arm] for arm in ids] if self._m else None

    def _settle_in(self, slots: I64, features: F64 | None) -> None:
        """Give spare rows what new arms with these features would have beside the prior."""
        if features is not None:
            self._features[slots] = features

    def _leave(self, slots: I64) -> None:
        """Take from spare rows what ``_settle_in`` gave them."""
        if self._m:
            self._features[slots] = self._priors["_features"]

    def reseed(self) -> None:
        """Begin the policy's own random stream again, as its seed has it."""
        self._rng = np.random.Generator(np.random.PCG64(self._params.get("seed", 0)))
