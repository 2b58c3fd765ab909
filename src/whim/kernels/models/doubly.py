"""Doubly robust terms: a reward model of the log, learnt as it goes, corrected where it shows.

One ridge model per arm (linalg.udu), fed by every logged event after the event was used: at
each event the model is a function of the past alone, so the terms stay unbiased.
"""

from __future__ import annotations

from whim.kernels.jit import jit
from whim.kernels.linalg import udu
from whim.types import F64, I64


@jit
def terms(
    X: F64, chosen: I64, shown: I64, rewards: F64, propensities: F64, model: F64, w: F64, out: F64
) -> None:
    """``out[i] = q(x, chosen) + 1{chosen = shown} (r - q(x, shown)) / p``; rows are arms."""
    for i in range(X.shape[0]):
        row = shown[i]
        value = udu.predict(model[chosen[i]], X[i])
        if chosen[i] == row:
            value += (rewards[i] - value) / propensities[i]
        out[i] = value
        udu.learn(model[row], X[i], rewards[i], w)
