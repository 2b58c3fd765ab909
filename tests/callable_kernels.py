"""Parts of kernels as Python can call them: by themselves they are compiled into kernels only."""

from __future__ import annotations

from whim.kernels.detection import score_test
from whim.kernels.jit import jit
from whim.kernels.linalg import columns, elementary, lanes, ldl, packed, udu, vectors
from whim.kernels.linalg.f64x4 import load, store

__all__ = [
    "best_packed", "column_forms", "column_learn", "cross_sums", "dot", "downdate", "exp4",
    "fallen4", "full_forms", "full_learn", "kron", "ldl_add", "ldl_quad", "ldl_solve", "learn",
    "log4", "pack4", "predict", "quad", "rank_one", "residual", "rows", "sigmoid4", "solve",
    "squares", "times", "wide_quad", "wide_rank_one",
]  # fmt: skip


@jit
def rank_one(f, x, weight, w):
    return udu.rank_one(f, x, weight, w)


@jit
def downdate(f, x, w, v):
    return udu.downdate(f, x, w, v)


@jit
def learn(f, x, r, w):
    udu.learn(f, x, r, w)


@jit
def predict(f, x):
    return udu.predict(f, x)


@jit
def quad(f, x):
    return udu.quad(f, x)


@jit
def times(f, x, w):
    return udu.times(f, x, w)


@jit
def residual(flat, x, r, rank, w):
    return score_test.residual(flat, x, r, rank, w)


@jit
def ldl_add(f, at, p, start, weight, v):
    ldl.add(f, at, p, start, weight, v)


@jit
def ldl_quad(f, at, u):
    return ldl.quad(f, at, u)


@jit
def ldl_solve(f, at, x, u):
    return ldl.solve(f, at, x, u)


@jit
def dot(a, at, b, n):
    return vectors.dot(a, at, b, n)


@jit
def rows(line, n, weights, sign, matrix, at, count):
    vectors.add_rows(line, n, weights, sign, matrix, at, count)


@jit
def wide_quad(f, x, k):
    return vectors.quad(f, x, k)


@jit
def wide_rank_one(f, x, k, weight, w):
    return vectors.rank_one(f, x, k, weight, w)


@jit
def best_packed(x, n, side, alpha):
    return packed.best(x, n, side, alpha)


@jit
def pack4(side, n, c, matrix, rows, count):
    lanes.pack4(side, n, c, matrix, rows, count)


@jit
def solve(W, mean, square, n, side, x):
    lanes.solve(W, mean, square, n, side, x)


@jit
def cross_sums(mean, length, n, Y, W, beta):
    lanes.cross_sums(mean, length, n, Y, Y.shape[0], W, W.shape[0], beta)


@jit
def kron(U, n, Y, W, stride):
    lanes.kron(U, n, Y, Y.shape[0], W, W.shape[0], stride)


@jit
def squares(square, n, f, U, k):
    lanes.squares(square, n, f, U, k)


@jit
def exp4(a, out):
    store(out, 0, elementary.exp(load(a, 0, 1)))


@jit
def fallen4(a, out):
    store(out, 0, elementary.fallen(load(a, 0, 1)))


@jit
def sigmoid4(a, out):
    store(out, 0, elementary.sigmoid(load(a, 0, 1)))


@jit
def log4(a, out):
    store(out, 0, elementary.log(load(a, 0, 1)))


@jit
def column_forms(table, x, values, means, squares):
    columns.forms(table, x, values, means, squares)


@jit
def column_learn(table, values, weights, steps, pulls):
    columns.learn(table, values, weights, steps, pulls)


@jit
def full_forms(table, x, lines, means, squares):
    columns.full_forms(table, x, lines, means, squares)


@jit
def full_learn(table, lines, seen, steps):
    columns.full_learn(table, lines, seen, steps)
