"""LinUCB and PSLinUCB with hybrid payoffs, and the one big ridge that they factor."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Observation = tuple[Vector, Vector, float]
FirstWindow = Literal["literal", "seed"]
GPre = Literal["literal", "exact"]


def inv(M: Matrix) -> Matrix:
    """`numpy.linalg.inv`, typed float64."""
    return np.asarray(np.linalg.inv(M), dtype=np.float64)


def big_ridge(
    segments: Sequence[Sequence[Observation]], ridge: float
) -> tuple[Matrix, Vector, Matrix]:
    """Solve one ridge regression over [theta of segment 0, theta of segment 1, ..., beta].

    Each segment is a list of (x, z, r) and has a theta of its own; beta is shared. A segment may
    be empty, all of them may not. Returns the thetas (one row per segment), beta, and the inverse
    of the whole matrix in the order above.
    """
    first = next((o for segment in segments for o in segment), None)
    if first is None:
        raise ValueError("segments must hold at least one observation")
    d, k = len(first[0]), len(first[1])
    n = len(segments)
    M: Matrix = ridge * np.eye(n * d + k)
    v = np.zeros(n * d + k)
    for i, segment in enumerate(segments):
        for x, z, r in segment:
            phi = np.zeros(n * d + k)
            phi[i * d : (i + 1) * d] = x
            phi[n * d :] = z
            M = M + np.outer(phi, phi)
            v = v + r * phi
    M_inv = inv(M)
    solution = M_inv @ v
    return np.asarray(solution[: n * d].reshape(n, d)), solution[n * d :], M_inv


def schur(segment: Sequence[Observation], d: int, k: int, ridge: float) -> tuple[Matrix, Vector]:
    """What one segment adds to A0 and b0 once its own theta is eliminated."""
    A = ridge * np.eye(d)
    B = np.zeros((d, k))
    b = np.zeros(d)
    zz = np.zeros((k, k))
    rz = np.zeros(k)
    for x, z, r in segment:
        A = A + np.outer(x, x)
        B = B + np.outer(x, z)
        b = b + r * x
        zz = zz + np.outer(z, z)
        rz = rz + r * z
    A_inv = inv(A)
    return zz - B.T @ A_inv @ B, rz - B.T @ A_inv @ b


def four_terms(x: Vector, z: Vector, A_inv: Matrix, B: Matrix, A0_inv: Matrix) -> float:
    """The squared width s of Li et al. (2010), Algorithm 2, term by term."""
    s = z @ A0_inv @ z
    s = s - 2.0 * (z @ A0_inv @ B.T @ A_inv @ x)
    s = s + x @ A_inv @ x
    s = s + x @ A_inv @ B @ A0_inv @ B.T @ A_inv @ x
    return float(s)


class LinUCBHybridOracle:
    """Li et al. (2010), Algorithm 2."""

    def __init__(self, *, d: int, k: int, alpha: float, ridge: float = 1.0) -> None:
        self.d = d
        self.k = k
        self.alpha = alpha
        self.ridge = ridge
        self.A0: Matrix = ridge * np.eye(k)
        self.b0: Vector = np.zeros(k)
        self.A: dict[Hashable, Matrix] = {}
        self.B: dict[Hashable, Matrix] = {}
        self.b: dict[Hashable, Vector] = {}
        self.t = 0
        self.last_statistic: float | None = None

    def add(self, a: Hashable) -> None:
        """Create an arm; a known arm is left as it is."""
        if a in self.A:
            return
        self.A[a] = self.ridge * np.eye(self.d)
        self.B[a] = np.zeros((self.d, self.k))
        self.b[a] = np.zeros(self.d)

    def beta(self) -> Vector:
        """Estimate of the shared coefficients."""
        return np.asarray(inv(self.A0) @ self.b0)

    def theta(self, a: Hashable) -> Vector:
        """Estimate of one arm's coefficients."""
        return np.asarray(inv(self.A[a]) @ (self.b[a] - self.B[a] @ self.beta()))

    def confidence(self, a: Hashable, x: Vector, z: Vector) -> float:
        """s_{t,a}, before the square root."""
        return four_terms(x, z, inv(self.A[a]), self.B[a], inv(self.A0))

    def scores(self, x: Vector, Z: Matrix, arms: Sequence[Hashable]) -> Vector:
        """UCB index of each candidate; row i of Z belongs to candidate i."""
        beta = self.beta()
        p = []
        for z, a in zip(Z, arms, strict=True):
            s = self.confidence(a, x, z)
            p.append(z @ beta + x @ self.theta(a) + self.alpha * np.sqrt(s))
        return np.array(p, dtype=np.float64)

    def update(self, a: Hashable, x: Vector, z: Vector, r: float) -> bool:
        """Learn one observation; never a change."""
        self.t += 1
        A_inv = inv(self.A[a])
        self.A0 = self.A0 + self.B[a].T @ A_inv @ self.B[a]
        self.b0 = self.b0 + self.B[a].T @ A_inv @ self.b[a]
        self.A[a] = self.A[a] + np.outer(x, x)
        self.B[a] = self.B[a] + np.outer(x, z)
        self.b[a] = self.b[a] + r * x
        A_inv = inv(self.A[a])
        self.A0 = self.A0 + np.outer(z, z) - self.B[a].T @ A_inv @ self.B[a]
        self.b0 = self.b0 + r * z - self.B[a].T @ A_inv @ self.b[a]
        return False


class PSLinUCBHybridOracle:
    """Xu et al. (2020), Algorithm 2; `g_pre="exact"` replaces its A0_pre <- A0_cum."""

    def __init__(
        self,
        *,
        d: int,
        k: int,
        alpha: float,
        window: int,
        threshold: float,
        ridge: float = 1.0,
        first_window: FirstWindow = "literal",
        g_pre: GPre = "literal",
    ) -> None:
        self.d = d
        self.k = k
        self.alpha = alpha
        self.window = window
        self.threshold = threshold
        self.ridge = ridge
        self.first_window = first_window
        self.g_pre = g_pre
        self.A0_pre: Matrix = ridge * np.eye(k)
        self.A0_cum: Matrix = ridge * np.eye(k)
        self.b0_pre: Vector = np.zeros(k)
        self.b0_cum: Vector = np.zeros(k)
        self.A_pre: dict[Hashable, Matrix] = {}
        self.A_cur: dict[Hashable, Matrix] = {}
        self.A_cum: dict[Hashable, Matrix] = {}
        self.B_pre: dict[Hashable, Matrix] = {}
        self.B_cur: dict[Hashable, Matrix] = {}
        self.B_cum: dict[Hashable, Matrix] = {}
        self.b_pre: dict[Hashable, Vector] = {}
        self.b_cur: dict[Hashable, Vector] = {}
        self.b_cum: dict[Hashable, Vector] = {}
        self.SW: dict[Hashable, deque[Observation]] = {}
        self.seeded: dict[Hashable, bool] = {}
        self.t = 0
        self.last_statistic: float | None = None

    def add(self, a: Hashable) -> None:
        """Create an arm; a known arm is left as it is."""
        if a in self.SW:
            return
        for A in (self.A_pre, self.A_cur, self.A_cum):
            A[a] = self.ridge * np.eye(self.d)
        for B in (self.B_pre, self.B_cur, self.B_cum):
            B[a] = np.zeros((self.d, self.k))
        for b in (self.b_pre, self.b_cur, self.b_cum):
            b[a] = np.zeros(self.d)
        self.SW[a] = deque()
        self.seeded[a] = False

    def beta_cum(self) -> Vector:
        """Shared coefficients from every observation so far."""
        return np.asarray(inv(self.A0_cum) @ self.b0_cum)

    def beta_pre(self) -> Vector:
        """Shared coefficients from the observations before the windows."""
        return np.asarray(inv(self.A0_pre) @ self.b0_pre)

    def theta_cum(self, a: Hashable) -> Vector:
        """One arm's coefficients since its last restart."""
        residual = self.b_cum[a] - self.B_cum[a] @ self.beta_cum()
        return np.asarray(inv(self.A_cum[a]) @ residual)

    def theta_pre(self, a: Hashable) -> Vector:
        """One arm's coefficients from before its window."""
        residual = self.b_pre[a] - self.B_pre[a] @ self.beta_pre()
        return np.asarray(inv(self.A_pre[a]) @ residual)

    def confidence(self, a: Hashable, x: Vector, z: Vector) -> float:
        """s_{t,a}, before the square root."""
        A_inv = inv(self.A_cum[a])
        return four_terms(x, z, A_inv, self.B_cum[a], inv(self.A0_cum))

    def scores(self, x: Vector, Z: Matrix, arms: Sequence[Hashable]) -> Vector:
        """UCB index of each candidate; row i of Z belongs to candidate i."""
        beta = self.beta_cum()
        p = []
        for z, a in zip(Z, arms, strict=True):
            s = self.confidence(a, x, z)
            p.append(x @ self.theta_cum(a) + z @ beta + self.alpha * np.sqrt(s))
        return np.array(p, dtype=np.float64)

    def update(self, a: Hashable, x: Vector, z: Vector, r: float) -> bool:
        """Learn one observation, then test the window if it is full."""
        self.t += 1
        self.last_statistic = None
        x = np.array(x, dtype=np.float64)
        z = np.array(z, dtype=np.float64)
        self.SW[a].append((x, z, r))
        self._learn_cum(a, x, z, r)
        self.A_cur[a] = self.A_cur[a] + np.outer(x, x)
        self.B_cur[a] = self.B_cur[a] + np.outer(x, z)
        self.b_cur[a] = self.b_cur[a] + r * x
        if len(self.SW[a]) < self.window:
            return False
        if self.first_window == "seed" and not self.seeded[a]:
            # nothing to compare with: restart without a test and without an event
            self._restart(a)
            return False
        beta_pre, theta_pre = self.beta_pre(), self.theta_pre(a)
        total = 0.0
        for x_s, z_s, r_s in self.SW[a]:
            total += float(x_s @ theta_pre + z_s @ beta_pre) - r_s
        self.last_statistic = abs(total / self.window)
        if self.last_statistic >= self.threshold:
            self._restart(a)
            return True
        x_1, z_1, r_1 = self.SW[a].popleft()
        self._learn_pre(a, x_1, z_1, r_1)
        self.A_cur[a] = self.A_cur[a] - np.outer(x_1, x_1)
        self.B_cur[a] = self.B_cur[a] - np.outer(x_1, z_1)
        self.b_cur[a] = self.b_cur[a] - r_1 * x_1
        return False

    def _learn_cum(self, a: Hashable, x: Vector, z: Vector, r: float) -> None:
        A_inv = inv(self.A_cum[a])
        self.A0_cum = self.A0_cum + self.B_cum[a].T @ A_inv @ self.B_cum[a]
        self.b0_cum = self.b0_cum + self.B_cum[a].T @ A_inv @ self.b_cum[a]
        self.A_cum[a] = self.A_cum[a] + np.outer(x, x)
        self.B_cum[a] = self.B_cum[a] + np.outer(x, z)
        self.b_cum[a] = self.b_cum[a] + r * x
        A_inv = inv(self.A_cum[a])
        self.A0_cum = self.A0_cum + np.outer(z, z) - self.B_cum[a].T @ A_inv @ self.B_cum[a]
        self.b0_cum = self.b0_cum + r * z - self.B_cum[a].T @ A_inv @ self.b_cum[a]

    def _learn_pre(self, a: Hashable, x: Vector, z: Vector, r: float) -> None:
        A_inv = inv(self.A_pre[a])
        self.A0_pre = self.A0_pre + self.B_pre[a].T @ A_inv @ self.B_pre[a]
        self.b0_pre = self.b0_pre + self.B_pre[a].T @ A_inv @ self.b_pre[a]
        self.A_pre[a] = self.A_pre[a] + np.outer(x, x)
        self.B_pre[a] = self.B_pre[a] + np.outer(x, z)
        self.b_pre[a] = self.b_pre[a] + r * x
        A_inv = inv(self.A_pre[a])
        self.A0_pre = self.A0_pre + np.outer(z, z) - self.B_pre[a].T @ A_inv @ self.B_pre[a]
        self.b0_pre = self.b0_pre + r * z - self.B_pre[a].T @ A_inv @ self.b_pre[a]

    def _restart(self, a: Hashable) -> None:
        A_pre_inv = inv(self.A_pre[a])
        A_cur_inv = inv(self.A_cur[a])
        A_cum_inv = inv(self.A_cum[a])
        self.A0_cum = (
            self.A0_cum
            + self.B_cum[a].T @ A_cum_inv @ self.B_cum[a]
            - self.B_pre[a].T @ A_pre_inv @ self.B_pre[a]
            - self.B_cur[a].T @ A_cur_inv @ self.B_cur[a]
        )
        self.b0_cum = (
            self.b0_cum
            + self.B_cum[a].T @ A_cum_inv @ self.b_cum[a]
            - self.B_pre[a].T @ A_pre_inv @ self.b_pre[a]
            - self.B_cur[a].T @ A_cur_inv @ self.b_cur[a]
        )
        if self.g_pre == "literal":
            self.A0_pre = self.A0_cum.copy()
            self.b0_pre = self.b0_cum.copy()
        else:
            # the old pre_a stays frozen in G_pre; only the new segment is added
            zz = sum((np.outer(z, z) for _, z, _ in self.SW[a]), np.zeros((self.k, self.k)))
            rz = sum((r * z for _, z, r in self.SW[a]), np.zeros(self.k))
            self.A0_pre = self.A0_pre + zz - self.B_cur[a].T @ A_cur_inv @ self.B_cur[a]
            self.b0_pre = self.b0_pre + rz - self.B_cur[a].T @ A_cur_inv @ self.b_cur[a]
        self.SW[a] = deque()
        self.A_pre[a] = self.A_cur[a].copy()
        self.A_cum[a] = self.A_cur[a].copy()
        self.A_cur[a] = self.ridge * np.eye(self.d)
        self.B_pre[a] = self.B_cur[a].copy()
        self.B_cum[a] = self.B_cur[a].copy()
        self.B_cur[a] = np.zeros((self.d, self.k))
        self.b_pre[a] = self.b_cur[a].copy()
        self.b_cum[a] = self.b_cur[a].copy()
        self.b_cur[a] = np.zeros(self.d)
        self.seeded[a] = True
