"""obp's own replay of a log: ``run_bandit_replay``, which knows no candidates."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import obp.simulator.replay as tool
from obp.policy import LinUCB
from tqdm import tqdm

tool.tqdm = tqdm  # obp 0.5.7 calls the module instead, and fails at every replay

NOTES = {
    "replay": "run_bandit_replay of LinUCB, repaired by us (as released it calls a module and "
    "fails); no candidates: a log of choices among all 60"
}


def replay(path: Path, events: int) -> tuple[float, int, int]:
    """It returns the choices; we count those that met the log's."""
    with np.load(path) as log:
        X, arm = log["contexts"][:events], log["any_arm"][:events]
        reward, n_arms, alpha = log["any_reward"][:events], int(log["n_arms"]), float(log["alpha"])
    n, d = X.shape
    policy = LinUCB(dim=d, n_actions=n_arms, epsilon=alpha, random_state=0)
    feedback = {
        "n_rounds": n,
        "n_actions": n_arms,
        "context": X,
        "action": arm,
        "reward": reward,
        "position": np.zeros(n, dtype=int),
        "pscore": np.full(n, 1 / n_arms),
    }
    start = time.perf_counter()
    chosen = tool.run_bandit_replay(bandit_feedback=feedback, policy=policy)
    spent = time.perf_counter() - start
    return spent, n, int(chosen[np.arange(n), arm, 0].sum())
