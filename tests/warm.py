"""Compile what tests ask for, once and on all cores, before several workers of tests ask for it.

Kernels of a model have most of their parts in common, and a process compiles each part once: what
tests want of a model is compiled together, which costs far less than one by one.
"""

from __future__ import annotations

from collections.abc import Callable

import whim
from tests.factories import FACTORIES
from tests.test_list_loops import NAMES as LIST_LOOPS
from tests.test_list_loops import list_world
from whim import Policy
from whim.evaluate.lists import follow_lists
from whim.evaluate.spread import spread
from whim.evaluate.warm import _model, warm_policy

# wide enough for kernels that sum four numbers at a time
WIDE = {"linucb-disjoint-wide": lambda: whim.LinUCBDisjoint(n_features=24)}
MADE: dict[str, Callable[[], Policy]] = FACTORIES | WIDE


def compile_all(names: list[str]) -> None:
    """Live calls, batches, loops and lists of policies that share a model."""
    for name in names:
        warm_policy(MADE[name]())
        if name in LIST_LOOPS:
            follow_lists(MADE[name](), list_world(name, "cascade", 2).episode(horizon=2, seed=0))


if __name__ == "__main__":
    models: dict[str, list[str]] = {}
    for name, make in MADE.items():
        models.setdefault(_model(make()), []).append(name)
    spread(compile_all, sorted(models.values(), key=len, reverse=True), jobs=-1)
