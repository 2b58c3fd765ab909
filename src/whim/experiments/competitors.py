"""The detectors of ``beyond/detection``, and the settings among which each may choose.

The score test and AdaptiveLinUCB are what a user gets who sets nothing. Every competitor with a
setting gets the best of a small grid, judged by regret on worlds of other seeds than those shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import whim.policies as whim
from whim.evaluate import simulate
from whim.evaluate.simulate import Maker
from whim.evaluate.tasks import OracleMaker
from whim.experiments.forced_glr import ForcedGLRMaker
from whim.experiments.options import Options
from whim.worlds import World

OURS, PAPERS, ORACLE = "Score test, default", "Paper's test, δ = 0.35", "Oracle"
ADAPTIVE = "AdaptiveLinUCB, default"
FORCED_GLR = "Forced exploration, GLR, restart"
RIVERS = ("Page-Hinkley", "ADWIN")
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


def competitors(case: Case, *, quick: bool = False) -> dict[str, Competitor]:
    """Every policy for a case, by label; if quick, without those that need river."""
    some = _CLICKS if case.clicks else _REWARDS
    papers = {"window": 1000, "threshold": 0.025} if case.clicks else _PAPER
    ps, watched = _disjoint(whim.PSLinUCBDisjoint), _disjoint(whim.LinUCBWatched)
    policies = {
        OURS: Competitor(ps, [{}]),
        ADAPTIVE: Competitor(
            lambda case, s: whim.AdaptiveLinUCB(n_features=case.world.n_features), [{}]
        ),
        "Paper's test, δ = 0.025" if case.clicks else PAPERS: Competitor(ps, [papers]),
        "Paper's test, tuned": Competitor(ps, some["mean"]),
        "CUSUM": Competitor(watched, some["cusum"]),
        "Page-Hinkley": Competitor(watched, some["page-hinkley"]),
        "ADWIN": Competitor(watched, some["adwin"]),
        "Modified PSLinUCB": Competitor(_disjoint(whim.ModifiedPSLinUCB), some["modified"]),
        "M-UCB": Competitor(lambda case, s: whim.MUCB(**s), some["mucb"]),
        "CUSUM-UCB": Competitor(lambda case, s: whim.CUSUMUCB(**s), some["cusum-ucb"]),
        FORCED_GLR: Competitor(
            lambda case, s: ForcedGLRMaker(_own(case) | {"clicks": case.clicks} | s), _FORCED
        ),
    }
    if quick:
        policies = {label: one for label, one in policies.items() if label not in RIVERS}
    if case.world.n_item_features:
        policies |= _with_features(case)
    return policies | {
        "Sliding window": Competitor(
            _disjoint(whim.SWLinUCB), [{"window": w} for w in _WINDOWS], False
        ),
        "Discounting": Competitor(
            _disjoint(whim.DLinUCB), [{"gamma": 1 - 1 / w} for w in _WINDOWS[:3]], False
        ),
        "LinUCB": Competitor(_disjoint(whim.LinUCBDisjoint), [{}], False),
        ORACLE: Competitor(lambda case, s: OracleMaker("linucb-disjoint", _own(case)), [{}], False),
    }


def tune(
    cases: list[Case],
    options: Options,
    runs: int,
    advance: Callable[[int], None],
    among: dict[str, Competitor] | None = None,
    quick: bool = False,
) -> dict[str, dict[str, list[tuple[dict[str, Any], float, float]]]]:
    """By case and competitor: its settings with mean regret and false alarms per play, best first.

    Of every competitor with more than one setting, unless ``among`` names others; if quick
    only the first and a middle one of each grid.
    """
    tuned: dict[str, dict[str, list[tuple[dict[str, Any], float, float]]]] = {}
    for done, case in enumerate(cases):
        choices = among or {
            b: r for b, r in competitors(case, quick=quick).items() if len(r.grid) > 1
        }
        if quick:
            choices = {
                b: r._replace(grid=r.grid[:: (len(r.grid) + 1) // 2]) for b, r in choices.items()
            }
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


def _disjoint(policy: Callable[..., Maker]) -> Callable[[Case, dict[str, Any]], Maker]:
    """Makes a policy of contexts alone for a case and settings."""
    return lambda case, settings: policy(**_own(case), **settings)


def _with_features(case: Case) -> dict[str, Competitor]:
    """Policies that look at the arms' features."""
    both = _own(case) | {"n_item_features": case.world.n_item_features}
    sigma = 0.2 if case.clicks else 0.3
    gates = (0.03, 0.06) if case.clicks else (0.2, 0.4)
    papers = (
        {"window": 1200, "threshold": 0.03} if case.clicks else {"window": 100, "threshold": 0.4}
    )
    return {
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


_PAPER = {"window": 100, "threshold": 0.35}
_FORCED = [
    {"explore": share, "delta": level, "watch": watch}
    for watch in ("reward", "square")
    for share in (0.02, 0.1, 0.3)
    for level in (0.1, 0.9)
]


def _watch(detector: str, watch: str, **settings: Any) -> dict[str, Any]:
    return {"detector": detector, "watch": watch, "warmup": 20, "settings": settings}


def _grids(
    mean: list[tuple[int, float]], page_hinkley: tuple[list[float], list[float]],
    modified: list[tuple[int, float]], mucb: list[tuple[int, float]],
    cusum_ucb: tuple[int, float, list[float]],
) -> dict[str, list[dict[str, Any]]]:  # fmt: skip
    """The settings to try of each competitor; windows come with their thresholds."""
    explore = (0.02, 0.1)
    ph = {"delta": 0.05, "min_instances": 5}
    warmup, drift, thresholds = cusum_ucb
    levels = (("residual", (5.0, 10.0)), ("square", (10.0, 20.0)))
    return {
        "mean": [{"window": w, "threshold": t} for w, t in mean],
        "cusum": [
            _watch("cusum", watch, drift=k, threshold=h)
            for watch, heights in levels
            for k in (0.5, 1.0)
            for h in heights
        ],
        "page-hinkley": [
            *(_watch("page-hinkley", "residual", threshold=h, **ph) for h in page_hinkley[0]),
            *(_watch("page-hinkley", "square", threshold=h, mode="up", **ph)
              for h in page_hinkley[1]),
        ],
        "adwin": [
            _watch("adwin", watch, delta=delta, clock=1)
            for watch in ("residual", "square")
            for delta in (0.05, 0.9)
        ],
        "modified": [
            {"window": w, "b": h / 2, "c": h / 2, "gamma": g} for w, h in modified for g in explore
        ],
        "mucb": [
            {"window": w, "threshold": h * w / 2, "gamma": g} for w, h in mucb for g in explore
        ],
        "cusum-ucb": [
            {"warmup": warmup, "drift": drift, "threshold": h, "explore": g}
            for h in thresholds
            for g in explore
        ],
    }  # fmt: skip


_REWARDS = _grids(
    mean=[(30, 0.25), (50, 0.2), (50, 0.3), (100, 0.15), (100, 0.25), (200, 0.15)],
    page_hinkley=([2.5, 6.0], [0.5, 1.0]),
    modified=[(50, 0.3), (100, 0.25)],
    mucb=[(50, 0.4), (100, 0.3)],
    cusum_ucb=(50, 0.1, [5.0, 15.0]),
)
_CLICKS = _grids(
    mean=[(200, 0.06), (200, 0.1), (200, 0.15), (500, 0.03), (500, 0.06), (1000, 0.04)],
    page_hinkley=([6.0, 15.0], [3.0, 8.0]),
    modified=[(200, 0.2), (500, 0.1)],
    mucb=[(200, 0.2), (500, 0.12)],
    cusum_ucb=(100, 0.05, [10.0, 30.0]),
)
