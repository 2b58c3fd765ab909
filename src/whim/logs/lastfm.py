"""``convert``: HetRec 2011 LastFM 2k as a log, after the paper or after Wu et al. 2018.

What the papers leave open, and why it is chosen as it is, stands in ``docs/lastfm.md``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.logs.columns import Log
from whim.logs.columns import open as open_log
from whim.logs.lastfm_features import (
    factorise,
    one_thread,
    reduce_tags,
    soft_membership,
    tag_counts,
)
from whim.logs.lastfm_files import Tagging, read_listening, read_tagging, read_tags
from whim.logs.writer import Writer
from whim.types import F64, I64

__all__ = ["Features", "convert", "features"]

PROTOCOLS = ("paper", "wu2018")
ORDERS = ("shuffled", "user", "cluster", "time")
_BLOCK = 4096  # events written at a time


@dataclass(frozen=True, slots=True)
class Features:
    """What artists and users look like to a policy.

    Attributes
    ----------
    artists, item_features
        Ids in ascending order, and a row of features for each.
    users, user_features
        The same for users.
    clusters
        The K-means cluster of each user; all 0 under ``"wu2018"``, which has none.
    made
        How: the protocol, its parameters and what came of them.
    """

    artists: I64
    item_features: F64
    users: I64
    user_features: F64
    clusters: I64
    made: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Events:
    """The positives; users and artists are rows of the features."""

    user: I64
    artist: I64
    time: I64 | None
    known: list[I64]  # each user's own artists, none of which may be drawn into a pool


def features(
    folder: str | os.PathLike[str],
    *,
    protocol: str = "paper",
    min_listeners: int = 100,
    n_features: int = 10,
    n_item_features: int | None = None,
    n_factors: int = 10,
    bandwidth: float | None = None,
    dense: int = 10,
    seed: int = 0,
) -> Features:
    """The artists, the users and their features, as ``convert`` would write them.

    Parameters
    ----------
    folder
        Where the HetRec files are.
    protocol, min_listeners, n_features, n_item_features, n_factors, bandwidth, dense, seed
        See ``convert``.
    """
    return _prepare(
        Path(folder), protocol, min_listeners, n_features, n_item_features, n_factors,
        bandwidth, dense, seed,
    )[0]  # fmt: skip


def convert(
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    protocol: str = "paper",
    pool_size: int | None = None,
    passes: int = 1,
    order: str = "user",
    min_listeners: int = 100,
    n_features: int = 10,
    n_item_features: int | None = None,
    n_factors: int = 10,
    bandwidth: float | None = None,
    dense: int = 10,
    seed: int = 0,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Log:
    """Write LastFM as a log in which every reward is known: 1 for the positive, 0 for the rest.

    Parameters
    ----------
    folder
        Where the HetRec files are.
    path
        The log to write.
    protocol
        ``"paper"``: a positive is a (user, artist) listening record, contexts are memberships of
        clusters, items the tags of artists. ``"wu2018"``: a positive is a (user, artist, time)
        tagging, the context is the constant 1, items are the words of artists' tags.
    pool_size
        Candidates of an event: the positive, and others drawn from the artists that are none of
        this user's. ``None``: under ``"paper"`` all artists at every event; under ``"wu2018"``
        25.
    passes
        How often all events are gone through, each time with an order and pools of its own.
    order
        ``"user"``: one user after the other, so that each new one is a change; ``"paper"`` draws
        the order of users and of each user's records, ``"wu2018"`` goes by user id and time.
        ``"shuffled"``: at random, with nothing that changes. ``"cluster"`` (``"paper"`` only):
        one cluster of users after the other. ``"time"``: by the time of tagging; ``"paper"``
        then drops the records whose artist the user never tagged.
    min_listeners
        ``"paper"``: an artist must have that many listeners.
    n_features
        ``"paper"``: length d of a context, which is the number of clusters.
    n_item_features
        Length m of an item's features. ``None``: 10, or 25 under ``"wu2018"``.
    n_factors
        ``"paper"``: rank of the factorised listening matrix.
    bandwidth
        ``"paper"``: h of the Gaussian kernel. ``None``: the median distance to a centre.
    dense
        ``"wu2018"``: a user must have that many events.
    seed
        Of the K-means starts, the order and the pools.
    overwrite
        Replace a log that is there already.
    progress
        Called with the number of events just written.

    Notes
    -----
    Under ``"paper"`` the contexts are made, as in the paper, from the very records that the log
    then asks a policy to guess: a user's context has seen the answers. Compare policies on it;
    do not read its click rates as those of new users.
    """
    checks.choice("order", order, ORDERS)
    checks.integer("passes", passes, 1)
    found, events = _prepare(
        Path(folder), protocol, min_listeners, n_features, n_item_features, n_factors,
        bandwidth, dense, seed,
    )  # fmt: skip
    if protocol == "wu2018" and order == "cluster":
        raise InvalidInputError("order must not be 'cluster' under protocol='wu2018'.")
    size = _pool_size(pool_size, protocol, events.known, len(found.artists))
    timed = protocol == "wu2018" or order == "time"
    source = {
        "reader": "lastfm", **found.made, "order": order, "passes": passes, "pool_size": size,
        "seed": seed,
    }  # fmt: skip
    rng = np.random.default_rng(seed)
    with Writer(
        path,
        n_features=found.user_features.shape[1],
        n_item_features=found.item_features.shape[1],
        logging="full",
        source=source,
        overwrite=overwrite,
    ) as writer:
        for _ in range(passes):
            rows = _ordered(order, protocol, events, found.clusters, rng)
            writer.drop("never tagged by the user", len(events.user) - len(rows))
            for start in range(0, len(rows), _BLOCK):
                some = rows[start : start + _BLOCK]
                first = writer.n_events
                if timed and events.time is not None:
                    time = events.time[some]
                else:
                    time = np.arange(first, first + len(some))
                _write(writer, found, events, some, time, size, rng)
                if progress is not None:
                    progress(len(some))
    return open_log(path)


def _write(
    writer: Writer,
    found: Features,
    events: _Events,
    rows: I64,
    time: I64,
    size: int,
    rng: np.random.Generator,
) -> None:
    n, n_artists = len(rows), len(found.artists)
    if size == n_artists:  # one pool for all
        pool, members = np.zeros(n, np.int64), np.arange(n_artists)
        places = events.artist[rows]
    else:
        pool = np.arange(n)
        drawn, places = _pools(events, rows, size, n_artists, rng)
        members = drawn.ravel()
    writer.block(
        time=time,
        context=found.user_features[events.user[rows]],
        pool=pool,
        logged=places,
        reward=np.ones(n),
        pool_offsets=np.arange(0, len(members) + 1, size),
        pool_items=members,
        item_arm=found.artists.tolist(),
        item_features=found.item_features,
    )


def _pools(
    events: _Events, rows: I64, size: int, n_artists: int, rng: np.random.Generator
) -> tuple[I64, I64]:
    """A pool for each event, and where in it the positive stands: anywhere, equally likely."""
    pools = np.empty((len(rows), size), np.int64)
    places = rng.integers(size, size=len(rows))
    others: I64 = np.zeros(0, np.int64)
    last = -1
    for i, (user, artist) in enumerate(
        zip(events.user[rows].tolist(), events.artist[rows].tolist(), strict=True)
    ):
        if user != last:
            others, last = np.delete(np.arange(n_artists), events.known[user]), user
        drawn = others[rng.choice(len(others), size - 1, replace=False)]
        place = places[i]
        pools[i, :place], pools[i, place], pools[i, place + 1 :] = (
            drawn[:place], artist, drawn[place:],
        )  # fmt: skip
    return pools, places


def _pool_size(pool_size: int | None, protocol: str, known: list[I64], n_artists: int) -> int:
    if pool_size is None:
        pool_size = n_artists if protocol == "paper" else 25
    checks.integer("pool_size", pool_size, 2)
    most = n_artists - max(map(len, known)) + 1
    if pool_size > most and pool_size != n_artists:
        raise InvalidInputError(
            f"pool_size must be at most {most}, or {n_artists} for all artists at every event, "
            f"got {pool_size}."
        )
    return pool_size


def _ordered(
    order: str, protocol: str, events: _Events, clusters: I64, rng: np.random.Generator
) -> I64:
    """The events of one pass, in their order."""
    n = len(events.user)
    if order == "time":
        assert events.time is not None
        timed = np.flatnonzero(events.time != _NEVER)
        return timed[np.argsort(events.time[timed], kind="stable")]
    if order == "user" and protocol == "wu2018":
        return np.arange(n)
    rows = rng.permutation(n)
    if order == "shuffled":
        return rows
    group = events.user if order == "user" else clusters[events.user]
    rank = rng.permutation(int(group.max()) + 1)
    return rows[np.argsort(rank[group[rows]], kind="stable")]


_NEVER = np.iinfo(np.int64).min


def _prepare(
    folder: Path,
    protocol: str,
    min_listeners: int,
    n_features: int,
    n_item_features: int | None,
    n_factors: int,
    bandwidth: float | None,
    dense: int,
    seed: int,
) -> tuple[Features, _Events]:
    checks.choice("protocol", protocol, PROTOCOLS)
    checks.integer("min_listeners", min_listeners, 1)
    checks.integer("n_features", n_features, 1)
    m = checks.integer("n_item_features", n_item_features or 0, 0)
    if n_item_features is None:
        m = 10 if protocol == "paper" else 25
    checks.integer("n_item_features", m, 1)
    checks.integer("n_factors", n_factors, 1)
    checks.optional("bandwidth", bandwidth, above=0)
    checks.integer("dense", dense, 1)
    checks.integer("seed", seed, 0)
    with one_thread():
        if protocol == "paper":
            return _paper(folder, min_listeners, n_features, m, n_factors, bandwidth, seed)
        return _wu2018(folder, m, dense, seed)


def _paper(
    folder: Path,
    min_listeners: int,
    n_features: int,
    n_item_features: int,
    n_factors: int,
    bandwidth: float | None,
    seed: int,
) -> tuple[Features, _Events]:
    users, artists = read_listening(folder)
    ids, listeners = np.unique(artists, return_counts=True)
    kept = ids[listeners >= min_listeners]
    if len(kept) < 2:
        raise InvalidInputError(
            f"min_listeners must leave at least 2 artists, got {min_listeners}, "
            f"which leaves {len(kept)}."
        )
    mine = np.isin(artists, kept)
    users, artists = users[mine], artists[mine]
    people, user = np.unique(users, return_inverse=True)
    artist = np.searchsorted(kept, artists)
    tagging = read_tagging(folder)
    counts, terms = tag_counts(kept, tagging.artists, tagging.tags)
    items = reduce_tags(counts, n_item_features, method="pca", seed=seed)
    vectors = factorise(user, artist, n_factors, seed)
    memberships, clusters, width = soft_membership(
        vectors, n_features, bandwidth=bandwidth, seed=seed
    )
    made = {
        "protocol": "paper",
        "min_listeners": min_listeners,
        "items": f"TF-IDF of {len(terms)} tags, PCA to {n_item_features}",
        "contexts": f"truncated SVD of rank {n_factors} of the 0/1 listening matrix, membership "
        f"of {n_features} K-means clusters by a Gaussian kernel",
        "bandwidth": width,
        "times": tagging.file,
    }
    time = _first_tagged(tagging, users, artists)
    found = Features(kept, items, people, memberships, clusters, made)
    return found, _Events(user, artist, time, _by_user(user, artist, len(people)))


def _first_tagged(tagging: Tagging, users: I64, artists: I64) -> I64:
    """When each user first tagged the artist; ``_NEVER`` if never."""
    first: dict[tuple[int, int], int] = {}
    for u, a, t in zip(
        tagging.users.tolist(), tagging.artists.tolist(), tagging.times.tolist(), strict=True
    ):
        first[u, a] = min(t, first.get((u, a), t))
    pairs = zip(users.tolist(), artists.tolist(), strict=True)
    return np.array([first.get(pair, _NEVER) for pair in pairs], np.int64)


def _wu2018(
    folder: Path, n_item_features: int, dense: int, seed: int
) -> tuple[Features, _Events]:
    tagging = read_tagging(folder)
    artists = np.unique(tagging.artists)
    counts, terms = tag_counts(artists, tagging.artists, tagging.tags, read_tags(folder))
    items = reduce_tags(counts, n_item_features, method="svd", seed=seed)
    # several tags given at once are one event
    rows = np.stack([tagging.users, tagging.artists, tagging.times], axis=1)
    rows = rows[np.r_[True, (np.diff(rows, axis=0) != 0).any(axis=1)]]
    ids, user, n_events = np.unique(rows[:, 0], return_inverse=True, return_counts=True)
    people = ids[n_events >= dense]
    if not len(people):
        raise InvalidInputError(
            f"dense must leave at least one user, got {dense}; the busiest has {n_events.max()} "
            "events."
        )
    rows = rows[n_events[user] >= dense]
    rows = rows[np.lexsort((rows[:, 2], rows[:, 0]))]  # ties in the order of the file
    user, artist = np.searchsorted(people, rows[:, 0]), np.searchsorted(artists, rows[:, 1])
    made = {
        "protocol": "wu2018",
        "dense": dense,
        "items": f"TF-IDF of {len(terms)} words of tags, truncated SVD to {n_item_features}",
        "contexts": "the constant 1",
        "times": tagging.file,
    }
    n = len(people)
    found = Features(artists, items, people, np.ones((n, 1)), np.zeros(n, np.int64), made)
    return found, _Events(user, artist, rows[:, 2].copy(), _by_user(user, artist, n))


def _by_user(user: I64, artist: I64, n_users: int) -> list[I64]:
    """The artists of each user."""
    order = np.argsort(user, kind="stable")
    cuts = np.cumsum(np.bincount(user, minlength=n_users))[:-1]
    return [np.unique(part) for part in np.split(artist[order], cuts)]
