"""A/A and A/B tests on the page's own claim: simulated spaces, and the page at every look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from whim.serve import wire
from whim.serve.dashboard import views
from whim.serve.dashboard.ranges import ALL, Range, range_of
from whim.serve.dashboard.render import render
from whim.serve.state.engine import Engine
from whim.serve.state.stats import MICRO, Stats

Claims = Callable[[Engine, "Simulated", int], Iterator[tuple[int, int]]]
CLAIMS = ("better, beyond chance", "worse, beyond chance")
KINDS = (
    "clicks",
    "rare clicks",
    "common clicks",
    "daily wave",
    "purchases",
    "ratings",
    "new share",
)
PICKED = 6  # ranges that somebody picks at each look, beside the last hour


class Simulated(NamedTuple):
    """The decisions of a space: whether held back, and the reward of each."""

    kind: str
    held: np.ndarray
    rewards: np.ndarray


def simulated(
    kind: str, decisions: int, rng: np.random.Generator, gain: float = 0.0, holdback: float = 0.1
) -> Simulated:
    """Decisions of which the policy's earn ``gain`` more than the holdback's, relatively."""
    at = np.arange(decisions) / decisions
    share = np.full(decisions, holdback)
    rate = np.full(decisions, {"rare clicks": 0.02, "common clicks": 0.4}.get(kind, 0.1))
    if kind == "daily wave":
        rate = 0.1 + 0.08 * np.sin(40 * at)
    if kind == "new share":  # more is held back in the better times
        share, rate = np.where(at < 0.5, share, 0.5), np.where(at < 0.5, 0.1, 0.3)
    held = rng.random(decisions) < share
    better = np.where(held, 1.0, 1.0 + gain)
    if kind == "ratings":
        return Simulated(kind, held, np.clip(rng.normal(3 * better, 1.0), 1, 5))
    rewards = (rng.random(decisions) < rate * better).astype(float)
    if kind == "purchases":
        rewards *= np.exp(rng.normal(3.0, 1.0, decisions))
    return Simulated(kind, held, rewards)


def spaces(count: int, decisions: int, seed: int = 0) -> Iterator[Simulated]:
    """So many spaces of all kinds in turn, without a difference."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        yield simulated(KINDS[i % len(KINDS)], decisions, rng, holdback=(0.05, 0.2, 0.5)[i % 3])


def take(stats: Stats, space: Simulated, start: int, end: int, second: int) -> None:
    """Close decisions at once, as the engine does."""
    waiting: Any = SimpleNamespace(
        at=0, mode="", count=1, agreed=True, probability=1.0, arm="a"
    )  # fmt: skip
    held, rewards = space.held[start:end].tolist(), space.rewards[start:end].tolist()
    for i, (aside, reward) in enumerate(zip(held, rewards, strict=True), start):
        waiting.at, waiting.mode = second + i * MICRO, "holdback" if aside else "policy"
        stats.decided(waiting.at, waiting.mode, "a")
        stats.closed(waiting.at, waiting, reward, True)


def claims(engine: Engine, space: Simulated, looks: int) -> Iterator[tuple[int, int]]:
    """Look at the page so often: after how many decisions, and what it claims (-1, 0 or 1)."""
    stats = engine.space("s").state.stats = Stats()
    second, before, n = engine.now() - 10**12, 0, len(space.held)
    for end in np.unique(np.geomspace(20, n, looks).astype(int)).tolist():
        take(stats, space, before, end, second)
        before = end
        yield end, _claim(engine)


def range_claims(engine: Engine, space: Simulated, looks: int) -> Iterator[tuple[int, int]]:
    """The same with pages about ranges: the last hour, and ranges from some time to another.

    Looks come at equal distances of time, as of a page that is left open.
    """
    stats = engine.space("s").state.stats = Stats()
    second, before, n = engine.now() - 10**12, 0, len(space.held)
    rng = np.random.default_rng(n)
    for end in np.linspace(n // looks, n, looks).astype(int).tolist():
        take(stats, space, before, end, second)
        before, now = end, second + end * MICRO
        ends = np.sort(rng.integers(second, now, (PICKED, 2))).tolist()
        ends += [(since, None) for since, _ in ends[::2]]  # some go on until now
        for query in ({"range": "hour"}, *({"from": _iso(a), "to": _iso(b)} for a, b in ends)):
            yield end, _claim(engine, range_of(query, now))


def _iso(at: int | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at / MICRO, UTC).isoformat()


def _claim(engine: Engine, during: Range = ALL) -> int:
    """What the page claims: -1, 0 or 1."""
    text = render(
        "_summary.html", space=views.summary(engine, "s", during), example={}, **views.shell(engine)
    )  # fmt: skip
    return int(CLAIMS[0] in text) - int(CLAIMS[1] in text)


def opened(folder: Path) -> Engine:
    """An engine with a space to put simulated counts in."""
    engine = Engine(folder / "data")
    config = wire.SpaceConfig(policy="ucb", context=wire.Features(size=0), holdback=0.1)
    engine.create("s", config)
    return engine


def false_claims(folder: Path, every: Iterator[Simulated], looks: int) -> int:
    """In how many of these spaces the page ever claims a difference."""
    engine = opened(folder)
    try:
        return sum(any(claim for _, claim in claims(engine, one, looks)) for one in every)
    finally:
        engine.close()
