"""Tasks of a sweep: one policy over one run of a world, or over one sample of a log.

A task is plain data, so that any worker can do it and a store can identify it. Its run is the
one that ``simulate`` and ``replay`` would do, to the last bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from whim import checks, logs
from whim.errors import InvalidInputError, LogFileError
from whim.evaluate.detection import Detection
from whim.evaluate.replay import plan, replay_once
from whim.evaluate.replay_result import UNKNOWN
from whim.evaluate.simulate import run_once, sealed
from whim.evaluate.simulation_result import columns
from whim.logs import Log
from whim.logs.columns import DIGEST
from whim.policies import OracleRestart, Policy, policy
from whim.worlds import (
    DriftingLinear,
    Episode,
    GroupedLinear,
    NewsWorld,
    PiecewiseLinear,
    ReversingLinear,
    RotatingLinear,
    World,
)

_SEEN = ("found", "missed", "false_alarms", "delays", "plays")
WORLDS: dict[str, type[Any]] = {
    "piecewise": PiecewiseLinear,
    "drifting": DriftingLinear,
    "rotating": RotatingLinear,
    "news": NewsWorld,
    "grouped": GroupedLinear,
    "reversing": ReversingLinear,
}


@dataclass(frozen=True, slots=True)
class OracleMaker:
    """Makes, for an episode, a policy that is restarted at the true change points.

    >>> OracleMaker("linucb-disjoint", {"n_features": 2})
    OracleMaker(name='linucb-disjoint', params={'n_features': 2})
    """

    name: str
    params: Mapping[str, Any]

    def __call__(self, episode: Episode) -> Policy:
        """The policy for one episode."""
        inner = policy(self.name, **self.params)
        return OracleRestart(policy=inner, changes=episode.changes)


def make_world(kind: str, **params: Any) -> World:
    """A world by its short name.

    >>> make_world("piecewise", n_arms=3).n_arms
    3
    """
    cls = WORLDS[checks.choice("world", kind, tuple(WORLDS))]
    world: World = cls(**params)
    return world


def make_policy(name: str, params: Mapping[str, Any]) -> Policy | OracleMaker:
    """A policy by its registered name; ``oracle-restart`` gets the changes of each episode.

    >>> make_policy("ucb", {"bonus": "ucb1"})
    UCB(bonus='ucb1', alpha=1.0, n_features=None, seed=0, ties='first')
    >>> make_policy("oracle-restart", {"policy": "ucb"})
    OracleMaker(name='ucb', params={})
    """
    if name != OracleRestart.name:
        return policy(name, **params)
    inner = {key: value for key, value in params.items() if key != "policy"}
    if "policy" not in params or not isinstance(params["policy"], str):
        raise InvalidInputError(
            f"policy of {name} must be the name of a registered one, got {params.get('policy')!r}."
        )
    policy(params["policy"], **inner)  # says now what is wrong with it
    return OracleMaker(params["policy"], inner)


def world_run(settings: dict[str, Any]) -> dict[str, Any]:
    """One run of a world: regret, mean reward, and how changes were detected.

    Parameters
    ----------
    settings
        ``world`` (its ``kind`` and parameters), ``horizon``, ``policy`` (``name`` and
        ``params``), ``seed`` and ``run``: as run number ``run`` of ``simulate`` with that seed.

    Examples
    --------
    >>> task = {"world": {"kind": "piecewise", "n_features": 2}, "horizon": 100, "seed": 0}
    >>> found = world_run(task | {"policy": {"name": "random", "params": {}}, "run": 0})
    >>> sorted(found)
    ['changes', 'delays', 'false_alarms', 'found', 'missed', 'plays', 'regret', 'reward']
    """
    horizon = checks.integer("horizon", settings["horizon"], 1)
    made = sealed("policy", make_policy(**settings["policy"]))
    task = (horizon, settings["seed"], settings["run"])
    outcome = run_once(make_world(**settings["world"]), {"": made}, np.array([horizon]), task)
    seen = Detection(*outcome["detection"][""])
    return {
        "regret": float(outcome["regret"][""][0]),
        "reward": outcome["reward"][""],
        "changes": outcome["changes"],
        **{name: getattr(seen, name) for name in _SEEN},
    }


def log_settings(
    log: Log, *, logging: str | None = None, sample: float = 1.0, first: float = 1.0
) -> dict[str, Any]:
    """What the tasks over a log share: which log it is, and how it is replayed.

    The log is named by its place, a digest of its description and the time when it was written:
    one made anew under the same name is another, and results of the old one do not answer for it.
    A log in a store is named by its address, from which each worker has a copy of its own, and by
    the digests of its files.
    """
    folder = log.path.resolve()
    files = [*folder.glob("*.bin"), folder / "meta.json", folder / "arms.json"]
    written = max(file.stat().st_mtime_ns for file in files)
    if log.address is not None and (folder / DIGEST).exists():
        written = 0  # when a copy came does not matter
    mark = {"path": log.address or str(folder), "digest": _digest(folder), "written": written}
    how = plan(log, logging=logging, sample=sample, first=first)
    return {"log": mark, "logging": how.scheme, "sample": sample, "first": first}


def _digest(folder: Path) -> str:
    parts = [(folder / name).read_bytes() for name in ("meta.json", "arms.json")]
    if (folder / DIGEST).exists():
        parts.append((folder / DIGEST).read_bytes())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def log_run(settings: dict[str, Any]) -> dict[str, Any]:
    """One replay of a log: click rate, events that counted, changes reported.

    ``settings`` are those of ``log_settings``, ``policy`` (``name`` and ``params``), ``seed`` and
    ``run``: as run number ``run`` of ``replay`` with that seed.
    """
    mark = settings["log"]
    log = logs.open(mark["path"])
    if _digest(log.path) != mark["digest"]:
        raise LogFileError(f"{log.path} is not the log that the sweep began with.")
    made = make_policy(**settings["policy"])
    if not isinstance(made, Policy):
        raise InvalidInputError("policy must not be oracle-restart: a log has no true changes.")
    how = plan(log, **{name: settings[name] for name in ("logging", "sample", "first", "seed")})
    outcome = replay_once(log, made.to_bytes(), how, settings["run"])
    support = outcome.support
    unknown = how.scheme == "propensity" and support.problem is not None
    row: dict[str, Any] = columns("ctr", UNKNOWN if unknown else outcome.interval)
    row |= {
        "events": outcome.events,
        "matched": outcome.matched,
        "reward": outcome.total,
        "changes": len(outcome.changes),
    }
    if how.scheme != "full":
        row |= {"effective": support.effective, "support": support.share}
    return row | {name: estimate.value for name, estimate in outcome.estimates().items()}
