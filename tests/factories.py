"""Every policy of the library with small parameters: what the contract tests run over."""

from __future__ import annotations

from collections.abc import Callable

import whim
from whim import Policy

__all__ = ["FACTORIES"]

FACTORIES: dict[str, Callable[[], Policy]] = {
    "random": lambda: whim.Random(seed=4),
    "ucb1": lambda: whim.UCB(),
    "ucb-li": lambda: whim.UCB(bonus="li", alpha=0.5, n_features=3),
    "mucb": lambda: whim.MUCB(window=20, threshold=4.0, gamma=0.3),
    "ducb": lambda: whim.DUCB(gamma=0.95),
    "swucb": lambda: whim.SWUCB(window=50),
    "cusum-ucb": lambda: whim.CUSUMUCB(warmup=10, drift=0.05, threshold=2.0, explore=0.1),
    "denband": lambda: whim.DenBand(
        n_item_features=3, tau=20, gate_window=10, gate_threshold=0.2, delta_l=0.1, sigma=0.1
    ),
    "denband-authors": lambda: whim.DenBand.authors(
        n_item_features=2, n_features=3, payoff="cross", tau=10, max_experts=4
    ),
    "dynamic-linucb": lambda: whim.DynamicLinUCB(n_item_features=3, tau=15, max_models=4),
    "dlinucb": lambda: whim.DLinUCB(n_features=3, gamma=0.97, alpha=0.5),
    "dlinucb-item": lambda: whim.DLinUCB(n_item_features=3, payoff="item", gamma=0.9),
    "dlinucb-cross": lambda: whim.DLinUCB(
        n_features=2, n_item_features=2, payoff="cross", gamma=0.9, alpha=0.4
    ),
    "swlinucb": lambda: whim.SWLinUCB(n_features=3, window=40, alpha=0.5),
    "swlinucb-cross": lambda: whim.SWLinUCB(
        n_features=2, n_item_features=2, payoff="cross", window=30, ridge=0.5
    ),
    "swlinucb-given": lambda: whim.SWLinUCB(n_cross_features=4, payoff="cross", window=30),
    "lints": lambda: whim.LinTS(n_features=3, alpha=0.3, seed=5),
    "lints-item": lambda: whim.LinTS(n_item_features=3, payoff="item", alpha=0.3),
    "linucb-disjoint": lambda: whim.LinUCBDisjoint(n_features=4, alpha=0.5),
    "linucb-disjoint-light": lambda: whim.LinUCBDisjoint(n_features=4, scoring="float32"),
    "linucb-uniform": lambda: whim.LinUCBUniform(n_item_features=3, alpha=0.5),
    "linucb-uniform-cross": lambda: whim.LinUCBUniform(
        n_item_features=2, n_features=3, payoff="cross", ridge=0.3
    ),
    "linucb-uniform-given": lambda: whim.LinUCBUniform(
        n_cross_features=5, n_features=3, payoff="cross"
    ),
    "linucb-hybrid": lambda: whim.LinUCBHybrid(n_features=3, n_item_features=2),
    "linucb-hybrid-given": lambda: whim.LinUCBHybrid(n_features=4, n_cross_features=2),
    "pslinucb-disjoint": lambda: whim.PSLinUCBDisjoint(n_features=3, window=12, threshold=0.2),
    "pslinucb-disjoint-literal": lambda: whim.PSLinUCBDisjoint(
        n_features=1, window=2, threshold=0.5, first_window="literal"
    ),
    "pslinucb-disjoint-score": lambda: whim.PSLinUCBDisjoint(
        n_features=3, window=40, false_alarm=1e-3, revisit="off"
    ),
    "pslinucb-disjoint-revisit": lambda: whim.PSLinUCBDisjoint(
        n_features=3, window=40, false_alarm=1e-3
    ),
    "pslinucb-groups": lambda: whim.PSLinUCBGroups(
        n_features=3, groups=2, n_item_features=2, window=40, false_alarm=1e-3
    ),
    "pslinucb-hybrid": lambda: whim.PSLinUCBHybrid(
        n_features=3, n_item_features=2, window=12, threshold=0.2
    ),
    "pslinucb-hybrid-literal": lambda: whim.PSLinUCBHybrid(
        n_features=4, n_cross_features=2, window=8, threshold=0.2,
        g_pre="literal", first_window="literal",
    ),
    "linucb-watched": lambda: whim.LinUCBWatched(
        n_features=3, warmup=8, settings={"threshold": 4.0}
    ),
    "linucb-watched-page-hinkley": lambda: whim.LinUCBWatched(
        n_features=2, detector="page-hinkley", warmup=4, watch="square",
        settings={"threshold": 1.0, "min_instances": 5, "mode": "up"},
    ),
    "linucb-watched-adwin": lambda: whim.LinUCBWatched(
        n_features=3, detector="adwin", warmup=4, settings={"delta": 0.2, "clock": 4}
    ),
    "pslinucb-hybrid-score": lambda: whim.PSLinUCBHybrid(
        n_features=3, n_item_features=2, window=40, false_alarm=1e-3, revisit="off"
    ),
    "pslinucb-hybrid-revisit": lambda: whim.PSLinUCBHybrid(
        n_features=3, n_item_features=2, window=40, false_alarm=1e-3, revisit=0.01
    ),
    "pslinucb-hybrid-score-given": lambda: whim.PSLinUCBHybrid(
        n_features=2, n_cross_features=2, window=16, false_alarm=1e-3
    ),
    "adaptive-linucb": lambda: whim.AdaptiveLinUCB(n_features=3, beginnings=4),
    "modified-pslinucb": lambda: whim.ModifiedPSLinUCB(
        n_features=3, window=10, b=0.3, c=0.3, gamma=0.2
    ),
    "oracle-restart": lambda: whim.OracleRestart(
        policy=whim.LinUCBDisjoint(n_features=3), changes={"a": [50, 90], "c": [10], 3: [200]}
    ),
    "oracle-restart-all": lambda: whim.OracleRestart(
        policy=whim.LinUCBHybrid(n_features=2, n_item_features=2), changes=[60, 120]
    ),
}  # fmt: skip
