"""Cascade doubly robust terms: a reward model of the log, corrected along the prefix that agrees.

One ridge model per arm (linalg.udu) times a factor per position, fed by every logged list after the
list was used: at each list the model is a function of the past alone, so the terms stay unbiased.
"""

from __future__ import annotations

import numpy as np

from whim.kernels.jit import jit
from whim.kernels.linalg import udu
from whim.types import F64, I64

_MOST = 4.0  # largest factor of a position


@jit
def terms(
    X: F64, chosen: I64, shown: I64, rewards: F64, prefixes: F64, model: F64, sums: F64, out: F64
) -> None:
    """``out[i] = Q_1 + Σ_k 1{the first k agree} (r_k - Q_k + Q_(k+1)) / p_k``.

    Q_k is what the model expects of the chosen list from position k on, p_k the probability of the
    shown prefix. ``chosen`` and ``shown`` hold arms, -1 after a list's end. ``sums`` has for each
    position the rewards so far and what the arms' models had expected; it is changed.
    """
    longest = shown.shape[1]
    rest, work = np.zeros(longest + 1), np.zeros(X.shape[1])
    for i in range(X.shape[0]):
        k = 0
        while k < longest and shown[i, k] >= 0:
            k += 1
        rest[k] = 0.0
        for j in range(k - 1, -1, -1):
            factor = 1.0
            if sums[j, 1] > 1.0:
                factor = min(max(sums[j, 0] / sums[j, 1], 0.0), _MOST)
            rest[j] = rest[j + 1] + factor * udu.predict(model[chosen[i, j]], X[i])
        value = rest[0]
        for j in range(k):
            if chosen[i, j] != shown[i, j]:
                break
            value += (rewards[i, j] - rest[j] + rest[j + 1]) / prefixes[i, j]
        out[i] = value
        for j in range(k):  # all expectations before any is learnt
            sums[j, 0] += rewards[i, j]
            sums[j, 1] += udu.predict(model[shown[i, j]], X[i])
        for j in range(k):
            udu.learn(model[shown[i, j]], X[i], rewards[i, j], work)
