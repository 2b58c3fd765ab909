"""``Scoring``: what a policy thinks of candidates; none of its calls changes anything."""

from __future__ import annotations

import copy
import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.errors import InvalidInputError
from whim.policies.base.arms import ArmArrays
from whim.types import F64, I64, ArmId, Decision

_NOTHING: F64 = np.zeros(0)
_FEW = 64
DRAWS = 4096  # of decisions, where a probability is counted rather than computed


class Scoring(ArmArrays, ABC):
    """Scores, rankings and the checks of what a caller hands over."""

    # -- what a subclass fills in ---------------------------------------------------------------

    @abstractmethod
    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        """Fill ``_out[:n]``; the best candidate's place, or -1 if the context is not finite."""

    def _noise(self, rng: np.random.Generator, n: int) -> F64 | None:
        """The random numbers that one decision among ``n`` candidates uses; none by default."""
        return None

    # -- checks at the boundary -----------------------------------------------------------------

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
        known, slots = self._recent
        if self._table.same(ids, known):
            return slots
        slots = self._table.slots(ids)
        if len(set(ids)) != len(ids):
            twice = next(a for i, a in enumerate(ids) if a in ids[:i])
            raise InvalidInputError(f"arms must not repeat, got {twice!r} twice.")
        self._recent = ids.copy(), slots
        return slots

    def _context(self, x: npt.ArrayLike | None) -> F64:
        """A vector that the kernel can take; whether it is finite is the kernel's own check."""
        if self._shape is None and x is None:
            return _NOTHING
        return checks.vector("x", self._by_name(x), self._d)

    def _contexts(self, X: Any, rows: int | None) -> F64:
        """The same of many."""
        table = self._table_by_name("X", X, self._encoding, self._d)
        return checks.matrix("X", table, rows, self._d)

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

    # -- scores and rankings --------------------------------------------------------------------

    def _evaluate(self, x: F64, slots: I64, cross: F64 | None, peek: bool) -> int:
        rng = copy.deepcopy(self._rng) if peek and self._draws else self._rng
        noise = self._noise(rng, len(slots)) if self._draws else None
        best = self._score(x, slots, cross, noise)
        if best < 0:
            checks.vector("x", x, self._d)
        return best

    def _choose(self, x: F64, slots: I64, cross: F64 | None) -> tuple[int, float, float, float]:
        """The best candidate's slot, score, mean and width; ties by the policy's rule."""
        if self._draws:
            checks.vector("x", x, self._d)  # before the random stream moves on
        with self._lock:
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
        context, rows = self._context(x), self._crossed(cross, len(slots))
        with self._lock:
            self._evaluate(context, slots, rows, True)
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
        context, rows = self._context(x), self._crossed(cross, len(slots))
        with self._lock:
            self._evaluate(context, slots, rows, True)
            order = self._ranked(slots)[:k]
            numbers = self._out[order].tolist()
        ids = self._table.id_of
        return [
            Decision(ids[slot], *three)
            for slot, three in zip(slots[order].tolist(), numbers, strict=True)
        ]

    # -- probabilities --------------------------------------------------------------------------

    def probabilities(
        self,
        x: npt.ArrayLike | None = None,
        arms: Iterable[ArmId] | None = None,
        *,
        cross: npt.ArrayLike | None = None,
    ) -> F64:
        """How likely ``select`` chooses each candidate, in their order; changes nothing.

        1 for the best and 0 for others, unless the policy draws or shares ties out
        (``ties="random"``). Exact, but for a policy that draws one model for all arms, or of a
        user's own: those are counted over 4096 draws, so that a probability p has the standard
        error √(p(1-p)/4096), at most 0.008; none is 0.

        Examples
        --------
        >>> from whim.policies.lints import LinTS
        >>> policy = LinTS(n_features=1)
        >>> policy.add_arms(["a", "b"])
        ['a', 'b']
        >>> policy.update("a", [1.0], 1.0)
        >>> policy.probabilities([1.0]).round(4).tolist()
        [0.6585, 0.3415]
        """
        slots = self._candidates(arms)
        context, rows = self._context(x), self._crossed(cross, len(slots))
        with self._lock:
            return self._probabilities(context, slots, rows)

    def _probabilities(self, x: F64, slots: I64, cross: F64 | None) -> F64:
        if not self._draws:
            return self._sure(self._evaluate(x, slots, cross, peek=True), len(slots))
        checks.vector("x", x, self._d)
        rng, counts = self._other_stream(), np.zeros(len(slots))
        for _ in range(DRAWS):
            best = self._score(x, slots, cross, self._noise(rng, len(slots)))
            counts += self._sure(best, len(slots))
        return shares(counts)

    def _sure(self, best: int, n: int) -> F64:
        """The probabilities of candidates that were just scored: ties are all that is drawn."""
        chances = np.zeros(n)
        if self._random_ties:
            column = self._out[:n, 0]
            equal = column == column[best]
            chances[equal] = 1.0 / np.count_nonzero(equal)
        else:
            chances[best] = 1.0
        return chances

    def _other_stream(self) -> np.random.Generator:
        """Independent of the policy's own stream; another one for each state of it."""
        state = hashlib.blake2b(repr(self._rng.bit_generator.state).encode(), digest_size=16)
        return np.random.default_rng(int.from_bytes(state.digest(), "little"))

    def ranked(
        self,
        x: npt.ArrayLike | None = None,
        arms: Iterable[ArmId] | None = None,
    ) -> tuple[list[int], list[float]]:
        """``rank`` without objects: places of the candidates, best first; what each scores.

        The second has score, mean and width of each candidate in turn, in their order.
        """
        slots = self._candidates(arms)
        context, cross = self._context(x), self._crossed(None, len(slots))
        with self._lock:
            self._evaluate(context, slots, cross, True)
            return self._listed(slots)

    def ranked_many(
        self, X: npt.ArrayLike | None, lists: Sequence[list[ArmId]]
    ) -> list[tuple[list[int], list[float]] | None]:
        """``ranked`` of many contexts, each with candidates of its own, for a policy without draws.

        None stands for a list that is not of live arms, each once.
        """
        if self._draws:
            raise InvalidInputError(f"{type(self).__name__} draws: its decisions have an order.")
        n = len(lists)
        contexts = None if self._shape is None else self._contexts(X, n)
        self._crossed(None, 0)
        rankings: list[tuple[list[int], list[float]] | None] = []
        with self._lock:
            for i, slots in enumerate(self._slots_of(lists)):
                if slots is not None:
                    self._score(_NOTHING if contexts is None else contexts[i], slots, None, None)
                rankings.append(None if slots is None else self._listed(slots))
        return rankings

    def _slots_of(self, lists: Sequence[list[ArmId]]) -> list[I64 | None]:
        """Slots of each list; None: it is not of live arms, each once."""
        flat = self._table.slots_if_live([*itertools.chain.from_iterable(lists)])
        if flat is None:
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
        if len(slots) <= _FEW and type(self)._ranked is Scoring._ranked:
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
        contexts = self._contexts(X, None)
        if not len(contexts):
            return np.empty((0, len(slots)))
        with self._lock:
            return self._score_many(contexts, slots)

    def _score_many(self, X: F64, slots: I64) -> F64:
        self._crossed(None, len(slots))
        result = np.empty((len(X), len(slots)))
        rng = copy.deepcopy(self._rng) if self._draws else self._rng
        for i, x in enumerate(X):
            self._score(x, slots, None, self._noise(rng, len(slots)))
            result[i] = self._out[: len(slots), 0]
        return result


def shares(counts: F64) -> F64:
    """Shares of draws; half a draw for each keeps what was never drawn above 0."""
    chances: F64 = (counts + 0.5) / (counts.sum() + 0.5 * len(counts))
    return chances
