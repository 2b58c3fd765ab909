"""Logs that policies of the service make of a world whose answer is known: intervals hold it.

The quick test runs this for a few policies, ``tests/slow/served_estimates.py`` for all of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from whim.evaluate import ReplayRun
from whim.evaluate.estimates import CERTAIN
from whim.serve import wire
from whim.serve.state.space import DecisionRequest, Space
from whim.serve.state.space_state import SpaceState

__all__ = ["CONFIGS", "TRUTH", "Held", "held"]

RATES = {"a": (0.2, 0.5), "b": (0.3, 0.5), "c": (0.5, 0.1)}  # for each kind of user
TRUTH = {"ips": 0.4, "snips": 0.4}  # of showing b to everyone; both kinds come equally often
PLAIN: dict[str, Any] = {"context": wire.Features(size=2)}
ITEMS: dict[str, Any] = {"context": wire.Features(size=2), "items": wire.Features(size=2)}
CONFIGS: dict[str, dict[str, Any]] = {
    "adaptive-linucb": PLAIN,
    "cusum-ucb": PLAIN | {"params": {"threshold": 5.0, "explore": 0.1}},
    "denband": ITEMS,
    "dlinucb": PLAIN | {"params": {"gamma": 0.99, "alpha": 0.5}},
    "ducb": PLAIN | {"params": {"gamma": 0.99}},
    "dynamic-linucb": ITEMS,
    "lints": PLAIN,
    "linucb-disjoint": PLAIN,
    "linucb-hybrid": ITEMS,
    "linucb-uniform": ITEMS,
    "linucb-watched": PLAIN,
    "modified-pslinucb": PLAIN | {"params": {"window": 20, "b": 0.3, "c": 0.3, "gamma": 0.1}},
    "mucb": PLAIN | {"params": {"window": 40, "threshold": 8.0, "gamma": 0.1}},
    "pslinucb-disjoint": PLAIN,
    "pslinucb-groups": ITEMS | {"params": {"groups": 2}},
    "pslinucb-hybrid": ITEMS,
    "random": PLAIN,
    "swlinucb": PLAIN | {"params": {"window": 100}},
    "swucb": PLAIN | {"params": {"window": 100}},
    "ucb": PLAIN,
}


class Held(NamedTuple):
    """Logs, those whose estimates are refused, and how many intervals hold the truth."""

    logs: int
    refused: int
    held: dict[str, int]


def _run(policy: str, explore: float, events: int, seed: int) -> ReplayRun:
    """One log of a space, and what it says of showing b to everyone."""
    config = wire.SpaceConfig(policy=policy, explore=explore, seed=seed, **CONFIGS[policy])
    space, rng = Space(1, "log", SpaceState(config)), np.random.default_rng(seed)
    arms: list[Any] = list(RATES)
    if config.items.size:
        arms = [wire.Candidate(arm, [1.0, i / 2]) for i, arm in enumerate(RATES)]
    p, hits, rewards = np.empty(events), np.empty(events, bool), np.empty(events)
    for i in range(events):
        kind = int(rng.integers(2))
        request = DecisionRequest(
            wire.DecisionBody(
                candidates=arms, context=[1.0, float(kind)], decision_id=f"{seed} {i}"
            )
        )
        space.decide([request], 2 * i + 1, i)
        answer = msgspec.json.decode(request.answer, type=wire.Answer)
        p[i], hits[i] = answer.probability, answer.arm == "b"
        rewards[i] = float(rng.random() < RATES[str(answer.arm)][kind])
        body = wire.RewardBody(decision_id=answer.decision_id, value=float(rewards[i]))
        space.reward(body, 2 * i + 2, i)
    run = ReplayRun.empty(1)
    run.count(np.zeros(events, np.int64), hits, rewards)
    run.weigh(1 / p[hits], rewards[hits])
    run.back(hits | (p < CERTAIN), rewards)
    return run


def held(policy: str, explore: float, *, logs: int, events: int = 500) -> Held:
    """How often the intervals of ``logs`` logs hold the truth."""
    refused, found = 0, dict.fromkeys(TRUTH, 0)
    for seed in range(logs):
        estimates = _run(policy, explore, events, seed).estimates()
        refused += not estimates
        for name in estimates.keys() & TRUTH.keys():
            found[name] += estimates[name].low <= TRUTH[name] <= estimates[name].high
    return Held(logs, refused, found)
