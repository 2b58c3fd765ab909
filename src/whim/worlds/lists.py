"""``ListWorld``: any world, whose users are shown a list and look at some of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.types import F64, I64
from whim.worlds.draws import streams
from whim.worlds.episode import Episode, World

USERS = ("semi", "cascade", "positions")
_STREAM = 7  # of who looks where, apart from those of worlds


@dataclass(frozen=True)
class ListEpisode:
    """One run of a world of lists: an ``Episode`` and who looks at what.

    Attributes
    ----------
    items
        Contexts, pools, changes, and the reward of each place if it is seen.
    k, users
        See ``ListWorld``.
    examine
        (T, k): the chance that item j of the list is looked at.
    seen
        (T, k): whether it is looked at, 0 or 1; used for ``users="positions"``.
    examine_changes
        The steps after which chances are new.
    """

    items: Episode
    k: int
    users: str
    examine: F64
    seen: F64
    examine_changes: list[int]

    @property
    def contexts(self) -> F64:
        return self.items.contexts

    @property
    def changes(self) -> dict[int, list[int]]:
        return self.items.changes

    @property
    def features(self) -> F64:
        return self.items.features

    def values(self, chosen: I64) -> F64:
        """(T,): the expected reward of lists; places beyond a list's end are -1.

        That of a user who stops at the first click is the chance of a click.
        """
        expected = np.take_along_axis(self.items.expected, np.maximum(chosen, 0), axis=1)
        return self._worth(np.where(chosen < 0, 0.0, expected))

    @cached_property
    def best(self) -> F64:
        """(T,): the expected reward of the best list: the k largest, the best where most look."""
        filled = np.where(np.isnan(self.items.expected), -np.inf, self.items.expected)
        largest = -np.sort(-filled, axis=1)[:, : self.k]
        largest = np.where(np.isinf(largest), 0.0, largest)
        if largest.shape[1] < self.k:
            largest = np.pad(largest, ((0, 0), (0, self.k - largest.shape[1])))
        if self.users == "positions":  # the likeliest place gets the best item, wherever it is
            short = np.arange(self.k) >= np.isfinite(filled).sum(axis=1)[:, None]
            looked = np.where(short, -1.0, self.examine)  # a place that a small pool leaves empty
            rank = np.argsort(np.argsort(-looked, axis=1, kind="stable"), axis=1)
            largest = np.take_along_axis(largest, rank, axis=1)
        return self._worth(largest)

    def _worth(self, expected: F64) -> F64:
        worth: F64
        if self.users == "cascade":
            worth = 1.0 - np.prod(1.0 - expected, axis=1)
        elif self.users == "positions":
            worth = (self.examine * expected).sum(axis=1)
        else:
            worth = expected.sum(axis=1)
        return worth


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWorld:
    """Lists of k in a world that exists; its arms change as they do there.

    Parameters
    ----------
    world
        Users, pools, rewards and changes.
    k
        Items of a list.
    users
        ``"semi"``: they look at every item; a list's reward is the sum. ``"cascade"``: they scan
        from the top and stop at the first click, so that a list is worth the chance of one; the
        world's rewards must be clicks. ``"positions"``: they look at item j with the chance
        ``examine[j]``, whatever else is shown.
    examine
        For ``"positions"``: k chances, the top first; or several rows of them, each for an equal
        part of the run, so that where people look changes. By default 1, 1/2, …, 1/k.

    Examples
    --------
    >>> from whim.worlds.reversing import ReversingLinear
    >>> world = ListWorld(world=ReversingLinear(n_arms=8), k=3)
    >>> episode = world.episode(horizon=100, seed=0)
    >>> top = np.argsort(-episode.items.expected, axis=1)[:, :3]
    >>> bool(np.allclose(episode.values(top), episode.best))
    True
    """

    world: World
    k: int = 5
    users: str = "cascade"
    examine: Any = None

    def __post_init__(self) -> None:
        checks.integer("k", self.k, 1)
        checks.choice("users", self.users, USERS)
        if self.examine is not None and self.users != "positions":
            raise InvalidInputError(f"examine must be None for users={self.users!r}.")
        self._chances()

    def _chances(self) -> F64:
        """A row of chances for each part of a run."""
        if self.users != "positions":
            return np.ones((1, self.k))
        if self.examine is None:
            return 1.0 / np.arange(1.0, self.k + 1)[None]
        rows = checks.matrix("examine", np.atleast_2d(self.examine), None, self.k)
        if not ((rows >= 0) & (rows <= 1)).all() or not len(rows):
            raise InvalidInputError(f"examine must be chances from 0 to 1, got {self.examine!r}.")
        return rows

    @property
    def n_arms(self) -> int:
        return self.world.n_arms

    @property
    def n_features(self) -> int:
        return self.world.n_features

    @property
    def n_item_features(self) -> int:
        return self.world.n_item_features

    def describe(self) -> dict[str, Any]:
        """The kind of world, its parameters, and one sentence on what it is."""
        looks = {
            "semi": "who look at every item",
            "cascade": "who scan from the top and stop at the first click",
            "positions": "who look at an item with a chance that depends on its position",
        }[self.users]
        rows = self._chances().tolist() if self.users == "positions" else None
        inner = self.world.describe()
        return {
            "kind": type(self).__name__, "world": inner, "k": self.k, "users": self.users,
            "examine": rows, "what": f"{inner['what']} Lists of {self.k} for users {looks}.",
        }  # fmt: skip

    def episode(self, *, horizon: int, seed: int, run: int = 0) -> ListEpisode:
        """One run; the world's own streams stay as they are without lists."""
        items = self.world.episode(horizon=horizon, seed=seed, run=run)
        if self.users == "cascade" and not np.isin(items.rewards, (0.0, 1.0)).all(
            where=~np.isnan(items.rewards)
        ):
            raise InvalidInputError(
                "world must have clicks for users='cascade' (rewards='bernoulli'), "
                f"got {self.world!r}."
            )
        rows, T = self._chances(), len(items.contexts)
        part = np.arange(T) * len(rows) // T
        examine = rows[part]
        streams(seed, run)  # checks both
        drawn = np.random.default_rng([seed, run, _STREAM]).random((T, self.k))
        changes = (np.flatnonzero(np.diff(part)) + 1).tolist()
        seen = (drawn < examine).astype(np.float64)
        return ListEpisode(items, self.k, self.users, examine, seen, changes)
