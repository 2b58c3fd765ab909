"""The literal form of every policy over work A, by its registered name."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.references import changes, contextfree, forgetting, ridge
from benchmarks.references.common import Params, Reference

__all__ = ["REFERENCES"]

REFERENCES: dict[str, Callable[[Params], Reference]] = {
    "random": contextfree.random,
    "ucb": contextfree.ucb,
    "mucb": contextfree.mucb,
    "ducb": contextfree.ducb,
    "swucb": contextfree.swucb,
    "cusum-ucb": contextfree.cusum_ucb,
    "denband": forgetting.denband,
    "dynamic-linucb": forgetting.dynamic,
    "dlinucb": forgetting.dlinucb,
    "swlinucb": forgetting.swlinucb,
    "lints": ridge.lints,
    "linucb-disjoint": ridge.linucb,
    "linucb-uniform": ridge.uniform,
    "linucb-hybrid": changes.linucb_hybrid,
    "linucb-watched": ridge.watched,
    "modified-pslinucb": ridge.modified,
    "oracle-restart": changes.told,
    "pslinucb-disjoint": changes.pslinucb,
    "pslinucb-groups": changes.groups,
    "pslinucb-hybrid": changes.pslinucb_hybrid,
}
