"""``beyond/groups``: very many arms of few kinds, with one model per group or one per arm."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

import whim.policies as whim
from whim.evaluate import band, mean_interval
from whim.evaluate.simulate import follow
from whim.evaluate.spread import spread
from whim.experiments import formatting as fmt
from whim.experiments.options import Options
from whim.experiments.result import ExperimentResult, Figure, Table
from whim.types import F64
from whim.worlds import Episode, GroupedLinear

_LABELLED, _CLUSTERED = "labelled groups", "groups by k-means"
_OWN, _LINUCB = "one model per arm", "LinUCB, one model per arm"
LABELS = (_LABELLED, _CLUSTERED, _OWN, _LINUCB)
SHARES = (0.0, 0.05)
POINTS = 40


class Size(NamedTuple):
    """How large the world is."""

    arms: int
    groups: int
    horizon: int


FULL, QUICK = Size(2000, 20, 20_000), Size(400, 8, 4000)


class Outcome(NamedTuple):
    """One policy in one run: regret as it grows, what left and should have, what restarted."""

    regret: F64
    found: int
    testable: int
    false: int
    restarts: int


def groups(options: Options) -> ExperimentResult:
    """Regret of one model per group and one per arm, where arms are alike and where not all are."""
    size = QUICK if options.quick else FULL
    runs = options.choose(20, 4)
    worlds = [_world(size, share) for share in SHARES]
    tasks = [(share, run) for share in range(len(SHARES)) for run in range(runs)]
    advance = options.stage("beyond/groups", len(tasks))
    work = partial(_once, worlds, size.horizon, options.seed)
    done = spread(work, tasks, jobs=options.jobs, progress=advance)
    cells = {
        (SHARES[share], label): [
            outcome[label] for task, outcome in zip(tasks, done, strict=True) if task[0] == share
        ]
        for share in range(len(SHARES))
        for label in LABELS
    }
    at_end = {
        cell: mean_interval(np.array([o.regret[-1] for o in got])) for cell, got in cells.items()
    }
    best, own = at_end[0.0, _LABELLED], at_end[0.0, _OWN]
    part = best.value / own.value
    return ExperimentResult(
        title="Arms in groups: one model for arms that are alike",
        summary=f"Where the arms of a group are alike, one model per group loses {part:.2f} of "
        f"what one model per arm does: {fmt.whole(best)} against {fmt.whole(own)}. "
        f"With {SHARES[1]:.0%} of arms unlike their group it is "
        f"{fmt.whole(at_end[SHARES[1], _LABELLED])} against {fmt.whole(at_end[SHARES[1], _OWN])}.",
        settings={
            "runs": runs,
            "seed": options.seed,
            "horizon": size.horizon,
            "worlds": [world.describe() for world in worlds],
            "policies": {label: repr(_policy(label, worlds[0])) for label in LABELS},
        },
        differences=["The paper names groups of arms as future work and shows nothing of them."],
        tables=[_table(cells)],
        figures=[_figure(share, cells, size.horizon) for share in SHARES],
        headline=[("Regret of one model per group ÷ one per arm", "–", f"{part:.2f} times")],
    )


def _world(size: Size, share: float) -> GroupedLinear:
    return GroupedLinear(n_arms=size.arms, n_groups=size.groups, strays=share)


def _policy(label: str, world: GroupedLinear) -> whim.Policy:
    d, m = world.n_features, world.n_item_features
    if label == _LABELLED:
        return whim.PSLinUCBGroups(n_features=d, groups="given")
    if label == _CLUSTERED:
        return whim.PSLinUCBGroups(n_features=d, groups=world.n_groups, n_item_features=m)
    return (whim.PSLinUCBDisjoint if label == _OWN else whim.LinUCBDisjoint)(n_features=d)


def _once(
    worlds: list[GroupedLinear], horizon: int, seed: int, task: tuple[int, int]
) -> dict[str, Outcome]:
    """One run: every policy over the same episode; the task is (which world, run)."""
    world, run = worlds[task[0]], task[1]
    episode = world.episode(horizon=horizon, seed=seed, run=run)
    strays = set(world.stray_arms(seed=seed, run=run).tolist())
    return {label: _play(label, world, episode, strays) for label in LABELS}


def _play(label: str, world: GroupedLinear, episode: Episode, strays: set[int]) -> Outcome:
    policy: Any = _policy(label, world)
    everyone = range(world.n_arms)
    if label == _LABELLED:
        policy.add_arms(everyone, groups=world.labels().tolist())
    elif label == _CLUSTERED:
        policy.add_arms(everyone, features=episode.features)
    else:
        policy.add_arms(everyone)
    followed, lost = follow(policy, episode)
    at = np.linspace(len(lost) / POINTS, len(lost), POINTS).astype(np.int64) - 1
    left = set(getattr(policy, "left", ()))
    return Outcome(
        regret=np.cumsum(lost)[at],
        found=len(left & strays),
        testable=sum(policy.plays(a) >= 8 for a in strays),
        false=len(left - strays),
        restarts=sum(event.group is not None for _, event in followed.changes),
    )


def _table(cells: dict[tuple[float, str], list[Outcome]]) -> Table:
    rows = []
    for (share, label), got in cells.items():
        grouped = label in (_LABELLED, _CLUSTERED)
        counts = [
            fmt.count(float(np.mean([getattr(o, name) for o in got])))
            for name in ("found", "testable", "false", "restarts")
        ]
        seen = [f"{counts[0]} of {counts[1]}" if share else "–", counts[2], counts[3]]
        regret = fmt.whole(mean_interval(np.array([o.regret[-1] for o in got])))
        rows.append([f"{share:.0%}", label, regret, *(seen if grouped else ["–"] * 3)])
    return Table(
        title="Regret at the end, and what left its group",
        columns=["strays", "policy", "regret", "strays that left", "others that left", "restarts"],
        rows=rows,
        caption="Means over runs. Strays that left: of those that were played at least eight "
        "times, the least that a test takes. Restarts of whole groups: no group changes here. "
        "Where groups come from noisy features, arms that were put in a wrong one are right to "
        "leave it.",
        highlight=[i for i, (_, label) in enumerate(cells) if label in (_LABELLED, _CLUSTERED)],
    )


def _figure(share: float, cells: dict[tuple[float, str], list[Outcome]], horizon: int) -> Figure:
    x = np.linspace(horizon / POINTS, horizon, POINTS).tolist()
    curves = [
        fmt.curve(label, x, band(np.array([o.regret for o in cells[share, label]])))
        for label in LABELS
    ]
    return Figure(
        title=f"{share:.0%} of arms unlike their group" if share else "Arms of a group are alike",
        x_label="step",
        y_label="regret",
        curves=curves,
        caption="Means over runs with 95 % intervals. The two with one model per arm may lie on "
        "each other: where hardly any arm is played often enough for a test, they decide alike.",
    )
