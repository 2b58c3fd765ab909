"""C2UCB (Qin, Chen and Zhu 2014) and CascadeLinUCB (Zong et al. 2016), literally.

Both with one model per arm, and an inverse for every decision. C2UCB's super arm for a sum of
rewards is the k largest bounds; CascadeLinUCB shows the same and learns up to the first click.
"""

from __future__ import annotations

import numpy as np


class C2UCB:
    """Semi-bandit feedback: every item of the list is learnt."""

    def __init__(self, n_arms: int, d: int, alpha: float, ridge: float = 1.0) -> None:
        self.V = [ridge * np.eye(d) for _ in range(n_arms)]
        self.b = [np.zeros(d) for _ in range(n_arms)]
        self.alpha = alpha

    def bounds(self, x: np.ndarray) -> np.ndarray:
        values = []
        for V, b in zip(self.V, self.b, strict=True):
            inverse = np.linalg.inv(V)
            values.append(x @ inverse @ b + self.alpha * np.sqrt(x @ inverse @ x))
        return np.array(values)

    def select(self, x: np.ndarray, k: int) -> list[int]:
        bounds = self.bounds(x)
        return sorted(range(len(bounds)), key=lambda a: -bounds[a])[:k]

    def update(self, shown: list[int], x: np.ndarray, rewards: list[float]) -> None:
        for arm, r in zip(shown, rewards, strict=True):
            self.V[arm] = self.V[arm] + np.outer(x, x)
            self.b[arm] = self.b[arm] + r * x


class CascadeLinUCB(C2UCB):
    """Items up to the first click: C = its place, or k - 1 if there is none."""

    def update(self, shown: list[int], x: np.ndarray, rewards: list[float]) -> None:
        clicks = [i for i, r in enumerate(rewards) if r > 0]
        last = clicks[0] if clicks else len(shown) - 1
        super().update(shown[: last + 1], x, rewards[: last + 1])
