"""``UCB``: Auer et al. 2002, and the simpler bonus that Li et al. 2010 compare with."""

from __future__ import annotations

from whim import checks
from whim.kernels import contextfree
from whim.policies.base import QUIET, Loop
from whim.policies.contextfree import ContextFreePolicy
from whim.types import F64, I64

__all__ = ["UCB"]


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

    def __init__(
        self,
        *,
        bonus: str = "ucb1",
        alpha: float = 1.0,
        n_features: int | None = None,
        seed: int = 0,
        ties: str = "first",
    ) -> None:
        super().__init__(locals(), n_features=n_features, seed=seed, ties=ties)
        self._logarithm = checks.choice("bonus", bonus, ("ucb1", "li")) == "ucb1"
        self._alpha = checks.number("alpha", alpha, least=0)

    def _score(self, x: F64, slots: I64, cross: F64 | None, noise: F64 | None) -> int:
        return contextfree.score_ucb(
            x, slots, self._stats, self._step, self._logarithm, self._alpha, self._out
        )

    def _observe(self, slot: int, x: F64, cross: F64 | None, reward: float) -> int:
        return contextfree.learn_one(slot, x, reward, self._stats)

    def _loop(self) -> Loop:
        return Loop("ucb", (self._stats, self._logarithm, self._alpha))

    def _observe_many(
        self, start: int, slots: I64, X: F64, cross: F64 | None, rewards: F64
    ) -> tuple[int, int]:
        contextfree.learn_many(slots[start:], rewards[start:], self._stats)
        return len(slots), QUIET
