"""Is replay right? Worlds whose answer is known exactly, and many logs of each.

The quick test runs these with few logs, ``tests/slow/replay_agrees.py`` with many.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import whim
from whim.evaluate.simulate import play
from whim.worlds import Episode, NewsWorld, PiecewiseLinear, World

__all__ = ["Coverage", "Fixed", "Paired", "coverage", "news_pairs", "online_pairs", "slower_clock"]

F64 = npt.NDArray[np.float64]
TYPES, ARMS = 6, 4  # kinds of users, who come equally often


class Fixed(whim.Policy):
    """Arm ``plan[u]`` for a user of kind u (contexts are unit vectors); learns nothing."""

    name = "fixed"

    def __init__(self, *, plan: tuple[int, ...], seed: int = 0, ties: str = "first") -> None:
        super().__init__(n_features=len(plan), seed=seed, ties=ties)

    def _score(self, x: F64, slots: Any, cross: Any, noise: Any) -> int:
        wanted = self._params["plan"][int(x.argmax())]
        return [self._table.id_of[slot] for slot in slots].index(wanted)

    def _observe(self, slot: int, x: F64, cross: Any, reward: float) -> int:
        return 0


class Coverage(NamedTuple):
    """Of each estimate over many logs: share of intervals that hold the truth, mean, variance."""

    truth: float
    logs: int
    share: dict[str, float]
    mean: dict[str, float]
    variance: dict[str, float]

    def off(self, name: str) -> float:
        """The mean's distance from the truth in standard errors."""
        return abs(self.mean[name] - self.truth) / math.sqrt(self.variance[name] / self.logs)

    @property
    def slack(self) -> float:
        """Four standard errors of a share that is 0.95."""
        return 4 * math.sqrt(0.95 * 0.05 / self.logs)


def coverage(folder: Path, *, scheme: str, logs: int, events: int, seed: int = 0) -> Coverage:
    """Replay ``logs`` logs of one world with a fixed policy whose value is known exactly."""
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0.1, 0.9, size=(TYPES, ARMS))
    plan = rng.integers(ARMS, size=TYPES)
    truth = float(rates[np.arange(TYPES), plan].mean())
    shares = np.full((TYPES, ARMS), 1 / ARMS)
    if scheme == "propensity":
        shares = 0.3 / ARMS + 0.7 * rng.dirichlet(np.ones(ARMS), size=TYPES)
    policy = Fixed(plan=tuple(plan.tolist()))
    found: dict[str, list[tuple[float, float, float]]] = {}
    for _ in range(logs):
        kinds = rng.integers(TYPES, size=events)
        shown = (shares[kinds].cumsum(1) < rng.random((events, 1))).sum(1).clip(max=ARMS - 1)
        with whim.logs.Writer(
            folder / "log.whim", n_features=TYPES, logging=scheme, overwrite=True,
            propensities=scheme == "propensity",
        ) as w:  # fmt: skip
            w.block(
                time=np.arange(events), context=np.eye(TYPES)[kinds],
                pool=np.zeros(events, np.int64), logged=shown,
                reward=(rng.random(events) < rates[kinds, shown]).astype(np.float64),
                pool_offsets=np.array([0, ARMS]), pool_items=np.arange(ARMS),
                item_arm=list(range(ARMS)),
                propensity=shares[kinds, shown] if scheme == "propensity" else None,
            )  # fmt: skip
        floor = float(shares.min()) if scheme == "propensity" else None
        result = whim.replay(folder / "log.whim", {"fixed": policy}, floor=floor)
        [run] = result.runs["fixed"]
        for name, interval in {"rate": run.interval, **run.estimates()}.items():
            found.setdefault(name, []).append(interval)
    values = {name: np.array(each) for name, each in found.items()}
    return Coverage(
        truth,
        logs,
        {n: float(((v[:, 1] <= truth) & (truth <= v[:, 2])).mean()) for n, v in values.items()},
        {n: float(v[:, 0].mean()) for n, v in values.items()},
        {n: float(v[:, 0].var(ddof=1)) for n, v in values.items()},
    )


class Paired(NamedTuple):
    """Replay's rate and the online rate, one pair a world."""

    replayed: F64
    online: F64

    @property
    def difference(self) -> float:
        return float((self.replayed - self.online).mean())

    @property
    def error(self) -> float:
        """Standard error of ``difference``."""
        gaps = self.replayed - self.online
        return float(gaps.std(ddof=1) / math.sqrt(len(gaps)))


def _part(episode: Episode, low: int, high: int) -> Episode:
    """Steps ``low`` to ``high`` of an episode."""
    cut = slice(low, high)
    return Episode(
        episode.contexts[cut], episode.expected[cut], episode.rewards[cut], {}, episode.features,
        episode.pool_of[cut], episode.offsets, episode.members,
    )  # fmt: skip


def _logged(folder: Path, episode: Episode, rng: np.random.Generator) -> whim.logs.Log:
    """The episode as a log of uniformly shown arms."""
    n = len(episode.contexts)
    sizes = np.diff(episode.offsets)[episode.pool_of]
    shown = (rng.random(n) * sizes).astype(np.int64)
    m = episode.features.shape[1]
    arms = int(episode.members.max()) + 1
    with whim.logs.Writer(
        folder / "log.whim", n_features=episode.contexts.shape[1], n_item_features=m,
        logging="uniform", overwrite=True,
    ) as w:  # fmt: skip
        w.block(
            time=np.arange(n), context=episode.contexts, pool=episode.pool_of, logged=shown,
            reward=episode.rewards[np.arange(n), shown], pool_offsets=episode.offsets,
            pool_items=episode.members, item_arm=list(range(arms)),
            item_features=episode.features if m else None,
        )  # fmt: skip
    return whim.logs.open(folder / "log.whim")


def _rate(log: whim.logs.Log, policy: whim.Policy) -> tuple[float, int]:
    [run] = whim.replay(log, {"it": policy}).runs["it"]
    return run.rate, run.matched


def _fresh(policy: whim.Policy) -> whim.Policy:
    return whim.policies.from_bytes(policy.to_bytes())


def online_pairs(
    folder: Path, policy: whim.Policy, *, worlds: int, events: int, arms: int = 5
) -> Paired:
    """Interests that never change: replay half an episode, be online for as long in the other.

    The two halves are of one kind and have no event in common; the online half is cut to as many
    steps as replay retained, since a learner's rate depends on how long it learns.
    """
    world = PiecewiseLinear(
        n_arms=arms, n_features=3, period=None, rewards="bernoulli", rate=0.3, law="sphere"
    )
    return _halves(folder, world, policy, worlds, events)


def news_pairs(folder: Path, policy: whim.Policy, *, worlds: int, events: int) -> Paired:
    """A front page that never changes: all articles there all the time, no decay."""
    world = NewsWorld(n_arms=6, pool_size=6, rate=0.1, changes_per_life=0, decay=0)
    return _halves(folder, world, policy, worlds, events)


def _halves(folder: Path, world: World, policy: whim.Policy, worlds: int, events: int) -> Paired:
    pairs = []
    for seed in range(worlds):
        episode = world.episode(horizon=2 * events, seed=seed)
        log = _logged(folder, _part(episode, 0, events), np.random.default_rng([seed, 9]))
        rate, matched = _rate(log, policy)
        _, online, _ = play(_fresh(policy), _part(episode, events, events + matched))
        pairs.append((rate, online))
    return Paired(*np.array(pairs).T)


def slower_clock(
    folder: Path, policy: whim.Policy, *, worlds: int, events: int, period: int, arms: int = 5
) -> tuple[Paired, Paired]:
    """Interests that change: replay against being online in the very events, and K times faster.

    Replay retains one event in K, so the world moves K times as fast for the policy. The first
    pair sets it beside the whole episode online, where it must do worse; the second beside an
    online world whose period is that much shorter, where it should do about the same.
    """

    def world(period: int) -> PiecewiseLinear:
        return PiecewiseLinear(
            n_arms=arms, n_features=3, period=period, rewards="bernoulli", rate=0.3, law="sphere"
        )

    same, scaled = [], []
    for seed in range(worlds):
        episode = world(period * arms).episode(horizon=events, seed=seed)
        rate, matched = _rate(_logged(folder, episode, np.random.default_rng([seed, 9])), policy)
        same.append((rate, play(_fresh(policy), episode)[1]))
        faster = world(period).episode(horizon=matched, seed=seed)
        scaled.append((rate, play(_fresh(policy), faster)[1]))
    return Paired(*np.array(same).T), Paired(*np.array(scaled).T)
