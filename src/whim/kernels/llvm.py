"""What ``vectors`` and ``lanes`` are written with: small pieces of LLVM's own language.

numba turns a function made by ``intrinsic`` into the instructions that it builds, one by one, with
llvmlite's ``builder``. Arrays are known by the address of a number in them and are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as _untyped
from numba.core.errors import TypingError

__all__ = [
    "DOUBLE", "MOST", "VECTOR", "WIDE", "WORD", "ZEROS", "add", "at", "blocks", "cgutils",
    "check", "fours", "halved", "load", "places", "spread", "start", "starts", "summed",
    "variable", "whole", "widened", "word",
]  # fmt: skip

cgutils: Any = _untyped

WIDE = 4
MOST = 6  # vectors of sums that the sixteen registers of most processors hold with ease
DOUBLE, WORD = ir.DoubleType(), ir.IntType(64)
VECTOR = ir.VectorType(DOUBLE, WIDE)
ZEROS = ir.Constant(VECTOR, [0.0] * WIDE)


def check(*arrays: Any) -> None:
    for array in arrays:
        if array.layout != "C":
            raise TypingError(f"vectors need contiguous arrays, got {array}")


def word(value: int) -> ir.Constant:
    return ir.Constant(WORD, value)


def start(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    """The address of an array's number ``offset``."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [offset])


def at(builder: Any, start: Any, i: Any, kind: Any = VECTOR) -> Any:
    return builder.bitcast(builder.gep(start, [i]), kind.as_pointer())


def load(builder: Any, start: Any, i: Any, kind: Any = VECTOR) -> Any:
    return builder.load(at(builder, start, i, kind), align=8)


def widened(builder: Any, array: Any, start: Any, i: Any, kind: Any) -> Any:
    """``load`` from an array of either precision; sums are always of double precision."""
    if array.dtype == types.float64:
        return load(builder, start, i, kind)
    single = ir.FloatType() if kind is DOUBLE else ir.VectorType(ir.FloatType(), WIDE)
    return builder.fpext(builder.load(at(builder, start, i, single), align=4), kind)


def variable(builder: Any, value: Any) -> Any:
    """A place that the compiler turns into a register; set again each time round a loop."""
    place = cgutils.alloca_once(builder, value.type)
    builder.store(value, place)
    return place


def spread(builder: Any, value: Any) -> Any:
    """The same number in every lane."""
    empty = ir.Constant(VECTOR, ir.Undefined)
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), WIDE), [0] * WIDE)
    first = builder.insert_element(empty, value, word(0))
    return builder.shuffle_vector(first, empty, lanes)


def add(builder: Any, place: Any, a: Any, b: Any) -> None:
    """``place += a · b``."""
    builder.store(builder.fadd(builder.load(place), builder.fmul(a, b)), place)


def blocks(builder: Any, n: Any, block: Callable[[Any, int, bool], None]) -> None:
    """Columns 0 to n: ``block(c, vectors, wide)`` takes as many vectors as stay in registers.

    What a whole block leaves over is one block as well: a sum waits for its last addition, so
    several side by side take the time of one.
    """
    size = word(MOST * WIDE)
    vectors = builder.udiv(n, word(WIDE))
    left = builder.urem(vectors, word(MOST))
    done = builder.mul(builder.sub(vectors, left), word(WIDE))
    with cgutils.for_range_slice(builder, word(0), done, size) as (c, _):
        block(c, MOST, True)
    for some in range(1, MOST):
        with builder.if_then(builder.icmp_signed("==", left, word(some))):
            block(done, some, True)
    with cgutils.for_range_slice(builder, builder.mul(vectors, word(WIDE)), n, word(1)) as (
        c,
        _,
    ):
        block(c, 1, False)


def whole(builder: Any, n: Any, most: int, block: Callable[[Any, int], None]) -> None:
    """As ``blocks`` with ``most`` vectors at once, for n a multiple of four."""
    vectors = builder.udiv(n, word(WIDE))
    left = builder.urem(vectors, word(most))
    done = builder.mul(builder.sub(vectors, left), word(WIDE))
    with cgutils.for_range_slice(builder, word(0), done, word(most * WIDE)) as (c, _):
        block(c, most)
    for some in range(1, most):
        with builder.if_then(builder.icmp_signed("==", left, word(some))):
            block(done, some)


def places(builder: Any, c: Any, vectors: int) -> list[Any]:
    return [builder.add(c, word(WIDE * v)) for v in range(vectors)]


def summed(
    builder: Any, starts: list[Any], places: list[Any], wide: bool, factors: Any, rows: Any,
    stride: Any, count: Any, join: str,
) -> list[Any]:  # fmt: skip
    """``starts`` plus or minus Σ factors[i] · rows[i · stride + place], each in its own order."""
    kind = VECTOR if wide else DOUBLE
    sums = [variable(builder, start) for start in starts]
    with cgutils.for_range(builder, count) as loop:
        factor = load(builder, factors, loop.index, DOUBLE)
        if wide:
            factor = spread(builder, factor)
        row = builder.mul(loop.index, stride)
        for place, total in zip(places, sums, strict=True):
            product = builder.fmul(factor, load(builder, rows, builder.add(row, place), kind))
            builder.store(getattr(builder, join)(builder.load(total), product), total)
    return [builder.load(total) for total in sums]


def halved(builder: Any, sums: list[Any]) -> Any:
    """Four running sums become one."""
    return builder.fadd(builder.fadd(sums[0], sums[2]), builder.fadd(sums[1], sums[3]))


def fours(builder: Any, k: Any, group: Callable[[Any, int], None]) -> None:
    """Columns 0 to k, four at a time: ``group(j, count)``, j a multiple of four."""
    whole = builder.and_(k, word(-WIDE))
    with cgutils.for_range_slice(builder, word(0), whole, word(WIDE)) as (j, _):
        group(j, WIDE)
    for some in range(1, WIDE):
        left = builder.sub(k, whole)
        with builder.if_then(builder.icmp_signed("==", left, word(some))):
            group(whole, some)


def starts(builder: Any, factors: Any, k: Any, j: Any, count: int) -> list[Any]:
    """Addresses of columns j, j + 1, ... of U, which stand one after the other after D."""
    triangle = builder.udiv(builder.mul(j, builder.sub(j, word(1))), word(2))
    at, starts = builder.add(k, triangle), []
    for q in range(count):
        starts.append(builder.gep(factors, [at]))
        at = builder.add(at, builder.add(j, word(q)))
    return starts
