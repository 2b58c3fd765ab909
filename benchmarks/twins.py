"""The other side: LinUCB in plain vectorised NumPy, with Sherman–Morrison updates.

The plain twins are what one writes with operators: ``@`` over arrays (K, d, d), which beats
``einsum`` here, views updated in place. The tuned ones are what one gets to by measuring: stacked
inverses, ``dot`` (less overhead a call than ``@``) and no temporary that can be spared. Arms
are row numbers, nothing is checked and no window is kept, so a twin does strictly less than the
policy that it is compared with.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

import whim

__all__ = [
    "DisjointTwin",
    "HybridTwin",
    "TunedDisjointTwin",
    "TunedHybridTwin",
    "Twin",
    "check_disjoint",
    "check_hybrid",
]

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


class Twin(Protocol):
    """What both sides of a comparison can do."""

    def select(self, x: F64) -> int:
        """The arm with the highest upper confidence bound."""

    def update(self, arm: int, x: F64, reward: float) -> None:
        """Learn one reward."""


class DisjointTwin:
    """LinUCB, one ridge model per arm: A⁻¹ as (K, d, d), theta as (K, d)."""

    def __init__(self, n_arms: int, n_features: int, alpha: float) -> None:
        self.alpha = alpha
        self.A_inv = np.tile(np.eye(n_features), (n_arms, 1, 1))
        self.theta = np.zeros((n_arms, n_features))

    def select(self, x: F64) -> int:
        width = np.sqrt((self.A_inv @ x) @ x)
        return int((self.theta @ x + self.alpha * width).argmax())

    def select_from(self, x: F64, arms: I64) -> int:
        """The place of the best of some arms."""
        width = np.sqrt((self.A_inv[arms] @ x) @ x)
        return int((self.theta[arms] @ x + self.alpha * width).argmax())

    def update(self, arm: int, x: F64, reward: float) -> None:
        A_inv, theta = self.A_inv[arm], self.theta[arm]
        w = A_inv @ x
        gain = w / (1.0 + x @ w)
        A_inv -= gain[:, None] * w
        theta += gain * (reward - x @ theta)


class TunedDisjointTwin(DisjointTwin):
    """The same arithmetic in as few and as cheap NumPy calls as we could find."""

    def __init__(self, n_arms: int, n_features: int, alpha: float) -> None:
        super().__init__(n_arms, n_features, alpha)
        self.shape = (n_arms, n_features)
        self.stacked = self.A_inv.reshape(n_arms * n_features, n_features)  # a view

    def select(self, x: F64) -> int:
        squared = self.stacked.dot(x).reshape(self.shape).dot(x)
        return int((self.theta.dot(x) + self.alpha * np.sqrt(squared)).argmax())

    def select_from(self, x: F64, arms: I64) -> int:
        """As above, with ``take``, which costs less than an index, and one stacked product."""
        n, d = len(arms), len(x)
        stacked = self.A_inv.take(arms, axis=0).reshape(n * d, d)
        squared = stacked.dot(x).reshape(n, d).dot(x)
        mean = self.theta.take(arms, axis=0).dot(x)
        return int((mean + self.alpha * np.sqrt(squared)).argmax())

    def update(self, arm: int, x: F64, reward: float) -> None:
        A_inv, theta = self.A_inv[arm], self.theta[arm]
        w = A_inv.dot(x)
        gain = w / (1.0 + x.dot(w))
        A_inv -= gain[:, None] * w
        theta += gain * (reward - x.dot(theta))


class HybridTwin:
    """LinUCB-Hybrid in rank-one form: per arm A⁻¹, t = A⁻¹b, C = A⁻¹B; shared A0⁻¹ and beta."""

    def __init__(self, features: F64, n_features: int, alpha: float) -> None:
        n_arms, m = features.shape
        d, k = n_features, n_features * m
        self.alpha = alpha
        self.Y = features[:, :, None]
        self.shape = (n_arms, k)
        self.A_inv = np.tile(np.eye(d), (n_arms, 1, 1))
        self.t = np.zeros((n_arms, d))
        self.C = np.zeros((n_arms, d, k))
        self.A0_inv = np.eye(k)
        self.beta = np.zeros(k)

    def select(self, x: F64) -> int:
        U = (self.Y * x).reshape(self.shape) - x @ self.C
        squared = (self.A_inv @ x) @ x + np.einsum("ij,ij->i", U @ self.A0_inv, U)
        return int((self.t @ x + U @ self.beta + self.alpha * np.sqrt(squared)).argmax())

    def update(self, arm: int, x: F64, reward: float) -> None:
        A_inv, t, C = self.A_inv[arm], self.t[arm], self.C[arm]
        w = A_inv @ x
        g = 1.0 / (1.0 + x @ w)
        gain = g * w
        u = (self.Y[arm] * x).ravel() - x @ C
        error = reward - x @ t
        A_inv -= gain[:, None] * w
        t += gain * error
        C += gain[:, None] * u
        # one least-squares step of beta with feature √g u and target √g e
        h = self.A0_inv @ u
        step = h * (g / (1.0 + g * (u @ h)))
        self.beta += step * (error - u @ self.beta)
        self.A0_inv -= step[:, None] * h


class TunedHybridTwin(HybridTwin):
    """The same, with C as (d, K, k): Cᵀx of all arms is then one matrix-vector product."""

    def __init__(self, features: F64, n_features: int, alpha: float) -> None:
        super().__init__(features, n_features, alpha)
        n_arms, d, k = self.C.shape
        self.C = np.zeros((d, n_arms, k))
        self.C_wide = self.C.reshape(d, n_arms * k)
        self.arm_shape = (n_arms, d)
        self.stacked = self.A_inv.reshape(n_arms * d, d)

    def select(self, x: F64) -> int:
        U = (self.Y * x).reshape(self.shape)
        U -= x.dot(self.C_wide).reshape(self.shape)
        squared = self.stacked.dot(x).reshape(self.arm_shape).dot(x)
        squared += np.einsum("ij,ij->i", U.dot(self.A0_inv), U)
        mean = self.t.dot(x) + U.dot(self.beta)
        return int((mean + self.alpha * np.sqrt(squared)).argmax())

    def update(self, arm: int, x: F64, reward: float) -> None:
        A_inv, t, C = self.A_inv[arm], self.t[arm], self.C[:, arm]
        w = A_inv.dot(x)
        g = 1.0 / (1.0 + float(x.dot(w)))
        column = (g * w)[:, None]
        u = (self.Y[arm] * x).ravel()
        u -= x.dot(C)
        error = reward - float(x.dot(t))
        A_inv -= column * w
        t += w * (g * error)
        C += column * u
        h = self.A0_inv.dot(u)
        scale = g / (1.0 + g * float(u.dot(h)))
        self.beta += h * (scale * (error - float(u.dot(self.beta))))
        self.A0_inv -= (scale * h)[:, None] * h


def check_disjoint(X: F64, R: F64, alpha: float) -> int:
    """Live steps on which both twins chose as ``LinUCBDisjoint``: all of them, or an error."""
    K, d = R.shape[1], X.shape[1]
    policy = whim.LinUCBDisjoint(n_features=d, alpha=alpha)
    policy.add_arms(range(K))
    twins = DisjointTwin(K, d, alpha), TunedDisjointTwin(K, d, alpha)
    steps = _same_choices(twins, policy, X, R)
    theta = np.array([policy.coefficients(a) for a in range(K)])
    for twin in twins:
        np.testing.assert_allclose(theta, twin.theta, rtol=0, atol=1e-9)
    return steps


def check_hybrid(X: F64, R: F64, features: F64, alpha: float) -> int:
    """As ``check_disjoint`` for ``LinUCBHybrid``."""
    K, d = R.shape[1], X.shape[1]
    policy = whim.LinUCBHybrid(n_features=d, n_item_features=features.shape[1], alpha=alpha)
    policy.add_arms(range(K), features=features)
    twins = HybridTwin(features, d, alpha), TunedHybridTwin(features, d, alpha)
    steps = _same_choices(twins, policy, X, R)
    for twin in twins:
        np.testing.assert_allclose(policy.shared_coefficients(), twin.beta, rtol=0, atol=1e-9)
    return steps


def _same_choices(twins: tuple[Twin, ...], policy: whim.Policy, X: F64, R: F64) -> int:
    for step, (x, rewards) in enumerate(zip(X, R, strict=True)):
        arm = policy.select(x).arm
        assert isinstance(arm, int)
        policy.update(arm, x, float(rewards[arm]))
        for twin in twins:
            chosen = twin.select(x)
            if chosen != arm:
                name = type(twin).__name__
                raise AssertionError(f"step {step}: whim chose {arm}, {name} {chosen}.")
            twin.update(arm, x, float(rewards[arm]))
    return len(X)
