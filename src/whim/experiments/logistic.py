"""``DiscountedLogistic``: a rival with a logistic link, to tell what the link alone is worth.

One model per arm, P(reward 1) = σ(xᵀθ), θ ~ N(m, P). A play is learnt by assumed density: with
a = xᵀm, s = xᵀPx, κ = (1 + πs/8)^(-1/2) and p = σ(κa), the mean moves by Px·κ(r - p) and P loses
Pxxᵀ P·c, c = κ²p(1 - p). That is one weighted least-squares play of weight w = c/(1 - cs) and
response a + κ(r - p)/c, so that discounting is what it is in D-LinUCB: the sum of plays fades by γ
with every update of the policy, the ridge stays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from whim import checks
from whim.kernels.jit import part
from whim.kernels.linalg import ldl, udu
from whim.kernels.loops import Kernels
from whim.kernels.status import NO_CHANGE
from whim.policies.base.compiled import CompiledPolicy
from whim.types import F64, I64

_FAR = 20.0  # logits beyond it count as this: a weight of 0 would have no response


class State(NamedTuple):
    """Sums of (x, z)(x, z)ᵀ by slot, as factors; ``V`` takes one with its ridge, ``v`` is scratch.

    ``touched`` is the update number of each slot's last play.
    """

    sums: F64
    touched: I64
    gamma: float
    alpha: float
    ridge: float
    V: F64
    v: F64


@part
def _believe(state: State, slot: int, step: int, x: F64) -> tuple[float, float]:
    """Mean and variance of the logit after ``step`` updates."""
    V, v, p = state.V, state.v, x.shape[0]
    fade = state.gamma ** float(step - state.touched[slot])
    for j in range(V.shape[0]):
        V[j] = state.sums[slot, j]
    for j in range(p + 1):
        V[j] *= fade
    for j in range(p):
        v[:] = 0.0
        v[j] = 1.0
        ldl.add(V, 0, p + 1, j, state.ridge, v)
    u = v[:p]
    mean = ldl.solve(V, 0, x, u)
    variance = 0.0
    for j in range(p):
        variance += x[j] * u[j]
    return mean, variance


@part
def _expected(mean: float, variance: float) -> tuple[float, float]:
    """P(reward 1), and κ by which a logit that is not known exactly shrinks."""
    kappa = 1.0 / np.sqrt(1.0 + np.pi * variance / 8.0)
    logit = min(max(kappa * mean, -_FAR), _FAR)
    return 1.0 / (1.0 + np.exp(-logit)), kappa


@part
def learn(state: State, step: int, slot: int, x: F64, z: F64, r: float) -> int:
    """Update number ``step + 1``."""
    sums, v, p = state.sums, state.v, x.shape[0]
    mean, variance = _believe(state, slot, step, x)
    chance, kappa = _expected(mean, variance)
    curvature = kappa * kappa * chance * (1.0 - chance)
    fade = state.gamma ** float(step + 1 - state.touched[slot])
    state.touched[slot] = step + 1
    for j in range(p + 1):
        sums[slot, j] *= fade
    for j in range(p):
        v[j] = x[j]
    v[p] = mean + kappa * (r - chance) / curvature
    ldl.add(sums[slot], 0, p + 1, 0, curvature / (1.0 - curvature * variance), v)
    return NO_CHANGE


@part
def score(state: State, step: int, x: F64, slots: I64, cross: F64, noise: F64, out: F64) -> int:
    """σ of the logit's mean and ``alpha`` standard deviations."""
    best = 0
    for c in range(slots.shape[0]):
        mean, variance = _believe(state, slots[c], step, x)
        bound = mean + state.alpha * np.sqrt(variance)
        out[c, 0] = bound  # the logit itself: σ would make ties of large ones
        out[c, 1] = mean
        out[c, 2] = bound - mean
        if out[c, 0] > out[best, 0]:
            best = c
    return best


_KERNELS = Kernels("discounted_logistic", score, learn)


class DiscountedLogistic(CompiledPolicy):
    """Logistic upper confidence bounds, one model per arm, whose plays fade by ``gamma``.

    Scores are logits. Rewards must lie in [0, 1]; who runs it sees to that.

    Parameters
    ----------
    n_features
        Length d of a context.
    gamma
        0 < γ <= 1: the discount of one update; 1 forgets nothing.
    alpha
        α >= 0: how many standard deviations of optimism.
    ridge
        λ > 0: precision of the prior of every coefficient.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = DiscountedLogistic(n_features=1, gamma=0.5, alpha=0.0)
    >>> policy.add_arms(["a", "b"])
    ['a', 'b']
    >>> policy.update("a", [1.0], 1.0)
    >>> policy.scores([1.0]).round(4).tolist()
    [0.4237, 0.0]
    >>> policy.update("b", [1.0], 0.0)
    >>> policy.scores([1.0]).round(4).tolist()
    [0.2327, -0.4237]
    """

    name = "discounted-logistic"
    _kernels = _KERNELS

    def __init__(
        self,
        *,
        n_features: int,
        gamma: float = 1.0,
        alpha: float = 1.0,
        ridge: float = 1.0,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        d = checks.integer("n_features", n_features, 1)
        self._gamma = checks.number("gamma", gamma, above=0, most=1)
        self._alpha = checks.number("alpha", alpha, least=0)
        self._ridge = checks.number("ridge", ridge, above=0)
        super().__init__(n_features=d, seed=seed, ties=ties)
        self._sums: F64
        self._touched: I64
        size = udu.packed_size(d + 1)
        self._rows({"_sums": np.zeros(size), "_touched": np.zeros((), np.int64)})
        self._factors, self._scratch = np.zeros(size), np.zeros(d + 1)

    def _state(self) -> State:
        return State(
            self._sums, self._touched, self._gamma, self._alpha, self._ridge, self._factors,
            self._scratch,
        )  # fmt: skip
