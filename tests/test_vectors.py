"""Sums in vectors equal plain ones to the bit, in the order that they promise."""

import numpy as np
import pytest

from tests.callable_kernels import (
    dot,
    exp4,
    fallen4,
    learn,
    log4,
    quad,
    rows,
    sigmoid4,
    wide_quad,
    wide_rank_one,
)
from whim.kernels.linalg import udu

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [*range(18), 31, 32, 63, 100])
def test_dot_is_the_sum_of_products_in_eight_running_sums(n, dtype):
    a = RNG.normal(size=270).astype(dtype)
    b = RNG.normal(size=100)
    flat = a[95 : 95 + n].astype(np.float64)
    running = np.zeros(8)
    whole = n // 4 * 4
    for i in range(whole):
        lane = i % 8 if i < n // 8 * 8 else i % 4  # the last half of a pair joins the first sums
        running[lane] += flat[i] * b[i]
    lanes = running[:4] + running[4:]
    expected = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
    for i in range(whole, n):
        expected += flat[i] * b[i]
    assert dot(a, 95, b, n) == expected
    assert dot(a, 95, b, n) == pytest.approx(float(flat @ b[:n]), abs=1e-12)


@pytest.mark.parametrize("d", [1, 2, 23, 24, 25, 26, 27, 31, 32, 33, 70])
def test_widths_of_every_length_are_those_of_the_matrix(d):
    F = np.zeros((2, udu.packed_size(d) + d))
    F[:, :d] = 1.0
    w = np.zeros(d)
    A = np.eye(d)
    for _ in range(3 * d):
        x = RNG.normal(size=d) / np.sqrt(d)
        A += np.outer(x, x)
        learn(F[1], x, 0.0, w)
    x = RNG.normal(size=d)
    assert quad(F[1], x) == pytest.approx(float(x @ np.linalg.solve(A, x)), rel=1e-11)
    single = F.astype(np.float32)
    assert quad(single[1], x) == pytest.approx(quad(F[1], x), rel=1e-5)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 8, 12, 20, 23, 24, 25, 36, 47, 53])
@pytest.mark.parametrize("count", [0, 1, 5, 40])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rows_are_added_in_their_order_to_the_last_bit(n, count, sign):
    matrix, weights, line = RNG.normal(size=(41, n)), RNG.normal(size=60), RNG.normal(size=60)
    expected = line.copy()
    for i in range(count):
        step = weights[i] * matrix[1 + i]
        expected[:n] = expected[:n] + step if sign > 0 else expected[:n] - step
    rows(line, n, weights, sign, matrix.ravel(), n, count)
    np.testing.assert_array_equal(line, expected)


def _literal_columns(row, x):
    """Uᵀx, number by number: x_j, four running sums of whole fours before j, then the rest."""
    k = len(x)
    found = np.empty(k)
    at = k
    for j in range(k):
        column = row[at : at + j]
        running = np.zeros(4)
        whole = j // 4 * 4
        for i in range(whole):
            running[i % 4] += column[i] * x[i]
        f = x[j] + ((running[0] + running[2]) + (running[1] + running[3]))
        for i in range(whole, j):
            f += column[i] * x[i]
        found[j] = f
        at += j
    return found


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("k", [*range(1, 10), 24, 31, 36, 70])
def test_a_wide_quadratic_form_has_the_order_it_promises(k, dtype):
    F = RNG.normal(size=(3, udu.packed_size(k) + k)).astype(dtype)
    x = RNG.normal(size=k)
    row = F[1].astype(np.float64)
    expected = 0.0
    for j, f in enumerate(_literal_columns(row, x)):
        expected += row[j] * f * f
    assert wide_quad(F[1], x, k) == expected


@pytest.mark.parametrize("k", [*range(1, 10), 24, 31, 36, 70])
def test_a_wide_rank_one_step_is_bierman_s_to_the_last_bit(k):
    F = RNG.normal(size=(3, udu.packed_size(k) + k))
    F[:, :k] = np.abs(F[:, :k]) + 0.1
    x, weight = RNG.normal(size=k), 0.7
    row, w = F[1].copy(), np.zeros(k)
    a, inverse, at = 1.0 / weight, weight, k
    for j, f in enumerate(_literal_columns(row, x)):
        v, ratio = row[j] * f, -f * inverse
        after = a + f * v
        inverse = 1.0 / after
        row[j] *= a * inverse
        a = after
        column = row[at : at + j].copy()
        row[at : at + j] = column + w[:j] * ratio
        w[:j] += column * v
        w[j] = v
        at += j
    solved, others = np.zeros(k), F[[0, 2]].copy()
    assert wide_rank_one(F[1], x, k, weight, solved) == a * weight
    np.testing.assert_array_equal(solved, w)
    np.testing.assert_array_equal(F[1], row)
    np.testing.assert_array_equal(F[[0, 2]], others)


def test_arrays_that_are_not_contiguous_are_refused_when_compiling():
    from numba.core.errors import TypingError

    with pytest.raises(TypingError, match="contiguous"):
        dot(np.zeros(8)[::2], 0, np.zeros(4), 2)


@pytest.mark.parametrize(
    ("kernel", "exact", "largest"),
    [
        (exp4, np.exp, 699.0),
        (fallen4, lambda z: -np.expm1(-z), 699.0),
        (sigmoid4, lambda a: 1 / (1 + np.exp(-a)), 699.0),
    ],
)
def test_exponentials_of_four_numbers_are_those_of_each(kernel, exact, largest):
    out = np.zeros(4)
    for size in (1e-300, 1e-9, 0.01, 0.34, 0.36, 5.0, 40.0, largest):
        for _ in range(50):
            x = size * RNG.uniform(-1, 1, size=4)
            kernel(x, out)
            np.testing.assert_allclose(out, exact(x), rtol=1e-15, atol=0)
    kernel(np.array([-1e9, 1e9, 0.0, -0.0]), out)
    assert np.isfinite(out).all()
    assert out[2] == out[3] == exact(0.0)


def test_logarithms_of_four_numbers_are_those_of_each():
    out = np.zeros(4)
    for size in (1e-15, 1e-3, 0.3, 3.0, 100.0, 690.0):
        for _ in range(50):
            x = np.exp(size * RNG.uniform(-1, 1, size=4))
            log4(x, out)
            np.testing.assert_allclose(out, np.log(x), rtol=1e-15, atol=0)
    log4(np.array([1.0, 2.0, 0.5, 1e-300]), out)
    assert out[0] == 0.0
    assert out[1] == -out[2] == np.log(2.0)
