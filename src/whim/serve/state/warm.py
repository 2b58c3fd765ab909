"""``compile_for``: a configuration's kernels, compiled or loaded before a request needs them."""

from __future__ import annotations

import numpy as np

from whim.evaluate.warm import warm_policy
from whim.serve.state.policy import build
from whim.serve.wire import SpaceConfig


def compile_for(config: SpaceConfig) -> None:
    """Take every path that a space takes: live and in batches, new and from a snapshot."""
    policy, _, _ = build(config)
    warm_policy(policy, ("live", "batch"))
    # what a service does beside: rankings that draw, features that change, arms that retire
    n, m, arms = policy.n_features, policy.n_item_features, ["a", "b"]
    policy.add_arms(arms, np.zeros((2, m)) if m else None)
    x, X = (None, None) if n is None else (np.zeros(n), np.zeros((2, n)))
    policy.ranked(x, arms, draw=True)
    if not (m or policy.randomised):
        policy.ranked_many(X, [[*arms], [*arms]])
    policy.update("a", x, 0.0)
    if m:
        policy.set_features(["a"], np.ones((1, m)))
    policy.retire_arms(["a"])
    policy.select(x, ["b"])


def kernels_of(config: SpaceConfig) -> tuple[object, ...]:
    """What decides which kernels a configuration needs: its numbers do not."""
    options = {
        name: value
        for name, value in config.params.items()
        if isinstance(value, (bool, str)) or value is None
    }
    return config.policy, repr(sorted(options.items()))
