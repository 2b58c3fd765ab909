"""Sums over numbers that lie side by side, four in one instruction, always in the same order.

numba leaves a sum of products to one number at a time, since adding in another order would change
its last bits, and ``fastmath`` would let the compiler choose an order anew wherever a kernel is
copied to. Here the order is written down: ``dot`` has eight running sums, ``add_rows`` keeps each
column's own order. The vectors are LLVM's, so every processor runs them, in the same bits.
Arrays must be contiguous; offsets count numbers from the array's first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from whim.kernels import llvm
from whim.kernels.llvm import DOUBLE, VECTOR, WIDE, ZEROS, cgutils
from whim.types import F64

__all__ = ["add_rows", "dot", "quad", "rank_one", "subtract_rows"]


def _dot(typing: Any, a: Any, at: Any, b: Any, n: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one, at, other, n = arguments
        left = llvm.start(context, builder, signature.args[0], one, at)
        right = llvm.start(context, builder, signature.args[2], other, llvm.word(0))
        sums = [llvm.variable(builder, ZEROS), llvm.variable(builder, ZEROS)]

        def step(place: Any, i: Any) -> None:
            number = llvm.widened(builder, signature.args[0], left, i, VECTOR)
            product = builder.fmul(number, llvm.load(builder, right, i))
            builder.store(builder.fadd(builder.load(place), product), place)

        pairs = builder.and_(n, llvm.word(-2 * WIDE))
        with cgutils.for_range_slice(builder, llvm.word(0), pairs, llvm.word(2 * WIDE)) as (i, _):
            step(sums[0], i)
            step(sums[1], builder.add(i, llvm.word(WIDE)))
        whole = builder.and_(n, llvm.word(-WIDE))
        with builder.if_then(builder.icmp_signed("<", pairs, whole)):
            step(sums[0], pairs)
        both = builder.fadd(builder.load(sums[0]), builder.load(sums[1]))
        lanes = [builder.extract_element(both, llvm.word(lane)) for lane in range(WIDE)]
        total = llvm.variable(
            builder,
            builder.fadd(builder.fadd(lanes[0], lanes[2]), builder.fadd(lanes[1], lanes[3])),
        )
        with cgutils.for_range_slice(builder, whole, n, llvm.word(1)) as (i, _):
            number = llvm.widened(builder, signature.args[0], left, i, DOUBLE)
            product = builder.fmul(number, llvm.load(builder, right, i, DOUBLE))
            builder.store(builder.fadd(builder.load(total), product), total)
        return builder.load(total)

    llvm.check(a, b)
    return types.float64(a, types.intp, b, types.intp), generate


def _rows(join: str) -> Callable[..., Any]:
    def typed(
        typing: Any, line: Any, n: Any, weights: Any, w_at: Any, matrix: Any, m_at: Any,
        stride: Any, count: Any,
    ) -> Any:  # fmt: skip
        llvm.check(line, weights, matrix)
        word = types.intp
        return types.void(line, word, weights, word, matrix, word, word, word), generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line, n, weights, w_at, matrix, m_at, stride, count = arguments
        kinds = signature.args
        target = llvm.start(context, builder, kinds[0], line, llvm.word(0))
        factors = llvm.start(context, builder, kinds[2], weights, w_at)
        rows = llvm.start(context, builder, kinds[4], matrix, m_at)

        def block(c: Any, vectors: int, wide: bool) -> None:
            kind = VECTOR if wide else DOUBLE
            places = llvm.places(builder, c, vectors)
            starts = [llvm.load(builder, target, place, kind) for place in places]
            sums = llvm.summed(builder, starts, places, wide, factors, rows, stride, count, join)
            for place, total in zip(places, sums, strict=True):
                builder.store(total, llvm.at(builder, target, place, kind), align=8)

        llvm.blocks(builder, n, block)
        return context.get_dummy_value()

    return typed


def _found(
    builder: Any, kind: Any, starts: list[Any], numbers: Any, j: Any
) -> tuple[list[Any], list[Any]]:
    """Places j, j + 1, ... and what ``Uᵀx`` has there; the factors are in an array of ``kind``.

    Each is x_j, then four running sums of the products before j, then the rest in their order.
    """
    sums = [llvm.variable(builder, ZEROS) for _ in starts]
    with cgutils.for_range_slice(builder, llvm.word(0), j, llvm.word(WIDE)) as (i, _):
        value = llvm.load(builder, numbers, i)
        for start, total in zip(starts, sums, strict=True):
            llvm.add(builder, total, llvm.widened(builder, kind, start, i, VECTOR), value)
    places = [builder.add(j, llvm.word(q)) for q in range(len(starts))]
    last = [llvm.load(builder, numbers, place, DOUBLE) for place in places]
    found = []
    for q, (start, total) in enumerate(zip(starts, sums, strict=True)):
        lanes = [builder.extract_element(builder.load(total), llvm.word(i)) for i in range(WIDE)]
        f = builder.fadd(last[q], llvm.halved(builder, lanes))
        for before in range(q):
            number = llvm.widened(builder, kind, start, places[before], DOUBLE)
            f = builder.fadd(f, builder.fmul(number, last[before]))
        found.append(f)
    return places, found


def _quad(typing: Any, F: Any, at: Any, x: Any, k: Any) -> Any:
    llvm.check(F, x)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        F, at, x, k = arguments
        kind = signature.args[0]
        factors = llvm.start(context, builder, kind, F, at)
        numbers = llvm.start(context, builder, signature.args[2], x, llvm.word(0))
        total = llvm.variable(builder, ir.Constant(DOUBLE, 0.0))

        def group(j: Any, count: int) -> None:
            starts = llvm.starts(builder, factors, k, j, count)
            for place, f in zip(*_found(builder, kind, starts, numbers, j), strict=True):
                weight = llvm.widened(builder, kind, factors, place, DOUBLE)
                llvm.add(builder, total, builder.fmul(weight, f), f)

        llvm.fours(builder, k, group)
        return builder.load(total)

    return types.float64(F, types.intp, x, types.intp), generate


def _rank_one(typing: Any, F: Any, at: Any, x: Any, k: Any, weight: Any, w: Any) -> Any:
    llvm.check(F, x, w)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        F, at, x, k, weight, w = arguments
        kinds = signature.args
        factors = llvm.start(context, builder, kinds[0], F, at)
        numbers = llvm.start(context, builder, kinds[2], x, llvm.word(0))
        solved = llvm.start(context, builder, kinds[5], w, llvm.word(0))
        one = ir.Constant(DOUBLE, 1.0)
        rest = llvm.variable(builder, builder.fdiv(one, weight))
        inverse = llvm.variable(builder, weight)

        def group(j: Any, count: int) -> None:
            starts = llvm.starts(builder, factors, k, j, count)
            places, found = _found(builder, kinds[0], starts, numbers, j)
            scaled, ratios = [], []
            for place, f in zip(places, found, strict=True):
                diagonal = llvm.load(builder, factors, place, DOUBLE)
                v, before = builder.fmul(diagonal, f), builder.load(rest)
                after = builder.fadd(before, builder.fmul(f, v))
                ratios.append(builder.fmul(builder.fneg(f), builder.load(inverse)))
                scaled.append(v)
                builder.store(builder.fdiv(one, after), inverse)
                builder.store(after, rest)
                share = builder.fmul(before, builder.load(inverse))
                where = llvm.at(builder, factors, place, DOUBLE)
                builder.store(builder.fmul(diagonal, share), where, align=8)

            def pass_on(i: Any, value: Any, kind: Any, first: int) -> None:
                """Number i of w goes through the columns, which change by what it is there."""
                for q in range(first, count):
                    v, ratio = scaled[q], ratios[q]
                    if kind is VECTOR:
                        v, ratio = llvm.spread(builder, v), llvm.spread(builder, ratio)
                    u = llvm.load(builder, starts[q], i, kind)
                    changed = builder.fadd(u, builder.fmul(value, ratio))
                    builder.store(changed, llvm.at(builder, starts[q], i, kind), align=8)
                    value = builder.fadd(value, builder.fmul(u, v))
                builder.store(value, llvm.at(builder, solved, i, kind), align=8)

            with cgutils.for_range_slice(builder, llvm.word(0), j, llvm.word(WIDE)) as (i, _):
                pass_on(i, llvm.load(builder, solved, i), VECTOR, 0)
            for q, place in enumerate(places):
                pass_on(place, scaled[q], DOUBLE, q + 1)

        llvm.fours(builder, k, group)
        return builder.fmul(builder.load(rest), weight)

    word = types.intp
    return types.float64(F, word, x, word, types.float64, w), generate


if TYPE_CHECKING:

    def dot(a: F64, at: Any, b: F64, n: Any) -> float:
        """``Σ a[at + i] · b[i]``, i < n, in eight running sums; ``a`` may be in float32."""

    def add_rows(
        line: F64, n: int, weights: F64, w_at: int, matrix: F64, m_at: int, stride: int, count: int
    ) -> None:
        """``line[c] += Σ weights[w_at + i] · matrix[m_at + i · stride + c]``, c < n, i < count."""

    def subtract_rows(
        line: F64, n: int, weights: F64, w_at: int, matrix: F64, m_at: int, stride: int, count: int
    ) -> None:
        """As ``add_rows``, with ``-=``."""

    def quad(F: F64, at: int, x: F64, k: int) -> float:
        """``xᵀA⁻¹x`` for the k × k factors at ``at``, which may be in float32.

        Number j of Uᵀx is x_j, then four running sums of the products before j // 4 · 4, then the
        rest; D_j f_j f_j are added in their order.
        """

    def rank_one(F: F64, at: int, x: F64, k: int, weight: float, w: F64) -> float:
        """``factors.rank_one``, four columns at a time: w is read and written once for them."""

else:
    dot, quad, rank_one = intrinsic(_dot), intrinsic(_quad), intrinsic(_rank_one)
    add_rows, subtract_rows = intrinsic(_rows("fadd")), intrinsic(_rows("fsub"))
