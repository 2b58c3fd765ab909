"""river's own replay of a log: ``bandit.evaluate_offline``."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from river import bandit

NOTES = {"replay": "bandit.evaluate_offline of LinUCBDisjoint, candidates passed"}


def replay(path: Path, events: int) -> tuple[float, int, int]:
    """The dicts that it asks for are made before the clock starts."""
    with np.load(path) as log:
        X, pools = log["contexts"][:events], log["pools"][:events].tolist()
        place, reward = log["place"][:events].tolist(), log["reward"][:events].tolist()
    history = [
        (pool, dict(enumerate(x)), pool[at], r)
        for x, pool, at, r in zip(X.tolist(), pools, place, reward, strict=True)
    ]
    start = time.perf_counter()
    _, matched = bandit.evaluate_offline(bandit.LinUCBDisjoint(seed=0), history)
    return time.perf_counter() - start, len(history), matched
