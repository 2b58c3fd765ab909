"""The detectors of ``beyond/detection``, and the settings among which each may choose.

The score test is what a user gets who sets nothing. Every competitor with a setting gets the best
of a small grid, judged by regret on worlds of other seeds than those shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import whim.policies as whim
from whim.evaluate import simulate
from whim.evaluate.simulate import Maker
from whim.evaluate.tasks import OracleMaker
from whim.experiments.options import Options
from whim.worlds import World

OURS, PAPERS, ORACLE = "Score test, default", "Paper's test, δ = 0.35", "Oracle"
_WINDOWS = (500, 1000, 2000, 4000)
_OTHER_SEEDS = 1_000_003  # added to the seed of the runs that are shown


class Case(NamedTuple):
    """A world, and what policies know of it: α, and whether rewards are clicks."""

    title: str
    world: World
    horizon: int
    alpha: float = 1.0
    clicks: bool = False
    like: str = ""  # title of the case whose settings are used; none: it has its own


class Competitor(NamedTuple):
    """How a policy is made for a case and settings, the settings to choose from, if it detects."""

    make: Callable[[Case, dict[str, Any]], Maker]
    grid: list[dict[str, Any]]
    detects: bool = True


def competitors(case: Case) -> dict[str, Competitor]:
    """Every policy for a case, by label."""
    some = _CLICKS if case.clicks else _REWARDS
    papers = {"window": 1000, "threshold": 0.025} if case.clicks else _PAPER
    policies = {
        OURS: Competitor(_ps, [{}]),
        "Paper's test, δ = 0.025" if case.clicks else PAPERS: Competitor(_ps, [papers]),
        "Paper's test, tuned": Competitor(_ps, some["mean"]),
        "CUSUM": Competitor(_watched, some["cusum"]),
        "Page-Hinkley": Competitor(_watched, some["page-hinkley"]),
        "ADWIN": Competitor(_watched, some["adwin"]),
        "Modified PSLinUCB": Competitor(_modified, some["modified"]),
        "M-UCB": Competitor(lambda case, s: whim.MUCB(**s), some["mucb"]),
        "CUSUM-UCB": Competitor(lambda case, s: whim.CUSUMUCB(**s), some["cusum-ucb"]),
    }
    if case.world.n_item_features:
        policies |= _with_features(case)
    return policies | {
        "Sliding window": Competitor(_sliding, [{"window": w} for w in _WINDOWS], False),
        "Discounting": Competitor(_fading, [{"gamma": 1 - 1 / w} for w in _WINDOWS[:3]], False),
        "LinUCB": Competitor(lambda case, s: whim.LinUCBDisjoint(**_own(case)), [{}], False),
        ORACLE: Competitor(lambda case, s: OracleMaker("linucb-disjoint", _own(case)), [{}], False),
    }


def tune(
    cases: list[Case],
    options: Options,
    runs: int,
    advance: Callable[[int], None],
    among: dict[str, Competitor] | None = None,
) -> dict[str, dict[str, list[tuple[dict[str, Any], float, float]]]]:
    """By case and competitor: its settings with mean regret and false alarms per play, best first.

    Of every competitor with more than one setting, unless ``among`` names others.
    """
    tuned: dict[str, dict[str, list[tuple[dict[str, Any], float, float]]]] = {}
    for done, case in enumerate(cases):
        choices = among or {b: r for b, r in competitors(case).items() if len(r.grid) > 1}
        names = {
            (label, i): f"{label} {i}" for label, r in choices.items() for i in range(len(r.grid))
        }
        result = simulate(
            case.world,
            {name: choices[label].make(case, choices[label].grid[i])
             for (label, i), name in names.items()},
            horizon=case.horizon, runs=runs, seed=options.seed + _OTHER_SEEDS, points=1,
            jobs=options.jobs,
        )  # fmt: skip
        tuned[case.title] = {}
        for label, competitor in choices.items():
            tried = []
            for i, settings in enumerate(competitor.grid):
                name = names[label, i]
                alarms = sum(d.false_alarms for d in result.detections[name])
                regret = float(result.regret[name][:, -1].mean())
                tried.append((settings, regret, alarms / (runs * case.horizon)))
            tuned[case.title][label] = sorted(tried, key=lambda one: one[1])
        advance(done + 1)
    return tuned


def _own(case: Case) -> dict[str, Any]:
    return {"n_features": case.world.n_features, "alpha": case.alpha}


def _both(case: Case) -> dict[str, Any]:
    return _own(case) | {"n_item_features": case.world.n_item_features}


def _ps(case: Case, s: dict[str, Any]) -> Maker:
    return whim.PSLinUCBDisjoint(**_own(case), **s)


def _watched(case: Case, s: dict[str, Any]) -> Maker:
    return whim.LinUCBWatched(**_own(case), **s)


def _modified(case: Case, s: dict[str, Any]) -> Maker:
    return whim.ModifiedPSLinUCB(**_own(case), **s)


def _sliding(case: Case, s: dict[str, Any]) -> Maker:
    return whim.SWLinUCB(**_own(case), **s)


def _fading(case: Case, s: dict[str, Any]) -> Maker:
    return whim.DLinUCB(**_own(case), **s)


def _with_features(case: Case) -> dict[str, Competitor]:
    """Policies that look at the arms' features."""
    both = _both(case)
    sigma = 0.2 if case.clicks else 0.3
    gates = (0.03, 0.06) if case.clicks else (0.2, 0.4)
    papers = (
        {"window": 1200, "threshold": 0.03} if case.clicks else {"window": 100, "threshold": 0.4}
    )
    found = {
        "Hybrid score test, default": Competitor(lambda case, s: whim.PSLinUCBHybrid(**both), [{}]),
        f"Hybrid paper's test, δ = {papers['threshold']}": Competitor(
            lambda case, s: whim.PSLinUCBHybrid(**both, **s), [papers]
        ),
        "DenBand": Competitor(
            lambda case, s: whim.DenBand(**both, payoff="cross", sigma=sigma, **s),
            [{"gate_threshold": g, "delta_l": b} for g in gates for b in (g / 2, g)],
        ),
        "dLinUCB": Competitor(
            lambda case, s: whim.DynamicLinUCB(**both, payoff="cross", sigma=sigma, **s),
            [{"tau": tau, "delta1": p} for tau in (100, 500) for p in (0.01, 0.1)],
        ),
    }
    return found


_PAPER = {"window": 100, "threshold": 0.35}


def _watch(detector: str, watch: str, **settings: Any) -> dict[str, Any]:
    return {"detector": detector, "watch": watch, "warmup": 20, "settings": settings}


_CUSUM = [
    *(_watch("cusum", "residual", drift=k, threshold=h) for k in (0.5, 1.0) for h in (5.0, 10.0)),
    *(_watch("cusum", "square", drift=k, threshold=h) for k in (0.5, 1.0) for h in (10.0, 20.0)),
]
_ADWIN = [
    _watch("adwin", watch, delta=delta, clock=1)
    for watch in ("residual", "square")
    for delta in (0.05, 0.9)
]
_PH = {"delta": 0.05, "min_instances": 5}
_UP = {"mode": "up", **_PH}
_REWARDS: dict[str, list[dict[str, Any]]] = {
    "mean": [
        {"window": w, "threshold": t}
        for w, t in ((30, 0.25), (50, 0.2), (50, 0.3), (100, 0.15), (100, 0.25), (200, 0.15))
    ],
    "cusum": _CUSUM,
    "page-hinkley": [
        *(_watch("page-hinkley", "residual", threshold=h, **_PH) for h in (2.5, 6.0)),
        *(_watch("page-hinkley", "square", threshold=h, **_UP) for h in (0.5, 1.0)),
    ],
    "adwin": _ADWIN,
    "modified": [
        {"window": w, "b": h / 2, "c": h / 2, "gamma": g}
        for w, h in ((50, 0.3), (100, 0.25))
        for g in (0.02, 0.1)
    ],
    "mucb": [
        {"window": w, "threshold": h * w / 2, "gamma": g}
        for w, h in ((50, 0.4), (100, 0.3))
        for g in (0.02, 0.1)
    ],
    "cusum-ucb": [
        {"warmup": 50, "drift": 0.1, "threshold": h, "explore": g}
        for h in (5.0, 15.0)
        for g in (0.02, 0.1)
    ],
}
_CLICKS: dict[str, list[dict[str, Any]]] = {
    "mean": [
        {"window": w, "threshold": t}
        for w, t in ((200, 0.06), (200, 0.1), (200, 0.15), (500, 0.03), (500, 0.06), (1000, 0.04))
    ],
    "cusum": _CUSUM,
    "page-hinkley": [
        *(_watch("page-hinkley", "residual", threshold=h, **_PH) for h in (6.0, 15.0)),
        *(_watch("page-hinkley", "square", threshold=h, **_UP) for h in (3.0, 8.0)),
    ],
    "adwin": _ADWIN,
    "modified": [
        {"window": w, "b": h / 2, "c": h / 2, "gamma": g}
        for w, h in ((200, 0.2), (500, 0.1))
        for g in (0.02, 0.1)
    ],
    "mucb": [
        {"window": w, "threshold": h * w / 2, "gamma": g}
        for w, h in ((200, 0.2), (500, 0.12))
        for g in (0.02, 0.1)
    ],
    "cusum-ucb": [
        {"warmup": 100, "drift": 0.05, "threshold": h, "explore": g}
        for h in (10.0, 30.0)
        for g in (0.02, 0.1)
    ],
}
