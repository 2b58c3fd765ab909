"""MovieLens: ratings in order of time, each liked movie among others that the user never rated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from whim.checks import integer, number
from whim.errors import LogFileError
from whim.logs.columns import Log, open
from whim.logs.frames import columns_of, guarded, numbers, scan
from whim.logs.sources import Progress, Source, no_events
from whim.logs.writer import Writer
from whim.types import F64, I64

_ROWS = 8192  # events written at a time
_NONE = "(no genres listed)"


def convert(
    source: Source,
    path: Source,
    *,
    n_others: int = 24,
    liked: float = 4.0,
    min_ratings: int = 1,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Log:
    """Read ``ratings.csv`` and ``movies.csv`` of a folder into a log with ``"full"`` rewards.

    An event is a rating of at least ``liked``, in order of time: the movie has reward 1, and
    ``n_others`` movies that this user rated nowhere in the file have 0; their order is drawn.
    An item's features are a constant and its genres, divided by their number. A context is a
    constant and the mean of the genres of what the user liked at an *earlier* second: nothing of
    the future, nor of the same second, in which MovieLens users rate many.

    Parameters
    ----------
    n_others
        Movies in a pool beside the liked one.
    min_ratings
        Leave out movies with fewer ratings.
    seed
        Of the others and of the order of pools.
    """
    integer("n_others", n_others, 1)
    number("liked", liked)
    integer("min_ratings", min_ratings, 1)
    integer("seed", seed, 0)
    folder = Path(source)
    movies, genres, names = _movies(folder / "movies.csv")
    user, movie, rating, time, bad = _ratings(folder / "ratings.csv")
    unknown = ~np.isin(movie, movies)
    place = np.searchsorted(movies, np.where(unknown, movies[0], movie))
    plays = np.bincount(place[~unknown], minlength=len(movies))
    stock = np.flatnonzero(plays >= min_ratings)
    rare = ~unknown & (plays[place] < min_ratings)
    options = {"n_others": n_others, "liked": liked, "min_ratings": min_ratings, "seed": seed}
    files = ["ratings.csv", "movies.csv"]
    with Writer(
        path, n_features=len(names), n_item_features=len(names), logging="full",
        source={"reader": "movielens", "files": files, "options": options}, context_names=names,
        item_names=names, overwrite=overwrite,
    ) as writer:  # fmt: skip
        writer.read = len(movie) + bad
        writer.drop("row not readable", bad)
        writer.drop("movie not in movies.csv", int(unknown.sum()))
        writer.drop(f"movie with fewer than {min_ratings} ratings", int(rare.sum()))
        writer.drop(f"rating below {liked:g}", int((~unknown & ~rare & (rating < liked)).sum()))
        usable = ~unknown & ~rare
        _events(
            writer, user[usable], place[usable], rating[usable] >= liked, time[usable], movies,
            genres, stock, n_others, np.random.default_rng(seed),
        )  # fmt: skip
        if not writer.n_events:
            raise no_events([folder], writer.dropped, "there are no ratings")
        if progress is not None:
            progress(sum((folder / file).stat().st_size for file in files))
    return open(path)


def _movies(file: Path) -> tuple[I64, F64, list[str]]:
    """Ids in order, a row of features each, and the features' names."""
    lazy = scan(file, "csv")
    if not {"movieId", "genres"} <= set(columns_of(lazy, file)):
        raise LogFileError(f"{file} is not MovieLens': it has no columns movieId and genres.")
    frame = guarded(file, lambda: lazy.select("movieId", "genres").collect())
    ids = numbers(frame, ["movieId"])[:, 0]
    if not len(ids) or np.isnan(ids).any() or len(np.unique(ids)) < len(ids):
        raise LogFileError(f"{file}: movieId must hold different numbers, at least one.")
    lists = [(cell or "").split("|") for cell in frame["genres"].to_list()]
    every = sorted({genre for each in lists for genre in each} - {_NONE, ""})
    rows = np.zeros((len(ids), 1 + len(every)))
    rows[:, 0] = 1.0
    for row, each in zip(rows, lists, strict=True):
        known = [every.index(genre) for genre in each if genre in every]
        row[[1 + k for k in known]] = 1 / max(len(known), 1)
    order = np.argsort(ids)
    return ids[order].astype(np.int64), rows[order], ["constant", *every]


def _ratings(file: Path) -> tuple[I64, I64, F64, I64, int]:
    """User, movie, rating and time in order of time, and how many rows were not readable."""
    names = ["userId", "movieId", "rating", "timestamp"]
    lazy = scan(file, "csv")
    if not set(names) <= set(columns_of(lazy, file)):
        raise LogFileError(f"{file} is not MovieLens': it must have {', '.join(names)}.")
    cells = numbers(guarded(file, lambda: lazy.select(names).collect()), names)
    fine = (np.abs(cells) < 2**53).all(axis=1)
    cells = cells[fine]
    user, movie, time = (cells[:, k].astype(np.int64) for k in (0, 1, 3))
    order = np.lexsort((movie, user, time))
    return user[order], movie[order], cells[order, 2], time[order], int((~fine).sum())


def _events(
    writer: Writer, user: I64, place: I64, good: Any, time: I64, movies: I64, genres: F64,
    stock: I64, n_others: int, rng: np.random.Generator,
) -> None:  # fmt: skip
    rated: dict[int, set[int]] = {}
    for u, p in zip(user.tolist(), place.tolist(), strict=True):
        rated.setdefault(u, set()).add(p)
    d = genres.shape[1]
    past: dict[int, tuple[F64, int]] = {}
    rows: list[Any] = []
    pending: list[tuple[int, int]] = []  # liked in this very second
    now = None
    for u, p, liked, when in zip(
        user.tolist(), place.tolist(), good.tolist(), time.tolist(), strict=True
    ):
        if when != now:
            for who, what in pending:
                total, n = past.get(who, (np.zeros(d), 0))
                past[who] = total + genres[what], n + 1
            pending, now = [], when
        if not liked:
            continue
        pending.append((u, p))
        others = _others(rng, stock, rated[u], n_others)
        if len(others) < n_others:
            writer.drop("too few movies that the user never rated")
            continue
        total, n = past.get(u, (np.zeros(d), 0))
        x = total / max(n, 1)
        x[0] = 1.0
        pool = rng.permutation(np.array([p, *others]))
        rows.append((when, x, pool, int(np.flatnonzero(pool == p)[0])))
        if len(rows) == _ROWS:
            _write(writer, rows, movies, genres)
            rows = []
    _write(writer, rows, movies, genres)


def _write(writer: Writer, rows: list[Any], movies: I64, genres: F64) -> None:
    if not rows:
        return
    times, contexts, pools, places = zip(*rows, strict=True)
    writer.block(
        time=np.array(times), context=np.array(contexts), pool=np.arange(len(rows)),
        logged=np.array(places), reward=np.ones(len(rows)),
        pool_offsets=np.arange(len(rows) + 1) * len(pools[0]), pool_items=np.concatenate(pools),
        item_arm=movies.tolist(), item_features=genres,
    )  # fmt: skip


def _others(rng: np.random.Generator, stock: I64, rated: set[int], n: int) -> list[int]:
    """Different movies that are not rated, drawn evenly; fewer if there are too few."""
    if len(stock) < 2 * (len(rated) + n):
        free = np.array(sorted(set(stock.tolist()) - rated), np.int64)
        drawn: list[int] = rng.permutation(free)[:n].tolist()
        return drawn
    others: dict[int, None] = {}
    while len(others) < n:
        for k in stock[rng.integers(len(stock), size=2 * n)].tolist():
            if k not in rated and len(others) < n:
                others[k] = None
    return list(others)
