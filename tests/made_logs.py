"""Small made-up logs: late arms, pools of all sizes and orders, features that change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import whim
from whim.logs import Log

__all__ = ["POLICIES", "D", "M", "made_log"]

D, M = 3, 2

POLICIES: dict[str, Callable[[], whim.Policy]] = {
    "random": lambda: whim.Random(seed=4),
    "ucb": lambda: whim.UCB(),
    "mucb": lambda: whim.MUCB(window=6, threshold=1.5, gamma=0.3),
    "linucb-disjoint": lambda: whim.LinUCBDisjoint(n_features=D, alpha=0.5),
    "linucb-ties": lambda: whim.LinUCBDisjoint(n_features=D, ties="random", seed=2),
    "pslinucb-disjoint": lambda: whim.PSLinUCBDisjoint(n_features=D, window=6, threshold=0.15),
    "linucb-uniform": lambda: whim.LinUCBUniform(n_item_features=M, alpha=0.5),
    "linucb-hybrid": lambda: whim.LinUCBHybrid(n_features=D, n_item_features=M),
    "pslinucb-hybrid": lambda: whim.PSLinUCBHybrid(
        n_features=D, n_item_features=M, window=6, threshold=0.15
    ),
    "lints": lambda: whim.LinTS(n_features=D, alpha=0.3, seed=5),
    "denband": lambda: whim.DenBand(
        n_item_features=M, tau=10, gate_window=8, gate_threshold=0.1, delta_l=0.1, sigma=0.1
    ),
    "modified-pslinucb": lambda: whim.ModifiedPSLinUCB(
        n_features=D, window=6, b=0.3, c=0.3, gamma=0.2
    ),
    "oracle-restart": lambda: whim.OracleRestart(
        policy=whim.LinUCBDisjoint(n_features=D), changes={"arm1": [20, 60], "arm2": [35], 2: [9]}
    ),
}


def made_log(
    folder: Path, *, logging: str | None = "uniform", n: int = 500, arms: int = 9, seed: int = 0
) -> Log:
    """Arms come one by one; arm 1 changes its features for good, arm 2 goes back and forth.

    Under ``"propensity"`` the arm is shown with probabilities far from uniform. Interests turn
    half way, so that windows of six find changes.
    """
    rng = np.random.default_rng([seed, n])
    theta = rng.normal(size=(2, arms, D))
    Y = rng.normal(size=(3, arms, M))
    path = folder / f"{logging}-{n}-{seed}.whim"
    with whim.logs.Writer(
        path, n_features=D, n_item_features=M, logging=logging,
        propensities=logging == "propensity",
    ) as w:  # fmt: skip
        for i in range(n):
            there = 3 + (arms - 3) * i // n
            pool = rng.permutation(there)[: rng.integers(1, min(there, 6) + 1)]
            version = np.where(pool == 1, i > n // 3, np.where(pool == 2, 2 * (i // 5 % 2), 0))
            x = rng.normal(size=D)
            chances = rng.dirichlet(np.full(len(pool), 2.0)) * 0.8 + 0.2 / len(pool)
            if logging != "propensity":
                chances = np.full(len(pool), 1 / len(pool))
            place = int(rng.choice(len(pool), p=chances))
            worth = 1 / (1 + np.exp(-2 * x @ theta[2 * i // n, pool[place]]))
            w.event(
                time=i, x=x, arms=[f"arm{a}" for a in pool], features=Y[version, pool],
                shown=f"arm{pool[place]}", reward=float(rng.random() < worth),
                propensity=float(chances[place]) if logging == "propensity" else None,
            )  # fmt: skip
    return whim.logs.open(path)
