"""Sums in vectors equal plain ones to the bit, in the order that they promise."""

import numpy as np
import pytest

from whim.kernels import factors, packed, vectors
from whim.kernels.jit import jit


@jit
def _dot(a, at, b, n):
    return vectors.dot(a, at, b, n)


@jit
def _quad(F, row, x):
    return factors.quad(F, row, x)


@jit
def _rows(line, n, weights, at, matrix, m_at, stride, count, add):
    if add:
        vectors.add_rows(line, n, weights, at, matrix, m_at, stride, count)
    else:
        vectors.subtract_rows(line, n, weights, at, matrix, m_at, stride, count)


@jit
def _learn(F, row, x, w):
    factors.learn(F, row, x, 0.0, w)


@jit
def _squares(line, n, weight, weights, at, matrix, count):
    vectors.add_squares(line, n, weight, weights, at, matrix, count)


@jit
def _best(x, n, side, alpha):
    return packed.best(x, n, side, alpha)


RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [*range(18), 31, 32, 63, 100])
def test_dot_is_the_sum_of_products_in_eight_running_sums(n, dtype):
    a = RNG.normal(size=(3, 90)).astype(dtype)
    b = RNG.normal(size=100)
    flat = a.ravel()[95 : 95 + n].astype(np.float64)
    running = np.zeros(8)
    whole = n // 4 * 4
    for i in range(whole):
        lane = i % 8 if i < n // 8 * 8 else i % 4  # the last half of a pair joins the first sums
        running[lane] += flat[i] * b[i]
    lanes = running[:4] + running[4:]
    expected = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
    for i in range(whole, n):
        expected += flat[i] * b[i]
    assert _dot(a, 95, b, n) == expected
    assert _dot(a, 95, b, n) == pytest.approx(float(flat @ b[:n]), abs=1e-12)


@pytest.mark.parametrize("d", [1, 2, 23, 24, 25, 26, 27, 31, 32, 33, 70])
def test_widths_of_every_length_are_those_of_the_matrix(d):
    F = np.zeros((2, factors.packed_size(d) + d))
    F[:, :d] = 1.0
    w = np.zeros(d)
    A = np.eye(d)
    for _ in range(3 * d):
        x = RNG.normal(size=d) / np.sqrt(d)
        A += np.outer(x, x)
        _learn(F, 1, x, w)
    x = RNG.normal(size=d)
    assert _quad(F, 1, x) == pytest.approx(float(x @ np.linalg.solve(A, x)), rel=1e-11)
    light = F.astype(np.float32)
    assert _quad(light, 1, x) == pytest.approx(_quad(F, 1, x), rel=1e-5)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 8, 12, 20, 23, 24, 25, 36, 47, 53])
@pytest.mark.parametrize("count", [0, 1, 5, 40])
@pytest.mark.parametrize("add", [True, False])
def test_rows_are_added_in_their_order_to_the_last_bit(n, count, add):
    matrix, weights, line = RNG.normal(size=(41, 53)), RNG.normal(size=60), RNG.normal(size=60)
    expected = line.copy()
    for i in range(count):
        step = weights[7 + i] * matrix[1 + i, :n]
        expected[:n] = expected[:n] + step if add else expected[:n] - step
    _rows(line, n, weights, 7, matrix, 53, 53, count, add)
    np.testing.assert_array_equal(line, expected)


@pytest.mark.parametrize("n", [1, 4, 7, 20, 30])
@pytest.mark.parametrize("count", [0, 1, 9])
def test_squares_are_of_a_row_and_the_weighted_rows_before_it(n, count):
    matrix, weights, line = RNG.normal(size=(10, n)), RNG.normal(size=20), RNG.normal(size=n)
    f = matrix[count].copy()
    for i in range(count):
        f += weights[3 + i] * matrix[i]
    expected = line + (0.7 * f) * f
    _squares(line, n, 0.7, weights, 3, matrix, count)
    np.testing.assert_array_equal(line, expected)


@pytest.mark.parametrize("d", [1, 2, 5, 6, 13, 31])
@pytest.mark.parametrize("candidates", [1, 3, 8, 10, 20, 33])
def test_models_side_by_side_score_as_one_by_one(d, candidates):
    size = factors.packed_size(d) + d
    rows = RNG.normal(size=(candidates, size))
    rows[:, :d] = np.abs(rows[:, :d])
    x = RNG.normal(size=d)
    side = np.zeros((size + packed.WORK, packed.columns(candidates)))
    side[:size, :candidates] = rows.T
    scores = []
    for row in rows:
        mean = quad = 0.0
        column = d
        for j in range(d):
            mean += x[j] * row[factors.packed_size(d) + j]
            f = x[j]
            for i in range(j):
                f += row[column + i] * x[i]
            quad += row[j] * f * f
            column += j
        scores.append(mean + 0.5 * np.sqrt(quad))
    assert _best(x, candidates, side, 0.5) == int(np.argmax(scores))
    np.testing.assert_array_equal(side[-2, :candidates], scores)


def test_arrays_that_are_not_contiguous_are_refused_when_compiling():
    from numba.core.errors import TypingError

    with pytest.raises(TypingError, match="contiguous"):
        _dot(np.zeros((4, 4)).T[:, ::2], 0, np.zeros(4), 2)
