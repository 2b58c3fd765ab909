"""The replay of contextualbandits: ``evaluateRejectionSampling``, which knows no candidates."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from contextualbandits.evaluation import evaluateRejectionSampling
from contextualbandits.online import LinUCB

NOTES = {
    "replay": "evaluateRejectionSampling of LinUCB, one event per batch, from the log's start; "
    "no candidates: a log of choices among all 60"
}


def replay(path: Path, events: int) -> tuple[float, int, int]:
    """One event per batch: its default of ten would decide with an old model."""
    with np.load(path) as log:
        X, arm = log["contexts"][:events], log["any_arm"][:events]
        reward, n_arms, alpha = log["any_reward"][:events], int(log["n_arms"]), float(log["alpha"])
    policy = LinUCB(
        n_arms, alpha=alpha, lambda_=1.0, fit_intercept=False, method="sm", random_state=1
    )
    start = time.perf_counter()
    _, matched = evaluateRejectionSampling(
        policy, X, arm, reward, online=True, partial_fit=True, start_point_online=0, batch_size=1
    )
    return time.perf_counter() - start, len(X), int(matched)
