"""How accurate the stored factors stay: the numbers quoted in docs/math.md.

Run ``python docs/accuracy.py``. Every reference is exact: contexts are multiples of 1/1024, so
that the sums of x xᵀ have no rounding in float64, and inverses are computed in rational numbers.
"""

# ruff: noqa: T201

from __future__ import annotations

from fractions import Fraction

import numpy as np

import whim

SEED = 20200207
GRID = 1024
CHUNK = 100_000
FEW = 10_000  # plays of the slow comparison
Matrix = list[list[Fraction]]


def inverse(A: Matrix) -> Matrix:
    """Gauss-Jordan without rounding."""
    n = len(A)
    rows = [[*row, *(Fraction(int(i == j)) for j in range(n))] for i, row in enumerate(A)]
    for j in range(n):
        rows[j] = [v / rows[j][j] for v in rows[j]]
        for i in range(n):
            if i != j:
                rows[i] = [v - rows[i][j] * w for v, w in zip(rows[i], rows[j], strict=True)]
    return [row[n:] for row in rows]


def square(M: Matrix, x: np.ndarray) -> Fraction:
    """``xᵀ M x`` without rounding."""
    f = [Fraction(float(v)) for v in x]
    return sum((f[i] * M[i][j] * f[j] for i in range(len(f)) for j in range(len(f))), Fraction(0))


def off(computed: float, exact: Fraction) -> float:
    """Relative error."""
    return abs(float(Fraction(computed) / exact - 1))


def policy(d: int) -> whim.LinUCBDisjoint:
    """One arm, α = 1: a decision's width is √(xᵀA⁻¹x)."""
    made = whim.LinUCBDisjoint(n_features=d, alpha=1.0)
    made.add_arms(["a"])
    return made


def random_contexts(d: int, plays: int) -> None:
    """Gaussian contexts, rounded to the grid."""
    rng = np.random.default_rng([SEED, d])
    learner = policy(d)
    total = np.zeros((d, d))
    for _ in range(plays // CHUNK):
        whole = np.rint(GRID * rng.normal(size=(CHUNK, d)))
        total += whole.T @ whole  # exact: below 2**53
        learner.update_many(["a"] * CHUNK, whole / GRID, np.zeros(CHUNK))
    assert total.max() < 2**53
    A = [[Fraction(int(total[i, j]), GRID**2) + int(i == j) for j in range(d)] for i in range(d)]
    exact = inverse(A)
    asked = rng.normal(size=(200, d))
    widths = [off(learner.select(x).width ** 2, square(exact, x)) / 2 for x in asked]
    kept = learner.inverse("a")
    largest = max(abs(float(v)) for row in exact for v in row)
    entry = max(abs(float(Fraction(kept[i, j]) - exact[i][j])) for i in range(d) for j in range(d))
    print(f"random contexts, d = {d}, {plays:.0e} plays:")
    print(f"  largest relative error of a width       {max(widths):.0e}")
    print(f"  largest error of A⁻¹ / its largest entry {entry / largest:.0e}")


def constant_context(d: int, plays: int, scale: float, naive: bool) -> None:
    """One context x over and over, eight different ones in turn: A = I + n x xᵀ.

    Exactly, yᵀA⁻¹y = |y|² - n (xᵀy)² / (1 + n|x|²). Evaluated at x itself and at some other y.
    """
    at_x, at_y, by_inv, by_steps = [], [], [], []
    for seed in range(8):
        rng = np.random.default_rng([SEED, d, seed])
        x = scale * np.rint(GRID * rng.normal(size=d)) / GRID
        y = rng.normal(size=d)
        learner = policy(d)
        rows = np.tile(x, (CHUNK, 1))
        for _ in range(plays // CHUNK):
            learner.update_many(["a"] * CHUNK, rows, np.zeros(CHUNK))
        at_x.append(off(learner.select(x).width ** 2, after(x, x, plays)) / 2)
        at_y.append(off(learner.select(y).width ** 2, after(x, y, plays)) / 2)
        if naive:
            A, outer = np.eye(d), np.outer(x, x)
            for _ in range(plays):
                A += outer
            try:
                by_inv.append(float(y @ np.linalg.inv(A) @ y) / float(after(x, y, plays)))
            except np.linalg.LinAlgError:
                by_inv.append(np.nan)
            B = np.eye(d)
            for _ in range(FEW):
                w = B @ x
                B -= np.outer(w, w) / (1.0 + x @ w)
            by_steps.append(float(x @ B @ x) / float(after(x, x, FEW)))
    print(f"constant context times {scale:g}, d = {d}, {plays:.0e} plays, 8 contexts:")
    print(
        f"  relative error of the width at x   median {np.median(at_x):.0e} worst {max(at_x):.0e}"
    )
    print(
        f"  relative error of the width at y   median {np.median(at_y):.0e} worst {max(at_y):.0e}"
    )
    if naive:
        print(
            "  width² at y, computed / exact, from numpy.linalg.inv of the summed A (nan: singular)"
        )
        print("   ", " ".join(f"{v:.0e}" for v in by_inv))
        print(f"  width² at x, computed / exact, from Sherman-Morrison steps on A⁻¹, {FEW} plays")
        print("   ", " ".join(f"{v:.0e}" for v in by_steps))


def after(x: np.ndarray, y: np.ndarray, n: int) -> Fraction:
    """``yᵀ (I + n x xᵀ)⁻¹ y`` without rounding (the Sherman-Morrison formula)."""
    f, g = ([Fraction(float(v)) for v in vector] for vector in (x, y))
    dot = sum((a * b for a, b in zip(f, g, strict=True)), Fraction(0))
    long = sum((a * a for a in f), Fraction(0))
    return sum((b * b for b in g), Fraction(0)) - n * dot * dot / (1 + n * long)


if __name__ == "__main__":
    print(f"numpy {np.__version__}, whim {whim.__version__}, seed {SEED}")
    random_contexts(6, 10_000_000)
    random_contexts(20, 1_000_000)
    constant_context(6, 10_000_000, 1.0, False)
    constant_context(6, 1_000_000, 1e6, True)
    constant_context(20, 1_000_000, 1e6, True)
    constant_context(6, 10_000_000, 1e6, False)
