"""``LinTS``: linear Thompson sampling (Agrawal & Goyal 2013)."""

from __future__ import annotations

import copy

import numpy as np

from whim import checks
from whim.kernels.linalg import batch, normals
from whim.kernels.loops import Kernels
from whim.kernels.models import disjoint, uniform
from whim.policies.base.policy import Policy
from whim.policies.base.ridge import RidgePolicy
from whim.policies.base.scoring import DRAWS, shares
from whim.types import F64, I64

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_AT_ONCE = 1 << 20  # scores that are drawn at once when draws are counted


class LinTS(RidgePolicy):
    """Thompson sampling: plays the best arm of a model drawn from N(θ̂, α²A⁻¹).

    ``Decision.mean`` is xᵀθ̂ and ``width`` the draw's standard deviation α√(xᵀA⁻¹x); ``score`` is
    the drawn value. ``scores`` shows what the next ``select`` would draw and leaves the random
    stream where it was.

    Parameters
    ----------
    n_features
        Length d of a context; not needed for ``payoff="item"``.
    n_item_features
        Length m of an arm's features; for the shared payoffs.
    n_cross_features
        Length k of the rows that the caller will pass as ``cross`` in every call, for a caller
        with no item features.
    payoff
        ``"disjoint"``: one model per arm, the reward is xᵀθ_a. ``"item"``: one model for all, yᵀθ.
        ``"cross"``: one for all, kron(y, x)ᵀβ = xᵀWy; all arms then share one draw of β.
    alpha
        α >= 0: scale of the draw's standard deviation.
    ridge
        λ > 0.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = LinTS(n_features=2, alpha=0.5, seed=1)
    >>> policy.add_arms(["a", "b"])
    ['a', 'b']
    >>> policy.update("a", [1.0, 0.0], 1.0)
    >>> decision = policy.select([1.0, 0.0])
    >>> decision.arm, round(decision.score, 4), decision.mean, round(decision.width, 4)
    ('a', 0.6222, 0.5, 0.3536)
    """

    name = "lints"
    _draws = True
    _draw = "standard_normal"

    def __init__(
        self,
        *,
        n_features: int | None = None,
        n_item_features: int | None = None,
        n_cross_features: int | None = None,
        payoff: str = "disjoint",
        alpha: float = 1.0,
        ridge: float = 1.0,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(
            payoff=payoff,
            n_features=n_features,
            n_item_features=n_item_features,
            n_cross_features=n_cross_features,
            alpha=alpha,
            ridge=ridge,
            seed=seed,
            ties=ties,
        )
        self._each = -1 if self._own else self._p

    @property
    def _kernels(self) -> Kernels:
        return disjoint.LINTS if self._own else uniform.LINTS

    def _score_many(self, X: F64, slots: I64) -> F64:
        if not self._own:
            return Policy._score_many(self, X, slots)  # one draw of the whole model per context
        width = np.empty((len(X), len(slots)))
        result = batch.bounds(X, *self._forms(X.shape[1], slots), 0.0, width)
        width *= copy.deepcopy(self._rng).standard_normal(width.shape)
        width *= self._alpha
        return np.add(result, width, out=result)

    def _probabilities(self, x: F64, slots: I64, cross: F64 | None) -> F64:
        """Independent arms by quadrature; of arms that share a draw, over many draws."""
        checks.vector("x", x, self._d)
        n = len(slots)
        numbers = n if self._own else self._p
        self._score(x, slots, cross, np.zeros(numbers))
        _, mean, width = self._out[:n].T.copy()
        if self._own:
            chances = np.empty(n)
            normals.largest(mean, width, not self._random_ties, _NODES, _WEIGHTS, chances)
            return chances
        spread = np.empty((n, numbers))  # of each score, in each of the draw's numbers
        for j, unit in enumerate(np.eye(numbers)):
            self._score(x, slots, cross, unit)
            spread[:, j] = self._out[:n, 0] - mean
        return self._counted(mean, spread)

    def _counted(self, mean: F64, spread: F64) -> F64:
        """Shares of draws that each wins; candidates with the same features are always equal."""
        _, first, kind = np.unique(
            np.column_stack([mean, spread]), axis=0, return_index=True, return_inverse=True
        )
        kind = kind.ravel()
        mean, spread = mean[first], spread[first]
        if spread.shape[1] > len(first):  # fewer numbers with the same covariance
            spread = np.linalg.qr(spread.T)[1].T
        stream, won, at_once = self._other_stream(), np.zeros(len(first)), _AT_ONCE // len(first)
        for start in range(0, DRAWS, max(1, at_once)):  # in parts: memory does not grow with arms
            z = stream.standard_normal((min(max(1, at_once), DRAWS - start), spread.shape[1]))
            won += np.bincount((z @ spread.T + mean).argmax(axis=1), minlength=len(first))
        won = shares(won)
        if self._random_ties:
            return won[kind] / np.bincount(kind)[kind]
        chances = np.zeros(len(kind))
        chances[first] = won
        return chances
