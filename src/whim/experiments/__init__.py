"""The paper's experiments as data, with ids such as synthetic/disjoint.

Each experiment is a function from ``Options`` to ``Findings``; ``run`` looks them up by id.
"""

from __future__ import annotations

import importlib
from typing import Any

from whim.errors import InvalidInputError
from whim.experiments.findings import Curve, Figure, Findings, Table
from whim.experiments.options import Options

__all__ = [
    "EXPERIMENTS",
    "Curve",
    "Figure",
    "Findings",
    "Options",
    "Table",
    "compile_first",
    "run",
    "select",
]

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
    "beyond/clicks": ("untuned", "clicks"),
    "beyond/calibration": ("calibration", "calibration"),
    "beyond/revisit": ("revisit", "revisit"),
    "beyond/groups": ("groups", "groups"),
}


def select(name: str) -> list[str]:
    """The ids that a name stands for: one, all of a group such as ``synthetic``, or ``all``.

    >>> select("lastfm")
    ['lastfm/table', 'lastfm/sensitivity']
    """
    found = [id for id in EXPERIMENTS if name in (id, id.partition("/")[0], "all")]
    if not found:
        raise InvalidInputError(
            f"experiment must be all or one of {', '.join(EXPERIMENTS)}, got {name!r}."
        )
    return found


def compile_first(options: Options) -> None:
    """Compile what the experiments share, each loop once: seconds when it is cached already."""
    from whim.evaluate.warm import warm
    from whim.policies import policy

    one, both = {"n_features": 2}, {"n_features": 2, "n_item_features": 2}
    item = {"n_item_features": 2}
    needed: list[tuple[str, dict[str, Any]]] = [  # those that take longest to compile first
        ("pslinucb-hybrid", both),
        ("denband", item | {"sigma": 0.2, "delta_l": 0.1}),
        ("pslinucb-groups", both | {"groups": 2}),
        ("pslinucb-disjoint", one),
        ("pslinucb-disjoint", one | {"revisit": "off"}),
        ("modified-pslinucb", one | {"b": 0.1, "c": 0.1, "gamma": 0.1}),
        ("pslinucb-disjoint", one | {"threshold": 0.1}),
        ("pslinucb-hybrid", both | {"threshold": 0.1}),
        ("linucb-hybrid", both),
        ("dynamic-linucb", item),
        ("linucb-uniform", item),
        ("linucb-watched", one),
        ("swlinucb", one | {"window": 10}),
        ("dlinucb", one | {"gamma": 0.9, "alpha": 1.0}),
        ("linucb-disjoint", one),
        ("mucb", {"window": 10, "threshold": 1.0, "gamma": 0.1}),
        ("cusum-ucb", {"threshold": 1.0}),
        ("ucb", {}),
        ("random", {}),
    ]
    made = [policy(name, **params) for name, params in needed]
    advance = options.stage("compiling (the first time only)", len(made))
    warm(made, jobs=options.jobs, progress=advance)


def run(experiment: str, options: Options) -> Findings:
    """Run one experiment."""
    if experiment not in EXPERIMENTS:
        select(experiment)
        raise InvalidInputError(f"experiment must be a single one, got {experiment!r}.")
    module, function = EXPERIMENTS[experiment]
    made = getattr(importlib.import_module(f"whim.experiments.{module}"), function)
    found: Findings = made(options)
    return found
