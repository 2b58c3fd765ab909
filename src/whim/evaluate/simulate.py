"""``simulate``: several policies over the same users, pools, noise and changes, run by run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from whim import checks
from whim.errors import InvalidInputError
from whim.evaluate.detection import Detection, score_detection
from whim.evaluate.follow import Follower
from whim.evaluate.lists import Shown, follow_lists
from whim.evaluate.simulation_result import SimulationResult
from whim.evaluate.spread import spread
from whim.kernels.loops import EACH, EventBatch
from whim.policies import OracleRestart, Policy, from_bytes
from whim.policies.base.lists import FEEDBACK
from whim.policies.run_events import Outcome
from whim.types import F64, I64, ArmId, ChangeEvent
from whim.worlds import Episode, ListEpisode, ListWorld, World

_STREAM = 101  # apart from the streams of worlds

Maker = Policy | Callable[[Episode], Policy]


def simulate(
    world: World | ListWorld,
    policies: Mapping[str, Maker],
    *,
    horizon: int = 20_000,
    runs: int = 10,
    seed: int = 0,
    points: int = 200,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    progress: Callable[[int], None] | None = None,
    feedback: str | None = None,
) -> SimulationResult:
    """Run every policy over the same ``runs`` episodes of a world, in compiled loops.

    Parameters
    ----------
    world
        Where users, pools, rewards and changes come from.
    policies
        By label: a policy with no arms, of which each run uses a copy with a random stream of
        its own, or a function that makes one for an episode (an ``OracleRestart`` needs
        its changes).
    horizon, runs, seed
        Steps of a run, how many runs, and the world's seed. Adding a policy changes no other's
        result.
    points
        How many points of the regret curve to keep.
    jobs, engine, address
        Where runs are spread: see ``spread``. The result does not depend on it.
    progress
        Called with the number of runs done.
    feedback
        In a ``ListWorld``, how policies learn from a list: ``"semi"``, ``"cascade"`` or
        ``"positions"``, by default as its users are. Regret is then against the best list, and a
        visit's reward the number of clicks.

    Examples
    --------
    >>> import whim
    >>> world = whim.worlds.PiecewiseLinear(n_arms=4, n_features=2, period=200)
    >>> result = simulate(
    ...     world, {"LinUCB": whim.LinUCBDisjoint(n_features=2)}, horizon=400, runs=2
    ... )
    >>> result.regret["LinUCB"].shape
    (2, 200)
    """
    checks.integer("runs", runs, 1)
    checks.integer("horizon", horizon, 1)
    checks.integer("points", points, 1)
    if isinstance(world, type):
        raise InvalidInputError(
            f"world must be a made one, such as {world.__name__}(...), got the class "
            f"{world.__name__}."
        )
    if not callable(getattr(world, "episode", None)):
        raise InvalidInputError(f"world must be one of whim.worlds, got {world!r}.")
    check_by_label(policies)
    makers = {label: sealed(label, made) for label, made in policies.items()}
    noted = min(points, horizon)
    at = np.linspace(horizon / noted, horizon, noted).astype(np.int64)
    tasks = [(horizon, seed, run) for run in range(runs)]
    if feedback is not None:
        checks.choice("feedback", feedback, tuple(FEEDBACK))
        if not isinstance(world, ListWorld):
            raise InvalidInputError(f"feedback must be None but in a ListWorld, got {feedback!r}.")
    work = partial(run_once, world, makers, at, feedback=feedback)
    outcomes = spread(work, tasks, jobs=jobs, engine=engine, address=address, progress=progress)
    labels = list(policies)
    return SimulationResult(
        settings={"world": world.describe(), "horizon": horizon, "runs": runs, "seed": seed}
        | {"policies": {label: repr(made) for label, made in policies.items()}}
        | ({} if feedback is None else {"feedback": feedback}),
        steps=at,
        regret={b: np.array([run["regret"][b] for run in outcomes]) for b in labels},
        reward={b: np.array([run["reward"][b] for run in outcomes]) for b in labels},
        detections={b: [Detection(*run["detection"][b]) for run in outcomes] for b in labels},
        changes=np.array([run["changes"] for run in outcomes]),
    )


def check_by_label(policies: Any) -> None:
    """Refuse what is no dict of policies by the labels that results show them under."""
    if not isinstance(policies, Mapping):
        raise InvalidInputError(
            'policies must be a dict of policies by label, such as {"LinUCB": '
            f"whim.LinUCBDisjoint(...)}}, got {type(policies).__name__}."
        )
    if not policies:
        raise InvalidInputError("policies must hold at least one policy, got none.")


def sealed(label: str, made: Any) -> bytes | Callable[[Episode], Policy]:
    """What a task carries: a policy as bytes, or a function as it is."""
    if isinstance(made, Policy):
        if made.arms:
            raise InvalidInputError(f"policies must have no arms yet, got {label!r} with some.")
        return made.to_bytes()
    if isinstance(made, type) and issubclass(made, Policy):
        raise InvalidInputError(
            f"policies must be made ones, such as {made.__name__}(...), got the class "
            f"{made.__name__} for {label!r}."
        )
    if not callable(made):
        raise InvalidInputError(
            f"policies must be policies or functions that make one, got {made!r} for {label!r}."
        )
    return made  # type: ignore[no-any-return]


def fresh(data: bytes, run: int) -> Policy:
    """The policy that was sealed, with a random stream for this run; run 0 has its own."""
    return _restream(from_bytes(data), run)


def _restream(policy: Policy, run: int) -> Policy:
    inner = policy.policy if isinstance(policy, OracleRestart) else policy
    if run:
        seeds = [inner.params.get("seed", 0), run, _STREAM]
        inner._rng = np.random.Generator(np.random.PCG64(seeds))
    return policy


def _made(label: str, maker: Callable[[Episode], Policy], episode: Episode, run: int) -> Policy:
    made: Any = maker(episode)
    if not isinstance(made, Policy):
        raise InvalidInputError(
            f"a function among policies must return a policy, got {made!r} for {label!r}."
        )
    return _restream(made, run)


def run_once(
    world: World | ListWorld,
    makers: dict[str, Any],
    at: I64,
    task: tuple[int, int, int],
    *,
    feedback: str | None = None,
) -> dict[str, Any]:
    """One run: every policy over the same episode; the task is (horizon, seed, run)."""
    horizon, seed, run = task
    episode: Any = world.episode(horizon=horizon, seed=seed, run=run)
    outcome: dict[str, Any] = {"regret": {}, "reward": {}, "detection": {}}
    outcome["changes"] = sum(map(len, episode.changes.values()))
    for label, made in makers.items():
        policy = fresh(made, run) if isinstance(made, bytes) else _made(label, made, episode, run)
        if isinstance(episode, ListEpisode):
            lost, reward, detection = _play_lists(policy, episode, feedback)
        else:
            lost, reward, detection = play(policy, episode)
        outcome["regret"][label] = np.cumsum(lost)[at - 1]
        outcome["reward"][label] = reward
        outcome["detection"][label] = tuple(detection)
    return outcome


def _concerned(policy: Policy, event: ChangeEvent, episode: Episode) -> list[ArmId | None]:
    """Whom a report is of: an arm, or those of a group that do change some time."""
    if event.group is None:
        return [event.arm]
    group = policy.group  # type: ignore[attr-defined]
    live = set(policy.arms)
    changing = [arm for arm, steps in episode.changes.items() if steps and arm in live]
    return [arm for arm in changing if group(arm) == event.group] or [event.arm]


def play(policy: Policy, episode: Episode) -> tuple[F64, float, Detection]:
    """One policy over one episode: expected reward lost per step, mean reward, changes detected."""
    followed, lost = follow(policy, episode)
    arms = episode.members[episode.offsets[episode.pool_of] + followed.chosen]
    steps = np.arange(len(arms))
    detection = _detected(policy, episode, followed.changes, steps, arms)
    return lost, float(episode.rewards[steps, followed.chosen].mean()), detection


def _play_lists(
    policy: Policy, episode: ListEpisode, feedback: str | None
) -> tuple[F64, float, Detection]:
    shown = follow_lists(policy, episode, feedback=feedback)
    reward = float(shown.outcome.rewards.sum(axis=1).mean())
    return shown.lost, reward, detected_in_lists(policy, episode, shown)


def detected_in_lists(policy: Policy, episode: ListEpisode, shown: Shown) -> Detection:
    """How changes were detected by a policy that was followed; items count as played if learnt."""
    visits, items = np.nonzero(np.arange(episode.k) < shown.outcome.learnt[:, None])
    arms = shown.arms[visits, items]
    return _detected(policy, episode.items, shown.outcome.changes, visits, arms)


def _detected(
    policy: Policy, episode: Episode, changes: list[tuple[int, ChangeEvent]], steps: I64, arms: I64
) -> Detection:
    """How changes were detected, from the reports, and the steps at which arms were played."""
    every = policy.restarts_all
    reports = [
        (None if every else arm, i + 1)
        for i, event in changes
        for arm in _concerned(policy, event, episode)
    ]
    order = np.argsort(arms, kind="stable")  # steps of each arm side by side, in time
    ends = np.cumsum(np.bincount(arms, minlength=_n_arms(episode)))[:-1]
    played = dict(enumerate(np.split(steps[order] + 1, ends)))
    return score_detection(reports, episode.changes, played, shared=every)


def follow(policy: Policy, episode: Episode) -> tuple[Outcome, F64]:
    """A policy's choices and reports over an episode, and the expected reward lost per step."""
    steps, n_arms = np.arange(len(episode.contexts)), _n_arms(episode)
    follower = Follower(policy, range(n_arms), np.arange(n_arms), episode.features)
    batch = EventBatch(
        EACH, episode.contexts, episode.pool_of, episode.offsets, episode.members,
        np.full(len(steps), -1), np.nan_to_num(episode.rewards),
    )  # fmt: skip
    followed = follower.go(batch)
    return followed, episode.best - episode.expected[steps, followed.chosen]


def _n_arms(episode: Episode) -> int:
    return len(episode.features) or int(episode.members.max()) + 1
