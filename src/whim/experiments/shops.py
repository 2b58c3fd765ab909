"""A shop in which nothing changes: what detecting changes costs there (``beyond/rewards``).

Ten items; one in thirty visitors buys, depending linearly on the context. A policy that restarts
without cause earns less than LinUCB.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import whim.policies as whim
from whim.evaluate import Interval, mean_interval, spread
from whim.evaluate.intervals import ratio_interval
from whim.evaluate.simulate import follow
from whim.experiments import formatting as fmt
from whim.experiments.options import Options
from whim.experiments.result import Table
from whim.types import F64
from whim.worlds import Episode

RUNS, VISITS, QUICK_VISITS = 20, 100_000, 5_000
LEAST = 0.97  # wished for, of LinUCB's value
ITEMS, FEATURES, RATE = 10, 5, 0.03
GOODS = ("clicks", "clicks worth 0.5", "revenue")
_BASE = "LinUCB"


class Task(NamedTuple):
    """One run of all policies."""

    goods: str
    visits: int
    seed: tuple[int, ...]


class Outcome(NamedTuple):
    """Of a run, by policy: its value over the best one's, and how many changes it reported."""

    value: dict[str, float]
    reports: dict[str, int]


def _policies() -> dict[str, whim.Policy]:
    return {
        _BASE: whim.LinUCBDisjoint(n_features=FEATURES),
        "PSLinUCB": whim.PSLinUCBDisjoint(n_features=FEATURES),
        "AdaptiveLinUCB": whim.AdaptiveLinUCB(n_features=FEATURES),
    }


def _episode(task: Task) -> Episode:
    """The rate of an item is 0.1 to 1.9 times its mean one, by context; its mean is within 50 %."""
    rng = np.random.default_rng(task.seed)
    X = rng.uniform(-1.0, 1.0, size=(task.visits, FEATURES))
    X[:, 0] = 1.0
    tastes = rng.normal(size=(FEATURES, ITEMS))
    tastes *= 0.9 / np.abs(tastes[1:]).sum(axis=0)
    tastes[0] = 1.0
    rates = X @ tastes * rng.uniform(0.5, 1.5, size=ITEMS) * RATE
    bought = rng.random(rates.shape) < rates
    worth: F64 = np.full(rates.shape, 0.5 if "0.5" in task.goods else 1.0)
    mean = float(worth[0, 0])
    if task.goods == "revenue":
        worth, mean = rng.lognormal(3.0, 1.0, size=rates.shape), float(np.exp(3.5))
    return Episode(X, mean * rates, bought * worth, {item: [] for item in range(ITEMS)})


def _run(task: Task) -> Outcome:
    episode = _episode(task)
    best = float(episode.best.sum())
    value, reports = {}, {}
    for label, policy in _policies().items():
        followed, lost = follow(policy, episode)
        value[label] = 1.0 - float(lost.sum()) / best
        reports[label] = len(followed.changes)
    return Outcome(value, reports)


def shops(options: Options) -> tuple[Table, dict[tuple[str, str], Interval]]:
    """The table, and by goods and policy the share of LinUCB's value."""
    runs = options.choose(RUNS, 3)
    visits = QUICK_VISITS if options.quick else VISITS
    tasks = [
        Task(goods, visits, (options.seed, i, run))
        for i, goods in enumerate(GOODS)
        for run in range(runs)
    ]
    advance = options.stage("beyond/rewards: shops", len(tasks))
    outcomes = spread(_run, tasks, jobs=options.jobs, progress=advance)
    rows, shares = [], {}
    for i, goods in enumerate(GOODS):
        own = outcomes[i * runs : (i + 1) * runs]
        values = {label: np.array([run.value[label] for run in own]) for label in own[0].value}
        for label, value in values.items():
            shares[goods, label] = ratio_interval(value, values[_BASE])
            reports = float(np.mean([run.reports[label] for run in own]))
            rows.append(
                [
                    goods, label, fmt.fixed(mean_interval(value), 3),
                    "" if label == _BASE else fmt.fixed(shares[goods, label], 3),
                    "" if label == _BASE else fmt.count(reports),
                ]
            )  # fmt: skip
    return _table(rows, runs, visits), shares


def _table(rows: list[list[str]], runs: int, visits: int) -> Table:
    return Table(
        title="Shops in which nothing changes",
        columns=[
            "goods", "policy", "share of the best value", "share of LinUCB's", "reports per run",
        ],
        rows=rows,
        caption=f"{runs} runs of {visits:,} visits, {ITEMS} items, {FEATURES} features, about "
        f"{100 * RATE:g} % buy, linearly in the context; revenue is lognormal. Policies as they "
        "come; 95 % intervals over paired runs.",
        highlight=[i for i, row in enumerate(rows) if row[1] != _BASE],
    )  # fmt: skip
