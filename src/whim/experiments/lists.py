"""``beyond/lists``: what is learnt from a list of which only a part was seen, and what it reports.

Clicks as a share of those of the best lists, for four ways to learn from the same users; then false
alarms and power of the change tests where one visitor brings several plays at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import whim.policies as whim
from whim.evaluate import Interval, mean_interval
from whim.evaluate.lists import Shown, follow_lists
from whim.evaluate.simulate import detected_in_lists
from whim.evaluate.spread import spread
from whim.experiments import formatting as fmt
from whim.experiments.calibration import bunching, ratio_of
from whim.experiments.options import Options, after
from whim.experiments.result import Curve, ExperimentResult, Figure, Table
from whim.worlds import GroupedLinear, ListEpisode, ListWorld, PiecewiseLinear, ReversingLinear

K, HORIZON = 5, 12_000
BARS = {"nothing changes": 0.965, "half of the arms reverse": 0.94}
TOP, ZEROS, CASCADE, IDEAL = (
    "the top item only",
    f"all {K}, unclicked = 0",
    "cascade: up to the first click",
    f"all {K} known to be seen",
)
_LOOKS = ((1.0, 0.6, 0.4, 0.3, 0.2), (1.0, 0.9, 0.7, 0.5, 0.4))
# how policies learn from users who look by position: feedback, and whether the old chances are used
_BY_POSITION = {
    "all seen": ("semi", False),
    "positions, true chances": ("positions", False),
    "positions, the chances of the beginning": ("positions", True),
}
SIZES = (1, 5, 10)
ASKED = 1e-3  # false alarms per play, where they are counted
PLAYS, VISITS = 50_000, 6_000
KINDS = ("disjoint", "hybrid", "groups", "adaptive")
_GROUPS = 6


class Task(NamedTuple):
    """One run of one cell."""

    part: str
    cell: str
    k: int
    users: str
    seed: int
    run: int
    size: int


class Alarms(NamedTuple):
    """One run of a policy: plays learnt, reports, and of a world that changes what was found."""

    plays: int
    reports: int
    false: int
    found: int
    possible: int
    delays: list[int]


def lists(options: Options) -> ExperimentResult:
    """Both parts, as tables."""
    runs, looks = options.choose(50, 4), options.choose(20, 2)
    size = (options.quick and 4) or 1
    first = [
        Task("clicks", cell, K, users, options.seed, run, HORIZON)
        for cell in BARS for users in ("cascade", "positions") for run in range(runs)
    ]  # fmt: skip
    kinds = KINDS[:1] if options.quick else KINDS  # each of the others takes long to compile
    cells = [(kind, users) for kind in kinds for users in _users(kind)]
    second = [
        Task(part, kind, k, users, options.seed, run, length // size)
        for part, length in (("still", PLAYS), ("changing", VISITS))
        for kind, users in cells for k in SIZES for run in range(looks)
    ]  # fmt: skip
    advance = options.stage("beyond/lists", len(first) + len(second))
    clicks = spread(_clicks, first, jobs=options.jobs, progress=advance)
    alarms = spread(_alarms, second, jobs=options.jobs, progress=after(advance, len(first)))
    shares = {
        (task.cell, task.users, label): mean_interval(
            np.array([o[label][0] for t, o in zip(first, clicks, strict=True) if _same(t, task)])
        )
        for task, outcome in zip(first, clicks, strict=True) for label in outcome if task.run == 0
    }  # fmt: skip
    still, turned = (shares[world, "cascade", CASCADE] for world in BARS)
    met = {w: shares[w, "cascade", CASCADE].value >= bar for w, bar in BARS.items()}
    return ExperimentResult(
        title="Lists: learning from what was seen",
        summary=f"Learning up to the first click gets {fmt.fixed(still, 3)} of the best lists' "
        f"clicks where nothing changes and {fmt.fixed(turned, 3)} where half of the arms reverse; "
        f"unclicked items as zeros {fmt.fixed(shares['nothing changes', 'cascade', ZEROS], 3)} and "
        f"{fmt.fixed(shares['half of the arms reverse', 'cascade', ZEROS], 3)}. "
        f"{sum(met.values())} of {len(BARS)} bars are met.",
        settings={
            "runs": runs, "runs of the tests": looks, "seed": options.seed,
            "horizon": HORIZON, "worlds": [_world(cell).describe() for cell in BARS],
            "policy": repr(whim.PSLinUCBDisjoint(n_features=5)), "false_alarm": ASKED,
            "tests": {kind: repr(_policy(kind, ASKED)) for kind in kinds},
        },
        differences=["The paper shows one item at a time."],
        tables=[
            _scanning(first, clicks, shares), _looking(first, clicks, shares),
            _still(cells, second, alarms), _changing(cells, second, alarms),
        ],
        figures=[_figure(shares)],
        headline=[
            (f"Clicks of lists learnt by cascade ÷ of the best lists: {world}", "–",
             fmt.fixed(shares[world, "cascade", CASCADE], 3))
            for world in BARS
        ],
        targets=[
            (f"lists by cascade: {BARS[world]} of the best lists' clicks, {world}", reached)
            for world, reached in met.items()
        ],
    )  # fmt: skip


def _same(a: Task, b: Task) -> bool:
    return a[:4] == b[:4]


# -- how much is learnt -------------------------------------------------------------------------


def _world(cell: str) -> ReversingLinear:
    world = ReversingLinear(n_arms=30, n_features=5)
    return replace(world, period=None if cell == "nothing changes" else HORIZON // 2)


def _clicks(task: Task) -> dict[str, tuple[float, int, int]]:
    """By way to learn: share of the best lists' clicks, changes reported, false ones of these."""
    world = _world(task.cell)
    by_position = {"examine": _LOOKS} if task.users == "positions" else {}
    shown_to = ListWorld(world=world, k=K, users=task.users, **by_position)
    episode = shown_to.episode(horizon=task.size, seed=task.seed, run=task.run)
    ways: dict[str, dict[str, Any]]
    if task.users == "positions":
        ways = {
            label: {"feedback": feedback, "examine": np.array(_LOOKS[0]) if old else None}
            for label, (feedback, old) in _BY_POSITION.items()
        }
    else:
        ways = {TOP: {"depth": 1}, ZEROS: {"feedback": "semi"}, CASCADE: {}, IDEAL: {}}
    outcome = {}
    for label, how in ways.items():
        policy = whim.PSLinUCBDisjoint(n_features=5)
        # the same lists are worth the same to those who scan; here they say what they saw of all
        told = replace_users(episode, "semi") if label == IDEAL else episode
        shown = follow_lists(policy, told, **how)
        share = episode.values(shown.outcome.chosen).sum() / episode.best.sum()
        seen = detected_in_lists(policy, told, shown)
        outcome[label] = float(share), len(shown.outcome.changes), seen.false_alarms
    return outcome


def replace_users(episode: ListEpisode, users: str) -> ListEpisode:
    """The same visits, of users of another kind."""
    return replace(episode, users=users)


Clicks = list[dict[str, tuple[float, int, int]]]
Shares = dict[tuple[str, str, str], Interval]


def _rows(first: list[Task], clicks: Clicks, shares: Shares, users: str) -> list[list[str]]:
    rows = []
    for (cell, who, label), share in shares.items():
        if who == users:
            done = [
                o[label] for t, o in zip(first, clicks, strict=True)
                if t.cell == cell and t.users == users
            ]  # fmt: skip
            reports, false = (
                mean_interval(np.array([float(run[i]) for run in done])) for i in (1, 2)
            )
            rows.append(
                [cell, label, fmt.fixed(share, 3), fmt.fixed(reports, 1), fmt.fixed(false, 1)]
            )
    return rows


_COLUMNS = ["world", "learnt from a list", "of the best lists' clicks", "changes reported",
            "false alarms"]  # fmt: skip


def _scanning(first: list[Task], clicks: Clicks, shares: Shares) -> Table:
    rows = _rows(first, clicks, shares, "cascade")
    for row in rows:
        bar = BARS[row[0]]
        ours = row[1] == CASCADE
        value = shares[row[0], "cascade", row[1]].value
        row.append(f"≥ {bar}: {'met' if value >= bar else 'missed'}" if ours else "")
    return Table(
        title=f"Users who scan a list of {K} and stop at the first click",
        columns=[*_COLUMNS, "bar"],
        rows=rows,
        caption="30 arms, d = 5 with a constant, clicks at 0.2 (1 + x·θ), 15 arms reverse half-way "
        "or none; PSLinUCBDisjoint with nothing set. Means over runs with 95 % intervals. An item "
        "that moves down a list is clicked less: taken for a zero, that looks like a change.",
        highlight=[i for i, row in enumerate(rows) if row[1] == CASCADE],
    )


def _figure(shares: Shares) -> Figure:
    ways = (TOP, ZEROS, CASCADE, IDEAL)
    curves = []
    for i, world in enumerate(BARS):
        found = [shares[world, "cascade", way] for way in ways]
        rows = [row + 0.16 * (i - 0.5) for row in range(len(ways))]
        curves.append(
            Curve(
                world,
                [one.value for one in found],
                rows,
                [one.low for one in found],
                [one.high for one in found],
                "points",
            )
        )
    return Figure(
        title="Clicks of lists, by what is learnt from them",
        x_label="of the best lists' clicks",
        y_label="",
        curves=curves,
        rows=list(ways),
        caption="Users who scan a list and stop at the first click; means over runs with 95 % "
        "intervals.",
    )


def _looking(first: list[Task], clicks: Clicks, shares: Shares) -> Table:
    rows = _rows(first, clicks, shares, "positions")
    return Table(
        title="Users who look at an item with a chance that depends on its position",
        columns=_COLUMNS,
        rows=rows,
        caption=f"The same world. Chances are {_LOOKS[0]} in the first half and {_LOOKS[1]} in the "
        "second, so that where people look changes whether or not arms do.",
        highlight=[i for i, row in enumerate(rows) if row[1] == "positions, true chances"],
    )


# -- what the tests say -------------------------------------------------------------------------


def _users(kind: str) -> tuple[str, ...]:
    return ("semi",) if kind == "groups" else ("semi", "cascade")


def _policy(kind: str, false_alarm: float | None) -> Any:
    asked: dict[str, Any] = {} if false_alarm is None else {"false_alarm": false_alarm}
    if kind == "adaptive":
        return whim.AdaptiveLinUCB(n_features=5)
    if kind == "hybrid":
        return whim.PSLinUCBHybrid(n_features=5, n_item_features=3, **asked)
    if kind == "groups":
        return whim.PSLinUCBGroups(n_features=5, groups="given", **asked)
    return whim.PSLinUCBDisjoint(n_features=5, **asked)


def _testing_world(kind: str, users: str, period: int | None) -> Any:
    if kind == "groups":
        return GroupedLinear(n_arms=60, n_groups=_GROUPS, strays=0.0, pool=20, period=period)
    m = 3 if kind == "hybrid" else 0
    if users == "semi":
        return PiecewiseLinear(
            n_arms=20, n_features=5, n_item_features=m, law="sphere", period=period
        )
    # with a joint part clicks would be clipped at 0, and no linear model right
    return ReversingLinear(n_arms=20, n_features=5, n_item_features=m, joint=0.0, period=period)


def _alarms(task: Task) -> Alarms:
    """One policy in one world that changes or does not."""
    still = task.part == "still"
    horizon = task.size // task.k if still else task.size
    inner = _testing_world(task.cell, task.users, None if still else task.size // 3)
    world = ListWorld(world=inner, k=task.k, users=task.users)
    episode = world.episode(horizon=horizon, seed=task.seed + 1, run=task.run)
    policy = _policy(task.cell, ASKED if still else None)
    if task.cell == "groups":
        policy.add_arms(range(inner.n_arms), groups=inner.labels().tolist())
    shown: Shown = follow_lists(policy, episode)
    seen = detected_in_lists(policy, episode, shown)
    changes = sum(map(len, episode.changes.values()))
    return Alarms(
        int(shown.outcome.learnt.sum()), len(shown.outcome.changes), seen.false_alarms,
        seen.found, changes - seen.unplayed, seen.plays,
    )  # fmt: skip


Cells = list[tuple[str, str]]


def _of(
    tasks: list[Task], done: list[Alarms], part: str, kind: str, users: str, k: int
) -> list[Alarms]:
    wanted = (part, kind, k, users)
    return [one for task, one in zip(tasks, done, strict=True) if task[:4] == wanted]


def _still(cells: Cells, tasks: list[Task], done: list[Alarms]) -> Table:
    rows = []
    whole = any(kind == "adaptive" for kind, _ in cells)
    others = (
        "AdaptiveLinUCB takes no rate, and its column is reports per 10,000 plays."
        if whole else "A run without --quick has hybrids, groups and AdaptiveLinUCB, too."
    )  # fmt: skip
    for kind, users in cells:
        row = [kind, users]
        bunch = bunching(
            [[one.reports for one in _of(tasks, done, "still", kind, users, k)] for k in SIZES]
        )
        for k in SIZES:
            runs = _of(tasks, done, "still", kind, users, k)
            plays = sum(one.plays for one in runs)
            rate = 1e-4 if kind == "adaptive" else ASKED
            ratio = ratio_of(sum(one.reports for one in runs), rate * plays, bunch)
            row.append(fmt.fixed(ratio))
        rows.append(row)
    return Table(
        title="False alarms where nothing changes, measured over requested",
        columns=["policy", "users", *(f"k = {k}" for k in SIZES)],
        rows=rows,
        caption=f"Reports over the {ASKED:g} per play that was asked for. semi: normal noise, "
        "σ = 0.2; cascade: clicks, up to the first. 95 % intervals allow for alarms in bunches. "
        + others,
    )


def _changing(cells: Cells, tasks: list[Task], done: list[Alarms]) -> Table:
    rows = []
    for kind, users in cells:
        row = [kind, users]
        for k in SIZES:
            runs = _of(tasks, done, "changing", kind, users, k)
            shares = [one.found / one.possible for one in runs if one.possible]
            delays = [delay for one in runs for delay in one.delays]
            late = f"{np.median(delays):.0f}" if delays else "–"
            share = fmt.percent(mean_interval(np.array(shares))) if shares else "–"
            row += [share, late]
        rows.append(row)
    return Table(
        title="Changes detected, of those that a play followed, and the median delay in plays",
        columns=["policy", "users", *(part for k in SIZES for part in (f"k = {k}", "delay"))],
        rows=rows,
        caption="Policies with nothing set; changes every third of the run (semi: new interests; "
        "cascade: half of the arms reverse).",
    )
