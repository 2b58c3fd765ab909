"""Many models or candidates side by side: column c of a table is candidate c's.

Where ``vectors`` takes several numbers of one sum in an instruction, this takes the same number of
several candidates, so that each one's sum keeps its own order. Tables have n columns, n a multiple
of four; columns past the last candidate may hold anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from whim.kernels import llvm
from whim.kernels.llvm import DOUBLE, WIDE, ZEROS, cgutils
from whim.types import F64

__all__ = ["beside", "crossed", "forms", "kron", "quads", "solve"]


def _models(
    context: Any, builder: Any, mean: Any, quad: Any, n: Any, models: Any, stride: Any, kind: Any,
    x: Any, solved: Any = None,
) -> None:  # fmt: skip
    """``quads`` and, where there is a place for it, ``solve``; x is an array of type ``kind``."""
    array = context.make_array(kind)(context, builder, x)
    [d] = cgutils.unpack_tuple(builder, array.shape, 1)
    numbers = array.data
    theta = builder.udiv(builder.mul(d, builder.add(d, llvm.word(1))), llvm.word(2))

    def block(c: Any, vectors: int) -> None:
        places = llvm.places(builder, c, vectors)
        zeros = [ZEROS] * vectors
        at = builder.gep(models, [builder.mul(theta, stride)])
        sums = llvm.summed(builder, zeros, places, True, numbers, at, stride, d, "fadd")
        for place, value in zip(places, sums, strict=True):
            builder.store(value, llvm.at(builder, mean, place), align=8)
        totals = [llvm.variable(builder, zero) for zero in zeros]
        column = llvm.variable(builder, d)
        with cgutils.for_range(builder, d) as loop:
            j = loop.index
            at = builder.gep(models, [builder.mul(builder.load(column), stride)])
            start = [llvm.spread(builder, llvm.load(builder, numbers, j, DOUBLE))] * vectors
            found = llvm.summed(builder, start, places, True, numbers, at, stride, j, "fadd")
            diagonal = builder.gep(models, [builder.mul(j, stride)])
            scaled = [
                builder.fmul(llvm.load(builder, diagonal, place), f)
                for place, f in zip(places, found, strict=True)
            ]
            for f, v, total in zip(found, scaled, totals, strict=True):
                llvm.add(builder, total, v, f)
            if solved is not None:
                _solved(builder, solved, n, j, at, stride, places, scaled)
            builder.store(builder.add(builder.load(column), j), column)
        for place, total in zip(places, totals, strict=True):
            builder.store(builder.load(total), llvm.at(builder, quad, place), align=8)

    llvm.whole(builder, n, llvm.MOST, block)


def _solved(
    builder: Any, solved: Any, n: Any, j: Any, at: Any, stride: Any, places: Any, scaled: Any
) -> None:
    """Column j of U times v_j joins the sums of ``A⁻¹x``: row i of ``solved`` is number i."""
    row = builder.mul(j, n)
    for place, v in zip(places, scaled, strict=True):
        builder.store(v, llvm.at(builder, solved, builder.add(row, place)), align=8)
    with cgutils.for_range(builder, j) as loop:
        row, line = builder.mul(loop.index, n), builder.mul(loop.index, stride)
        for place, v in zip(places, scaled, strict=True):
            where = llvm.at(builder, solved, builder.add(row, place))
            product = builder.fmul(llvm.load(builder, at, builder.add(line, place)), v)
            builder.store(builder.fadd(builder.load(where, align=8), product), where, align=8)


def _quads(typing: Any, mean: Any, quad: Any, n: Any, packed: Any, stride: Any, x: Any) -> Any:
    llvm.check(mean, quad, packed, x)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        mean, quad, n, packed, stride, x = arguments
        kinds = signature.args
        means, quads, models = (
            llvm.start(context, builder, kinds[i], array, llvm.word(0))
            for i, array in ((0, mean), (1, quad), (3, packed))
        )
        _models(context, builder, means, quads, n, models, stride, kinds[5], x)
        return context.get_dummy_value()

    word = types.intp
    return types.void(mean, quad, word, packed, word, x), generate


def _solve(typing: Any, W: Any, mean: Any, quad: Any, n: Any, packed: Any, x: Any) -> Any:
    llvm.check(W, mean, quad, packed, x)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        W, mean, quad, n, packed, x = arguments
        kinds = signature.args
        solved, means, quads, models = (
            llvm.start(context, builder, kinds[i], array, llvm.word(0))
            for i, array in ((0, W), (1, mean), (2, quad), (4, packed))
        )
        _models(context, builder, means, quads, n, models, n, kinds[5], x, solved)
        return context.get_dummy_value()

    return types.void(W, mean, quad, types.intp, packed, x), generate


def _beside(
    typing: Any, packed: Any, n: Any, c: Any, matrix: Any, a: Any, b: Any, e: Any, f: Any,
    count: Any,
) -> Any:  # fmt: skip
    llvm.check(packed, matrix)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        packed, n, c, matrix, *rows, count = arguments
        target = llvm.start(context, builder, signature.args[0], packed, c)
        array = context.make_array(signature.args[3])(context, builder, matrix)
        width = cgutils.unpack_tuple(builder, array.shape, 2)[1]
        lines = [builder.gep(array.data, [builder.mul(row, width)]) for row in rows]
        whole = builder.and_(count, llvm.word(-WIDE))
        pair = ir.VectorType(DOUBLE, 2)

        def mixed(one: Any, other: Any, *lanes: int) -> Any:
            order = ir.Constant(ir.VectorType(ir.IntType(32), WIDE), lanes)
            return builder.shuffle_vector(one, other, order)

        with cgutils.for_range_slice(builder, llvm.word(0), whole, llvm.word(WIDE)) as (p, _):
            for half in range(0, WIDE, 2):  # two numbers of a row at a time: loads do the turning
                here = builder.add(p, llvm.word(half))
                one, two, three, four = (llvm.load(builder, line, here, pair) for line in lines)
                outer, inner = mixed(one, three, 0, 1, 2, 3), mixed(two, four, 0, 1, 2, 3)
                turned = mixed(outer, inner, 0, 4, 2, 6), mixed(outer, inner, 1, 5, 3, 7)
                for q, value in enumerate(turned):
                    place = builder.mul(builder.add(here, llvm.word(q)), n)
                    builder.store(value, llvm.at(builder, target, place), align=8)
        with cgutils.for_range_slice(builder, whole, count, llvm.word(1)) as (p, _):
            row = builder.mul(p, n)
            for lane, line in enumerate(lines):
                where = llvm.at(builder, target, builder.add(row, llvm.word(lane)), DOUBLE)
                builder.store(llvm.load(builder, line, p, DOUBLE), where, align=8)
        return context.get_dummy_value()

    word = types.intp
    return types.void(packed, word, word, matrix, word, word, word, word, word), generate


def _crossed(
    typing: Any, mean: Any, length: Any, n: Any, Y: Any, m: Any, W: Any, d: Any, weights: Any,
    at: Any,
) -> Any:  # fmt: skip
    llvm.check(mean, length, Y, W, weights)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        mean, length, n, Y, m, W, d, weights, at = arguments
        kinds = signature.args
        means = llvm.start(context, builder, kinds[0], mean, llvm.word(0))
        lengths = llvm.start(context, builder, kinds[1], length, llvm.word(0))
        first = llvm.start(context, builder, kinds[7], weights, at)
        y = llvm.start(context, builder, kinds[3], Y, llvm.word(0))
        w = llvm.start(context, builder, kinds[5], W, llvm.word(0))

        def block(c: Any, vectors: int) -> None:
            places = llvm.places(builder, c, vectors)
            zeros = [ZEROS] * vectors

            def squared(array: Any, count: Any) -> list[Any]:
                sums = [llvm.variable(builder, zero) for zero in zeros]
                with cgutils.for_range(builder, count) as loop:
                    row = builder.mul(loop.index, n)
                    for place, total in zip(places, sums, strict=True):
                        number = llvm.load(builder, array, builder.add(row, place))
                        llvm.add(builder, total, number, number)
                return [builder.load(total) for total in sums]

            for place, one, other in zip(places, squared(y, m), squared(w, d), strict=True):
                square = builder.fmul(one, other)
                builder.store(square, llvm.at(builder, lengths, place), align=8)
            totals = [llvm.variable(builder, llvm.load(builder, means, place)) for place in places]
            with cgutils.for_range(builder, m) as loop:
                row = builder.mul(loop.index, n)
                part = builder.gep(first, [builder.mul(loop.index, d)])
                sums = llvm.summed(builder, zeros, places, True, part, w, n, d, "fadd")
                for place, value, total in zip(places, sums, totals, strict=True):
                    llvm.add(builder, total, llvm.load(builder, y, builder.add(row, place)), value)
            for place, total in zip(places, totals, strict=True):
                builder.store(builder.load(total), llvm.at(builder, means, place), align=8)

        llvm.whole(builder, n, llvm.MOST, block)
        return context.get_dummy_value()

    word = types.intp
    return types.void(mean, length, word, Y, word, W, word, weights, word), generate


def _kron(typing: Any, U: Any, n: Any, Y: Any, m: Any, W: Any, d: Any, stride: Any) -> Any:
    llvm.check(U, Y, W)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        U, n, Y, m, W, d, stride = arguments
        kinds = signature.args
        target = llvm.start(context, builder, kinds[0], U, llvm.word(0))
        y = llvm.start(context, builder, kinds[2], Y, llvm.word(0))
        w = llvm.start(context, builder, kinds[4], W, llvm.word(0))
        row = llvm.variable(builder, llvm.word(0))
        with cgutils.for_range(builder, m) as outer:
            left = builder.mul(outer.index, stride)
            with cgutils.for_range(builder, d) as inner:
                right, at = builder.mul(inner.index, stride), builder.load(row)
                with cgutils.for_range_slice(builder, llvm.word(0), n, llvm.word(WIDE)) as (c, _):
                    one = llvm.load(builder, y, builder.add(left, c))
                    other = llvm.load(builder, w, builder.add(right, c))
                    where = llvm.at(builder, target, builder.add(at, c))
                    builder.store(builder.fmul(one, other), where, align=8)
                builder.store(builder.add(at, n), row)
        return context.get_dummy_value()

    word = types.intp
    return types.void(U, word, Y, word, W, word, word), generate


def _forms(typing: Any, square: Any, n: Any, F: Any, U: Any, k: Any) -> Any:
    llvm.check(square, F, U)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        square, n, F, U, k = arguments
        kinds = signature.args
        target, factors, numbers = (
            llvm.start(context, builder, kinds[i], array, llvm.word(0))
            for i, array in ((0, square), (2, F), (3, U))
        )

        def line(j: Any, places: list[Any]) -> list[Any]:
            row = builder.mul(j, n)
            return [llvm.load(builder, numbers, builder.add(row, place)) for place in places]

        def block(c: Any, vectors: int) -> None:
            places = llvm.places(builder, c, vectors)
            totals = [llvm.variable(builder, ZEROS) for _ in places]

            def group(j: Any, count: int) -> None:
                starts = llvm.starts(builder, factors, k, j, count)
                js = [builder.add(j, llvm.word(q)) for q in range(count)]
                first, step = llvm.word(0), llvm.word(WIDE)
                for q, start in enumerate(starts):
                    sums = [[llvm.variable(builder, ZEROS) for _ in range(WIDE)] for _ in places]
                    with cgutils.for_range_slice(builder, first, j, step) as (i, _):
                        for lane in range(WIDE):
                            here = builder.add(i, llvm.word(lane))
                            factor = llvm.spread(builder, llvm.load(builder, start, here, DOUBLE))
                            for running, u in zip(sums, line(here, places), strict=True):
                                llvm.add(builder, running[lane], factor, u)
                    found = [
                        builder.fadd(u, llvm.halved(builder, [builder.load(s) for s in running]))
                        for u, running in zip(line(js[q], places), sums, strict=True)
                    ]
                    for before in js[:q]:
                        factor = llvm.spread(builder, llvm.load(builder, start, before, DOUBLE))
                        found = [
                            builder.fadd(f, builder.fmul(factor, u))
                            for f, u in zip(found, line(before, places), strict=True)
                        ]
                    weight = llvm.spread(builder, llvm.load(builder, factors, js[q], DOUBLE))
                    for total, f in zip(totals, found, strict=True):
                        llvm.add(builder, total, builder.fmul(weight, f), f)

            llvm.fours(builder, k, group)
            for place, total in zip(places, totals, strict=True):
                after = builder.fadd(llvm.load(builder, target, place), builder.load(total))
                builder.store(after, llvm.at(builder, target, place), align=8)

        llvm.whole(builder, n, 3, block)
        return context.get_dummy_value()

    return types.void(square, types.intp, F, U, types.intp), generate


if TYPE_CHECKING:

    def beside(
        packed: F64, n: int, c: int, matrix: F64, a: int, b: int, e: int, f: int, count: int
    ) -> None:
        """Columns c to c + 3 of ``packed``: the first numbers of four rows of ``matrix``."""

    def quads(mean: F64, quad: F64, n: int, packed: F64, stride: int, x: F64) -> None:
        """xᵀθ and xᵀA⁻¹x of n models side by side: number p of model c is at p · stride + c."""

    def solve(W: F64, mean: F64, quad: F64, n: int, packed: F64, x: F64) -> None:
        """As ``quads`` with n columns, and A⁻¹x of model c into column c of ``W``."""

    def crossed(
        mean: F64, length: F64, n: int, Y: F64, m: int, W: F64, d: int, weights: F64, at: int
    ) -> None:
        """With u = kron(y, w) of a column: ``mean += Σ weights[at + j] u_j``, ``length = |u|²``.

        ``Y`` has m rows, ``W`` d.
        """

    def kron(U: F64, n: int, Y: F64, m: int, W: F64, d: int, stride: int) -> None:
        """Column c of ``U`` (n of them) becomes kron(y, w) of column c of ``Y`` and ``W``."""

    def forms(square: F64, n: int, F: F64, U: F64, k: int) -> None:
        """``square[c] += uᵀA⁻¹u``, u = column c of n, in the order of ``quad``.

        ``F`` begins with the k × k factors.
        """

else:
    beside, quads, solve = intrinsic(_beside), intrinsic(_quads), intrinsic(_solve)
    crossed, kron, forms = intrinsic(_crossed), intrinsic(_kron), intrinsic(_forms)
