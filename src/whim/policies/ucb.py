"""``UCB``: Auer et al. 2002, and the simpler bonus that Li et al. 2010 compare with."""

from __future__ import annotations

from whim import checks
from whim.kernels.models import contextfree
from whim.policies.base.contextfree import ContextFreePolicy


class UCB(ContextFreePolicy):
    """The arm with the highest upper bound of its mean reward; contexts are ignored.

    Parameters
    ----------
    bonus
        ``"ucb1"``: α √(2 ln t / n), with t the updates so far and n those of the arm.
        ``"li"``: α / √n.
    alpha
        α >= 0: how many widths of optimism.
    n_features
        Length d that contexts are checked to have; by default any context, or none, will do.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = UCB(bonus="li", alpha=0.5)
    >>> policy.add_arms(["a", "b"])
    ['a', 'b']
    >>> policy.update_many(["a", "b", "b", "b", "b"], None, [1, 0, 1, 1, 1])
    []
    >>> [tuple(d) for d in policy.rank()]
    [('a', 1.5, 1.0, 0.5), ('b', 1.0, 0.75, 0.25)]
    """

    name = "ucb"
    _kernels = contextfree.UCB

    def __init__(
        self,
        *,
        bonus: str = "ucb1",
        alpha: float = 1.0,
        n_features: int | None = None,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(n_features=n_features, seed=seed, ties=ties)
        self._logarithm = checks.choice("bonus", bonus, ("ucb1", "li")) == "ucb1"
        self._alpha = checks.number("alpha", alpha, least=0)

    def _state(self) -> contextfree.UCBState:
        return contextfree.UCBState(self._stats, self._logarithm, self._alpha)
