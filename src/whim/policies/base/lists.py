"""Lists: which items were seen, how many of a group may stand in one, and how alike items are.

Pure functions of what the caller hands over; ``Listing`` makes the policies' methods of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from whim import checks
from whim.errors import InvalidInputError
from whim.features.data import plain
from whim.kernels.lists import CASCADE, POSITIONS, SEMI, learnt
from whim.types import F64, I64, ArmId

FEEDBACK = {"semi": SEMI, "cascade": CASCADE, "positions": POSITIONS}

Groups = Mapping[str, Mapping[Any, Hashable] | Sequence[Hashable]]
Limits = Mapping[str, int | Mapping[Any, int]]


class Plays(NamedTuple):
    """What is learnt from a list: its first ``n`` items, with rewards.

    ``scale`` has for each of them the chance that it was seen, by which its features count; None
    stands for 1.
    """

    n: int
    rewards: F64
    scale: F64 | None


def plays(feedback: str, rewards: npt.ArrayLike, examine: npt.ArrayLike | None = None) -> Plays:
    """The plays that a list's rewards amount to.

    Parameters
    ----------
    feedback
        ``"semi"``: every item was seen. ``"cascade"``: the user looked from the top down and
        stopped at the first click, a reward above 0; without a click, all were seen. What comes
        after the click says nothing and is not learnt. ``"positions"``: item i was seen with the
        known chance e_i, so that E[r] = e_i·xᵀθ: the play is (e_i·x, r), which needs no division.
    rewards
        One per item, the top first.
    examine
        The chances e of being seen, the top first, each from 0 to 1; at least as many as there are
        items. For ``"positions"`` only.

    Examples
    --------
    >>> plays("cascade", [0, 1, 0])
    Plays(n=2, rewards=array([0., 1.]), scale=None)
    >>> plays("positions", [0, 1], examine=[1.0, 0.5, 0.25])
    Plays(n=2, rewards=array([0., 1.]), scale=array([1. , 0.5]))
    """
    kind = FEEDBACK[checks.choice("feedback", feedback, tuple(FEEDBACK))]
    r = reward_vector(rewards, None)
    scale = chances(feedback, examine, len(r))
    n = learnt(kind, r, len(r))
    return Plays(n, r[:n], scale)


def reward_vector(rewards: npt.ArrayLike, n: int | None) -> F64:
    """Rewards as finite numbers; bools count as 0 and 1."""
    r = np.asarray(rewards)
    return checks.vector("rewards", r.astype(np.float64) if r.dtype == bool else r, n)


def chances(feedback: str, examine: npt.ArrayLike | None, k: int) -> F64 | None:
    """The chances of being seen of a list's ``k`` places, which only one kind of feedback has."""
    if feedback != "positions":
        if examine is not None:
            raise InvalidInputError(
                f"examine must be None for feedback={feedback!r}, got {examine!r}."
            )
        return None
    if examine is None:
        raise InvalidInputError("examine must be given for feedback='positions', got None.")
    e = checks.vector("examine", examine, None)
    if len(e) < k:
        raise InvalidInputError(f"examine must have a chance for each of {k} items, got {len(e)}.")
    if not ((e >= 0) & (e <= 1)).all():
        raise InvalidInputError(f"examine must be chances from 0 to 1, got {e.tolist()}.")
    return e[:k]


def no_features(policy: object) -> InvalidInputError:
    """The error of a policy that has nothing that a chance of being seen could scale."""
    return InvalidInputError(
        "feedback must be 'semi' or 'cascade': a chance of being seen scales features, and "
        f"{type(policy).__name__} learns from rewards alone, got 'positions'."
    )


class Quotas:
    """How many more of each group may join a list.

    Parameters
    ----------
    limits
        By attribute, the most items of one list that may share a value of it: ``{"topic": 2}``.
        ``{"topic": {"ads": 1}}`` limits that value alone.
    groups
        By attribute, each candidate's value: a mapping from arms, or one value per candidate in
        their order. None (or nan) stands for no value, which is not limited.
    ids
        The candidates.
    """

    def __init__(self, limits: Limits, groups: Groups | None, ids: Sequence[ArmId]) -> None:
        self._values: list[list[Hashable]] = []
        self._left: list[dict[Hashable, int]] = []
        if not isinstance(limits, Mapping):
            raise InvalidInputError(f"limits must be a mapping as {{'topic': 2}}, got {limits!r}.")
        for name, most in limits.items():
            values = _values(name, groups, ids)
            if isinstance(most, Mapping):
                left = {
                    v: checks.integer(f"limits[{name!r}][{v!r}]", n, 0) for v, n in most.items()
                }
            else:
                left = dict.fromkeys(values, checks.integer(f"limits[{name!r}]", most, 1))
            left.pop(None, None)
            self._values.append(values)
            self._left.append(left)

    def admits(self, place: int) -> bool:
        """Whether the candidate at this place may join."""
        return all(
            left.get(values[place], 1) > 0
            for values, left in zip(self._values, self._left, strict=True)
        )

    def take(self, place: int) -> None:
        """Count it in."""
        for values, left in zip(self._values, self._left, strict=True):
            if values[place] in left:
                left[values[place]] -= 1


def _values(name: str, groups: Groups | None, ids: Sequence[ArmId]) -> list[Hashable]:
    """One attribute of each candidate."""
    if not isinstance(groups, Mapping) or name not in groups:
        got = list(groups) if isinstance(groups, Mapping) else groups
        raise InvalidInputError(
            f"groups must have {name!r} of each arm, as limits has a limit for it, got {got!r}."
        )
    given = groups[name]
    if isinstance(given, Mapping):
        missing = [arm for arm in ids if arm not in given]
        if missing:
            raise InvalidInputError(
                f"groups[{name!r}] must have every candidate (None: no limit), "
                f"got none for {missing[0]!r}."
            )
        values = [given[arm] for arm in ids]
    elif hasattr(given, "to_dict"):  # a Series, whose index may be the arms or not
        raise InvalidInputError(
            f"groups[{name!r}] must be a mapping from arms or a list (use .to_dict() or "
            f".tolist()), got a {type(given).__name__}."
        )
    elif isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
        values = list(given)
        if len(values) != len(ids):
            raise InvalidInputError(
                f"groups[{name!r}] must have one value for each of {len(ids)} candidates, "
                f"got {len(values)}."
            )
    else:
        raise InvalidInputError(
            f"groups[{name!r}] must be a mapping from arms or a list, got {given!r}."
        )
    for value in values:
        if not isinstance(value, Hashable):
            raise InvalidInputError(f"groups[{name!r}] must be hashable values, got {value!r}.")
    return [None if plain(value) is None else value for value in values]  # nan: a frame's gap


def unit_rows(features: F64) -> F64:
    """Rows of length 1, so that products are cosines; rows of zeros stay and are like nothing."""
    largest = np.abs(features).max(axis=1, initial=0.0, keepdims=True)
    scaled = np.divide(features, largest, out=np.zeros_like(features), where=largest > 0)
    length = np.sqrt((scaled * scaled).sum(axis=1, keepdims=True))
    rows: F64 = np.divide(scaled, length, out=np.zeros_like(scaled), where=length > 0)
    return rows


class Spread:
    """How much each candidate's likeness to items already in a list takes from its score.

    A greedy choice of relevance minus similarity (maximal marginal relevance, Carbonell and
    Goldstein 1998): ``weight`` times the largest cosine between its features and those of an item
    in the list; nothing for the first item, and nothing where the cosine is below 0.
    """

    def __init__(self, weight: float, features: F64) -> None:
        self._weight = weight
        self._rows = unit_rows(features)
        self._most = np.zeros(len(features))

    def apply(self, scores: F64) -> F64:
        """Scores less what likeness takes."""
        less: F64 = scores - self._weight * self._most
        return less

    def least_alike(self, places: I64) -> I64:
        """Of these candidates those that are least like the items in the list."""
        alike = self._most[places]
        least: I64 = places[alike == alike.min()]
        return least

    def take(self, place: int) -> None:
        """Count an item into the list."""
        # multiplied and added up row by row: a matrix product may round otherwise elsewhere
        likeness = (self._rows * self._rows[place]).sum(axis=1)
        np.maximum(self._most, likeness, out=self._most)


def top(
    order: I64,
    scores: F64,
    k: int,
    quotas: Quotas | None,
    spread: Spread | None,
    draw: Callable[[int], Any] | None,
    taken: Sequence[int] = (),
) -> list[int]:
    """Places of a list's items, the top first, each filled with the best that may still join.

    ``order`` has the candidates best first, in which equal ones keep their order; ``draw`` picks
    one of several equal ones, or is None. Those ``taken`` stand in the list already.
    """
    places: list[int] = []
    free = np.ones(len(scores), bool)
    free[list(taken)] = False
    worth = scores
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    while len(places) < k:
        if quotas is not None:
            for place in np.flatnonzero(free).tolist():
                free[place] = quotas.admits(place)
        left = np.flatnonzero(free)
        if not len(left):
            break
        if spread is not None:
            worth = spread.apply(scores)
        equal = left[worth[left] == worth[left].max()]
        if spread is not None and np.isinf(worth[equal[0]]):  # arms never played, of which
            equal = spread.least_alike(equal)  # no likeness takes anything
        if draw is not None and len(equal) > 1:
            place = int(equal[draw(len(equal))])
        else:
            place = int(equal[rank[equal].argmin()])
        places.append(place)
        free[place] = False
        if quotas is not None:
            quotas.take(place)
        if spread is not None:
            spread.take(place)
    return places
