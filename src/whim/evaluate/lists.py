"""Policies in worlds of lists: what they show, what they lose, and the changes that they report."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim.evaluate.follow import Follower
from whim.kernels.lists import ListBatch
from whim.policies import Policy
from whim.policies.base.lists import FEEDBACK
from whim.policies.run_lists import ListOutcome
from whim.types import F64, I64
from whim.worlds import ListEpisode


class Shown(NamedTuple):
    """A policy over an episode of lists: what happened, and the expected reward lost per visit.

    ``arms`` has the arm of each item (-1: none), as ``outcome.chosen`` has its place.
    """

    outcome: ListOutcome
    lost: F64
    arms: I64


def follow_lists(
    policy: Policy,
    episode: ListEpisode,
    *,
    feedback: str | None = None,
    depth: int | None = None,
    examine: F64 | None = None,
) -> Shown:
    """A policy's lists and reports over an episode, in compiled loops.

    Parameters
    ----------
    policy
        With no arms yet, or with those of the episode. An ``OracleRestart`` takes the steps of its
        changes for visits.
    feedback
        How it learns (``Policy.update_list``); by default as the users are.
    depth
        Learn from so many items of a list at most, from the top; 1 is a page that logs only its
        first item.
    examine
        Chances of being seen that it believes in, for ``"positions"``; by default the true ones.

    Examples
    --------
    >>> import whim
    >>> world = whim.worlds.ListWorld(world=whim.worlds.ReversingLinear(n_arms=6), k=2)
    >>> shown = follow_lists(whim.LinUCBDisjoint(n_features=5), world.episode(horizon=50, seed=0))
    >>> shown.arms.shape, shown.lost.shape
    ((50, 2), (50,))
    """
    items = episode.items
    T, k = episode.seen.shape
    n_arms = len(items.features) or int(items.members.max()) + 1
    believed = episode.examine if examine is None else np.broadcast_to(examine, (T, k))
    batch = ListBatch(
        k, FEEDBACK[episode.users], FEEDBACK[feedback or episode.users], depth or k,
        items.contexts, items.pool_of, items.offsets, items.members,
        np.nan_to_num(items.rewards), episode.seen, np.ascontiguousarray(believed),
    )  # fmt: skip
    follower = Follower(policy, range(n_arms), np.arange(n_arms), items.features)
    outcome = follower.go_lists(batch)
    first = items.offsets[items.pool_of][:, None]
    arms = np.where(outcome.chosen < 0, -1, items.members[first + np.maximum(outcome.chosen, 0)])
    return Shown(outcome, episode.best - episode.values(outcome.chosen), arms)
