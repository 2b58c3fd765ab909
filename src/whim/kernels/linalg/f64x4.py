"""``F64x4``: four doubles as one value, so that kernels that want vectors are plain Python.

numba adds numbers of a sum one by one, since another order would change the last bits. A kernel
that writes its order down in vectors gets the processor's own, with the same bits everywhere:
``load(a, i, 2) * splat(x, 2)`` is eight products. A value has ``parts`` vectors of four, which
should be few enough to stay in registers; arrays are contiguous and counted flat. This is the one
file that builds instructions. With ``NUMBA_DISABLE_JIT=1`` the same names are NumPy.
"""

# numba and llvmlite ship no types
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators, allow-subclassing-any

from __future__ import annotations

import operator
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

_FOUR = ir.VectorType(ir.DoubleType(), 4)
_SINGLE = ir.VectorType(ir.FloatType(), 4)
_WHOLE = ir.VectorType(ir.IntType(64), 4)
_ROUNDS = 1.5 * 2.0**52  # plus this, a whole number stands in the last bits
_EXPONENT, _BIAS = 52, 1023  # where a double keeps its power of two, and what is added to it
_ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of √½
_OPERATORS = (
    (operator.add, "fadd"), (operator.iadd, "fadd"), (operator.sub, "fsub"),
    (operator.isub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv"),
)  # fmt: skip


class F64x4(types.Type):
    """The compiler's type of ``parts`` vectors of four doubles."""

    def __init__(self, parts):
        self.parts = parts
        super().__init__(f"f64x4({parts})")


@register_model(F64x4)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, ir.LiteralStructType([_FOUR] * kind.parts))


def _packed(builder, parts):
    value = ir.Constant(ir.LiteralStructType([_FOUR] * len(parts)), ir.Undefined)
    for i, part in enumerate(parts):
        value = builder.insert_value(value, part, i)
    return value


def _parts(builder, value):
    return [builder.extract_value(value, i) for i in range(len(value.type.elements))]


def _address(context, builder, kind, array, i, part, vector):
    data = context.make_array(kind)(context, builder, array).data
    place = builder.add(i, ir.Constant(ir.IntType(64), 4 * part))
    return builder.bitcast(builder.gep(data, [place]), vector.as_pointer())


def _check(array):
    if array.layout != "C":
        raise TypingError(f"vectors need contiguous arrays, got {array}")


def _load(typing, a, i, parts):
    """``a[i]`` and the ``4 * parts - 1`` numbers after it; ``a`` may be in float32."""
    _check(a)

    def generate(context, builder, signature, arguments):
        array, i, _ = arguments
        kind, loaded = signature.args[0], []
        single = kind.dtype == types.float32
        for part in range(parts.literal_value):
            vector = _SINGLE if single else _FOUR
            at = _address(context, builder, kind, array, i, part, vector)
            value = builder.load(at, align=4 if single else 8)
            loaded.append(builder.fpext(value, _FOUR) if single else value)
        return _packed(builder, loaded)

    return F64x4(parts.literal_value)(a, types.uint64, parts), generate


def _store(typing, a, i, value):
    """The numbers of a value to ``a[i]`` and the places after it."""
    _check(a)

    def generate(context, builder, signature, arguments):
        array, i, value = arguments
        for part, vector in enumerate(_parts(builder, value)):
            at = _address(context, builder, signature.args[0], array, i, part, _FOUR)
            builder.store(vector, at, align=8)
        return context.get_dummy_value()

    return types.void(a, types.uint64, value), generate


def _splat(typing, x, parts):
    """The same number everywhere."""

    def generate(context, builder, signature, arguments):
        empty = ir.Constant(_FOUR, ir.Undefined)
        first = builder.insert_element(empty, arguments[0], ir.Constant(ir.IntType(32), 0))
        order = ir.Constant(ir.VectorType(ir.IntType(32), 4), [0] * 4)
        return _packed(builder, [builder.shuffle_vector(first, empty, order)] * parts.literal_value)

    return F64x4(parts.literal_value)(types.float64, parts), generate


def _joined(typing, a, b, c, d):
    """Four numbers as one value."""

    def generate(context, builder, signature, arguments):
        vector = ir.Constant(_FOUR, ir.Undefined)
        for i, one in enumerate(arguments):
            vector = builder.insert_element(vector, one, ir.Constant(ir.IntType(32), i))
        return _packed(builder, [vector])

    return F64x4(1)(*[types.float64] * 4), generate


def _transposed(typing, a, b, c, d):
    """Four values as the columns of four: part q is number q of each."""

    def generate(context, builder, signature, arguments):
        one, two, three, four = (_parts(builder, argument)[0] for argument in arguments)

        def mixed(x, y, *lanes):
            order = ir.Constant(ir.VectorType(ir.IntType(32), 4), lanes)
            return builder.shuffle_vector(x, y, order)

        low, high = mixed(one, two, 0, 4, 2, 6), mixed(three, four, 0, 4, 2, 6)
        odd, even = mixed(one, two, 1, 5, 3, 7), mixed(three, four, 1, 5, 3, 7)
        return _packed(builder, [
            mixed(low, high, 0, 1, 4, 5), mixed(odd, even, 0, 1, 4, 5),
            mixed(low, high, 2, 3, 6, 7), mixed(odd, even, 2, 3, 6, 7),
        ])  # fmt: skip

    return F64x4(4)(a, b, c, d), generate


def _part(typing, value, q):
    """Vector q of a value."""

    def generate(context, builder, signature, arguments):
        return _packed(builder, [builder.extract_value(arguments[0], q.literal_value)])

    return F64x4(1)(value, q), generate


def _total(typing, value):
    """``(v0 + v2) + (v1 + v3)`` of one vector."""

    def generate(context, builder, signature, arguments):
        [vector] = _parts(builder, arguments[0])
        v = [builder.extract_element(vector, ir.Constant(ir.IntType(32), i)) for i in range(4)]
        return builder.fadd(builder.fadd(v[0], v[2]), builder.fadd(v[1], v[3]))

    return types.float64(value), generate


def _whole(number):
    return ir.Constant(_WHOLE, [number] * 4)


def _root(typing, value):
    """The square root of each number."""

    def generate(context, builder, signature, arguments):
        [vector] = _parts(builder, arguments[0])
        kind = ir.FunctionType(_FOUR, [_FOUR])
        root = builder.module.declare_intrinsic("llvm.sqrt.v4f64", (), kind)
        return _packed(builder, [builder.call(root, [vector])])

    return F64x4(1)(value), generate


def _pick(typing, a, b, yes, no):
    """Numbers of ``yes`` where ``a >= b``, of ``no`` elsewhere."""

    def generate(context, builder, signature, arguments):
        a, b, yes, no = (_parts(builder, argument)[0] for argument in arguments)
        return _packed(builder, [builder.select(builder.fcmp_ordered(">=", a, b), yes, no)])

    return F64x4(1)(a, b, yes, no), generate


def _two_to(typing, value):
    """2 to the power of whole numbers from -1022 to 1023."""

    def generate(context, builder, signature, arguments):
        [vector] = _parts(builder, arguments[0])
        bits = builder.bitcast(builder.fadd(vector, ir.Constant(_FOUR, [_ROUNDS] * 4)), _WHOLE)
        power = builder.add(builder.shl(bits, _whole(_EXPONENT)), _whole(_BIAS << _EXPONENT))
        return _packed(builder, [builder.bitcast(power, _FOUR)])

    return F64x4(1)(value), generate


def _exponent(typing, value):
    """The whole k for which a positive number is 2^k times one from √½ to √2."""

    def generate(context, builder, signature, arguments):
        [vector] = _parts(builder, arguments[0])
        bits = builder.sub(builder.bitcast(vector, _WHOLE), _whole(_ROOT_HALF))
        whole = builder.ashr(bits, _whole(_EXPONENT))
        return _packed(builder, [builder.sitofp(whole, _FOUR)])

    return F64x4(1)(value), generate


def _define(operation, name):
    @type_callable(operation)
    def typed(context):
        return lambda a, b: a if isinstance(a, F64x4) and a == b else None

    @lower_builtin(operation, F64x4, F64x4)
    def generate(context, builder, signature, arguments):
        pairs = zip(*(_parts(builder, argument) for argument in arguments), strict=True)
        return _packed(builder, [getattr(builder, name)(x, y) for x, y in pairs])


def _compiled() -> tuple[Any, ...]:
    for operation, name in _OPERATORS:
        _define(operation, name)
    literal = intrinsic(prefer_literal=True)
    plain = (intrinsic(f) for f in (_store, _joined, _transposed, _total))
    more = (intrinsic(f) for f in (_root, _pick, _two_to, _exponent))
    return literal(_load), literal(_splat), literal(_part), *plain, *more


def _interpreted() -> tuple[Any, ...]:
    def load(a, i, parts):
        return a.reshape(-1)[int(i) : int(i) + 4 * parts].astype(np.float64)

    def splat(x, parts):
        return np.full(4 * parts, x)

    def store(a, i, value):
        a.reshape(-1)[int(i) : int(i) + len(value)] = value

    def joined(a, b, c, d):
        return np.array([a, b, c, d])

    def total(value):
        return float((value[0] + value[2]) + (value[1] + value[3]))

    def transposed(a, b, c, d):
        return np.stack([a, b, c, d], axis=1).ravel()

    def part(value, q):
        return value[4 * q : 4 * q + 4]

    def pick(a, b, yes, no):
        return np.where(a >= b, yes, no)

    def two_to(value):
        return np.ldexp(1.0, value.astype(np.int64))

    def exponent(value):
        return ((value.view(np.int64) - _ROOT_HALF) >> _EXPONENT).astype(np.float64)

    more = np.sqrt, pick, two_to, exponent
    return load, splat, part, store, joined, transposed, total, *more


_config: Any = numba.config
_made = _interpreted() if _config.DISABLE_JIT else _compiled()
load, splat, part, store, joined, transposed, total, root, pick, two_to, exponent = _made
