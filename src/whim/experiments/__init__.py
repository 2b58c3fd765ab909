"""The paper's experiments as data, with ids such as synthetic/disjoint.

Each experiment is a function from ``Options`` to ``ExperimentResult``; ``run`` looks them up by id.
"""

from __future__ import annotations

import importlib
import time
from typing import Any

from whim.errors import InvalidInputError
from whim.experiments.options import Options
from whim.experiments.result import Curve, ExperimentResult, Figure, Table

Findings = ExperimentResult  # its former name

__all__ = [
    "EXPERIMENTS", "Curve", "ExperimentResult", "Figure", "Options", "Table", "compile_loops",
    "run", "select",
]  # fmt: skip

# id -> module and function; in the order in which they are run and shown
EXPERIMENTS = {
    "synthetic/disjoint": ("synthetic", "disjoint"),
    "synthetic/hybrid": ("synthetic", "hybrid"),
    "synthetic/theorem": ("theorem", "theorem"),
    "lastfm/table": ("lastfm", "table"),
    "lastfm/sensitivity": ("lastfm", "sensitivity"),
    "yahoo/table": ("yahoo", "table"),
    "yahoo/sensitivity": ("yahoo", "sensitivity"),
    "beyond/power": ("power", "power"),
    "beyond/detection": ("detection", "detection"),
    "beyond/clicks": ("clicks", "clicks"),
    "beyond/calibration": ("calibration", "calibration"),
    "beyond/rewards": ("rewards", "rewards"),
    "beyond/revisit": ("revisit", "revisit"),
    "beyond/groups": ("groups", "groups"),
    "beyond/lists": ("lists", "lists"),
    "beyond/streams": ("streams", "streams"),
    "beyond/lastfm": ("lastfm_orders", "orders"),
}

_SIZES = {"n_features": 2, "n_item_features": 2}
_ONE, _ITEM = {"n_features": 2}, {"n_item_features": 2}
_FIRST_LOOPS: list[tuple[str, dict[str, Any]]] = [
    ("pslinucb-disjoint", _ONE | {"threshold": 0.1}),
    ("linucb-disjoint", _ONE),
]
_OTHER_LOOPS: list[tuple[str, dict[str, Any]]] = [  # those that take longest to compile first
    ("pslinucb-hybrid", _SIZES),
    ("denband", _ITEM | {"sigma": 0.2, "delta_l": 0.1}),
    ("adaptive-linucb", _ONE),
    ("pslinucb-groups", _ONE | {"groups": "given"}),
    ("pslinucb-disjoint", _ONE),
    ("pslinucb-disjoint", _ONE | {"revisit": "off"}),
    ("modified-pslinucb", _ONE | {"b": 0.1, "c": 0.1, "gamma": 0.1}),
    ("pslinucb-hybrid", _SIZES | {"threshold": 0.1}),
    ("linucb-hybrid", _SIZES),
    ("dynamic-linucb", _ITEM),
    ("linucb-uniform", _ITEM),
    ("linucb-watched", _ONE),
    ("swlinucb", _ONE | {"window": 10}),
    ("dlinucb", _ONE | {"gamma": 0.9, "alpha": 1.0}),
    ("mucb", {"window": 10, "threshold": 1.0, "gamma": 0.1}),
    ("cusum-ucb", {"threshold": 1.0}),
    ("ucb", {}),
    ("random", {}),
]
_BATCHES = ("pslinucb-disjoint", "adaptive-linucb")
_NOT_QUICK = {"beyond/groups": "pslinucb-groups"}  # whose loop takes a fifth of all compiling


def select(name: str, *, quick: bool = False) -> list[str]:
    """The ids that a name stands for: one, all of a group such as ``synthetic``, or ``all``.

    A quick run of all leaves out beyond/groups, which takes long to compile.

    >>> select("lastfm")
    ['lastfm/table', 'lastfm/sensitivity']
    """
    ids = [id for id in EXPERIMENTS if name in (id, id.partition("/")[0], "all")]
    if name == "all" and quick:
        ids = [id for id in ids if id not in _NOT_QUICK]
    if not ids:
        raise InvalidInputError(
            f"experiment must be all or one of {', '.join(EXPERIMENTS)}, got {name!r}."
        )
    return ids


def compile_loops(options: Options, *, first: bool) -> None:
    """Compile the loops of the first experiment, or those of all others, each of them once.

    The first experiment needs few, so that its figures are there while others are compiled.
    Where a loop is cached already this takes no time.
    """
    from whim.evaluate.warm import warm_all
    from whim.policies import policy

    chosen = _FIRST_LOOPS if first else _OTHER_LOOPS
    works = [
        (policy(name, **params), ("loop",))
        for name, params in chosen
        if not (options.quick and name in _NOT_QUICK.values())
    ]
    if not first:  # beyond/calibration and beyond/rewards learn by update_many
        works += [(policy(name, **_ONE), ("batch",)) for name in _BATCHES]
    title = "compiling for the first experiment" if first else "compiling for all others"
    advance = options.stage(f"{title} (only once)", len(works))
    warm_all(works, jobs=options.jobs, progress=advance)


def run(experiment: str, options: Options) -> ExperimentResult:
    """Run one experiment."""
    if experiment not in EXPERIMENTS:
        select(experiment)
        raise InvalidInputError(f"experiment must be a single one, got {experiment!r}.")
    module, function = EXPERIMENTS[experiment]
    made = getattr(importlib.import_module(f"whim.experiments.{module}"), function)
    began = time.monotonic()
    result: ExperimentResult = made(options)
    result.id, result.command = experiment, options.command(experiment)
    result.seconds = time.monotonic() - began
    return result
