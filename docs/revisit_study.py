"""Ways to revisit arms that nobody plays, compared: the table of docs/math.md.

    python docs/revisit_study.py              # 20 runs, some minutes
    python docs/revisit_study.py --runs 2     # a quick try

The worlds are the paper's disjoint ones (K = 10, d = 5, T = 20,000, α = 1, each arm changing every
2000 steps at times of its own). Mean regret and two standard errors. The alternatives that were not
chosen are written here on top of the policy without revisits, by its public calls.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import whim
from whim.types import F64
from whim.worlds import Episode, PiecewiseLinear

K, D, HORIZON = 10, 5, 20_000
Choice = Callable[[Any, int, F64, "Plays"], int]


class Plays:
    """When each arm was last played, and how many forced plays it is due."""

    def __init__(self) -> None:
        self.last, self.due = [0] * K, [0] * K


def plain(policy: Any, t: int, x: F64, seen: Plays) -> int:
    """The policy's own choice."""
    return int(policy.select(x).arm)


def round_robin(gamma: float) -> Choice:
    """The appendix's: all arms in turn, a share γ of the steps."""

    def choose(policy: Any, t: int, x: F64, seen: Plays) -> int:
        turn = t % int(K / gamma)
        return turn if turn < K else plain(policy, t, x, seen)

    return choose


def due(policy: Any, t: int, x: F64, seen: Plays) -> int:
    """Arms that are due a forced play first."""
    waiting = [arm for arm in range(K) if seen.due[arm]]
    return waiting[0] if waiting else plain(policy, t, x, seen)


def widened(hazard: float) -> Choice:
    """Confidence widens with the time since the last play, and one play ends that."""

    def choose(policy: Any, t: int, x: F64, seen: Plays) -> int:
        new, best, most = float(x @ x), 0, -math.inf
        for arm, _, mean, width in policy.rank(x):
            q = 1 - (1 - hazard) ** (t - seen.last[arm]) if seen.last[arm] else 0.0
            score = (1 - q) * mean + math.sqrt((1 - q) * width**2 + q * new)
            if score > most:
                best, most = arm, score
        return best

    return choose


def regret(episode: Episode, choose: Choice, revisit: Any, forced: int) -> float:
    """Of one run; after a change each other arm is due that many forced plays."""
    policy = whim.PSLinUCBDisjoint(n_features=D, revisit=revisit)
    policy.add_arms(range(K))
    seen, chosen = Plays(), np.zeros(HORIZON, int)
    for t, x in enumerate(episode.contexts):
        arm = choose(policy, t, x, seen)
        chosen[t] = arm
        seen.last[arm], seen.due[arm] = t + 1, max(0, seen.due[arm] - 1)
        if policy.update(arm, x, float(episode.rewards[t, arm])) and forced:
            seen.due = [forced * (other != arm) for other in range(K)]
    return float((episode.best - episode.expected[np.arange(HORIZON), chosen]).sum())


WAYS: dict[str, tuple[Choice, Any, int]] = {
    "never": (plain, "off", 0),
    "round robin, γ = 0.01": (round_robin(0.01), "off", 0),
    "round robin, γ = 0.1": (round_robin(0.1), "off", 0),
    "a change detected: one play of each other arm": (due, "off", 1),
    "a change detected: four plays of each": (due, "off", 4),
    "widening until the next play, h = 1/2000": (widened(1 / 2000), "off", 0),
    "widening, q by Bayes' rule, h = 1/2000": (plain, 1 / 2000, 0),
    "the same, h estimated": (plain, "auto", 0),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    worlds = {
        f"{law}, {'one user' if users == 'fixed' else 'random users'}{'' if period else ', still'}":
        PiecewiseLinear(n_arms=K, n_features=D, law=law, users=users, period=period, noise=0.2)
        for law, users, period in (
            ("sphere", "fixed", 2000), ("ball", "fixed", 2000), ("sphere", "random", 2000),
            ("ball", "random", 2000), ("sphere", "fixed", None), ("sphere", "random", None),
        )
    }  # fmt: skip
    print("|", " | ".join(["", *worlds]), "|")
    print("|---" * (1 + len(worlds)) + "|")
    episodes = {
        world: [made.episode(horizon=HORIZON, seed=0, run=run) for run in range(runs)]
        for world, made in worlds.items()
    }
    for name, way in WAYS.items():
        cells = []
        for world in worlds:
            regrets = [regret(episode, *way) for episode in episodes[world]]
            error = 2 * np.std(regrets, ddof=1) / math.sqrt(runs)
            cells.append(f"{np.mean(regrets):,.0f} ± {error:,.0f}")
        print("|", " | ".join([name, *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
