"""``warm``: compile the loops of policies ahead, each one once, on several cores.

Left to themselves, the workers of a comparison would all begin by compiling the same loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from whim.evaluate.spread import spread
from whim.policies import Policy, from_bytes
from whim.policies.base.run_events import EACH, EventBatch, run_events

__all__ = ["warm"]


def warm(
    policies: Iterable[Policy], *, jobs: int = 1, progress: Callable[[int], None] | None = None
) -> None:
    """Let a copy of each policy walk over two events, which compiles its loop or finds it.

    Examples
    --------
    >>> import whim
    >>> warm([whim.Random()])
    """
    spread(_touch, [policy.to_bytes() for policy in policies], jobs=jobs, progress=progress)


def _touch(data: bytes) -> int:
    policy = from_bytes(data)
    m = policy.n_item_features
    policy.add_arms([0, 1], features=np.ones((2, m)) if m else None)
    stretch = EventBatch(
        EACH, np.ones((2, policy.n_features or 1)), np.zeros(2, np.int64), np.array([0, 2]),
        np.arange(2), np.full(2, -1), np.zeros((2, 2)),
    )  # fmt: skip
    run_events(policy, stretch)
    return policy.step
