"""``beyond/revisit``: what revisiting neglected arms is worth, and what it costs.

An arm that nobody plays is never tested. With a new user each step every arm is played now and
then; with one user, arms that have become good stay unseen. The worlds are the paper's disjoint
ones, and some that it has not: no changes, clicks, fifty arms.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import whim.policies as whim
from whim.evaluate import Interval, SimulationResult, gain, simulate
from whim.evaluate.tasks import OracleMaker
from whim.experiments import formatting as fmt
from whim.experiments.options import Options, after
from whim.experiments.result import ExperimentResult, Table
from whim.worlds import PiecewiseLinear

D, HORIZON = 5, 20_000
_BASE, _OFF, _ON, _ORACLE = "PSLinUCB", "score test", "score test, revisit", "oracle"
_PAPER = PiecewiseLinear(n_arms=10, n_features=D, period=2000, asynchronous=True, noise=0.2)
_CLICKS = replace(_PAPER, rewards="bernoulli", rate=0.3)
_ONE, _MANY = "sphere, one user", "sphere, random users"
_WORLDS = {
    _ONE: replace(_PAPER, law="sphere", users="fixed"),
    "ball, one user": replace(_PAPER, users="fixed"),
    "sphere, one user, all arms together": replace(
        _PAPER, law="sphere", users="fixed", asynchronous=False
    ),
    "sphere, one user, 50 arms": replace(_PAPER, law="sphere", users="fixed", n_arms=50),
    "clicks, ball, one user": replace(_CLICKS, users="fixed"),
    "no changes, sphere, one user": replace(_PAPER, law="sphere", users="fixed", period=None),
    _MANY: replace(_PAPER, law="sphere"),
    "ball, random users": _PAPER,
    "sphere, random users, all arms together": replace(_PAPER, law="sphere", asynchronous=False),
    "sphere, random users, 50 arms": replace(_PAPER, law="sphere", n_arms=50),
    "clicks, sphere, random users": replace(_CLICKS, law="sphere"),
    "no changes, sphere, random users": replace(_PAPER, law="sphere", period=None),
}


def _policies() -> dict[str, Any]:
    return {
        "LinUCB": whim.LinUCBDisjoint(n_features=D, alpha=1.0),
        _BASE: whim.PSLinUCBDisjoint(n_features=D, alpha=1.0, window=100, threshold=0.35),
        _OFF: whim.PSLinUCBDisjoint(n_features=D, alpha=1.0, revisit="off"),
        _ON: whim.PSLinUCBDisjoint(n_features=D, alpha=1.0),
        _ORACLE: OracleMaker("linucb-disjoint", {"n_features": D, "alpha": 1.0}),
    }


def revisit(options: Options) -> ExperimentResult:
    """Regret with and without ``revisit``, one user against many."""
    runs = options.choose(50, 8)
    advance = options.stage("beyond/revisit", runs * len(_WORLDS))
    policies = _policies()
    results: dict[str, SimulationResult] = {}
    for label, world in _WORLDS.items():
        results[label] = simulate(
            world, policies, horizon=HORIZON, runs=runs, seed=options.seed, jobs=options.jobs,
            progress=after(advance, len(results) * runs),
        )  # fmt: skip
    saved = fmt.percent(_saved(results[_ONE], _OFF))
    return ExperimentResult(
        title="Revisiting neglected arms",
        summary=f"With one user, revisiting "
        f"{fmt.saving(_saved(results[_ONE], _OFF), 'the score test')}; with a new user each step "
        f"it {fmt.saving(_saved(results[_MANY], _OFF), 'the score test')}.",
        settings={
            "runs": runs,
            "seed": options.seed,
            "horizon": HORIZON,
            "worlds": {label: world.describe() for label, world in _WORLDS.items()},
            "policies": {label: repr(p) for label, p in policies.items()},
        },
        differences=[
            "The paper's appendix plays arms in turn (γ) and its experiments leave unplayed arms "
            "alone; here the time since an arm's last play widens its confidence.",
            "“Oracle” restarts an arm at its change points, played or not.",
        ],
        tables=[_table(results, list(policies))],
        figures=[
            fmt.regret_over_time(
                results[label],
                f": {label}",
                caption="Each arm changes every 2,000 steps, at its own times.",
            )
            for label in (_ONE, _MANY)
        ],
        headline=[("Revisiting, one user: regret saved", "–", saved)],
    )


def _saved(result: SimulationResult, base: str) -> Interval:
    return gain(result.regret[_ON][:, -1], result.regret[base][:, -1])


def _table(results: dict[str, SimulationResult], labels: list[str]) -> Table:
    rows = []
    for world, result in results.items():
        regret = [fmt.final_regret(result, label) for label in labels]
        ratios = [fmt.percent(_saved(result, base)) for base in (_OFF, _BASE)]
        rows.append([world, *ratios, *regret])
    return Table(
        title="Regret at the end",
        columns=["world", f"saved against {_OFF}", f"saved against {_BASE}", *labels],
        rows=rows,
        caption="Means over runs with 95 % intervals; saved is of “score test, revisit”, over "
        "paired runs. Each arm changes every 2,000 steps, at times of its own unless it says "
        "“together”. PSLinUCB has the paper's test (ω = 100, δ = 0.35), all have α = 1, and "
        "revisit is “auto”: nothing differs before a change is detected.",
    )
