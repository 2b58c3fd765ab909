"""The two protocols of LastFM logs: which artists, users and positives there are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.logs.lastfm_features import (
    factorise,
    one_thread,
    reduce_tags,
    soft_membership,
    tag_counts,
)
from whim.logs.lastfm_files import Tagging, read_listening, read_tagging, read_tags
from whim.types import F64, I64

PROTOCOLS = ("paper", "wu2018")
NEVER = np.iinfo(np.int64).min  # the time of a positive that has none


@dataclass(frozen=True, slots=True)
class Features:
    """What artists and users look like to a policy: ids in ascending order, a row for each."""

    artists: I64
    item_features: F64
    users: I64
    user_features: F64
    clusters: I64  # of each user, by k-means; all 0 under "wu2018", which has none
    made: dict[str, Any]  # how: the protocol, its parameters and what came of them


@dataclass(frozen=True, slots=True)
class Positives:
    """One entry per positive; users and artists are rows of the features.

    ``known`` holds each user's artists, none of which may be drawn into a pool.
    """

    user: I64
    artist: I64
    time: I64
    known: list[I64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The parameters of ``lastfm.convert`` that decide about features, checked."""

    protocol: str = "paper"
    min_listeners: int = 100
    n_features: int = 10
    n_item_features: int | None = None
    n_factors: int = 10
    bandwidth: float | None = None
    dense: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        checks.choice("protocol", self.protocol, PROTOCOLS)
        for name in ("min_listeners", "n_features", "n_factors", "dense"):
            checks.integer(name, getattr(self, name), 1)
        if self.n_item_features is not None:
            checks.integer("n_item_features", self.n_item_features, 1)
        checks.optional("bandwidth", self.bandwidth, above=0)
        checks.integer("seed", self.seed, 0)

    @property
    def item_length(self) -> int:
        """``n_item_features``, or the protocol's own."""
        return self.n_item_features or (10 if self.protocol == "paper" else 25)


def prepare(folder: Path, settings: Settings) -> tuple[Features, Positives]:
    """Read the files; choose artists and users; make the features."""
    with one_thread():
        if settings.protocol == "paper":
            return _paper(folder, settings)
        return _wu2018(folder, settings)


def _paper(folder: Path, settings: Settings) -> tuple[Features, Positives]:
    users, artists = read_listening(folder)
    ids, listeners = np.unique(artists, return_counts=True)
    kept = ids[listeners >= settings.min_listeners]
    if len(kept) < 2:
        raise InvalidInputError(
            f"min_listeners must leave at least 2 artists, got {settings.min_listeners}, "
            f"which leaves {len(kept)}."
        )
    mine = np.isin(artists, kept)
    users, artists = users[mine], artists[mine]
    people, user = np.unique(users, return_inverse=True)
    artist = np.searchsorted(kept, artists)
    tagging = read_tagging(folder)
    counts, terms = tag_counts(kept, tagging.artists, tagging.tags)
    items = reduce_tags(counts, settings.item_length, method="pca", seed=settings.seed)
    memberships, clusters, bandwidth = soft_membership(
        factorise(user, artist, settings.n_factors, settings.seed),
        settings.n_features,
        bandwidth=settings.bandwidth,
        seed=settings.seed,
    )
    made = {
        "protocol": "paper",
        "min_listeners": settings.min_listeners,
        "items": f"TF-IDF of {len(terms)} tags, PCA to {settings.item_length}",
        "contexts": f"truncated SVD of rank {settings.n_factors} of the 0/1 listening matrix, "
        f"membership of {settings.n_features} K-means clusters by a Gaussian kernel",
        "bandwidth": bandwidth,
        "times": tagging.file,
    }
    time = _first_tagged(tagging, users, artists)
    features = Features(kept, items, people, memberships, clusters, made)
    return features, Positives(user, artist, time, _by_user(user, artist))


def _first_tagged(tagging: Tagging, users: I64, artists: I64) -> I64:
    """When each user first tagged the artist, or ``NEVER``."""
    first: dict[tuple[int, int], int] = {}
    rows = (tagging.users.tolist(), tagging.artists.tolist(), tagging.times.tolist())
    for user, artist, time in zip(*rows, strict=True):
        first[user, artist] = min(time, first.get((user, artist), time))
    pairs = zip(users.tolist(), artists.tolist(), strict=True)
    return np.array([first.get(pair, NEVER) for pair in pairs], np.int64)


def _wu2018(folder: Path, settings: Settings) -> tuple[Features, Positives]:
    tagging = read_tagging(folder)
    # several tags given at once are one event
    rows = np.stack([tagging.users, tagging.artists, tagging.times], axis=1)
    rows = rows[np.r_[True, (np.diff(rows, axis=0) != 0).any(axis=1)]]
    ids, user, n_events = np.unique(rows[:, 0], return_inverse=True, return_counts=True)
    people = ids[n_events >= settings.dense]
    if not len(people):
        raise InvalidInputError(
            f"dense must be at most {n_events.max()}, the events of the busiest user, "
            f"got {settings.dense}."
        )
    rows = rows[n_events[user] >= settings.dense]
    rows = rows[np.lexsort((rows[:, 2], rows[:, 0]))]  # ties stay in the order of the file
    artists = np.unique(tagging.artists)
    counts, terms = tag_counts(artists, tagging.artists, tagging.tags, read_tags(folder))
    items = reduce_tags(counts, settings.item_length, method="svd", seed=settings.seed)
    user, artist = np.searchsorted(people, rows[:, 0]), np.searchsorted(artists, rows[:, 1])
    made = {
        "protocol": "wu2018",
        "dense": settings.dense,
        "items": f"TF-IDF of {len(terms)} words of tags, truncated SVD to {settings.item_length}",
        "contexts": "the constant 1",
        "times": tagging.file,
    }
    n = len(people)
    features = Features(artists, items, people, np.ones((n, 1)), np.zeros(n, np.int64), made)
    return features, Positives(user, artist, rows[:, 2].copy(), _by_user(user, artist))


def _by_user(user: I64, artist: I64) -> list[I64]:
    """The artists of each user."""
    order = np.argsort(user, kind="stable")
    cuts = np.cumsum(np.bincount(user))[:-1]
    return [np.unique(part) for part in np.split(artist[order], cuts)]
