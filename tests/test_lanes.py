"""Candidates side by side give what each gives alone, to the last bit."""

import numpy as np
import pytest

from tests.callable_kernels import (
    best_packed,
    cross_sums,
    kron,
    pack4,
    predict,
    quad,
    solve,
    squares,
    times,
    wide_quad,
)
from whim.kernels.linalg import lanes, packed, udu

RNG = np.random.default_rng(1)


def _models(count, d):
    rows = RNG.normal(size=(count, udu.packed_size(d) + d))
    rows[:, :d] = np.abs(rows[:, :d])
    return rows


@pytest.mark.parametrize("d", [1, 2, 5, 6, 13, 31])
@pytest.mark.parametrize("candidates", [1, 3, 8, 10, 20, 33])
def test_models_side_by_side_score_as_one_by_one(d, candidates):
    rows = _models(candidates, d)
    x = RNG.normal(size=d)
    size = rows.shape[1]
    side = np.zeros((size + packed.WORK, lanes.columns_for(candidates)))
    side[:size, :candidates] = rows.T
    scores = []
    for row in rows:
        mean = quad = 0.0
        column = d
        for j in range(d):
            mean += x[j] * row[udu.packed_size(d) + j]
            f = x[j]
            for i in range(j):
                f += row[column + i] * x[i]
            quad += row[j] * f * f
            column += j
        scores.append(mean + 0.5 * np.sqrt(quad))
    assert best_packed(x, candidates, side, 0.5) == int(np.argmax(scores))
    np.testing.assert_array_equal(side[-2, :candidates], scores)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 6, 8, 27])
def test_rows_become_columns(count):
    matrix = RNG.normal(size=(9, 30))
    side = np.full((count, 12), 7.0)
    pack4(side, 12, 4, matrix, (3, 8, 0, 3), count)
    np.testing.assert_array_equal(side[:, 4:8], matrix[[3, 8, 0, 3], :count].T)
    assert (side[:, :4] == 7).all()
    assert (side[:, 8:] == 7).all()


@pytest.mark.parametrize("d", [1, 2, 6, 23])
@pytest.mark.parametrize("n", [12, 24, 36, 60])
def test_a_model_is_solved_beside_others_as_alone(d, n):
    rows = _models(n, d)
    x, w = RNG.normal(size=d), np.empty(d)
    side = np.ascontiguousarray(rows.T)
    W, mean, square = np.empty((d, n)), np.empty(n), np.empty(n)
    solve(W, mean, square, n, side, x)
    for c in range(n):
        alone = predict(rows[c], x), quad(rows[c], x), times(rows[c], x, w)
        assert (mean[c], square[c], square[c]) == alone
        np.testing.assert_array_equal(W[:, c], w)


@pytest.mark.parametrize(("m", "d"), [(1, 1), (2, 3), (6, 6)])
@pytest.mark.parametrize("n", [12, 24, 36])
def test_cross_features_side_by_side(m, d, n):
    Y, W, weights = RNG.normal(size=(m, n)), RNG.normal(size=(d, n)), RNG.normal(size=3 + m * d)
    U = np.array([[Y[h, c] * W[i, c] for c in range(n)] for h in range(m) for i in range(d)])
    before = RNG.normal(size=n)
    mean, length = before.copy(), np.empty(n)
    cross_sums(mean, length, n, Y, W, weights[3:])
    np.testing.assert_allclose(mean, before + weights[3:] @ U, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(length, (U * U).sum(axis=0), rtol=1e-13)
    made = np.empty((m * d, n))
    kron(made, n, Y, W, n)
    np.testing.assert_array_equal(made, U)
    few = np.empty((m * d, 12))
    kron(few, 12, Y, W, n)
    np.testing.assert_array_equal(few, U[:, :12])


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 7, 8, 24, 36, 41])
@pytest.mark.parametrize("n", [12, 24, 36])
def test_quadratic_forms_side_by_side_are_those_of_each(k, n):
    F = RNG.normal(size=udu.packed_size(k))
    U, before = RNG.normal(size=(k, n)), RNG.normal(size=n)
    square = before.copy()
    squares(square, n, F, U, k)
    for c in range(n):
        assert square[c] == before[c] + wide_quad(F, np.ascontiguousarray(U[:, c]), k)
