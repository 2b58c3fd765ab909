"""``NewsWorld``: a front page with a rotating pool of articles, and its log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.types import F64, I64
from whim.worlds.draws import streams
from whim.worlds.episode import Episode
from whim.worlds.r6a import write_blocks
from whim.worlds.rotation import Rotation, jittered, rotation

CLUSTERS = 5  # of users and of articles; with the constant, d = m = 6
FIRST_ID = 109_417
FIRST_TIME, TICK, TICKS = 1_241_160_900, 300, 2_880  # ten days in steps of five minutes
BLOCK = 50_000  # most events drawn at once


@dataclass(frozen=True, slots=True)
class NewsLog:
    """A log of uniformly shown articles, in columns, with its truth.

    Attributes
    ----------
    contexts
        (n, 6): the constant 1 and the five memberships of each event's user.
    pool_of, offsets, members
        The pool of each event; pool p holds the articles (numbers from 0, by appearance)
        ``members[offsets[p] : offsets[p + 1]]``.
    features
        (K, 6): the articles' constant 1 and memberships.
    logged
        (n,): the place within its pool of the article that was shown.
    clicks
        (n,): 1.0 if it was clicked, else 0.0.
    time
        (n,): seconds since 1970, in steps of 300.
    ids
        (K,): the articles' ids.
    changes
        For each article number, the events after which its appeal is new.
    expected
        (n, W): the click probability of every place, or ``None`` if it was not requested.

    Examples
    --------
    >>> log = NewsWorld(n_arms=30, pool_size=5).columns(events=2_000, seed=0, expected=True)
    >>> log.expected.shape, log.logged[:4], log.clicks.sum()
    ((2000, 5), array([4, 0, 3, 4]), np.float64(73.0))
    """

    contexts: F64
    pool_of: I64
    offsets: I64
    members: I64
    features: F64
    logged: I64
    clicks: F64
    time: I64
    ids: I64
    changes: dict[int, list[int]]
    expected: F64 | None = None


class _Plan(NamedTuple):
    """All that is fixed before the first user comes."""

    rotation: Rotation
    features: F64  # (K, 6)
    changes: dict[int, list[int]]
    rates: list[F64]  # for each article, (its appeals, 5): click rate in each cluster of users


class _Block(NamedTuple):
    """Events in a row with one pool and no change."""

    low: int
    pool: int
    contexts: F64
    expected: F64  # (n, W)
    clicks: F64  # (n, W): what each place would get
    shown: I64  # (n,): a place chosen uniformly


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsWorld:
    """Visits to a front page, shaped like Yahoo's log R6A of May 2009.

    A user is a constant 1 and five memberships that sum to 1, and so is an article (six
    decimals, as in the log's text; rounding may leave 0.999998). Cluster j of users clicks
    article a at a rate g_aj that has two parts: what the article's topics y_a are worth to the
    cluster, the same for all time, and an own part that jumps at the article's change points.
    A user's click probability is the mean of g_aj weighted by the memberships: exactly the
    hybrid payoff x·θ_a(t) + kron(y_a, x)·β, but for the mild decay.

    Articles make room for new ones and do not return. All times are shares of the run, so that a
    short run is the same as a long one, only faster: an article lives ``pool_size / n_arms`` of
    it on average (7.4 % by default).

    Parameters
    ----------
    n_arms
        Articles over the whole run.
    pool_size
        Articles that can be shown at a visit.
    rate
        Click rate of a policy that chooses uniformly.
    changes_per_life
        How often an article's own part jumps during a mean life. In a log of a million events
        an article lives for some 74,000; replay retains one event in ``pool_size``, so that the
        default 3 leaves about 1,200 retained visits, to all articles together, between two
        changes of one.
    own
        Share of the own part in click rates, 0 to 1; the rest is what topics are worth.
    quality
        Spread between articles that all users share: standard deviation of the logarithm in own
        parts, half the range of the logarithm between topics.
    taste
        Spread between clusters of users, in own parts and in what topics are worth (standard
        deviation of the logarithm).
    decay
        Share of its rate that an article loses from arrival to departure, steadily. It is not
        a change point; 0 leaves click rates constant between changes.

    Examples
    --------
    >>> world = NewsWorld(n_arms=30, pool_size=5)
    >>> episode = world.episode(horizon=2_000, seed=0)
    >>> episode.contexts.shape, episode.features.shape, episode.expected.shape
    ((2000, 6), (30, 6), (2000, 5))
    >>> log = world.columns(events=2_000, seed=0)
    >>> log.ids[log.members[:5]], log.time[0], log.clicks.mean()
    (array([109417, 109418, 109419, 109420, 109421]), np.int64(1241160900), np.float64(0.0365))
    """

    n_arms: int = 271
    pool_size: int = 20
    rate: float = 0.035
    changes_per_life: float = 3.0
    own: float = 0.6
    quality: float = 0.4
    taste: float = 0.9
    decay: float = 0.2

    def __post_init__(self) -> None:
        for name, most in (("n_arms", 10**6 - FIRST_ID), ("pool_size", self.n_arms)):
            if checks.integer(name, getattr(self, name), 1) > most:
                raise InvalidInputError(
                    f"{name} must be at most {most}, got {getattr(self, name)}."
                )
        checks.number("rate", self.rate, above=0, most=0.25)
        for name in ("changes_per_life", "quality", "taste"):
            checks.number(name, getattr(self, name), least=0)
        for name in ("own", "decay"):
            checks.number(name, getattr(self, name), least=0, most=1)

    @property
    def n_features(self) -> int:
        """Length of a context: 6."""
        return CLUSTERS + 1

    @property
    def n_item_features(self) -> int:
        """Length of an article's features: 6."""
        return CLUSTERS + 1

    def describe(self) -> dict[str, Any]:
        """The kind of world, its parameters, and one sentence on what it is."""
        what = "Clicks on a front page whose articles come, change at their own times and go."
        return {
            "kind": type(self).__name__,
            **asdict(self),
            "n_features": self.n_features,
            "n_item_features": self.n_item_features,
            "what": what,
        }

    def episode(self, *, horizon: int, seed: int, run: int = 0) -> Episode:
        """One run: the events of ``columns`` of that length, with what every place would get."""
        T = checks.integer("horizon", horizon, 1)
        plan = self._plan(T, seed, run)
        contexts = np.empty((T, self.n_features))
        expected, clicks = np.empty((T, self.pool_size)), np.empty((T, self.pool_size))
        for block in self._blocks(plan, T, seed, run):
            rows = slice(block.low, block.low + len(block.shown))
            contexts[rows] = block.contexts
            expected[rows] = block.expected
            clicks[rows] = block.clicks
        turns = plan.rotation
        return Episode(
            contexts, expected, clicks, plan.changes, plan.features, turns.pool_of(T),
            turns.offsets, turns.pools.ravel(),
        )  # fmt: skip

    def columns(self, *, events: int, seed: int, run: int = 0, expected: bool = False) -> NewsLog:
        """A log of uniformly shown articles as arrays: the events that ``write_r6a`` writes.

        ``expected=True`` adds the click probability of every event and place.
        """
        n = checks.integer("events", events, 1)
        plan = self._plan(n, seed, run)
        contexts, clicks = np.empty((n, self.n_features)), np.empty(n)
        logged = np.empty(n, np.int64)
        truth = np.empty((n, self.pool_size)) if expected else None
        for block in self._blocks(plan, n, seed, run):
            rows = slice(block.low, block.low + len(block.shown))
            contexts[rows] = block.contexts
            logged[rows] = block.shown
            clicks[rows] = block.clicks[np.arange(len(block.shown)), block.shown]
            if truth is not None:
                truth[rows] = block.expected
        turns = plan.rotation
        return NewsLog(
            contexts, turns.pool_of(n), turns.offsets, turns.pools.ravel(), plan.features, logged,
            clicks, _times(0, n, n), FIRST_ID + np.arange(self.n_arms), plan.changes, truth,
        )  # fmt: skip

    def write_r6a(
        self, path: str | Path | Sequence[str | Path], *, events: int, seed: int, run: int = 0
    ) -> dict[int, list[int]]:
        """Write a log in the text format of Yahoo's R6A, and return its change points.

        Parameters
        ----------
        path
            One file, or several among which the events are shared out evenly and in order. A
            name that ends in ``.gz`` is compressed. Nothing is left of a file that could not be
            written to its end.
        events, seed, run
            As for ``columns``, which has the same events and, on request, their truth.

        Returns
        -------
        dict
            For each article id, the events (counted over all files) after which its appeal is new.
        """
        n = checks.integer("events", events, 1)
        paths = [Path(path)] if isinstance(path, (str, Path)) else [Path(p) for p in path]
        if not 1 <= len(paths) <= n:
            raise InvalidInputError(f"path must name 1 to {n} files, got {len(paths)}.")
        plan = self._plan(n, seed, run)
        ids = FIRST_ID + np.arange(self.n_arms)
        blocks = (
            (
                _times(b.low, len(b.shown), n),
                b.shown,
                b.clicks[np.arange(len(b.shown)), b.shown],
                b.contexts,
                plan.rotation.pools[b.pool],
            )
            for b in self._blocks(plan, n, seed, run)
        )
        write_blocks(paths, blocks, ids=ids, features=plan.features, events=n)
        return {int(ids[a]): steps for a, steps in plan.changes.items()}

    def _plan(self, n: int, seed: int, run: int) -> _Plan:
        interest, _, _, item, pool = streams(seed, run)
        K, W = self.n_arms, self.pool_size
        features = _people(item, K)
        arrivals = (jittered(pool, K - W) * n).astype(np.int64).tolist()
        turns = rotation(pool, arrivals, n_arms=K, pool_size=W, horizon=n)
        topical = features[:, 1:] @ self._worth(interest)
        topical /= topical.mean()
        changes, rates = {}, []
        for a in range(K):
            # a stream an article: one more change of one alters no other
            rng = np.random.default_rng([seed, run, 0, a + 1])
            ((low, high),) = turns.stays[a]
            changes[a] = self._change_points(rng, low, high, n)
            drawn = rng.normal(size=(len(changes[a]) + 1, CLUSTERS + 1))
            own = _lognormal(drawn[:, :1], self.quality) * _lognormal(drawn[:, 1:], self.taste)
            rates.append(self.rate * ((1 - self.own) * topical[a] + self.own * own))
        return _Plan(turns, features, changes, rates)

    def _worth(self, rng: np.random.Generator) -> F64:
        """(topics, clusters of users): equal steps between topics, chance between clusters."""
        worth = _lognormal(rng.normal(size=(CLUSTERS, CLUSTERS)), self.taste)
        worth /= worth.mean(axis=1, keepdims=True)
        popular = np.exp(self.quality * np.linspace(-1, 1, CLUSTERS))
        worth *= rng.permutation(popular)[:, None]
        return worth

    def _change_points(self, rng: np.random.Generator, low: int, high: int, n: int) -> list[int]:
        """Steps strictly inside a life, equally far apart, the first at a random time."""
        phase = rng.random()
        if not self.changes_per_life:
            return []
        period = n * self.pool_size / self.n_arms / self.changes_per_life
        steps = low + period * (phase + np.arange((high - low) / period))
        return sorted({int(c) for c in steps if low + 1 <= c < high})

    def _blocks(self, plan: _Plan, n: int, seed: int, run: int) -> Iterator[_Block]:
        _, user, chance, _, _ = streams(seed, run)
        show = np.random.default_rng([seed, run, 5])
        turns, W = plan.rotation, self.pool_size
        bounds = {0, n, *turns.starts.tolist(), *range(0, n, BLOCK)}
        edges = sorted(bounds.union(*plan.changes.values()))
        pool_at = np.searchsorted(turns.starts, edges, side="right") - 1
        for low, high, pool in zip(edges[:-1], edges[1:], pool_at, strict=False):
            arms = turns.pools[pool].tolist()
            rates = np.array([plan.rates[a][bisect_right(plan.changes[a], low)] for a in arms])
            stays = np.array([turns.stays[a][0] for a in arms])
            contexts = _people(user, high - low)
            age = (np.arange(low, high)[:, None] - stays[:, 0]) / (stays[:, 1] - stays[:, 0])
            expected = contexts[:, 1:] @ rates.T * (1 + self.decay * (0.5 - age))
            np.minimum(expected, 1.0, out=expected)
            clicks = (chance.random(expected.shape) < expected).astype(np.float64)
            shown = (show.random(high - low) * W).astype(np.int64)
            yield _Block(low, int(pool), contexts, expected, clicks, shown)


def _people(rng: np.random.Generator, n: int) -> F64:
    """(n, 6): the constant 1, then five memberships with six decimals; most lean to one."""
    share = np.exp(3.0 * rng.normal(size=(n, CLUSTERS)))
    share /= share.sum(axis=1, keepdims=True)
    return np.column_stack([np.ones(n), np.rint(share * 1e6) / 1e6])


def _lognormal(normal: F64, spread: float) -> F64:
    """Positive numbers with mean 1 from standard normal ones."""
    positive: F64 = np.exp(spread * normal - spread**2 / 2)
    return positive


def _times(low: int, count: int, events: int) -> I64:
    """Seconds of events ``low`` onwards, in steps of five minutes over ten days."""
    return FIRST_TIME + TICK * (np.arange(low, low + count) * TICKS // events)
