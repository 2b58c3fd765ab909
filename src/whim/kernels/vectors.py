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
from numba.core import cgutils as _untyped
from numba.core.errors import TypingError
from numba.extending import intrinsic

from whim.types import F64

__all__ = ["add_rows", "add_squares", "dot", "quads", "subtract_rows"]

cgutils: Any = _untyped

_WIDE = 4
_MOST = 6  # vectors of sums that the sixteen registers of most processors hold with ease
_DOUBLE, _WORD = ir.DoubleType(), ir.IntType(64)
_VECTOR = ir.VectorType(_DOUBLE, _WIDE)


def _check(*arrays: Any) -> None:
    for array in arrays:
        if array.layout != "C":
            raise TypingError(f"vectors need contiguous arrays, got {array}")


def _word(value: int) -> ir.Constant:
    return ir.Constant(_WORD, value)


def _start(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    """The address of an array's number ``offset``."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [offset])


def _at(builder: Any, start: Any, i: Any, kind: Any = _VECTOR) -> Any:
    return builder.bitcast(builder.gep(start, [i]), kind.as_pointer())


def _load(builder: Any, start: Any, i: Any, kind: Any = _VECTOR) -> Any:
    return builder.load(_at(builder, start, i, kind), align=8)


def _widened(builder: Any, array: Any, start: Any, i: Any, kind: Any) -> Any:
    """``_load`` from an array of either precision; sums are always of double precision."""
    if array.dtype == types.float64:
        return _load(builder, start, i, kind)
    single = ir.FloatType() if kind is _DOUBLE else ir.VectorType(ir.FloatType(), _WIDE)
    return builder.fpext(builder.load(_at(builder, start, i, single), align=4), kind)


def _variable(builder: Any, value: Any) -> Any:
    """A place that the compiler turns into a register; set again each time round a loop."""
    place = cgutils.alloca_once(builder, value.type)
    builder.store(value, place)
    return place


def _dot(typing: Any, a: Any, at: Any, b: Any, n: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        one, at, other, n = arguments
        left = _start(context, builder, signature.args[0], one, at)
        right = _start(context, builder, signature.args[2], other, _word(0))
        zero = ir.Constant(_VECTOR, [0.0] * _WIDE)
        sums = [_variable(builder, zero), _variable(builder, zero)]

        def step(place: Any, i: Any) -> None:
            number = _widened(builder, signature.args[0], left, i, _VECTOR)
            product = builder.fmul(number, _load(builder, right, i))
            builder.store(builder.fadd(builder.load(place), product), place)

        pairs = builder.and_(n, _word(-2 * _WIDE))
        with cgutils.for_range_slice(builder, _word(0), pairs, _word(2 * _WIDE)) as (i, _):
            step(sums[0], i)
            step(sums[1], builder.add(i, _word(_WIDE)))
        whole = builder.and_(n, _word(-_WIDE))
        with builder.if_then(builder.icmp_signed("<", pairs, whole)):
            step(sums[0], pairs)
        both = builder.fadd(builder.load(sums[0]), builder.load(sums[1]))
        lanes = [builder.extract_element(both, _word(lane)) for lane in range(_WIDE)]
        total = _variable(
            builder,
            builder.fadd(builder.fadd(lanes[0], lanes[2]), builder.fadd(lanes[1], lanes[3])),
        )
        with cgutils.for_range_slice(builder, whole, n, _word(1)) as (i, _):
            number = _widened(builder, signature.args[0], left, i, _DOUBLE)
            product = builder.fmul(number, _load(builder, right, i, _DOUBLE))
            builder.store(builder.fadd(builder.load(total), product), total)
        return builder.load(total)

    _check(a, b)
    return types.float64(a, types.intp, b, types.intp), generate


def _spread(builder: Any, value: Any) -> Any:
    """The same number in every lane."""
    empty = ir.Constant(_VECTOR, ir.Undefined)
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), _WIDE), [0] * _WIDE)
    first = builder.insert_element(empty, value, _word(0))
    return builder.shuffle_vector(first, empty, lanes)


def _blocks(builder: Any, n: Any, block: Callable[[Any, int, bool], None]) -> None:
    """Columns 0 to n: ``block(c, vectors, wide)`` takes as many vectors as stay in registers.

    What a whole block leaves over is one block as well: a sum waits for its last addition, so
    several side by side take the time of one.
    """
    size = _word(_MOST * _WIDE)
    vectors = builder.udiv(n, _word(_WIDE))
    left = builder.urem(vectors, _word(_MOST))
    done = builder.mul(builder.sub(vectors, left), _word(_WIDE))
    with cgutils.for_range_slice(builder, _word(0), done, size) as (c, _):
        block(c, _MOST, True)
    for some in range(1, _MOST):
        with builder.if_then(builder.icmp_signed("==", left, _word(some))):
            block(done, some, True)
    with cgutils.for_range_slice(builder, builder.mul(vectors, _word(_WIDE)), n, _word(1)) as (
        c,
        _,
    ):
        block(c, 1, False)


def _summed(
    builder: Any, starts: list[Any], places: list[Any], wide: bool, factors: Any, rows: Any,
    stride: Any, count: Any, join: str,
) -> list[Any]:  # fmt: skip
    """``starts`` plus or minus Σ factors[i] · rows[i · stride + place], each in its own order."""
    kind = _VECTOR if wide else _DOUBLE
    sums = [_variable(builder, start) for start in starts]
    with cgutils.for_range(builder, count) as loop:
        factor = _load(builder, factors, loop.index, _DOUBLE)
        if wide:
            factor = _spread(builder, factor)
        row = builder.mul(loop.index, stride)
        for place, total in zip(places, sums, strict=True):
            product = builder.fmul(factor, _load(builder, rows, builder.add(row, place), kind))
            builder.store(getattr(builder, join)(builder.load(total), product), total)
    return [builder.load(total) for total in sums]


def _places(builder: Any, c: Any, vectors: int) -> list[Any]:
    return [builder.add(c, _word(_WIDE * v)) for v in range(vectors)]


def _rows(join: str) -> Callable[..., Any]:
    def typed(
        typing: Any, line: Any, n: Any, weights: Any, w_at: Any, matrix: Any, m_at: Any,
        stride: Any, count: Any,
    ) -> Any:  # fmt: skip
        _check(line, weights, matrix)
        word = types.intp
        return types.void(line, word, weights, word, matrix, word, word, word), generate

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line, n, weights, w_at, matrix, m_at, stride, count = arguments
        kinds = signature.args
        target = _start(context, builder, kinds[0], line, _word(0))
        factors = _start(context, builder, kinds[2], weights, w_at)
        rows = _start(context, builder, kinds[4], matrix, m_at)

        def block(c: Any, vectors: int, wide: bool) -> None:
            kind = _VECTOR if wide else _DOUBLE
            places = _places(builder, c, vectors)
            starts = [_load(builder, target, place, kind) for place in places]
            sums = _summed(builder, starts, places, wide, factors, rows, stride, count, join)
            for place, total in zip(places, sums, strict=True):
                builder.store(total, _at(builder, target, place, kind), align=8)

        _blocks(builder, n, block)
        return context.get_dummy_value()

    return typed


def _squares(
    typing: Any, line: Any, n: Any, weight: Any, weights: Any, w_at: Any, matrix: Any, count: Any
) -> Any:
    _check(line, weights, matrix)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line, n, weight, weights, w_at, matrix, count = arguments
        kinds = signature.args
        target = _start(context, builder, kinds[0], line, _word(0))
        factors = _start(context, builder, kinds[3], weights, w_at)
        rows = _start(context, builder, kinds[5], matrix, _word(0))
        last = _start(context, builder, kinds[5], matrix, builder.mul(count, n))

        def block(c: Any, vectors: int, wide: bool) -> None:
            kind = _VECTOR if wide else _DOUBLE
            places = _places(builder, c, vectors)
            starts = [_load(builder, last, place, kind) for place in places]
            sums = _summed(builder, starts, places, wide, factors, rows, n, count, "fadd")
            scale = _spread(builder, weight) if wide else weight
            for place, total in zip(places, sums, strict=True):
                square = builder.fmul(builder.fmul(scale, total), total)
                before = _load(builder, target, place, kind)
                builder.store(builder.fadd(before, square), _at(builder, target, place, kind), 8)

        _blocks(builder, n, block)
        return context.get_dummy_value()

    word = types.intp
    return types.void(line, word, types.float64, weights, word, matrix, word), generate


def _quads(typing: Any, mean: Any, quad: Any, n: Any, packed: Any, stride: Any, x: Any) -> Any:
    _check(mean, quad, packed, x)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        mean, quad, n, packed, stride, x = arguments
        kinds = signature.args
        zero = _word(0)
        means = _start(context, builder, kinds[0], mean, zero)
        quads = _start(context, builder, kinds[1], quad, zero)
        models = _start(context, builder, kinds[3], packed, zero)
        numbers = _start(context, builder, kinds[5], x, zero)
        array = context.make_array(kinds[5])(context, builder, x)
        [d] = cgutils.unpack_tuple(builder, array.shape, 1)
        theta = builder.udiv(builder.mul(d, builder.add(d, _word(1))), _word(2))

        def block(c: Any, vectors: int, wide: bool) -> None:
            kind = _VECTOR if wide else _DOUBLE
            places = _places(builder, c, vectors)
            nought = ir.Constant(kind, [0.0] * _WIDE if wide else 0.0)
            at = builder.gep(models, [builder.mul(theta, stride)])
            sums = _summed(
                builder, [nought] * vectors, places, wide, numbers, at, stride, d, "fadd"
            )
            for place, value in zip(places, sums, strict=True):
                builder.store(value, _at(builder, means, place, kind), align=8)
            totals = [_variable(builder, nought) for _ in places]
            column = _variable(builder, d)
            with cgutils.for_range(builder, d) as loop:
                j = loop.index
                at = builder.gep(models, [builder.mul(builder.load(column), stride)])
                x_j = _load(builder, numbers, j, _DOUBLE)
                start = _spread(builder, x_j) if wide else x_j
                found = _summed(
                    builder, [start] * vectors, places, wide, numbers, at, stride, j, "fadd"
                )
                diagonal = builder.gep(models, [builder.mul(j, stride)])
                for place, f, total in zip(places, found, totals, strict=True):
                    scaled = builder.fmul(_load(builder, diagonal, place, kind), f)
                    value = builder.fadd(builder.load(total), builder.fmul(scaled, f))
                    builder.store(value, total)
                builder.store(builder.add(builder.load(column), j), column)
            for place, total in zip(places, totals, strict=True):
                builder.store(builder.load(total), _at(builder, quads, place, kind), align=8)

        _blocks(builder, n, block)
        return context.get_dummy_value()

    word = types.intp
    return types.void(mean, quad, word, packed, word, x), generate


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

    def add_squares(
        line: F64, n: int, weight: float, weights: F64, w_at: int, matrix: F64, count: int
    ) -> None:
        """``line[c] += weight · f²``, f = row ``count`` of a matrix of n columns + Σ as above."""

    def quads(mean: F64, quad: F64, n: int, packed: F64, stride: int, x: F64) -> None:
        """xᵀθ and xᵀA⁻¹x of n models side by side: number p of model c is at p · stride + c."""

else:
    dot = intrinsic(_dot)
    add_rows, subtract_rows = intrinsic(_rows("fadd")), intrinsic(_rows("fsub"))
    add_squares, quads = intrinsic(_squares), intrinsic(_quads)
