"""``Random``: uniform choice, the floor that every policy must beat."""

from __future__ import annotations

import numpy as np

from whim import checks
from whim.kernels.models import contextfree
from whim.policies.base.contextfree import ContextFreePolicy
from whim.types import F64, I64


class Random(ContextFreePolicy):
    """Choose uniformly among the candidates; learn nothing.

    Parameters
    ----------
    n_features
        Length d that contexts are checked to have; by default any context, or none, will do.
    seed, ties
        See ``Policy``.

    Examples
    --------
    >>> policy = Random(seed=1)
    >>> policy.add_arms(["a", "b", "c"])
    ['a', 'b', 'c']
    >>> [policy.select().arm for _ in range(6)]
    ['b', 'a', 'a', 'b', 'b', 'a']
    """

    name = "random"
    _kernels = contextfree.RANDOM
    _draws = True
    _draw = "random"
    _each = -1

    def _state(self) -> contextfree.RandomState:
        return contextfree.RandomState(self._stats)

    def _probabilities(self, x: F64, slots: I64, cross: F64 | None) -> F64:
        checks.vector("x", x, self._d)
        return np.full(len(slots), 1 / len(slots))
