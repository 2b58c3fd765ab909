"""``convert``: HetRec 2011 LastFM 2k as a log, after the paper or after Wu et al. 2018.

What the papers leave open, and why it is chosen as it is, stands in ``docs/lastfm.md``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.logs.columns import Log
from whim.logs.columns import open as open_log
from whim.logs.lastfm_protocols import NEVER, Features, Positives, Settings, prepare
from whim.logs.writer import Writer
from whim.types import I64

ORDERS = ("shuffled", "user", "cluster", "time")
_BLOCK = 4096  # events written at a time


def features(folder: str | os.PathLike[str], **settings: Any) -> Features:
    """The artists, the users and their features, as ``convert`` would write them.

    ``settings`` are those of ``convert`` that say how features are made: ``protocol``,
    ``min_listeners``, ``n_features``, ``n_item_features``, ``n_factors``, ``bandwidth``, ``dense``
    and ``seed``.
    """
    return prepare(Path(folder), Settings(**settings))[0]


def convert(
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    protocol: str = "paper",
    pool_size: int | None = None,
    passes: int | None = None,
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
    r"""Write LastFM as a log in which every reward is known: 1 for the positive, 0 for the rest.

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
        ``None``: 2, or 1 under ``"wu2018"``.
    order
        ``"user"``: one user after the other, so that each new one is a change; ``"paper"`` draws
        the order of users and of each user's records, ``"wu2018"`` goes by user id and time.
        ``"shuffled"``: at random, with nothing that changes. ``"cluster"`` (``"paper"`` only):
        one cluster of users after the other. ``"time"``: by the time of tagging, at random where
        times are equal; ``"paper"`` then drops the records whose artist the user never tagged.
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

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> heard = "1\t7\t90\n1\t8\t40\n2\t7\t15\n2\t9\t33\n3\t8\t60\n3\t9\t21\n"
    >>> tagged = "1\t7\t5\t1\t4\t2009\n1\t8\t6\t1\t4\t2009\n2\t9\t6\t1\t5\t2009\n"
    >>> head = "userID\tartistID\tweight\n"
    >>> _ = (folder / "user_artists.dat").write_text(head + heard)
    >>> head = "userID\tartistID\ttagID\tday\tmonth\tyear\n"
    >>> _ = (folder / "user_taggedartists.dat").write_text(head + tagged)
    >>> log = convert(
    ...     folder, folder / "tiny.whim", min_listeners=2, n_features=2, n_item_features=1,
    ...     n_factors=2,
    ... )
    >>> log.n_events, log.arms, log.logging
    (12, [7, 8, 9], 'full')
    """
    checks.choice("order", order, ORDERS)
    if passes is None:
        passes = 2 if protocol == "paper" else 1
    checks.integer("passes", passes, 1)
    settings = Settings(
        protocol=protocol, min_listeners=min_listeners, n_features=n_features,
        n_item_features=n_item_features, n_factors=n_factors, bandwidth=bandwidth, dense=dense,
        seed=seed,
    )  # fmt: skip
    if protocol == "wu2018" and order == "cluster":
        raise InvalidInputError("order must not be 'cluster' under protocol='wu2018'.")
    features, positives = prepare(Path(folder), settings)
    size = _pool_size(pool_size, protocol, positives.known, len(features.artists))
    rng = np.random.default_rng(seed)
    orders = [_ordered(order, protocol, positives, features.clusters, rng) for _ in range(passes)]
    rows = np.concatenate(orders)
    timed = protocol == "wu2018" or order == "time"
    times = positives.time[rows] if timed else np.arange(len(rows))
    source = {
        "reader": "lastfm", **features.made, "seed": seed,
        "order": order, "passes": passes, "pool_size": size,
        "changes": _changes(order, positives.user[rows], features.clusters),
    }  # fmt: skip
    with Writer(
        path, n_features=features.user_features.shape[1],
        n_item_features=features.item_features.shape[1], logging="full", source=source,
        overwrite=overwrite,
    ) as writer:  # fmt: skip
        writer.drop("never tagged by the user", passes * len(positives.user) - len(rows))
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            _write(writer, features, positives, rows[part], times[part], size, rng)
            if progress is not None:
                progress(len(rows[part]))
    return open_log(path)


def _changes(order: str, user: I64, clusters: I64) -> list[int]:
    """The events, counted from 0, with which another user or cluster begins."""
    if order not in ("user", "cluster"):
        return []
    group = user if order == "user" else clusters[user]
    begins: list[int] = (np.flatnonzero(np.diff(group)) + 1).tolist()
    return begins


def _write(
    writer: Writer,
    features: Features,
    positives: Positives,
    rows: I64,
    time: I64,
    size: int,
    rng: np.random.Generator,
) -> None:
    n, n_artists = len(rows), len(features.artists)
    if size == n_artists:  # one pool for all
        pool, members = np.zeros(n, np.int64), np.arange(n_artists)
        places = positives.artist[rows]
    else:
        pool = np.arange(n)
        drawn, places = _pools(positives, rows, size, n_artists, rng)
        members = drawn.ravel()
    writer.block(
        time=time, context=features.user_features[positives.user[rows]], pool=pool, logged=places,
        reward=np.ones(n), pool_offsets=np.arange(0, len(members) + 1, size), pool_items=members,
        item_arm=features.artists.tolist(), item_features=features.item_features,
    )  # fmt: skip


def _pools(
    positives: Positives, rows: I64, size: int, n_artists: int, rng: np.random.Generator
) -> tuple[I64, I64]:
    """A pool for each event, and where in it the positive stands: anywhere, equally likely."""
    pools = np.empty((len(rows), size), np.int64)
    places = rng.integers(size, size=len(rows))
    others: I64 = np.zeros(0, np.int64)
    last = -1
    for i, (user, artist) in enumerate(
        zip(positives.user[rows].tolist(), positives.artist[rows].tolist(), strict=True)
    ):
        if user != last:
            others, last = np.delete(np.arange(n_artists), positives.known[user]), user
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
    order: str, protocol: str, positives: Positives, clusters: I64, rng: np.random.Generator
) -> I64:
    """The events of one pass, in their order."""
    n = len(positives.user)
    if order == "time":  # dates are mostly those of a month: chance decides within it
        timed = rng.permutation(np.flatnonzero(positives.time != NEVER))
        return timed[np.argsort(positives.time[timed], kind="stable")]
    if order == "user" and protocol == "wu2018":
        return np.arange(n)
    rows = rng.permutation(n)
    if order == "shuffled":
        return rows
    group = positives.user if order == "user" else clusters[positives.user]
    rank = rng.permutation(int(group.max()) + 1)
    return rows[np.argsort(rank[group[rows]], kind="stable")]
