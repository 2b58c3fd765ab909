"""Models side by side learn what each would learn as a matrix of its own."""

import numpy as np
import pytest

from tests.callable_kernels import column_forms, column_learn, full_forms, full_learn
from whim.kernels.linalg import udu

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("d", [1, 2, 6, 21, 30])
@pytest.mark.parametrize("n", [8, 16])
def test_columns_are_the_inverse_and_the_coefficients_of_each_model(d, n):
    table = np.zeros((udu.packed_size(d) + d, n))
    prior = RNG.uniform(0.5, 2.0, size=(d, n))
    table[:d] = 1 / prior
    A, theta = [np.diag(prior[:, c]) for c in range(n)], np.zeros((n, d))
    values, pulls, means, squares = np.zeros((d, n)), np.zeros((d, n)), np.zeros(n), np.zeros(n)
    learnt = []
    for play in range(3 * d):
        x, steps = RNG.normal(size=d), RNG.normal(size=n)
        weights = RNG.uniform(size=n) * RNG.integers(2, size=n)  # some learn nothing of it
        back = learnt.pop() if play % 3 == 2 else None
        if back is not None:  # and every third is taken away again
            x, weights = back[0], -0.9 * back[1]
        else:
            learnt.append((x, weights))
        column_forms(table, x, values, means, squares)
        for c in range(n):
            w = np.linalg.solve(A[c], x)
            assert squares[c] == pytest.approx(float(x @ w), rel=1e-9)
            assert means[c] == pytest.approx(float(x @ theta[c]), rel=1e-9, abs=1e-9)
            theta[c] += steps[c] * w
            A[c] = A[c] + weights[c] * np.outer(x, x)
        column_learn(table, values, weights, steps, pulls)
        np.testing.assert_allclose(table[-d:].T, theta, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("d", [1, 2, 6, 21])
def test_covariances_side_by_side(d):
    table, P, m = np.zeros((udu.packed_size(d) + d, 4)), np.zeros((4, d, d)), np.zeros((4, d))
    for c in range(4):
        root = RNG.normal(size=(d, d))
        P[c] = root @ root.T
        table[: udu.packed_size(d), c] = [P[c, i, j] for j in range(d) for i in range(j + 1)]
    lines, means, squares = np.zeros((d, 4)), np.zeros(4), np.zeros(4)
    for _ in range(5):
        x, steps = RNG.normal(size=d), RNG.normal(size=4)
        full_forms(table, x, lines, means, squares)
        np.testing.assert_allclose(lines.T, P @ x, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(squares, P @ x @ x, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(means, m @ x, rtol=1e-9, atol=1e-9)
        seen = 1 / (1 + squares)
        m, P = (
            m + steps[:, None] * (P @ x),
            P - seen[:, None, None] * ((P @ x)[:, :, None] * (P @ x)[:, None, :]),
        )
        full_learn(table, lines, seen, steps)
    for c in range(4):
        kept = [P[c, i, j] for j in range(d) for i in range(j + 1)]
        np.testing.assert_allclose(table[:-d, c], kept, rtol=1e-8, atol=1e-9)
