"""``simulate``: several policies over the same users, noise and changes, run by run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.policies import Policy
from whim.types import F64, I64
from whim.worlds import Episode, PiecewiseLinear

__all__ = ["SimulationResult", "simulate"]


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What happened, policy by policy.

    Attributes
    ----------
    steps
        The steps at which regret was noted.
    regret
        For each policy, (runs, steps): expected reward lost against the best arm so far.
    found, false_alarms
        For each policy and run: changes that it reported after they happened, and reports of an
        arm with no change since its last one.
    changes
        For each run, the changes that there were.
    """

    steps: I64
    regret: dict[str, F64]
    found: dict[str, I64]
    false_alarms: dict[str, I64]
    changes: I64


def simulate(
    world: PiecewiseLinear,
    policies: Mapping[str, Policy | Callable[[Episode], Policy]],
    *,
    horizon: int = 20_000,
    runs: int = 10,
    seed: int = 0,
    points: int = 200,
    progress: Callable[[int], None] | None = None,
) -> SimulationResult:
    """Run every policy over the same ``runs`` episodes of a world.

    Parameters
    ----------
    world
        Where users, rewards and changes come from.
    policies
        By label: a policy with no arms, of which each run uses a copy, or a function that makes
        one for an episode (an ``OracleRestart`` must be told its changes).
    horizon, runs, seed
        Steps of a run, how many runs, and the world's seed. Adding a policy changes no other's
        result.
    points
        How many points of the regret curve to keep.
    progress
        Called with the number of steps just done.

    Examples
    --------
    >>> import whim
    >>> world = PiecewiseLinear(n_arms=4, n_features=2, period=200)
    >>> result = simulate(
    ...     world, {"LinUCB": whim.LinUCBDisjoint(n_features=2)}, horizon=400, runs=2
    ... )
    >>> result.regret["LinUCB"].shape
    (2, 200)
    """
    checks.integer("runs", runs, 1)
    for label, made in policies.items():
        if isinstance(made, Policy) and made.arms:
            raise InvalidInputError(f"policies must have no arms yet, got {label!r} with some.")
    at = np.unique(np.linspace(1, horizon, min(points, horizon)).astype(np.int64))
    regret = {label: np.empty((runs, len(at))) for label in policies}
    found = {label: np.zeros(runs, np.int64) for label in policies}
    false_alarms = {label: np.zeros(runs, np.int64) for label in policies}
    changes = np.zeros(runs, np.int64)
    for run in range(runs):
        episode = world.episode(horizon=horizon, seed=seed, run=run)
        changes[run] = sum(map(len, episode.changes.values()))
        for label, made in policies.items():
            if isinstance(made, Policy):
                policy = type(made).from_bytes(made.to_bytes())
            else:
                policy = made(episode)
            lost, events = _play(policy, episode, progress)
            regret[label][run] = np.cumsum(lost)[at - 1]
            found[label][run], false_alarms[label][run] = _matched(events, episode.changes)
    return SimulationResult(at, regret, found, false_alarms, changes)


def _play(
    policy: Policy, episode: Episode, progress: Callable[[int], None] | None
) -> tuple[F64, list[tuple[int, int]]]:
    """Expected reward lost at each step, and (arm, step) of each reported change."""
    horizon, n_arms = episode.expected.shape
    policy.add_arms(range(n_arms))
    chosen = np.empty(horizon, np.int64)
    events = []
    rewards = episode.rewards.tolist()
    noted = 0
    for t, x in enumerate(list(episode.contexts)):
        arm: int = policy.select(x).arm  # type: ignore[assignment]
        event = policy.update(arm, x, rewards[t][arm])
        if event is not None:
            events.append((arm, event.step))
        chosen[t] = arm
        if progress is not None and (t + 1) % 500 == 0:
            progress(500)
            noted += 500
    if progress is not None:
        progress(horizon - noted)
    expected = episode.expected
    return expected.max(1) - expected[np.arange(horizon), chosen], events


def _matched(events: list[tuple[int, int]], changes: dict[int, list[int]]) -> tuple[int, int]:
    found = false = 0
    last = dict.fromkeys(changes, 0)
    for arm, step in events:
        if any(last[arm] < c < step for c in changes[arm]):
            found += 1
        else:
            false += 1
        last[arm] = step
    return found, false
